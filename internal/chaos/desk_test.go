package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// duties are the calls that each agent of a desk makes in its first reply; with
// its second it is done.
var duties = map[string][]string{
	"solo":   {"pay"},
	"busy":   {"look", "pay", "subagent__leaf"},
	"boss":   {"subagent__middle"},
	"middle": {"subagent__leaf"},
	"leaf":   {"seal", "sign"},
	"hasty":  {"rush"},
	"chief":  {"subagent__hasty"},
}

// dutiful is a model that decides from the transcript alone, so that any process
// continues where another was killed.
type dutiful struct{}

func (dutiful) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	// Every asking gives other words: a reply that was lost cannot hide.
	text := fmt.Sprintf("%s %x", r.Agent, rand.Uint32())
	emit(llm.Delta{Kind: llm.DeltaText, Text: text})
	response := &llm.Response{Parts: []session.Part{session.Text(text)}, Finish: llm.FinishStop, Model: "dutiful"}
	if slices.ContainsFunc(r.Messages, func(m session.Message) bool { return m.Role == session.RoleAssistant }) {
		return response, ctx.Err()
	}
	for _, tool := range duties[r.Agent] {
		response.Parts = append(response.Parts, session.Part{
			Kind: session.PartToolCall, Tool: tool, Input: json.RawMessage(`{"task":"t"}`), ProviderCallID: fmt.Sprintf("p%x", rand.Uint64()),
		})
	}
	response.Finish = llm.FinishToolCalls
	return response, ctx.Err()
}

// deskAgents are agents whose tools record each start before it happens.
func deskAgents(dir string) map[string]*helix.Agent {
	agents := map[string]*helix.Agent{}
	var agent func(name string) *helix.Agent
	agent = func(name string) *helix.Agent {
		if agents[name] != nil {
			return agents[name]
		}
		a := &helix.Agent{Name: name, Model: dutiful{}}
		agents[name] = a
		for _, duty := range duties[name] {
			if below, ok := strings.CutPrefix(duty, helix.SubAgentPrefix); ok {
				a.SubAgents = append(a.SubAgents, helix.SubAgent{Agent: agent(below)})
				continue
			}
			tool := helix.Tool{Name: duty, Approval: helix.RequireApproval, Execute: recorded(dir, duty)}
			switch duty {
			case "look":
				tool.Approval = nil
			case "rush":
				tool.Deadline = rushDeadline(dir)
			}
			a.Tools = append(a.Tools, tool)
		}
		return a
	}
	for name := range duties {
		agent(name)
	}
	return agents
}

// rushDeadline is how long a call of rush waits for a person, as the file "deadline" says.
func rushDeadline(dir string) time.Duration {
	raw, err := os.ReadFile(filepath.Join(dir, "deadline"))
	if err != nil {
		return 0
	}
	d, err := time.ParseDuration(string(raw))
	if err != nil {
		panic(err)
	}
	return d
}

func recorded(dir, tool string) helix.Callable {
	return helix.Func(func(_ context.Context, call *helix.Call, _ struct {
		Task string `json:"task"`
	},
	) (string, error) {
		if err := record(dir, tool+" "+call.IdempotencyKey()); err != nil {
			return "", err
		}
		time.Sleep(rand.N(5 * time.Millisecond)) // waits: so that trouble and answers find calls in flight
		return tool + " " + call.ID, nil
	})
}

// desk carries out orders from its standard input, and takes over what other desks
// have left, once their leases have expired.
func desk(ctx context.Context, dir string) error {
	db, err := open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	agents := deskAgents(dir)
	var all []*helix.Agent
	for _, agent := range agents {
		all = append(all, agent)
	}
	rt, err := local.New(local.Config{Backend: db, Agents: all, LeaseTTL: lease, Sweep: sweep})
	if err != nil {
		return err
	}
	defer rt.Shutdown(ctx)
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	d := &clerks{rt: rt, agents: agents}
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			return nil // the test is done
		}
		var a answer
		if err := d.carryOut(ctx, o, &a); err != nil {
			a.Code = codeOf(err)
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// clerks are those behind a desk.
type clerks struct {
	rt     *local.Runtime
	agents map[string]*helix.Agent
	run    helix.Run // the latest that was begun here
}

func (d *clerks) carryOut(ctx context.Context, o order, a *answer) error {
	switch o.Op {
	case "execute":
		run, err := d.rt.Execute(ctx, d.agents[o.Agent], helix.Input{
			SessionID: o.Session, RequestID: "request", Message: helix.UserText("Work."),
		})
		d.run = run
		return err
	case "result":
		if d.run == nil {
			return errors.New("there is no run to wait for")
		}
		res, err := d.run.Result(ctx)
		if err == nil {
			a.Status, a.Pending = string(res.Status), res.Pending
		}
		return err
	case "submit":
		a.Codes = together(o.Times, func() string {
			out, err := d.rt.Submit(ctx, o.Session, helix.Submission{Submission: session.Decide(o.Call, o.Approval, true, "")})
			if err != nil {
				return codeOf(err)
			}
			return string(out.Outcome)
		})
	case "resume":
		var mu sync.Mutex
		a.Codes = together(o.Times, func() string {
			run, err := d.rt.Resume(ctx, o.Session, helix.ResumeOptions{})
			if err != nil {
				return codeOf(err)
			}
			mu.Lock()
			defer mu.Unlock()
			d.run = run
			return ""
		})
	case "answer":
		return d.answer(ctx, o, a)
	}
	return nil
}

// answer approves a call of a tool, a moment after it has begun to wait.
func (d *clerks) answer(ctx context.Context, o order, a *answer) error {
	for {
		waiting, err := d.rt.Waiting(ctx, o.Session)
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return err
		}
		for i := range waiting {
			if waiting[i].Tool != o.Call {
				continue
			}
			time.Sleep(rand.N(25 * time.Millisecond)) // waits: how the run stands by then is anybody's guess
			out, err := d.rt.Submit(ctx, o.Session, helix.Approve(waiting[i], helix.User{}))
			if err == nil {
				a.Status, a.Continuation = string(out.Outcome), string(out.Continuation)
			}
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// together does something many times at once and counts what comes of it.
func together(times int, do func() string) map[string]int {
	came := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	start := make(chan struct{})
	for range times {
		all.Go(func() {
			<-start
			got := do()
			mu.Lock()
			defer mu.Unlock()
			came[got]++
		})
	}
	close(start)
	all.Wait()
	return came
}

func codeOf(err error) string {
	if e, ok := errors.AsType[*session.Error](err); ok {
		return string(e.Code)
	}
	return err.Error()
}

// verifyDesk requires that a session and those of the agents below it are
// complete and valid: every call with its result, none started twice, and the
// folded stream as the transcript has it. It returns how many calls were cut off.
func verifyDesk(t *testing.T, db store.Backend, id string, starts map[string]int) (unknown int) {
	t.Helper()
	ctx := t.Context()
	ids := []string{id}
	for i := 0; i < len(ids); i++ {
		refs, err := db.Sessions().Children(ctx, ids[i])
		if err != nil {
			t.Fatal(err)
		}
		for j := range refs {
			ids = append(ids, refs[j].SessionID)
		}
		state, err := db.Sessions().Load(ctx, ids[i])
		if err != nil {
			t.Fatal(err)
		}
		if state.Status != session.Completed || len(state.Pending)+len(state.AwaitingChildren) > 0 {
			t.Errorf("%s is %s and waits for %v and %v", ids[i], state.Status, state.Pending, state.AwaitingChildren)
		}
		messages, err := db.Sessions().AllMessages(ctx, ids[i])
		if err != nil {
			t.Fatal(err)
		}
		transcript, err := session.NewTranscript(messages)
		if err == nil {
			err = transcript.Sendable()
		}
		if err != nil {
			t.Errorf("%s: the transcript is invalid: %v", ids[i], err)
		}
		if calls := len(duties[state.Agent]); len(messages) != 3+calls {
			t.Errorf("%s has %d messages, want %d", ids[i], len(messages), 3+calls)
		}
		for j := range messages {
			if messages[j].Role == session.RoleTool {
				unknown += verifyResult(t, ids[i], &messages[j].Parts[0], starts)
			}
		}
		verifyFoldOn(t, db, id, ids[i], messages)
	}
	return unknown
}

func verifyResult(t *testing.T, id string, p *session.Part, starts map[string]int) (unknown int) {
	t.Helper()
	sub := strings.HasPrefix(p.Tool, helix.SubAgentPrefix)
	n := starts[p.Tool+" "+id+"/"+p.CallID]
	switch {
	case n > 1:
		t.Errorf("%s: %s %s was started %d times", id, p.Tool, p.CallID, n)
	case p.Error != nil && p.Error.Code == session.CodeToolOutcome && !sub:
		return 1
	case p.Error != nil:
		t.Errorf("%s: %s %s failed: %v", id, p.Tool, p.CallID, p.Error)
	case !sub && (n != 1 || string(p.ResultJSON()) != fmt.Sprintf("%q", p.Tool+" "+p.CallID)):
		t.Errorf("%s: %s %s was started %d times and has the result %s", id, p.Tool, p.CallID, n, p.ResultJSON())
	}
	return 0
}
