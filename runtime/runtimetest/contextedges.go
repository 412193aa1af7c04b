package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

func contextEdges() []Scenario {
	return []Scenario{
		{"hooks", "hooks see, change and refuse the model calls of summaries", contextHooks},
		{"files", "the files of the user's last message stay with the summaries", contextFiles},
		{"overflow by a file", "a prompt is made shorter although its estimate is far too low, and the marker does not say more than the estimate", contextOverflowFile},
		{"overflow in vain", "a summariser that leads to nothing costs no message when the provider refuses the prompt, and is asked a few times at most", contextOverflowVain},
		{"long summary", "a summary that takes up much of what triggers does not keep the turn behind it from being summarised", contextLongSummary},
		{"never ran", "a session that never ran is compacted, and tasks that follow have ids of their own", contextNeverRan},
	}
}

// vain is a summariser that leads to nothing.
type vain struct {
	name string
	make func(ctx context.Context, prompt string) (*llm.Response, error)
	// calls is how often it is asked at most, if a prompt is too long.
	calls int
	// behind is how often it is asked per summary, if the agent caches its prompts: behind the
	// prompt, and with the messages as text if that fails, but not if it hangs.
	behind int
}

// vains are the ways in which summaries fail.
func vains() []vain {
	return []vain{
		{"fails", func(context.Context, string) (*llm.Response, error) {
			return nil, llm.Error(session.CodeOverloaded, true, "overloaded")
		}, 4, 2},
		{"empty", func(context.Context, string) (*llm.Response, error) { return summarised("  "), nil }, 1, 2},
		{"repeats", func(_ context.Context, prompt string) (*llm.Response, error) { return summarised(prompt), nil }, 1, 1},
		{"cut", func(context.Context, string) (*llm.Response, error) {
			cut := summarised("half a sum")
			cut.Finish = llm.FinishLength
			return cut, nil
		}, 1, 2},
		{"panics", func(context.Context, string) (*llm.Response, error) { panic("at the summariser") }, 1, 2},
	}
}

// hanging is one that does not answer.
func hanging() vain {
	return vain{"hangs", func(ctx context.Context, _ string) (*llm.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}, 1, 1}
}

// ownSummaries is a model that writes its summaries itself.
type ownSummaries struct {
	*narrow
	small *summariser
}

// Generate implements [llm.Model].
func (m *ownSummaries) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	if strings.Contains(r.Messages[len(r.Messages)-1].Content(), "## Next steps") {
		return m.small.Generate(ctx, r, emit)
	}
	return m.narrow.Generate(ctx, r, emit)
}

// cachingWith has an agent cache its prompts, and write its summaries itself.
func cachingWith(agent *helix.Agent, small *summariser) {
	agent.Model = &ownSummaries{agent.Model.(*narrow), small}
	agent.Settings.Cache = llm.Cache{Prefix: true, LatestTurn: true}
	agent.Context.Model = nil
}

func contextHooks(s *Stage) {
	model := &narrow{reply: func(n int, _ *llm.Request) []session.Part {
		if n%5 == 0 {
			return says("done, and " + strings.Repeat("more ", 100))
		}
		return calls("fetch", 400)
	}}
	small := summarising("Short.")
	agent := newAgent(model, fetching())
	agent.State = helix.StateOf(notes{})
	agent.Context = &helix.ContextPolicy{TriggerMessages: 8, KeepMessages: 2, Model: small}
	var before, after, refusing tally
	agent.Hooks = helix.Hooks{
		BeforeLLMCall: func(_ context.Context, h *helix.HookContext, e helix.BeforeLLMCallEvent) error {
			if !e.Summary {
				return nil
			}
			if refusing.of("summaries") > 0 {
				return errors.New("over budget")
			}
			helix.Append(h, "notes", before.add("summary"))
			for i := range e.Request.Messages {
				text := e.Request.Messages[i].Content()
				e.Request.Messages[i] = session.UserText(strings.ReplaceAll(text, "secret", "[redacted]"))
			}
			return nil
		},
		AfterLLMCall: func(_ context.Context, h *helix.HookContext, e helix.AfterLLMCallEvent) error {
			if e.Summary {
				helix.Append(h, "notes", 100*after.add("summary"))
				e.Response.Parts = says("Short and checked.")
			}
			return nil
		},
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "my secret is "+strings.Repeat("long ", 100)), helix.Completed)
	at, messages := s.markers("s-1")
	s.same(len(at), 1, "markers")
	s.sameJSON(s.state("s-1"), `{"last":0,"notes":[1,100]}`, "what the hooks wrote")
	if asked := small.asked()[0]; strings.Contains(asked, "secret") || !strings.Contains(asked, "my [redacted] is") {
		s.Fatalf("the summariser was sent\n%s", asked)
	}
	if text := messages[at[0]].Content(); !strings.Contains(text, "Short and checked.") || !strings.Contains(text, "my secret is") {
		s.Fatalf("the summary is\n%s", text)
	}

	s.loose["s-1"] = true // the stream does not have what follows
	out, err := x.Sessions().Compact(s.ctx(), "s-1", true)
	s.ok(err, "compact")
	s.same(out.Done(), true, "compacted")
	s.sameJSON(s.state("s-1"), `{"last":0,"notes":[1,100,2,200]}`, "what the hooks wrote between runs")

	refusing.add("summaries")
	s.ended(s.Say(x, agent, "s-1", "go on "+strings.Repeat("and on ", 100)), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "go on "+strings.Repeat("and on ", 100)), helix.Completed)
	s.logged("compaction.failed", "over budget")
	_, err = x.Sessions().Compact(s.ctx(), "s-1", true)
	s.refused(err, code(session.CodeHook), "over budget")
	at, _ = s.markers("s-1")
	s.same(len(at), 2, "markers")
	s.same(len(small.asked()), 2, "summaries")
	s.sameJSON(s.state("s-1"), `{"last":0,"notes":[1,100,2,200]}`, "what the hooks wrote at last")
}

// picture is a small file.
func picture(name string) session.Part {
	return session.Part{Kind: session.PartFile, URL: "data:image/png;base64,iVBORw0KGgo=", MediaType: "image/png", Filename: name}
}

// look says something about files.
func look(text string, files ...session.Part) session.Message {
	m := session.UserText(text)
	m.Parts = append(m.Parts, files...)
	return m
}

func contextFiles(s *Stage) {
	model := &narrow{keep: true, reply: func(n int, _ *llm.Request) []session.Part {
		if n == 14 {
			return says("done")
		}
		return calls("fetch", 8_000)
	}}
	agent := newAgent(model, fetching())
	agent.Context = &helix.ContextPolicy{TriggerMessages: 9, KeepMessages: 4, TrimResults: helix.Unlimited, Model: summarising("Short.")}
	x := s.Start(agent)
	s.ended(s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: look("What is this?", picture("one.png"), picture("two.png"))})), helix.Completed)
	at, messages := s.markers("s-1")
	if len(at) < 2 {
		s.Fatalf("%d markers", len(at))
	}
	for _, i := range at {
		m := &messages[i]
		if len(m.Parts) != 3 || m.Parts[1].Filename != "one.png" || m.Parts[2].URL != picture("").URL || len(m.Compaction().Preserved) != 0 {
			s.Fatalf("marker %d has the parts %+v", i, m.Parts)
		}
		if !strings.Contains(m.Content(), "What is this?[file one.png image/png]") {
			s.Fatalf("marker %d says\n%s", i, m.Content())
		}
	}
	last := model.request(len(model.sent) - 1).Messages
	s.same(len(last[0].Parts), 3, "parts of the summary that the model was sent")
}

func contextOverflowFile(s *Stage) {
	const window = 20_000
	model := &narrow{limit: window, window: window, file: 18_100, keep: true, reply: func(int, *llm.Request) []session.Part {
		return says(strings.Repeat("word ", 400))
	}}
	small := summarising("Short.")
	agent := newAgent(model)
	agent.Context = &helix.ContextPolicy{Model: small}
	x := s.Start(agent)
	for n := range 4 {
		s.ended(s.Say(x, agent, "s-1", fmt.Sprint("say ", n)), helix.Completed)
	}
	s.ended(s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: look("And this?", picture("large.png"))})), helix.Completed)
	at, messages := s.markers("s-1")
	s.same(len(at), 1, "markers")
	if c := messages[at[0]].Compaction(); !c.Forced || c.TokensBefore > window/2 || c.TokensAfter > window/4 || c.TokensAfter == 0 {
		s.Fatalf("the marker says %+v", c)
	}
	s.same(model.refused, 1, "prompts that were refused")
	s.same(len(small.asked()), 1, "summaries")
	last := model.request(len(model.sent) - 1).Messages
	if m := last[len(last)-1]; len(m.Parts) != 2 {
		s.Fatalf("the model was sent\n%s", render(last))
	}
}

func contextOverflowVain(s *Stage) {
	try := func(v vain, policy helix.ContextPolicy, steps, result int) (x Executor, model *narrow, small *summariser, res *helix.Result) {
		model = &narrow{limit: 4_000, reply: func(n int, _ *llm.Request) []session.Part {
			if n == steps {
				return says("done")
			}
			return calls("fetch", result)
		}}
		small = &summariser{make: v.make}
		agent := newAgent(model, fetching())
		agent.Name, agent.MaxSteps = "agent-"+v.name, helix.Unlimited
		agent.ModelTimeout = s.pace(500 * time.Millisecond)
		policy.Model = small
		agent.Context = &policy
		m, d := &meter{}, &diary{}
		x = s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m, Observers: []helix.Observer{d}})
		res = s.Say(x, agent, v.name, "Please go.")
		m.distinct(s)
		var ids []string
		for _, a := range d.of(helix.ActivityCompaction) {
			if slices.Contains(ids, a.ID) {
				s.Fatalf("%s: two activities have the id %s", v.name, a.ID)
			}
			ids = append(ids, a.ID)
		}
		return x, model, small, res
	}
	for _, v := range append(vains(), hanging()) {
		if v.name == "repeats" { // its input is cut so that it is shorter than the messages
			v.make = func(_ context.Context, prompt string) (*llm.Response, error) { return summarised(prompt + prompt), nil }
		}
		// A trigger is reached by the same prompt that the provider refuses.
		x, model, small, res := try(v, helix.ContextPolicy{
			TriggerMessages: helix.Unlimited, TriggerTokens: 4_050, KeepMessages: 4, TrimResults: helix.Unlimited,
		}, 40, 450)
		s.failed(res, code(session.CodeContextLength), "cannot be made shorter")
		at, messages := s.markers(v.name)
		s.same(len(at), 0, "markers")
		s.same(len(messages), 1+2*model.replies, "%s: messages", v.name)
		if n := len(small.asked()); n < 2 || n > 1+v.calls {
			s.Fatalf("%s: %d summaries were asked for", v.name, n)
		}
		small.make = func(context.Context, string) (*llm.Response, error) { return summarised("Short."), nil }
		s.ended(s.Result(s.Retry(x, v.name)), helix.Completed)
		if at, _ = s.markers(v.name); len(at) == 0 {
			s.Fatalf("%s: no marker after the retry", v.name)
		}
	}

	// What can be cut without a summary is cut then.
	v := vains()[0]
	v.name = "trims"
	_, _, small, res := try(v, helix.ContextPolicy{TrimResults: 1_500}, 10, 2_000)
	s.ended(res, helix.Completed)
	at, messages := s.markers(v.name)
	s.same(len(at), 1, "markers")
	s.same(messages[at[0]].Compaction().Kind, session.CompactionTrim, "kind of the marker")
	s.same(len(small.asked()), v.calls, "summaries")
}

func contextLongSummary(s *Stage) {
	const trigger = 10_000
	model := &narrow{reply: func(n int, _ *llm.Request) []session.Part {
		switch n {
		case 1:
			return says("hello")
		case 40:
			return says("done")
		}
		return calls("fetch", 1_000)
	}}
	small := summarising("Short.")
	agent := newAgent(model, fetching())
	agent.MaxSteps = helix.Unlimited
	agent.Context = &helix.ContextPolicy{TriggerMessages: helix.Unlimited, TriggerTokens: trigger, KeepMessages: 4, TrimResults: helix.Unlimited, Model: small}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "hello"), helix.Completed)
	s.markWith("long", strings.Repeat("word ", 2_800)) // more than a third of what triggers
	s.ended(s.Say(x, agent, "s-1", "go"), helix.Completed)
	if most := slices.Max(model.sizes); most > trigger*102/100 {
		s.Fatalf("the longest prompt had %d tokens", most)
	}
	s.same(len(small.asked()) > 0, true, "summarised")
}

func contextNeverRan(s *Stage) {
	small := summarising("Short.")
	agent := newAgent(&narrow{reply: func(int, *llm.Request) []session.Part { return says("ok") }})
	agent.Context = &helix.ContextPolicy{KeepMessages: 2, Model: small}
	agent.Extensions = []helix.Extension{&rememberer{}}
	x := s.Start(agent)
	_, err := s.store().Edit(s.ctx(), &session.Edit{SessionID: "s-1", Create: &session.State{ID: "s-1", Agent: agent.Name, Status: session.Active, StreamID: "s-1"}})
	s.ok(err, "create a session")
	s.loose["s-1"] = true
	var ids []string
	for round := range 2 {
		for n := range 3 {
			said := session.UserText(strings.Repeat("question ", 15_000))
			said.ID = fmt.Sprint("q", round, n)
			reply := session.Message{ID: fmt.Sprint("a", round, n), Role: session.RoleAssistant, Parts: says(strings.Repeat("answer ", 100))}
			_, err := session.AppendMessages(s.ctx(), s.store(), "s-1", []session.Message{said, reply})
			s.ok(err, "append")
		}
		out, err := x.Sessions().Compact(s.ctx(), "s-1", false)
		s.ok(err, "compact")
		s.same(out.Done(), true, "compacted: %s", out.Reason)
		if round == 0 { // the same messages are compacted once more
			_, err = session.TruncateMessages(s.ctx(), s.store(), "s-1", 0)
			s.ok(err, "truncate")
		}
	}
	tasks, err := s.store().ListTasks(s.ctx(), session.TaskQuery{})
	s.ok(err, "tasks")
	for _, task := range tasks.Items {
		if !strings.HasPrefix(task.ID, "s-1:") || !strings.Contains(task.ID, "/c6/rememberer/extract") || task.SessionID != "s-1" || task.RunID != "" {
			s.Fatalf("a task is %+v", task)
		}
		ids = append(ids, task.ID)
	}
	s.same(len(ids), 2, "tasks that follow")
}
