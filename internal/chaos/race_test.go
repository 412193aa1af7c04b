package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
)

// order is what the test tells a process to do; answer what came of it.
type order struct {
	Op      string
	Session string
	Text    string

	// For a desk.
	Agent, Call, Approval string
	Times                 int
}

type answer struct {
	Code   string
	Status string

	// From a desk.
	Pending      []session.Pending
	Codes        map[string]int // how often each came, where something was done many times
	Continuation string
}

// gated is a model that does as the last user message says: "wait NAME" answers
// once the file NAME exists, "fail NAME" fails unless it does, "hang" never
// answers.
type gated struct{ dir string }

func (g gated) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	text := ""
	for i := range r.Messages {
		if m := &r.Messages[i]; m.Role == session.RoleUser && !m.Hidden() {
			text = m.Content()
		}
	}
	verb, name, _ := strings.Cut(text, " ")
	emit(llm.Delta{Kind: llm.DeltaText, Text: "ok"})
	for verb != "fail" || !exists(g.dir, name+".failed") {
		if verb == "fail" {
			if err := os.WriteFile(filepath.Join(g.dir, name+".failed"), nil, 0o600); err != nil {
				return nil, err
			}
			return nil, llm.Error("provider_refused", false, "refused as asked")
		}
		if verb == "wait" && exists(g.dir, name) {
			break
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
	for verb == "fail" && !exists(g.dir, name) { // asked again: wait like the others
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
	return &llm.Response{Parts: []session.Part{session.Text("ok")}, Finish: llm.FinishStop}, nil
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(2 * time.Millisecond): // waits: so that trouble finds the others at work
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// racer carries out orders from its standard input.
func racer(ctx context.Context, dir string) error {
	db, err := open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	agent := &helix.Agent{Name: "racer", Model: gated{dir}}
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	if err != nil {
		return err
	}
	defer rt.Shutdown(ctx)
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var run helix.Run
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			return nil // the test is done
		}
		var a answer
		switch o.Op {
		case "execute":
			run, err = rt.Execute(ctx, agent, helix.Input{SessionID: o.Session, Message: helix.UserText(o.Text)})
		case "resume":
			message := helix.UserText(o.Text)
			run, err = rt.Resume(ctx, o.Session, helix.ResumeOptions{Message: &message})
		case "retry":
			run, err = rt.Retry(ctx, o.Session, helix.RetryOptions{})
		case "interrupt":
			err = rt.Interrupt(ctx, o.Session, "")
		case "result":
			var res *helix.Result
			if run == nil {
				err = errors.New("there is no run to wait for")
			} else if res, err = run.Result(ctx); err == nil {
				a.Status = string(res.Status)
			}
		}
		if err != nil {
			a.Code = codeOf(err)
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func (c *child) tell(o order) {
	c.t.Helper()
	if err := c.in.Encode(o); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) hear() answer {
	c.t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(c.line()), &a); err != nil {
		c.t.Fatalf("the process did not answer: %v", err)
	}
	return a
}

func (c *child) do(o order) answer {
	c.tell(o)
	return c.hear()
}

// TestRaces has two processes execute, resume and retry the same session at
// once: exactly one runs, the other is told why not, and the transcript stays
// valid.
func TestRaces(t *testing.T) { onStores(t, testRaces) }

func testRaces(t *testing.T, dir string) {
	rounds := 8
	if testshare.Soak() {
		rounds = 200
	}
	a, b := startChild(t, "racer", dir), startChild(t, "racer", dir)
	turns := 0
	for round := range rounds {
		for _, op := range []string{"execute", "resume", "retry"} {
			gate := fmt.Sprintf("%s-%d", op, round)
			turns += prepare(t, a, op, gate)
			both := order{Op: op, Session: "raced", Text: "wait " + gate}
			a.tell(both)
			b.tell(both)
			answers := []answer{a.hear(), b.hear()}
			winner := a
			if answers[0].Code != "" {
				winner, answers[0], answers[1] = b, answers[1], answers[0]
			}
			if answers[0].Code != "" || answers[1].Code != string(session.CodeRunning) {
				t.Fatalf("%s: the answers are %+v, want one run and one %s", gate, answers, session.CodeRunning)
			}
			turns++
			if err := os.WriteFile(filepath.Join(dir, gate), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := winner.do(order{Op: "result"}); got.Status != string(session.RunCompleted) {
				t.Fatalf("%s: the winner's run ended %+v", gate, got)
			}
		}
	}
	verifyRaced(t, dir, turns)
}

// prepare brings the session into the state that an operation needs and returns
// how many turns that took.
func prepare(t *testing.T, c *child, op, gate string) int {
	t.Helper()
	var status string
	switch op {
	case "resume":
		c.do(order{Op: "execute", Session: "raced", Text: "hang"})
		c.do(order{Op: "interrupt", Session: "raced"})
		status = string(session.RunInterrupted)
	case "retry":
		c.do(order{Op: "execute", Session: "raced", Text: "fail " + gate})
		status = string(session.RunFailed)
	default:
		return 0
	}
	if got := c.do(order{Op: "result"}); got.Status != status {
		t.Fatalf("%s: the session is %+v, want %s", gate, got, status)
	}
	return 1
}

func verifyRaced(t *testing.T, dir string, turns int) {
	t.Helper()
	ctx := t.Context()
	db := openFor(t, dir)
	messages, err := db.Sessions().AllMessages(ctx, "raced")
	if err != nil {
		t.Fatal(err)
	}
	transcript, err := session.NewTranscript(messages)
	if err == nil {
		err = transcript.Sendable()
	}
	if err != nil {
		t.Errorf("the transcript is invalid: %v", err)
	}
	page := session.PageRequest{Limit: session.MaxPageSize}
	seen := 0
	for {
		runs, err := db.Sessions().Runs(ctx, "raced", page)
		if err != nil {
			t.Fatal(err)
		}
		for i := range runs.Items {
			seen++
			if runs.Items[i].Turn != seen {
				t.Errorf("run %s has turn %d, want %d", runs.Items[i].ID, runs.Items[i].Turn, seen)
			}
		}
		if !runs.HasMore {
			break
		}
		page.Cursor = runs.Next
	}
	if seen != turns {
		t.Errorf("there are %d runs, want %d", seen, turns)
	}
}
