package runtimetest

import (
	"errors"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// remoteEndScenarios lists the ways in which a remote agent's session ends from
// outside, each with a caller that lives and with one that is killed meanwhile.
func remoteEndScenarios() []Scenario {
	var list []Scenario
	for _, way := range []struct {
		name, doc string
		agent     func(s *Stage, agent *helix.Agent) // prepares the remote's agent
		end       func(s *Stage, n *server)
		words     []string // that the caller's model is told
	}{
		{name: "expired", doc: "a remote whose session expires while it waits is a tool error", agent: expireSoon, end: expiredThere, words: []string{"expired"}},
		{
			name: "expired on an older server", doc: "a remote that only says that its session cannot be resumed is a tool error",
			agent: expireSoon, end: func(s *Stage, n *server) {
				n.set(func(n *server) { n.runsOnly = true })
				expiredThere(s, n)
			}, words: []string{"without saying why"},
		},
		{name: "aborted", doc: "a remote that is aborted while it waits is a tool error", end: abortedThere, words: []string{"enough"}},
		{
			name: "aborted by a stranger", doc: "a remote that is aborted while it waits, by a process that does not know its agent, is a tool error",
			end: abortedByStranger, words: []string{"enough"},
		},
		{name: "deleted", doc: "a remote whose session is deleted while it waits is a tool error", end: deletedThere, words: []string{string(session.CodeNotFound)}},
		{
			name: "agent removed", doc: "a remote whose server does not know its agent any more is a tool error",
			end: agentGoneThere, words: []string{string(session.CodeUnknownAgent)},
		},
		{name: "server lost", doc: "a remote whose server does not come back is a tool error", end: serverGone, words: []string{"unreachable"}},
	} {
		play := func(s *Stage, killed bool, proceed func(*Stage, Executor, *helix.Agent) *helix.Result) {
			var ran tally
			child := signing(&ran)
			if way.agent != nil {
				way.agent(s, child)
			}
			n := s.elsewhere(child, Options{LeaseTTL: lease})
			agent := n.remotely()
			opts := Options{Agents: []*helix.Agent{agent}, RemotePatience: 3 * time.Second, LeaseTTL: lease}
			x := s.StartWith(opts)
			s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
			if killed {
				x.Kill()
			}
			way.end(s, n)
			if killed {
				x = s.StartOther(opts)
			}
			s.ended(proceed(s, x, agent), helix.Completed)
			s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), way.words...)
			s.same(ran.of("sign"), 0, "signatures")
			s.same(s.children("s-1")[0].Status, session.ChildFailed, "status of the reference")
			s.nobodyWaits(x)
			s.nothingRuns()
			s.bracketed("s-1")
			n.set(func(n *server) { n.down = false })
			s.until("no stop is undelivered", func() bool { return !s.children("s-1")[0].StopPending })
			s.until("nothing runs there", func() bool {
				state, err := n.store().Load(s.ctx(), n.there(s))
				return errors.Is(err, session.ErrNotFound) || (err == nil && state.Status == session.Failed)
			})
		}
		answer := func(s *Stage, x Executor, agent *helix.Agent) *helix.Result {
			s.approve(x, "sign")
			return s.resumed(x)
		}
		list = append(list,
			Scenario{way.name, way.doc, func(s *Stage) { play(s, false, answer) }},
			Scenario{way.name + ", caller killed", way.doc + ", though its caller's process died", func(s *Stage) { play(s, true, answer) }},
		)
		if way.name == "server lost" || way.name == "agent removed" {
			continue // a resume without an answer is refused, because one is missing
		}
		list = append(list, Scenario{way.name + ", not answered", way.doc + ", as soon as its caller is resumed", func(s *Stage) {
			play(s, false, (*Stage).resumedWith)
		}})
	}
	return append(list,
		Scenario{"deadline", "a caller whose remote has ended ends its call when the deadline passes, though nobody touches it", remoteEndsDeadline},
		Scenario{"deleted at work", "a remote whose session is deleted while it works is a tool error", func(s *Stage) { remoteDeletedAtWork(s, false) }},
		Scenario{"deleted at work, caller killed", "a remote whose session is deleted while it works, and its caller is dead, is a tool error", func(s *Stage) { remoteDeletedAtWork(s, true) }},
		Scenario{"aborted at work", "a remote that is aborted while it works is a tool error", func(s *Stage) { remoteAbortedAtWork(s, false) }},
		Scenario{"aborted at work, caller killed", "a remote that is aborted while it works, and its caller is dead, is a tool error", func(s *Stage) { remoteAbortedAtWork(s, true) }},
	)
}

// resumedWith is [Stage.resumed] on an executor that can be killed.
func (s *Stage) resumedWith(x Executor, agent *helix.Agent) *helix.Result { return s.resumed(x) }

func expireSoon(s *Stage, agent *helix.Agent) { agent.SessionExpiry = s.pace(time.Second) }

func expiredThere(s *Stage, n *server) {
	n.becomes(n.there(s), session.Failed)
	n.refused(n.load(n.there(s)).Error, helix.ErrExpired)
}

func abortedThere(s *Stage, n *server) {
	s.ok(n.x.Abort(s.ctx(), n.there(s), "enough"), "abort")
	n.becomes(n.there(s), session.Failed)
}

func abortedByStranger(s *Stage, n *server) {
	s.until("the run there is closed", func() bool { return n.load(n.there(s)).Lease.Owner == "" })
	stranger := n.StartOther(Options{})
	s.ok(stranger.Abort(s.ctx(), n.there(s), "enough"), "abort")
	n.becomes(n.there(s), session.Failed)
}

func deletedThere(s *Stage, n *server) {
	_, err := n.store().Delete(s.ctx(), n.there(s))
	s.ok(err, "delete")
}

func agentGoneThere(_ *Stage, n *server) { n.set(func(n *server) { n.unknown = true }) }

func serverGone(_ *Stage, n *server) { n.set(func(n *server) { n.down = true }) }

func remoteEndsDeadline(s *Stage) {
	child := picking()
	child.Tools[0].Deadline = s.pace(2 * time.Second)
	n := s.elsewhere(child, Options{LeaseTTL: lease})
	agent := n.remotely()
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	abortedByStranger(s, n)
	s.becomes("s-1", session.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "enough")
	s.nobodyWaits(x)
}

// atWork begins a remote that is at work, and calls end while its caller follows it,
// or is dead.
func (s *Stage) atWork(killed bool, end func(n *server, there string)) {
	s.Helper()
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{LeaseTTL: lease})
	agent := n.remotely()
	opts := Options{Agents: []*helix.Agent{agent}, RemotePatience: 3 * time.Second, LeaseTTL: lease}
	x := s.StartWith(opts)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	// A caller that dies before it knows that the remote has started would start it again.
	s.until("the remote is followed", func() bool { return len(ofKind(s.chunks("s-1"), stream.TextDelta)) > 0 })
	if killed {
		x.Kill()
	}
	end(n, n.there(s))
	if killed {
		run = s.Attach(s.StartOther(opts), "s-1")
	}
	s.ended(s.Result(run), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent))
	s.nothingRuns()
	s.bracketed("s-1")
}

func remoteDeletedAtWork(s *Stage, killed bool) {
	s.atWork(killed, func(n *server, there string) {
		_, err := n.store().Delete(s.ctx(), there)
		s.ok(err, "delete")
	})
}

func remoteAbortedAtWork(s *Stage, killed bool) {
	s.atWork(killed, func(n *server, there string) { s.ok(n.x.Abort(s.ctx(), there, "enough"), "abort") })
}
