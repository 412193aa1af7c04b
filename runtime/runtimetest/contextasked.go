package runtimetest

import (
	"context"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

// askedScenarios are about compactions that somebody asks for, between runs.
func askedScenarios() []Scenario {
	return []Scenario{
		{"asked in vain", "a compaction that led to nothing is not paid for again while the session stays as it is", askedInVain},
		{"asked at once", "while a session is compacted, another compaction of it is refused", askedAtOnce},
		{"asked and deleted", "a compaction of a session that was deleted and made again meanwhile changes nothing", askedAndDeleted},
		{"asked when paused", "a paused session is neither compacted nor cleared", askedWhenPaused},
		{"asked of a remote", "the session of a remote agent is neither compacted nor cleared", askedOfRemote},
		{"asked for a trim", "if there is no summary, large results are cut", askedForTrim},
		{"asked after an overflow", "after a prompt that was too long, force compacts further", askedAfterOverflow},
	}
}

// talking starts an agent that says much, with a summariser, and has two turns with it.
func (s *Stage) talking(small *summariser) (Executor, *helix.Agent) {
	s.Helper()
	agent := newAgent(&narrow{reply: func(n int, _ *llm.Request) []session.Part {
		return says(fmt.Sprintf("reply %d %s", n, strings.Repeat("and more ", 50)))
	}})
	agent.Context = &helix.ContextPolicy{KeepMessages: 2, Model: small}
	x := s.Start(agent)
	s.loose["s-1"] = true // the stream does not have the markers
	s.talk(x, agent)
	return x, agent
}

func (s *Stage) talk(x Executor, agent *helix.Agent) {
	s.Helper()
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
}

func askedInVain(s *Stage) {
	small := summarising("")
	repeats := func(_ context.Context, prompt string) (*llm.Response, error) { return summarised(prompt), nil }
	small.make = repeats
	x, agent := s.talking(small)
	compact := func(force bool) string {
		s.Helper()
		out, err := x.Sessions().Compact(s.ctx(), "s-1", force)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%t %s %s", out.Done(), out.Code, out.Reason)
	}
	for range 3 {
		s.same(compact(false), "false  the summary is hardly shorter than what it would replace", "a summary that is too long")
		s.same(len(small.asked()), 1, "summaries")
	}
	for range 2 { // which asks for another one
		s.same(compact(true), "false  the summary is hardly shorter than what it would replace", "a summary that is too long, with force")
		s.same(len(small.asked()), 2, "summaries")
	}
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	small.make = func(context.Context, string) (*llm.Response, error) {
		return nil, llm.Error(session.CodeAuth, false, "no key")
	}
	if first := compact(false); !strings.Contains(first, "no key") || strings.HasPrefix(first, "false") {
		s.Fatalf("a summary that fails is answered with %s", first)
	}
	s.same(compact(false), "false provider_auth no key", "one that failed before")
	s.same(len(small.asked()), 3, "summaries")
	s.logged("compaction.failed", "no key")
	small.make = func(context.Context, string) (*llm.Response, error) { return summarised("Short."), nil }
	s.ended(s.Say(x, agent, "s-1", "fourth"), helix.Completed)
	s.same(compact(false), "true  ", "after the session has changed")
	s.same(len(small.asked()), 4, "summaries")
}

func askedAtOnce(s *Stage) {
	g := s.newGate()
	small := summarising("")
	small.make = func(ctx context.Context, _ string) (*llm.Response, error) {
		if err := g.pass(ctx); err != nil {
			return nil, err
		}
		return summarised("Short."), nil
	}
	x, _ := s.talking(small)
	type answer struct {
		out *helix.Compacted
		err error
	}
	first := make(chan answer, 1)
	go func() {
		out, err := x.Sessions().Compact(s.ctx(), "s-1", false)
		first <- answer{out, err}
	}()
	s.receive("the summary is made", g.entered)
	for _, force := range []bool{false, true} {
		_, err := x.Sessions().Compact(s.ctx(), "s-1", force)
		s.refused(err, helix.ErrAlreadyRunning, "is being compacted")
	}
	g.release()
	got := <-first
	s.ok(got.err, "compact")
	s.same(got.out.Done(), true, "compacted")
	s.same(len(small.asked()), 1, "summaries")
	again, err := x.Sessions().Compact(s.ctx(), "s-1", false)
	s.ok(err, "compact again")
	s.same(again.Done(), false, "compacted twice")
}

func askedAndDeleted(s *Stage) {
	small := summarising("")
	x, agent := s.talking(small)
	was := s.load("s-1").Version
	small.make = func(context.Context, string) (*llm.Response, error) {
		_, err := s.store().Delete(s.ctx(), "s-1")
		s.ok(err, "delete")
		s.talk(x, agent)
		s.same(s.load("s-1").Version, was, "the version of the session that was made again")
		return summarised("Of somebody else."), nil
	}
	_, err := x.Sessions().Compact(s.ctx(), "s-1", false)
	s.refused(err, session.ErrStale, "another session has its id")
	at, messages := s.markers("s-1")
	s.same(len(at), 0, "markers")
	s.same(len(messages), 4, "messages")
}

func askedWhenPaused(s *Stage) {
	small := summarising("Short.")
	x, _ := s.talking(small)
	changed, err := s.store().SetStatus(s.ctx(), "s-1", session.StatusChange{Expect: []session.Status{session.Completed}, To: session.Paused})
	s.ok(err, "pause")
	s.same(changed.OK, true, "paused")
	_, err = x.Sessions().Compact(s.ctx(), "s-1", true)
	s.refused(err, helix.ErrPaused, "s-1")
	_, err = x.Sessions().Clear(s.ctx(), "s-1")
	s.refused(err, helix.ErrPaused, "s-1")
	at, _ := s.markers("s-1")
	s.same(len(at)+len(small.asked()), 0, "markers and summaries")
	message := helix.UserText("third")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Message: &message})), helix.Completed)
	out, err := x.Sessions().Clear(s.ctx(), "s-1")
	s.ok(err, "clear")
	s.same(out.Done(), true, "cleared once it is not paused")
}

func askedOfRemote(s *Stage) {
	n := s.elsewhere(named("far", scripted.New(scripted.Text("ok"))), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	id := s.child("s-1")
	before := s.load(id).Version
	_, err := x.Sessions().Compact(s.ctx(), id, true)
	s.refused(err, session.ErrNotSupported, "remote agent")
	_, err = x.Sessions().Clear(s.ctx(), id)
	s.refused(err, session.ErrNotSupported, "remote agent")
	s.same(s.load(id).Version, before, "version")
}

func askedForTrim(s *Stage) {
	model := &narrow{reply: func(n int, _ *llm.Request) []session.Part {
		if n%2 == 0 {
			return says("done")
		}
		return calls("fetch", 20_000)
	}}
	small := summarising("")
	small.make = func(context.Context, string) (*llm.Response, error) {
		return nil, llm.Error(session.CodeOverloaded, true, "overloaded")
	}
	agent := newAgent(model, fetching())
	agent.Context = &helix.ContextPolicy{KeepMessages: 2, Model: small}
	x := s.Start(agent)
	s.loose["s-1"] = true
	s.talk(x, agent)
	out, err := x.Sessions().Compact(s.ctx(), "s-1", false)
	s.ok(err, "compact")
	s.same(fmt.Sprintf("%t %s %d", out.Done(), out.Kind, len(small.asked())), "true trim 1", "without a summary")
	if out.TokensAfter >= out.TokensBefore {
		s.Fatalf("the outcome is %+v", out)
	}
}

func askedAfterOverflow(s *Stage) {
	const steps = 12
	model := &narrow{}
	model.reply = func(n int, _ *llm.Request) []session.Part {
		if n < steps {
			return calls("fetch", 3_000)
		}
		model.limit = 10 // it refuses whatever follows
		return calls("fetch", 400)
	}
	small := summarising("Short.")
	agent := newAgent(model, fetching())
	agent.MaxSteps = helix.Unlimited
	agent.Context = &helix.ContextPolicy{Model: small} // whose triggers are far away
	x := s.Start(agent)
	s.loose["s-1"] = true
	s.failed(s.Say(x, agent, "s-1", "go"), code(session.CodeContextLength))
	at, messages := s.markers("s-1")
	if len(at) == 0 || at[len(at)-1] != len(messages)-1 || !messages[len(messages)-1].Compaction().Forced {
		s.Fatalf("the markers are at %v of %d messages", at, len(messages))
	}
	out, err := x.Sessions().Compact(s.ctx(), "s-1", false)
	s.ok(err, "compact")
	s.same(out.Reason, "nothing was said since the last compaction", "without force")
	out, err = x.Sessions().Compact(s.ctx(), "s-1", true)
	s.ok(err, "compact with force")
	s.same(fmt.Sprintf("%t %s %d", out.Done(), out.Kind, out.Kept), "true summary 0", "with force")
	again, err := x.Sessions().Compact(s.ctx(), "s-1", true)
	s.ok(err, "compact once more")
	s.same(again.Done(), false, "compacted once more")
}
