package runtimetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/usage"
)

func usageScenarios() []Scenario {
	return []Scenario{
		{"entries", "tokens, tools and custom amounts are reported, each with who, where and when", usageEntries},
		{"failures", "failed attempts and calls are reported as such", usageFailures},
		{"distinct ids", "every entry of a run has an id of its own", usageDistinct},
		{"stable ids", "an effect that is repeated after a takeover reports under the same ids", usageStable},
		{"panicking sink", "a sink that panics is logged and changes nothing", usagePanic},
	}
}

// meter is a usage sink that keeps what it gets.
type meter struct {
	mu      sync.Mutex
	entries []usage.Entry
}

// Record implements [usage.Sink].
func (m *meter) Record(_ context.Context, e usage.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries = append(m.entries, e)
}

func (m *meter) all() []usage.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries)
}

// waits are the entries about waits for people.
func (m *meter) waits() []usage.Entry {
	return slices.DeleteFunc(m.all(), func(e usage.Entry) bool { return e.Kind != usage.ClientToolWait })
}

// pages is a tool that reports what it counts.
func pages() helix.Tool {
	return newTool("read", func(_ context.Context, call *helix.Call, n int) (int, error) {
		call.RecordUsage("pages", float64(n), map[string]string{"book": "b"})
		return n, nil
	})
}

func usageEntries(s *Stage) {
	m := &meter{}
	agent := newAgent(scripted.New(
		scripted.Call("read", num{3}).WithUsage(session.Usage{InputTokens: 7, OutputTokens: 2}), scripted.Text("ok")), pages())
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m})
	run := s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}})
	s.ended(s.Result(run), helix.Completed)
	var got []string
	for _, e := range m.all() {
		got = append(got, fmt.Sprintf("%s %s step %d tokens %d amount %g %t", e.Kind, e.Source, e.Step, e.Usage.TotalTokens(), e.Amount, e.Success))
		if e.ID == "" || e.SessionID != "s-1" || e.RunID != run.ID() || e.Agent != "agent" || e.UserID != "alice" ||
			e.Tenant != session.DefaultTenant || e.At.IsZero() {
			s.Fatalf("an entry does not say where it comes from: %+v", e)
		}
	}
	s.same(strings.Join(got, "\n"), strings.Join([]string{
		"tokens scripted step 1 tokens 9 amount 0 true",
		"custom pages step 1 tokens 0 amount 3 true",
		"tool read step 1 tokens 0 amount 0 true",
		"tokens scripted step 2 tokens 15 amount 0 true",
	}, "\n"), "entries")
	s.sameJSON(string(m.all()[1].Data), `{"book":"b"}`, "data of the custom entry")
}

func usageFailures(s *Stage) {
	m := &meter{}
	agent := newAgent(scripted.New(
		scripted.Takes(scripted.Fail(session.CodeProvider, true, "no"), scripted.Call("boom", num{})), scripted.Text("ok")),
		newTool("boom", func(context.Context, *helix.Call, int) (int, error) { panic("boom") }))
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m})
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.Completed)
	var got []string
	for _, e := range m.all() {
		got = append(got, fmt.Sprintf("%s %t", e.Kind, e.Success))
	}
	s.same(strings.Join(got, ", "), "tokens false, tokens true, tool false, tokens true", "entries")
	s.same(res.Usage.ModelCalls, 3, "model calls of the run")
}

func usageDistinct(s *Stage) {
	m := &meter{}
	tool := newTool("read", func(_ context.Context, call *helix.Call, n int) (int, error) {
		call.RecordUsage("pages", 1, nil)
		call.RecordUsage("pages", 2, nil)
		return n, nil
	})
	agent := newAgent(scripted.New(
		scripted.Takes(scripted.Fail(session.CodeProvider, true, "no"), scripted.Reply(scripted.Calling("read", num{1}), scripted.Calling("read", num{2}))),
		scripted.Call("read", num{3}), scripted.Text("ok"), scripted.Call("read", num{4}), scripted.Text("ok")), tool)
	count := func(h *helix.HookContext) error {
		h.RecordUsage("hooks", 1, nil)
		return nil
	}
	hooks := helix.Hooks{
		BeforeTool:    func(_ context.Context, h *helix.HookContext, _ helix.BeforeToolEvent) error { return count(h) },
		AfterTool:     func(_ context.Context, h *helix.HookContext, _ helix.AfterToolEvent) error { return count(h) },
		BeforeLLMCall: func(_ context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error { return count(h) },
		AfterLLMCall:  func(_ context.Context, h *helix.HookContext, _ helix.AfterLLMCallEvent) error { return count(h) },
		OnMessage:     func(_ context.Context, h *helix.HookContext, _ helix.MessageEvent) error { return count(h) },
	}
	agent.Hooks = hooks
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m, Hooks: &hooks})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	seen := map[string]usage.Entry{}
	for _, e := range m.all() {
		if other, ok := seen[e.ID]; ok {
			s.Fatalf("two entries have the id %q: %+v and %+v", e.ID, other, e)
		}
		seen[e.ID] = e
	}
}

func usageStable(s *Stage) {
	g := s.newGate()
	m := &meter{}
	var ran tally
	tool := newTool("read", func(ctx context.Context, call *helix.Call, n int) (int, error) {
		call.RecordUsage("pages", 1, nil)
		call.RecordUsage("pages", 2, nil)
		if ran.add("read") == 1 {
			g.enter()
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return n, nil
	})
	tool.Idempotent = true
	agent := newAgent(scripted.New(scripted.Call("read", num{1}), scripted.Text("ok")).ByPosition(), tool)
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m, LeaseTTL: lease})
	s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, Usage: m, LeaseTTL: lease})
	s.ended(s.Result(s.Attach(y, "s-1")), helix.Completed)
	amounts := map[string]float64{}
	custom := 0
	for _, e := range m.all() {
		if e.Kind != usage.Custom {
			continue
		}
		custom++
		if before, ok := amounts[e.ID]; ok && before != e.Amount {
			s.Fatalf("entry %s has amount %g and then %g", e.ID, before, e.Amount)
		}
		amounts[e.ID] = e.Amount
	}
	s.same([]int{custom, len(amounts)}, []int{4, 2}, "custom entries, and their ids")
}

func usagePanic(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("read", num{3}), scripted.Text("ok")), pages())
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: usage.SinkFunc(func(context.Context, usage.Entry) { panic("full") })})
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.Completed)
	s.same([]int64{res.Usage.ModelCalls, res.Usage.ToolCalls}, []int64{2, 1}, "model and tool calls of the run")
	s.transcript("s-1", "user: Hi!", `assistant: read({"n":3})`, "tool read: 3", "assistant: ok")
	s.logged("usage.sink_failed", "full")
}
