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
		{"repeated tool", "a tool that runs again after a takeover is reported under other ids, with what it counts", usageRepeatedTool},
		{"repeated model call", "a model call that is repeated after a takeover is reported under another id", usageRepeated},
		{"replies", "every reply says what it cost and which instructions and tools it was made with", usageReplies},
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

// distinct checks that every entry has an id of its own, and counts the kinds.
func (m *meter) distinct(s *Stage) map[usage.Kind]int {
	s.Helper()
	kinds := map[usage.Kind]int{}
	seen := map[string]usage.Entry{}
	for _, e := range m.all() {
		if other, ok := seen[e.ID]; ok {
			s.Fatalf("two entries have the id %q: %+v and %+v", e.ID, other, e)
		}
		seen[e.ID] = e
		kinds[e.Kind]++
	}
	return kinds
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
	m.distinct(s)
}

func usageRepeatedTool(s *Stage) {
	g := s.newGate()
	m := &meter{}
	var ran tally
	tool := newTool("read", func(ctx context.Context, call *helix.Call, n int) (int, error) {
		call.RecordUsage("pages", 1, nil)
		call.RecordUsage("pages", 2, nil)
		return n, nil
	})
	tool.Idempotent = true
	agent := newAgent(scripted.New(scripted.Call("read", num{1}), scripted.Text("ok")).ByPosition(), tool)
	agent.Hooks.AfterTool = func(ctx context.Context, h *helix.HookContext, _ helix.AfterToolEvent) error {
		h.RecordUsage("hooks", 1, nil)
		if ran.add("read") == 1 { // the result is not stored yet
			g.enter()
			<-ctx.Done()
		}
		return nil
	}
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m, LeaseTTL: lease})
	s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool has run", g.entered)
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, Usage: m, LeaseTTL: lease})
	s.ended(s.Result(s.Attach(y, "s-1")), helix.Completed)
	s.same(m.distinct(s), map[usage.Kind]int{usage.Tokens: 2, usage.Tool: 2, usage.Custom: 6}, "entries")
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

func usageRepeated(s *Stage) {
	g := s.newGate()
	m := &meter{}
	agent := newAgent(scripted.New(scripted.Text("ok")).ByPosition())
	var asked tally
	agent.Hooks.AfterLLMCall = func(ctx context.Context, _ *helix.HookContext, _ helix.AfterLLMCallEvent) error {
		if asked.add("asked") == 1 { // the reply was paid for and is not committed yet
			g.enter()
			<-ctx.Done()
		}
		return nil
	}
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m, LeaseTTL: lease})
	s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model has replied", g.entered)
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, Usage: m, LeaseTTL: lease})
	s.ended(s.Result(s.Attach(y, "s-1")), helix.Completed)
	entries := m.all()
	s.same(len(entries), 2, "entries")
	if entries[0].ID == entries[1].ID {
		s.Fatalf("both calls are reported as %s", entries[0].ID)
	}
}

func usageReplies(s *Stage) {
	cost := session.Usage{InputTokens: 70, OutputTokens: 2, CacheReadTokens: 60, CacheWriteTokens: 5}
	model := scripted.New(scripted.Call("double", num{1}).WithUsage(cost), scripted.Text("ok"), scripted.Text("ok"), scripted.Text("ok"))
	agent := newAgent(model, double())
	agent.State = helix.StateOf(notes{})
	agent.InstructionsFunc = func(_ context.Context, p *helix.Prompt) (string, error) {
		if p.Turn < 2 {
			return "Be kind.", nil
		}
		return "Be brief.", nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	messages := s.messages("s-1")
	first, second, third := &messages[1], &messages[3], &messages[5]
	s.same(*first.ReplyUsage(), session.ReplyUsage{Model: "scripted", In: 70, Out: 2, CacheRead: 60, CacheWrite: 5}, "usage of the first reply")
	for _, m := range []*session.Message{second, third} {
		if u := m.ReplyUsage(); u == nil || u.In == 0 || u.Out == 0 {
			s.Fatalf("the reply %s costs %+v", m.ID, u)
		}
	}
	if d := first.PromptDigest(); len(d) != 16 || d != second.PromptDigest() {
		s.Fatalf("digests of equal prompts: %q and %q", d, second.PromptDigest())
	}
	if first.PromptDigest() == third.PromptDigest() {
		s.Fatal("other instructions have the same digest")
	}
}
