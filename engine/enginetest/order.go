package enginetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// CallOrder requires that what comes before a model call comes in one order, each part with
// what those before it did: a stop, the start of the run, the inbox, a compaction, what
// extensions add, the request, BeforeLLMCall, the attempt. It also requires that a summary
// has extensions asked once more in the turn, and a trim has not.
func CallOrder(t *testing.T, open Open) {
	backend := open(t)
	failing := scripted.Reply(scripted.Failing(llm.Error("provider_overloaded", true, "the model is overloaded")))
	// The model reports nothing, so that sizes are estimated.
	unsaid := session.Usage{}
	steps := []scripted.Step{
		scripted.Takes(failing, scripted.Call("look", subject{"a"}).WithUsage(unsaid)), scripted.Call("look", subject{"b"}).WithUsage(unsaid),
		scripted.Text("Done.").WithUsage(unsaid),
	}
	request := func(times int, view string) []string {
		return slices.Repeat([]string{"request", "hook: " + view, "model: " + view}, times)
	}
	const inbox, step = "input+sent", "+reply+result"
	first := slices.Concat(
		[]string{"start: input", "attach: " + inbox, "prepare: " + inbox}, request(2, inbox+"+added"))
	whole := slices.Concat(first, request(1, inbox+"+added"+step), request(1, inbox+"+added"+step+step))
	for _, c := range []struct {
		name   string
		policy *helix.ContextPolicy
		stop   bool
		marks  []session.CompactionKind
		want   []string
	}{
		{"no policy", nil, false, nil, whole},
		{"summary", &helix.ContextPolicy{TriggerMessages: 4, KeepMessages: 2}, false, []session.CompactionKind{session.CompactionSummary, session.CompactionSummary}, slices.Concat(
			first, []string{"hook of the summary", "summarise", "prepare: marker" + step}, request(1, "marker"+step+"+added"),
			[]string{"hook of the summary", "summarise", "prepare: marker" + step}, request(1, "marker"+step+"+added"))},
		{
			"trim", &helix.ContextPolicy{TriggerMessages: helix.Unlimited, TriggerTokens: 2_400, KeepMessages: 2, TrimResults: 300}, false,
			[]session.CompactionKind{session.CompactionTrim},
			whole,
		},
		{"stop", &helix.ContextPolicy{TriggerMessages: 2, KeepMessages: 1}, true, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testContext(t)
			w := newWorld(t, backend, scenario{steps: steps})
			o := &orderly{}
			o.watch(w.agent)
			if c.policy != nil {
				c.policy.Model = o
				w.agent.Context = c.policy
			}
			process := func() *process { return w.process(w.backend) }
			h := process()
			opened, err := h.Open(ctx, w.request())
			if err != nil {
				t.Fatal(err)
			}
			entry := session.InboxEntry{ID: "i-1", Kind: "message", Body: []byte(`"sent"`)}
			if err := w.sessions().Send(ctx, sessionID, entry); err != nil {
				t.Fatal(err)
			}
			h.Drop(runID) // the process that takes the run over knows of the inbox
			h = process()
			for _, due := range w.due(ctx, session.Store.ExpiredLeases) {
				if opened, err = h.Recover(ctx, due); err != nil {
					t.Fatal(err)
				}
			}
			if c.stop {
				if err := h.StopRun(ctx, opened.Key, session.Stop{RunID: runID, Kind: session.StopInterrupt}); err != nil {
					t.Fatal(err)
				}
			}
			if err := drive(ctx, h, opened, nil); err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Join(o.said, "\n"), strings.Join(c.want, "\n"); got != want {
				t.Errorf("what came before the model calls was\n%s\nwant\n%s", got, want)
			}
			messages, err := w.sessions().AllMessages(ctx, sessionID)
			if err != nil {
				t.Fatal(err)
			}
			var marks []session.CompactionKind
			for i := range messages {
				if m := messages[i].Compaction(); m != nil {
					marks = append(marks, m.Kind)
				}
			}
			if !slices.Equal(marks, c.marks) {
				t.Errorf("the markers are %v, want %v", marks, c.marks)
			}
		})
	}
}

// orderly is an extension that notes when it is asked, and what else comes before a model
// call.
type orderly struct {
	mu   sync.Mutex
	said []string
}

// watch has all parts of an agent that come before a model call say so.
func (o *orderly) watch(agent *helix.Agent) {
	agent.Model = orderlyModel{agent.Model, o}
	for i := range agent.Tools {
		if agent.Tools[i].Name == "look" {
			agent.Tools[i].Execute = helix.Func(func(context.Context, *helix.Call, subject) (string, error) { return strings.Repeat("x", 4_000), nil })
		}
	}
	agent.Extensions = []helix.Extension{o}
	agent.Instructions = ""
	agent.InstructionsFunc = func(context.Context, *helix.Prompt) (string, error) {
		o.say("request", nil)
		return "Work.", nil
	}
	agent.Hooks = helix.Hooks{
		OnAgentStart: func(_ context.Context, _ *helix.HookContext, e helix.AgentStartEvent) error {
			o.say("start", e.Input)
			return nil
		},
		BeforeLLMCall: func(_ context.Context, _ *helix.HookContext, e helix.BeforeLLMCallEvent) error {
			if e.Summary {
				o.say("hook of the summary", nil)
			} else {
				o.say("hook", e.Request.Messages)
			}
			return nil
		},
	}
}

func (o *orderly) say(what string, messages []session.Message) {
	if messages != nil {
		var names []string
		for i := range messages {
			names = append(names, nameOf(&messages[i]))
		}
		what += ": " + strings.Join(names, "+")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, what)
}

func nameOf(m *session.Message) string {
	switch {
	case m.Compaction() != nil:
		return "marker"
	case m.Role == session.RoleAssistant:
		return "reply"
	case m.Role == session.RoleTool:
		return "result"
	case m.Content() == "Please work.":
		return "input"
	}
	return strings.TrimSpace(m.Content())
}

// Generate implements [llm.Model]: it makes summaries.
func (o *orderly) Generate(_ context.Context, request *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	o.say("summarise", nil)
	return saying(countReplies(request)), nil
}

// Name implements [helix.Extension].
func (o *orderly) Name() string { return "orderly" }

// Attach implements [helix.Extension].
func (o *orderly) Attach(_ context.Context, turn *helix.Turn) (*helix.Attachment, error) {
	o.say("attach", turn.View)
	return nil, nil
}

// Prepare implements [helix.Preparer].
func (o *orderly) Prepare(_ context.Context, turn *helix.Turn) ([]session.Message, error) {
	o.say("prepare", turn.View)
	return []session.Message{session.UserText("added" + strings.Repeat(" ", 1_000))}, nil // long enough for a summary to be shorter
}

type orderlyModel struct {
	llm.Model
	o *orderly
}

func (m orderlyModel) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	m.o.say("model", r.Messages)
	return m.Model.Generate(ctx, r, emit)
}

// InputReads requires that a process which takes a long run over reads little more than the
// view for extensions, and nothing more without.
func InputReads(t *testing.T, open Open) {
	const long = 200
	steps := make([]scripted.Step, 0, long+1)
	for range long {
		steps = append(steps, scripted.Call("look", subject{"a"}))
	}
	steps = append(steps, scripted.Text("Done."))
	backend := open(t)
	rows := func(extended bool) (view, others int) {
		ctx := testContext(t)
		w := newWorld(t, backend, scenario{steps: steps, markers: 3, ledger: extended})
		w.agent.MaxSteps = helix.Unlimited
		p := w.process(w.backend)
		left := 2*long - 10 // effects until the process dies, far into the run
		if err := w.play(ctx, p, p, func(machine.Effect, machine.Result) bool { left--; return left > 0 }); !errors.Is(err, errKilled) {
			t.Fatalf("the first process ended with %v", err)
		}
		p.kill()
		reads := &countingReads{Backend: w.backend}
		p = w.process(reads)
		for _, due := range w.due(ctx, session.Store.ExpiredLeases) {
			if _, err := p.Recover(ctx, due); err != nil {
				t.Fatal(err)
			}
		}
		p.kill()
		return reads.view, reads.others
	}
	plain, none := rows(false)
	view, others := rows(true)
	if none != 0 || plain == 0 || plain > 20 || view > 20 || others == 0 || others > 20 {
		t.Errorf("without extensions %d and %d messages were read of about %d, with one %d and %d", plain, none, 2*long, view, others)
	}
}

// countingReads is a backend that counts the messages that are read.
type countingReads struct {
	store.Backend
	view, others int
}

// Sessions implements [store.Backend].
func (c *countingReads) Sessions() session.Store { return &countedSessions{c.Backend.Sessions(), c} }

type countedSessions struct {
	session.Store
	reads *countingReads
}

// Tenant implements [session.Store].
func (s *countedSessions) Tenant(tenant string) session.Store {
	return &countedSessions{s.Store.Tenant(tenant), s.reads}
}

// Messages implements [session.Transcripts].
func (s *countedSessions) Messages(ctx context.Context, id string, page session.PageRequest) (session.Page[session.Message], error) {
	out, err := s.Store.Messages(ctx, id, page)
	s.reads.others += len(out.Items)
	return out, err
}

// AllMessages implements [session.Transcripts].
func (s *countedSessions) AllMessages(context.Context, string) ([]session.Message, error) {
	return nil, errors.New("the whole history is read")
}

// MessagesFrom implements [session.Transcripts].
func (s *countedSessions) MessagesFrom(ctx context.Context, id string, number int) ([]session.Message, error) {
	out, err := s.Store.MessagesFrom(ctx, id, number)
	s.reads.view += len(out)
	return out, err
}
