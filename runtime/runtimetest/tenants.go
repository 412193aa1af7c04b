package runtimetest

import (
	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func tenantScenarios() []Scenario {
	return []Scenario{
		{"separate", "two tenants may use the same session id without seeing each other", tenantsApart},
		{"by user", "the user's tenant is the session's", tenantsByUser},
		{"bound", "an executor of one tenant refuses the user of another, naming the field", tenantsNotLeft},
		{"another user", "a session of another user does not exist for the one who executes it", tenantsAnotherUser},
		{"invisible", "another tenant's session does not exist: it is neither resumed, retried, stopped, attached to nor branched", tenantsUnseen},
		{"requests", "request ids of two tenants are independent", tenantsRequests},
		{"default", "the empty tenant is the default one", tenantsDefault},
		{"handle", "a handle works within its tenant", tenantsHandle},
		{"recovery", "orphans of every tenant are taken over", tenantsRecovery},
	}
}

// within makes a tenant whose sessions are looked at when the scenario ends.
func (s *Stage) within(x Executor, tenant string) helix.Executor {
	s.tenants = append(s.tenants, tenant)
	return x.Tenant(tenant)
}

func (s *Stage) tenantTranscript(tenant, id string) string {
	s.Helper()
	messages, err := s.Backend.Sessions().Tenant(tenant).AllMessages(s.ctx(), id)
	s.ok(err, "messages of %s in %s", id, tenant)
	return render(messages)
}

func tenantsApart(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Text("two")).ByPosition())
	x := s.Start(agent)
	acme, umbrella := s.within(x, "acme"), s.within(x, "umbrella")
	s.ended(s.Say(acme, agent, "s-1", "from acme"), helix.Completed)
	s.ended(s.Say(umbrella, agent, "s-1", "from umbrella"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "from nowhere"), helix.Completed)
	s.ended(s.Say(acme, agent, "s-1", "more"), helix.Completed)
	s.same(s.tenantTranscript("acme", "s-1"), "user: from acme\nassistant: one\nuser: more\nassistant: two", "acme's transcript")
	s.same(s.tenantTranscript("umbrella", "s-1"), "user: from umbrella\nassistant: one", "umbrella's transcript")
	s.transcript("s-1", "user: from nowhere", "assistant: one")
}

func tenantsByUser(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one")))
	x := s.Start(agent)
	s.within(x, "acme")
	run := s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice", Tenant: "acme"},
	})
	s.ended(s.Result(run), helix.Completed)
	s.same(s.tenantTranscript("acme", "s-1"), "user: Hi!\nassistant: one", "transcript")
	s.absent("s-1")
	items := s.collect(run)
	s.same(items[len(items)-1].Frame, "end", "the last item")
}

func tenantsUnseen(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("ok"))))
	x := s.Start(agent)
	acme, umbrella := s.within(x, "acme"), s.within(x, "umbrella")
	run := s.Begin(acme, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	for _, other := range []helix.Executor{umbrella, x} {
		_, err := other.Attach(s.ctx(), "s-1")
		s.refused(err, helix.ErrNotFound)
		_, err = other.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
		s.refused(err, helix.ErrNotFound)
		_, err = other.Retry(s.ctx(), "s-1", helix.RetryOptions{})
		s.refused(err, helix.ErrNotFound)
		s.refused(other.Interrupt(s.ctx(), "s-1", ""), helix.ErrNotFound)
		s.refused(other.Abort(s.ctx(), "s-1", ""), helix.ErrNotFound)
		_, err = other.Execute(s.ctx(), agent, helix.Input{
			SessionID: "s-2", Message: helix.UserText("Hi!"), Branch: &helix.Branch{From: "s-1"},
		})
		s.refused(err, helix.ErrNotFound)
	}
	g.release()
	s.ended(s.Result(run), helix.Completed)
}

func tenantsRequests(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok")).ByPosition())
	x := s.Start(agent)
	in := helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), RequestID: "req-1"}
	first := s.Execute(s.within(x, "acme"), agent, in)
	second := s.Execute(s.within(x, "umbrella"), agent, in)
	if first.ID() == second.ID() {
		s.Fatal("the requests of two tenants attached to one run")
	}
	s.ended(s.Result(first), helix.Completed)
	s.ended(s.Result(second), helix.Completed)
}

func tenantsDefault(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok")))
	x := s.Start(agent)
	s.ended(s.Say(x.Tenant(""), agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Result(s.Attach(x, "s-1")), helix.Completed)
	s.ended(s.Result(s.Attach(x.Tenant(session.DefaultTenant), "s-1")), helix.Completed)
}

func tenantsHandle(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Say("One mom"), scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("ok")))
	x := s.Start(agent)
	acme := s.within(x, "acme")
	run := s.Begin(acme, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(s.Attach(acme, "s-1").Interrupt(s.ctx(), "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	again, err := acme.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.ok(err, "resume")
	s.ended(s.Result(again), helix.Completed)
	for _, handle := range []helix.Run{run, again} {
		items := s.collect(handle)
		s.same(items[len(items)-1].Frame, "end", "the last item")
	}
}

func tenantsRecovery(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Done."))))
	x := s.mortal(agent)
	run := s.Begin(s.within(x, "acme"), agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	res := s.Result(s.Attach(y.Tenant("acme"), "s-1"))
	s.ended(res, helix.Completed)
	s.same(res.RunID, run.ID(), "run")
}

func tenantsNotLeft(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok")))
	x := s.Start(agent)
	acme, umbrella := s.within(x, "acme"), s.within(x, "umbrella")
	in := helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice", Tenant: "umbrella"}}
	_, err := acme.Execute(s.ctx(), agent, in)
	s.refused(err, helix.ErrInvalid, "User.Tenant", "umbrella", "acme")
	s.same(session.AsError(err).Field, "User.Tenant", "the field")
	_, err = x.Tenant(session.DefaultTenant).Execute(s.ctx(), agent, in)
	s.refused(err, helix.ErrInvalid, "User.Tenant")
	for _, tenant := range []string{session.DefaultTenant, "acme", "umbrella"} {
		exists, err := s.Backend.Sessions().Tenant(tenant).Exists(s.ctx(), "s-1")
		s.ok(err, "exists")
		s.same(exists, false, "the session exists in %s", tenant)
	}
	s.ended(s.Result(s.Execute(umbrella, agent, in)), helix.Completed)
}

func tenantsAnotherUser(s *Stage) {
	model := scripted.New(scripted.Text("one"), scripted.Text("two"))
	agent := newAgent(model)
	x := s.Start(agent)
	in := helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}}
	s.ended(s.Result(s.Execute(x, agent, in)), helix.Completed)
	in.User.ID = "bob"
	_, err := x.Execute(s.ctx(), agent, in)
	s.refused(err, helix.ErrNotFound)
	s.same([]int{len(s.messages("s-1")), len(s.runs("s-1")), len(model.Requests())}, []int{2, 1, 1}, "messages, runs and model calls")
	in.User.ID = "alice"
	s.ended(s.Result(s.Execute(x, agent, in)), helix.Completed)
	s.same(s.load("s-1").UserID, "alice", "the session's user")
}
