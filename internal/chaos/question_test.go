package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
)

// askingAgent is an agent three agents below which a tool asks a question, while another
// tool is busy until the file "enough" exists.
func askingAgent(dir string) *helix.Agent {
	type order struct {
		Item string `json:"item"`
	}
	buy := helix.Tool{
		Name: "buy", Description: "Buy something.", Asks: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, in order) (string, error) {
			var size string
			answers := call.Answers()
			if len(answers) == 1 {
				if err := answers[0].Decode(&size); err != nil {
					return "", err
				}
			}
			if err := record(dir, call.IdempotencyKey()+" "+size); err != nil { // what the shop is sent
				return "", err
			}
			if len(answers) == 0 {
				return "", helix.Ask(helix.Question{Prompt: "Which size?"})
			}
			return in.Item + " of size " + size, nil
		}),
	}
	wait := helix.Tool{
		Name: "wait", Description: "Wait.", ReadOnly: true,
		Execute: helix.Func(func(ctx context.Context, _ *helix.Call, _ order) (string, error) {
			return "waited", eventually.PollContext(ctx, func() bool { return exists(dir, "enough") })
		}),
	}
	agent := &helix.Agent{
		Name: "buyer", Tools: []helix.Tool{buy, wait}, Model: scripted.New(
			scripted.Reply(scripted.Calling("buy", order{"hat"}), scripted.Calling("wait", order{"hat"})), scripted.Text("Bought.")).ByPosition(),
	}
	for _, name := range []string{"clerk", "manager", "boss"} {
		agent = &helix.Agent{
			Name: name, SubAgents: []helix.SubAgent{{Agent: agent}}, Model: scripted.New(
				scripted.Call("subagent__"+agent.Name, map[string]string{"task": "Buy a hat."}), scripted.Text("It is bought.")).ByPosition(),
		}
	}
	return agent
}

func startAsking(dir string) (rt *local.Runtime, agent *helix.Agent, stop func(context.Context), err error) {
	db, err := open(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	agent = askingAgent(dir)
	rt, err = local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}, LeaseTTL: lease, Sweep: sweep})
	if err != nil {
		_ = db.Close()
		return nil, nil, nil, err
	}
	return rt, agent, func(ctx context.Context) {
		_ = rt.Shutdown(ctx)
		_ = db.Close()
	}, nil
}

// asker is a process that begins, and is killed while a question waits.
func asker(ctx context.Context, dir string) error {
	rt, agent, stop, err := startAsking(dir)
	if err != nil {
		return err
	}
	defer stop(ctx)
	return request(ctx, rt, agent)
}

// answerer is another process: it takes the run over, answers the question and resumes.
func answerer(ctx context.Context, dir string) error {
	rt, agent, stop, err := startAsking(dir)
	if err != nil {
		return err
	}
	defer stop(ctx)
	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: killSession, RequestID: "the-request", Message: helix.UserText("Work.")})
	if err != nil {
		return err
	}
	res, err := run.Result(ctx)
	if err != nil {
		return err
	}
	if len(res.Pending) != 1 {
		return fmt.Errorf("the run is %s and waits for %v", res.Status, res.Pending)
	}
	out, err := rt.Submit(ctx, killSession, helix.Reply(res.Pending[0], "L", helix.User{ID: "ann"}))
	if err != nil || out.Outcome != helix.SubmitAccepted {
		return fmt.Errorf("the answer is %+v, %w", out, err)
	}
	if run, err = rt.Resume(ctx, killSession, helix.ResumeOptions{}); err != nil {
		return err
	}
	if res, err = run.Result(ctx); err != nil {
		return err
	}
	fmt.Println("ended", res.Status, res.Error)
	return nil
}

// TestQuestionKilled kills the process of a tool three agents down that has asked a question.
// Another process answers and resumes. The tool must run again with the answer, once, and
// the service that it calls sees another idempotency key.
func TestQuestionKilled(t *testing.T) { onStores(t, testQuestionKilled) }

func testQuestionKilled(t *testing.T, dir string) {
	first := startChild(t, "asker", dir)
	first.awaitRunning()
	db := openFor(t, dir)
	sessions := db.Sessions()
	var asked []session.Waiting
	eventually.Poll(t, "a question is asked", func() bool {
		page, err := sessions.Waiting(t.Context(), session.WaitingQuery{})
		if err != nil {
			t.Fatal(err)
		}
		asked = page.Items
		return len(asked) > 0
	})
	first.kill()
	endLeases(t, db)
	end(t, dir)
	second := startChild(t, "answerer", dir)
	if line := second.line(); line != "ended completed <nil>" {
		t.Fatalf("the second process said %q", line)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	p := asked[0].Call
	key := p.SessionID + "/" + p.For
	if got, want := string(raw), key+" \n"+key+"/answer/1 L\n"; got != want {
		t.Errorf("the shop was sent\n%swant\n%s", got, want)
	}
	messages, err := sessions.AllMessages(t.Context(), p.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(messages, func(m session.Message) bool {
		return m.Role == session.RoleTool && strings.Contains(string(m.Parts[0].Output)+m.Parts[0].Text, "hat of size L")
	}) {
		t.Errorf("the transcript has no result with the answer: %+v", messages)
	}
	page, err := sessions.Waiting(t.Context(), session.WaitingQuery{})
	if err != nil || len(page.Items) != 0 {
		t.Errorf("%+v still wait, %v", page.Items, err)
	}
	depth := 0
	for id := p.SessionID; id != killSession; depth++ {
		state, err := sessions.Load(t.Context(), id)
		if err != nil || depth > 5 {
			t.Fatal(id, err)
		}
		id = state.ParentID
	}
	if depth != 3 {
		t.Errorf("the tool that asked is %d agents down", depth)
	}
}
