package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

// mixture is a turn one step of which holds calls of every kind: a server tool, a
// client tool, an approval, a sub-agent that waits for an approval, and a
// companion.
func mixture() scenario {
	return scenario{name: "mixture", steps: []scripted.Step{
		scripted.Reply(scripted.Say("All at once."), scripted.Calling("pay", subject{"a"}),
			scripted.Calling("choose", subject{"b"}), scripted.Calling("sign", subject{"c"}),
			scripted.Calling("subagent__helper", map[string]string{"task": "Seal it."}),
			scripted.Calling(helix.SpawnAgentTool, map[string]string{"agent": "friend", "name": "pal", "initialMessage": "Help."})),
		scripted.Reply(scripted.Say("And then."), scripted.Calling("pay", subject{"d"})),
		scripted.Text("That is all."),
	}}
}

func helperSteps() []scripted.Step {
	return []scripted.Step{
		scripted.Reply(scripted.Calling("pay", subject{"e"}), scripted.Calling("seal", subject{"f"})),
		scripted.Text("It is sealed."),
	}
}

func friendSteps() []scripted.Step {
	return []scripted.Step{scripted.Call("pay", subject{"g"}), scripted.Text("You are welcome.")}
}

// schedule says in which order people answer the calls that wait, by tool, and
// when.
type schedule struct {
	order []string
	when  moment
}

// moment is when people answer.
type moment string

const (
	inParts moment = "in parts" // one by one, with a resume after each
	atOnce  moment = "at once"  // all, and then a resume
	live    moment = "live"     // each as soon as its call waits, whether anybody runs the turn or not
)

func (s schedule) String() string {
	return strings.TrimSpace(string(s.when) + " " + strings.Join(s.order, " "))
}

// schedules are all orders of the mixture's three answers, at all moments.
func schedules() []schedule {
	var out []schedule
	for _, order := range [][]string{
		{"choose", "sign", "seal"},
		{"choose", "seal", "sign"},
		{"sign", "choose", "seal"},
		{"sign", "seal", "choose"},
		{"seal", "choose", "sign"},
		{"seal", "sign", "choose"},
	} {
		for _, when := range []moment{inParts, atOnce, live} {
			out = append(out, schedule{order, when})
		}
	}
	return out
}

func (w *world) key() session.Key { return session.Key{Tenant: w.tenant, ID: sessionID} }

// drive drives a turn while people answer the calls that they see.
func (w *world) drive(ctx context.Context, p *process, h effects, opened *engine.Opened, after func(machine.Effect, machine.Result) bool) error {
	var failed error
	err := drive(ctx, h, opened, func(e machine.Effect, r machine.Result) bool {
		if after != nil && !after(e, r) {
			return false
		}
		failed = w.watch(ctx, p)
		return failed == nil
	})
	return errors.Join(failed, err)
}

// watch has people answer who do not wait until the turn is suspended.
func (w *world) watch(ctx context.Context, p *process) error {
	if w.people.when != live {
		return nil
	}
	waiting, err := w.waiting(ctx, p)
	if err != nil {
		return err
	}
	for _, tool := range w.people.order {
		if _, done := w.said[tool]; done {
			continue
		}
		if waiting[tool] == nil {
			return nil // it is this one's turn
		}
		if err := w.answer(ctx, p, waiting[tool]); err != nil {
			return err
		}
	}
	return nil
}

// resume has people answer the calls that the turn waits for, and resumes it.
func (w *world) resume(ctx context.Context, p *process) (*engine.Opened, error) {
	state, err := w.sessions().Load(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	if state.SuspendedStep == "" {
		return nil, nil
	}
	request := engine.OpenRequest{
		Kind: session.RunResume, Agent: w.agent, Tenant: w.tenant, SessionID: sessionID, RunID: fmt.Sprintf("run-%d", state.Turn+1),
	}
	opened, err := p.Open(ctx, request) // somebody may have answered before a crash
	if !errors.Is(err, session.ErrAwaitingInput) {
		return opened, err
	}
	waiting, err := w.waiting(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, tool := range w.people.order {
		if waiting[tool] == nil {
			continue
		}
		if err := w.answer(ctx, p, waiting[tool]); err != nil {
			return nil, err
		}
		if w.people.when == inParts {
			break
		}
	}
	return p.Open(ctx, request)
}

// waiting lists what waits for people, by waitName. The session may not exist yet.
func (w *world) waiting(ctx context.Context, p *process) (map[string]*session.Pending, error) {
	list, err := p.Waiting(ctx, w.key())
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	found := map[string]*session.Pending{}
	for i := range list {
		found[waitName(&list[i])] = &list[i]
	}
	return found, nil
}

// answer answers a call from a process that does not hold the turn.
func (w *world) answer(ctx context.Context, p *process, call *session.Pending) error {
	w.t.Helper()
	submission := helix.ToolResult(call.CallID, "blue")
	switch call.Kind {
	case session.PendingApproval:
		submission = helix.Approve(*call, helix.User{})
	case session.PendingQuestion:
		submission = helix.Reply(*call, "blue", helix.User{})
	}
	name := waitName(call)
	w.said[name] = submission
	for {
		got, err := w.process(p.backend).Submit(ctx, w.key(), submission)
		switch {
		case session.IsRetryable(err) && ctx.Err() == nil:
			w.unsure[name] = true
			continue
		case err != nil:
			w.unsure[name] = true
			return err
		case got.Outcome == session.SubmitAccepted:
		case got.Outcome == session.SubmitAlreadyCompleted && w.unsure[name]:
		default:
			w.t.Errorf("the answer to %s was %s", name, got.Outcome)
		}
		return nil
	}
}

// withoutNotices renders a transcript without the messages of a companion that works
// by itself: when they are consumed depends on the moment. Each is sent once; what
// was not consumed yet is in the inbox.
func (w *world) withoutNotices(ctx context.Context, id string, messages []session.Message) []string {
	w.t.Helper()
	notice := func(m session.Message) bool { return strings.HasPrefix(m.ID, "inbox/ended/") }
	rest := slices.DeleteFunc(slices.Clone(messages), notice)
	inbox, err := w.sessions().Inbox(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	want := 0
	if refs, err := w.sessions().Children(ctx, id); err != nil {
		w.t.Fatal(err)
	} else if slices.ContainsFunc(refs, func(r session.ChildRef) bool { return r.Mode == session.ChildPersistent && !r.Blocking }) {
		want = 1
	}
	if sent := len(messages) - len(rest) + len(inbox); sent != want {
		w.t.Errorf("%s was sent %d notices, want %d", id, sent, want)
	}
	return Lines(rest)
}

// unknown reports whether a call of a tool has the result that its outcome is unknown.
func (w *world) unknown(ctx context.Context, tool string) bool {
	w.t.Helper()
	for _, id := range w.family(ctx) {
		messages, err := w.sessions().AllMessages(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range messages {
			if result := &messages[i].Parts[0]; messages[i].Role == session.RoleTool && result.Tool == tool &&
				result.Error != nil && result.Error.Code == session.CodeToolOutcome {
				return true
			}
		}
	}
	return false
}

// checkPeople requires that nothing waits, and that no call can be answered again.
func (w *world) checkPeople(ctx context.Context) {
	w.t.Helper()
	for _, id := range w.family(ctx) {
		state, err := w.sessions().Load(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		if state.Status != session.Completed || state.SuspendedStep != "" || len(state.Pending)+len(state.AwaitingChildren) > 0 || state.ClosePending {
			w.t.Errorf("%s is %s, suspended in %q, waits for %v and %v, owes a close: %t",
				id, state.Status, state.SuspendedStep, state.Pending, state.AwaitingChildren, state.ClosePending)
		}
		refs, err := w.sessions().Children(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range refs {
			if refs[i].Status != session.ChildCompleted || refs[i].Awaited {
				w.t.Errorf("%s knows %s as %s", id, refs[i].SessionID, refs[i].Status)
			}
		}
		calls, err := w.sessions().PendingCalls(ctx, id, true)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range calls {
			if calls[i].State != session.PendingConsumed {
				w.t.Errorf("the wait of %s for %s is %s", id, calls[i].Tool, calls[i].State)
			}
		}
	}
	answered, want := slices.Sorted(maps.Keys(w.said)), slices.Sorted(slices.Values(w.people.order))
	want = slices.DeleteFunc(want, func(name string) bool { // a call that was cut off asks nothing more
		_, said := w.said[name]
		tool, _, asks := strings.Cut(name, ".")
		return !said && asks && w.unknown(ctx, tool)
	})
	if !slices.Equal(answered, want) {
		w.t.Errorf("people answered %v, want %v", answered, want)
	}
	for tool, said := range w.said {
		got, err := w.process(w.backend).Submit(ctx, w.key(), said)
		if err != nil || got.Outcome != session.SubmitAlreadyCompleted {
			w.t.Errorf("the answer to %s, given again, was %+v, %v", tool, got, err)
		}
	}
}
