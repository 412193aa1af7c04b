package runtimetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
	"github.com/helixagents/helix/stream"
)

func recoveryScenarios() []Scenario {
	return []Scenario{
		{"in a model call", "a run whose process died in a model call is taken over: the same run asks again and completes", recoverModel},
		{"in a tool", "a call in flight that may not run again is answered tool_outcome_unknown", recoverTool},
		{"idempotent tool", "an idempotent call in flight runs again, with the same idempotency key", recoverIdempotent},
		{"read-only tool", "a read-only call in flight runs again", recoverReadOnly},
		{"read-only step", "a step of read-only calls whose reply was never committed is asked for again", recoverReadOnlyStep},
		{"between steps", "a run whose process died between two steps continues with the next step", recoverBetween},
		{"finished siblings", "of a step in flight, results that were settled stand and are not run again", recoverSiblings},
		{"state of finished siblings", "what settled calls did to the state is kept through a takeover", recoverSiblingState},
		{"phase 2", "a FinishWith call that cannot have begun is run by the process that takes over", recoverPhase2},
		{"in the second turn", "a later turn is taken over like the first", recoverSecondTurn},
		{"stream", "readers in other processes follow the run across a takeover, and chunks of lost work are discarded", recoverStream},
		{"hook keys", "a hook that is called again after a takeover gets the same key", recoverHookKeys},
		{"zombie", "the late commit of a process that was taken for dead changes nothing", recoverZombie},
		{"zombie reply", "the late reply of a process that was taken for dead is not mistaken for that of its successor", recoverZombieReply},
		{"heartbeat", "runs that are slow but alive are not taken over, however many a process has", recoverHeartbeat},
		{"crash loop", "a run that makes no progress over three takeovers fails as framework_crash_loop", recoverCrashLoop},
		{"bystanders", "of runs that die together, those that are not the reason complete, taken over one at a time; the one that is fails", recoverBystanders},
		{"many orphans", "however many runs a dead process had, all are taken over", recoverMany},
		{"progress", "a run that makes progress may be taken over any number of times", recoverProgress},
		{"crash loop keeps state", "of a run that fails in a crash loop, results and state of finished calls are kept", recoverCrashLoopState},
		{"unknown agent", "a process that does not know the agent leaves the run to one that does", recoverUnknownAgent},
		{"many for others", "runs that only other processes can take over, however many, do not keep a process from its own", recoverStarved},
		{"another runtime", "a run that another runtime drives is left to it", recoverAnotherRuntime},
		{"tool removed", "a call in flight whose tool no longer exists is a tool error", recoverToolGone},
		{"paused", "a paused session is not taken over", recoverPaused},
		{"execute on an orphan", "executing a session whose process died is refused as running, and the run is taken over", recoverOnExecute},
		{"unclosed stream", "the stream of a run whose process died after the last commit is closed by another process", recoverOwedClose},
		{"unclosed stream on execute", "a session whose stream is not closed yet takes the next turn at once", recoverOwedCloseExecute},
		{"one takeover", "exactly one of several processes takes a run over", recoverOneTaker},
		{"forced finish", "a takeover in the step that can only finish still can only finish", recoverForced},
		{"cut off", "a process that could not renew its leases for a while goes on with the turns that nobody has taken", recoverCutOff},
		{"outage", "an outage of the store costs no process a turn, however many processes wait to take turns over", recoverAfterOutage},
		{"retried soon", "what was tried again during an outage of the store is tried soon after its end", recoverRetrySoon},
		{"stream outage", "a stream that takes nothing for a second costs neither a takeover nor a chunk", recoverOutage},
	}
}

// orphan starts a run on an executor, waits until the gate was entered, and kills
// the executor.
func (s *Stage) orphan(agent *helix.Agent, g *gate) helix.Run {
	s.Helper()
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the run is where it is to die", g.entered)
	x.Kill()
	return run
}

func (s *Stage) mortal(agents ...*helix.Agent) Executor {
	s.Helper()
	return s.StartWith(Options{Agents: agents, LeaseTTL: lease})
}

// heir starts an executor that takes over, and returns a handle on the session's
// run.
func (s *Stage) heir(agents ...*helix.Agent) (Executor, helix.Run) {
	s.Helper()
	y := s.StartOther(Options{Agents: agents, LeaseTTL: lease})
	return y, s.Attach(y, "s-1")
}

// takenOver waits for a run to complete in another process than the one it was
// started in.
func (s *Stage) takenOver(run helix.Run, agents ...*helix.Agent) *helix.Result {
	s.Helper()
	_, again := s.heir(agents...)
	s.same(again.ID(), run.ID(), "the run after the takeover")
	res := s.Result(again)
	s.ended(res, helix.Completed)
	record := s.run("s-1", run.ID())
	if record.Attempts == 0 {
		s.Fatal("the run does not record that it was taken over")
	}
	return res
}

func recoverModel(s *Stage) {
	g := s.newGate()
	model := scripted.New(scripted.Takes(
		scripted.Reply(scripted.Say("I was about to"), scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Here I am again.")))
	agent := newAgent(model)
	run := s.orphan(agent, g)
	res := s.takenOver(run, agent)
	s.same(res.Text, "Here I am again.", "the reply")
	s.transcript("s-1", "user: Hi!", "assistant: Here I am again.")
	s.same(s.run("s-1", run.ID()).Attempts, 1, "attempts")
	s.same(len(s.runs("s-1")), 1, "runs")
	s.same(s.load("s-1").Turn, 1, "turn")
}

// countingTool is a tool that dies the first time: it waits at the gate until it
// is cancelled. It notes the idempotency keys it was called with.
func countingTool(g *gate, ran *tally, keys *journal) helix.Tool {
	return newTool("pay", func(ctx context.Context, call *helix.Call, n int) (int, error) {
		keys.add("%s", call.IdempotencyKey())
		if ran.add("pay") == 1 {
			g.enter()
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return n, nil
	})
}

func recoverTool(s *Stage) {
	g := s.newGate()
	var ran tally
	agent := newAgent(scripted.New(scripted.Call("pay", num{5}), scripted.Text("I cannot tell.")).ByPosition(), countingTool(g, &ran, &journal{}))
	s.takenOver(s.orphan(agent, g), agent)
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":5})`, "tool pay failed: tool_outcome_unknown", "assistant: I cannot tell.")
	s.refused(s.messages("s-1")[2].Parts[0].Error, code(session.CodeToolOutcome), "pay", "unknown")
}

func recoverIdempotent(s *Stage) {
	g := s.newGate()
	var ran tally
	var keys journal
	tool := countingTool(g, &ran, &keys)
	tool.Idempotent = true
	agent := newAgent(scripted.New(scripted.Call("pay", num{5}), scripted.Text("Paid.")).ByPosition(), tool)
	s.takenOver(s.orphan(agent, g), agent)
	s.same(ran.of("pay"), 2, "payments")
	lines := strings.Split(keys.String(), "\n")
	s.same(lines[1], lines[0], "the idempotency key of the second attempt")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":5})`, "tool pay: 5", "assistant: Paid.")
}

func recoverReadOnly(s *Stage) {
	g := s.newGate()
	var ran tally
	look := countingTool(g, &ran, &journal{})
	look.Name, look.ReadOnly = "look", true
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("look", num{5}), scripted.Calling("double", num{1})), scripted.Text("Seen.")).ByPosition(), look, double())
	run := s.orphan(agent, g)
	s.takenOver(run, agent)
	s.same(ran.of("pay"), 2, "looks")
	messages := s.messages("s-1")
	s.same(renderMessage(&messages[2]), "tool look: 5", "the read-only result")
	s.same(len(messages), 5, "messages")
}

func recoverReadOnlyStep(s *Stage) {
	g := s.newGate()
	var ran tally
	look := countingTool(g, &ran, &journal{})
	look.Name, look.ReadOnly = "look", true
	agent := newAgent(scripted.New(scripted.Call("look", num{5}), scripted.Text("Seen.")).Vary(), look)
	s.takenOver(s.orphan(agent, g), agent)
	messages := s.messages("s-1")
	s.same(len(messages), 4, "messages")
	s.same(renderMessage(&messages[2]), "tool look: 5", "the result")
}

func recoverBetween(s *Stage) {
	g := s.newGate()
	var ran tally
	model := scripted.New(scripted.Call("count", num{1}), scripted.Text("Done.")).Vary()
	agent := newAgent(model, newTool("count", func(context.Context, *helix.Call, int) (int, error) { return ran.add("count"), nil }))
	agent.Hooks.BeforeLLMCall = func(ctx context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		if h.Step == 2 && ran.add("step 2") == 1 {
			g.enter()
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	res := s.takenOver(s.orphan(agent, g), agent)
	s.same(res.Steps, 2, "steps")
	s.same(ran.of("count"), 1, "calls")
	s.transcript("s-1", "user: Hi!", `assistant: count({"n":1})`, "tool count: 1", "assistant: Done.")
	s.same(len(model.Requests()), 2, "model calls")
}

func recoverSiblings(s *Stage) {
	g := s.newGate()
	var ran tally
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("pay", num{1}), scripted.Calling("count", num{2}), scripted.Calling("count", num{3})), scripted.Text("Done.")).ByPosition(),
		countingTool(g, &ran, &journal{}),
		newTool("count", func(_ context.Context, _ *helix.Call, n int) (int, error) { ran.add("count"); return n, nil }))
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the call in flight", g.entered)
	s.settled(2)
	x.Kill()
	s.takenOver(run, agent)
	s.same([]int{ran.of("pay"), ran.of("count")}, []int{1, 2}, "calls")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1}), count({"n":2}), count({"n":3})`,
		"tool pay failed: tool_outcome_unknown", "tool count: 2", "tool count: 3", "assistant: Done.")
}

// settled waits until the given number of calls of the last reply of session s-1 have
// their result in the store.
func (s *Stage) settled(calls int) {
	s.Helper()
	s.until("calls are settled", func() bool {
		messages := s.messages("s-1")
		last := messages[len(messages)-1]
		if last.Role != session.RoleAssistant {
			return false
		}
		rows, err := s.store().Calls(s.ctx(), "s-1", last.ID)
		s.ok(err, "calls")
		n := 0
		for i := range rows {
			if rows[i].Status == session.CallSettled {
				n++
			}
		}
		return n == calls
	})
}

func recoverSiblingState(s *Stage) {
	g := s.newGate()
	var ran tally
	tool := countingTool(g, &ran, &journal{})
	tool.Idempotent = true
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("pay", num{2}), scripted.Calling("note", num{3})), scripted.Text("Done.")).ByPosition(),
		tool, newTool("note", func(_ context.Context, call *helix.Call, n int) (int, error) {
			helix.Append(call, "notes", n)
			return n, nil
		}))
	agent.State = helix.StateOf(notes{})
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the call in flight", g.entered)
	s.settled(2)
	x.Kill()
	s.takenOver(run, agent)
	s.sameJSON(s.state("s-1"), `{"notes":[1,3],"last":0}`, "state")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, s.chunks("s-1")), s.state("s-1"), "the folded patches")
}

func recoverPhase2(s *Stage) {
	g := s.newGate()
	var ran tally
	var j journal
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("pay", num{1}), scripted.Calling("publish", num{2}))).ByPosition(),
		countingTool(g, &ran, &journal{}), publish(&j))
	res := s.takenOver(s.orphan(agent, g), agent)
	s.sameJSON(string(res.Output), `{"published":2,"notes":0}`, "output")
	s.same(j.String(), "publish 2", "what was published")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1}), publish({"n":2})`, "tool pay failed: tool_outcome_unknown", `tool publish: {"notes":0,"published":2}`)
}

func recoverSecondTurn(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Takes(
		scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("two"))))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	run := s.Begin(x, agent, "s-1", "second")
	s.receive("the model is asked", g.entered)
	x.Kill()
	s.takenOver(run, agent)
	s.transcript("s-1", "user: first", "assistant: one", "user: second", "assistant: two")
	s.same(s.load("s-1").Turn, 2, "turn")
}

func recoverStream(s *Stage) {
	g := s.newGate()
	model := scripted.New(scripted.Takes(
		scripted.Reply(scripted.Say("I was about to say"), scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Something else.")))
	agent := newAgent(model)
	x := s.mortal(agent)
	s.Begin(x, agent, "s-1", "Hi!")
	watcher := s.StartOther(Options{}) // it knows no agent: it only watches
	handle := s.Attach(watcher, "s-1")
	seen := make(chan []stream.Item, 1)
	go func() {
		var items []stream.Item
		for item, err := range handle.Stream(s.ctx()) {
			if err != nil {
				s.Errorf("stream: %v", err)
				break
			}
			items = append(items, item)
		}
		seen <- items
	}()
	s.receive("the model is asked", g.entered)
	s.until("text is seen", func() bool { return len(ofKind(s.chunks("s-1"), stream.TextDelta)) > 0 })
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.ended(s.Result(s.Attach(y, "s-1")), helix.Completed)
	items := <-seen
	var chunks []stream.Chunk
	for i, item := range items {
		if item.Chunk != nil {
			chunks = append(chunks, *item.Chunk)
			s.same(item.Sequence, len(chunks), "sequence of item %d", i)
		}
	}
	s.same(items[len(items)-1].Frame, stream.FrameEnd, "the last item")
	s.same(len(ofKind(chunks, stream.StepDiscarded)), 1, "discarded steps")
	s.same(render(stream.Fold("s-1", chunks)), "user: Hi!\nassistant: Something else.", "what the watcher saw")
}

func recoverHookKeys(s *Stage) {
	g := s.newGate()
	var ran tally
	var j journal
	tool := countingTool(g, &ran, &journal{})
	tool.Idempotent = true
	agent := newAgent(scripted.New(scripted.Call("pay", num{5}), scripted.Text("Paid.")).ByPosition(), tool)
	agent.Hooks.BeforeTool = func(_ context.Context, h *helix.HookContext, _ helix.BeforeToolEvent) error {
		j.add("%s", h.Key)
		return nil
	}
	s.takenOver(s.orphan(agent, g), agent)
	lines := strings.Split(j.String(), "\n")
	s.same(len(lines), 2, "calls of the hook")
	if lines[0] == "" || lines[0] != lines[1] {
		s.Fatalf("the hook was called with keys %q", lines)
	}
}

func recoverZombie(s *Stage) {
	g := s.newGate()
	var ran tally
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Text("Done.")).Vary(),
		newTool("note", func(ctx context.Context, call *helix.Call, n int) (string, error) {
			helix.Append(call, "notes", n)
			if ran.add("note") > 1 {
				return "heir", nil
			}
			g.enter()
			<-g.open // not for the end of ctx: it believes to be alive
			return "zombie", nil
		}))
	agent.State, agent.Tools[0].Idempotent = helix.StateOf(notes{}), true
	backend := s.newFrail(s.Backend)
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	backend.faults.noRenew.Store(true)
	s.takenOver(run, agent)
	s.checkClosed(session.DefaultTenant, s.load("s-1"), s.run("s-1", run.ID()))
	version, chunks := s.load("s-1").Version, len(s.chunks("s-1"))
	g.release()
	backend.faults.noRenew.Store(false) // a workflow engine asks the zombie for nothing more: only the store can tell it
	s.ok(x.Shutdown(s.ctx()), "close")  // waits for the zombie's turn
	s.same(s.load("s-1").Version, version, "version after the zombie's commit")
	s.same(len(s.chunks("s-1")), chunks, "chunks after the zombie's commit")
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1})`, `tool note: "heir"`, "assistant: Done.")
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":0}`, "state")
}

// belated is a model whose first reply is complete only when another call has long
// been answered.
type belated struct {
	llm.Model
	asked atomic.Int64
	gate  *gate
}

func (b *belated) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	reply, err := b.Model.Generate(ctx, r, emit)
	if b.asked.Add(1) == 1 {
		b.gate.enter()
		<-b.gate.open // not for the end of ctx: it believes to be alive
	}
	return reply, err
}

func recoverZombieReply(s *Stage) {
	late, paying := s.newGate(), s.newGate()
	var ran tally
	agent := newAgent(nil, newTool("pay", func(_ context.Context, _ *helix.Call, n int) (int, error) {
		ran.add("pay")
		paying.enter()
		<-paying.open
		return n, nil
	}))
	agent.Model = &belated{Model: scripted.New(scripted.Call("pay", num{1}), scripted.Text("Done.")).ByPosition(), gate: late}
	backend, other := s.newFrail(s.Backend), s.newFrail(s.Backend)
	var zombies, heirs tally
	backend.faults.committing = func(commit *session.Commit) { zombies.add(commit.Key) }
	other.faults.committing = func(commit *session.Commit) { heirs.add(commit.Key) }
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model has said all", late.entered)
	s.until("what it said is in the stream", func() bool { return len(ofKind(s.chunks("s-1"), stream.ToolArgsDelta)) > 0 })
	backend.faults.noRenew.Store(true)
	y := s.startOn(other, Options{Agents: []*helix.Agent{agent}, LeaseTTL: 10 * lease})
	s.receive("the heir's call runs", paying.entered)
	late.release()
	backend.faults.noRenew.Store(false)
	s.ok(x.Shutdown(s.ctx()), "close") // waits for the zombie's turn
	s.same(ran.of("pay"), 1, "payments that were started")
	for key := range zombies.n {
		s.same(heirs.of(key), 0, "the heir's commits as %s, which is the zombie's", key)
	}
	paying.release()
	s.ended(s.Result(s.Attach(y, "s-1")), helix.Completed)
	s.same(run.ID(), s.load("s-1").CurrentRunID, "run")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1})`, "tool pay: 1", "assistant: Done.")
}

func recoverHeartbeat(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Call("wait", num{1}), scripted.Text("Done.")).ByPosition(), blocking(g))
	ttl := s.pace(600 * time.Millisecond)
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, LeaseTTL: ttl})
	s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: ttl})
	ids := []string{"s-1", "s-2", "s-3"}
	runs, epochs := map[string]helix.Run{}, map[string]int64{}
	for _, id := range ids {
		runs[id] = s.Begin(x, agent, id, "Hi!")
		epochs[id] = s.load(id).Lease.Epoch
	}
	s.receive("the tool runs", g.entered)
	// A sweep of either process may be the one that looks: in so much time, many do.
	s.idle(8 * ttl)
	for _, id := range ids {
		s.same(s.load(id).Lease.Epoch, epochs[id], "epoch of the lease of %s", id)
	}
	g.release()
	for _, id := range ids {
		s.ended(s.Result(runs[id]), helix.Completed)
		s.same(s.run(id, runs[id].ID()).Attempts, 0, "takeovers of %s", id)
	}
}

// payment is an agent whose call waits, which may neither be cancelled nor run again.
type payment struct {
	s              *Stage
	agent          *helix.Agent
	gate           *gate
	ran, cancelled tally
}

func (s *Stage) newPayment() *payment {
	p := &payment{s: s, gate: s.newGate()}
	p.agent = newAgent(scripted.New(scripted.Call("pay", num{1}), scripted.Text("Done.")).ByPosition(),
		newTool("pay", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
			p.ran.add("pay")
			if err := p.gate.pass(ctx); err != nil {
				p.cancelled.add("pay")
				return 0, err
			}
			return n, nil
		}))
	return p
}

// end lets the call end, and requires that its process has kept the run of session s-1.
func (p *payment) end(run helix.Run) {
	s := p.s
	s.Helper()
	p.gate.release()
	s.ended(s.Result(run), helix.Completed)
	s.same([]any{p.ran.of("pay"), p.cancelled.of("pay")}, []any{1, 0}, "payments that were started and cancelled")
	s.same(s.run("s-1", run.ID()).Attempts, 0, "takeovers")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1})`, "tool pay: 1", "assistant: Done.")
}

func recoverAfterOutage(s *Stage) {
	p := s.newPayment()
	var away atomic.Bool
	start := func(backend store.Backend) Executor {
		return s.startOn(awayWhile(backend, &away), Options{Agents: []*helix.Agent{p.agent}, LeaseTTL: lease})
	}
	run := s.Begin(start(s.Backend), p.agent, "s-1", "Hi!")
	s.receive("the tool runs", p.gate.entered)
	for range 2 {
		start(s.config.Reopen(s.T, s.Backend))
	}
	away.Store(true)
	s.idle(15 * lease) // longer than a workflow engine waits for a process that is silent
	s.same(s.countLogged("msg=store.away"), 3, "processes that log that the store is away")
	s.same(s.countLogged("msg=store.back"), 0, "processes that log that the store is back")
	warned := s.countLogged("level=WARN")
	away.Store(false)
	s.idle(5 * lease) // others may now take over, if they do not know that the process lives
	s.same(s.countLogged("msg=store.back"), 3, "processes that log that the store is back")
	if warned > 3*10 { // mostly before a process knows that the store is away
		s.Fatalf("%d warnings were logged", warned)
	}
	p.end(run)
}

// awayWhile returns a backend that cannot be reached while away is set.
func awayWhile(backend store.Backend, away *atomic.Bool) store.Backend {
	faults := storetest.NewFaults(backend)
	faults.Fail(func(storetest.Op) storetest.When {
		if away.Load() {
			return storetest.Before
		}
		return storetest.Pass
	})
	faults.FailReads(away.Load)
	return faults
}

func recoverRetrySoon(s *Stage) {
	var away atomic.Bool
	p := s.newPayment()
	x := s.startOn(awayWhile(s.Backend, &away), Options{Agents: []*helix.Agent{p.agent}, LeaseTTL: lease})
	run := s.Begin(x, p.agent, "s-1", "Hi!")
	s.receive("the tool runs", p.gate.entered)
	away.Store(true)
	p.gate.release()
	s.idle(17 * lease) // the pause between two tries is longer than two leases by then
	away.Store(false)
	began := time.Now()
	p.end(run)
	// waits: what is measured is how soon it continues; a bubble's time is exact
	if took := time.Since(began); s.config.FakeTime && took > 2*lease {
		s.Fatalf("the run continued %s after the outage", took)
	}
}

func recoverCutOff(s *Stage) {
	p := s.newPayment()
	backend := s.newFrail(s.Backend)
	x := s.startOn(backend, Options{Agents: []*helix.Agent{p.agent}, LeaseTTL: lease})
	run := s.Begin(x, p.agent, "s-1", "Hi!")
	s.receive("the tool runs", p.gate.entered)
	backend.faults.noRenew.Store(true)
	s.idle(10 * lease) // also longer than a workflow engine waits for a process that is silent
	backend.faults.noRenew.Store(false)
	p.end(run)
}

func recoverCrashLoop(s *Stage) {
	var asked tally
	gates := []*gate{s.newGate(), s.newGate(), s.newGate(), s.newGate()}
	agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("Done."), scripted.Text("Better.")).ByPosition(), double())
	agent.Hooks.BeforeLLMCall = func(ctx context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		if h.Turn == 1 && h.Step == 2 {
			gates[asked.add("")-1].enter()
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	run := s.orphan(agent, gates[0])
	for i := 1; i <= 3; i++ {
		y, _ := s.heir(agent)
		s.receive("the run is taken over", gates[i].entered)
		s.same(s.run("s-1", run.ID()).Attempts, i, "attempts")
		y.Kill()
	}
	y, handle := s.heir(agent)
	s.failed(s.Result(handle), helix.ErrCrashLoop)
	// The store has the outcome before the process that wrote it logs it.
	s.until("the end of the run is logged", func() bool { return strings.Contains(s.Log.String(), "code=framework_crash_loop") })
	s.logged("level=ERROR", "msg=run.failed", "code=framework_crash_loop")
	s.same(asked.of(""), 4, "times the run was started or taken over")
	s.transcript("s-1", "user: Hi!", `assistant: double({"n":1})`, "tool double: 2")
	s.ended(s.Say(y, agent, "s-1", "Again!"), helix.Completed)
}

func recoverBystanders(s *Stage) {
	const lives, others = 4, 3
	var life, working, most atomic.Int64
	entered := make([]chan string, lives) // sessions whose model is asked, by life
	for i := range entered {
		entered[i] = make(chan string, others+1)
	}
	agent := newAgent(scripted.New(scripted.Text("Done.")).ByPosition())
	agent.Hooks.BeforeLLMCall = func(ctx context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		now := life.Load()
		n := working.Add(1)
		for was := most.Load(); now >= 2 && n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		defer working.Add(-1)
		entered[now] <- h.SessionID
		if now < 2 || h.SessionID == "poison" {
			<-ctx.Done() // until the process dies
			return ctx.Err()
		}
		return nil
	}
	await := func(now, n int) {
		s.Helper()
		for range n {
			s.receiveFrom("a run is where the process is to die", entered[now])
		}
	}
	x := s.mortal(agent)
	s.Begin(x, agent, "poison", "Hi!")
	for i := range others {
		s.Begin(x, agent, fmt.Sprintf("other-%d", i), "Hi!")
	}
	await(0, others+1)
	x.Kill()
	for now := 1; now < lives; now++ {
		working.Store(0)
		life.Store(int64(now))
		y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
		if now == 1 {
			await(now, others+1) // all of them once, without further ado
		} else {
			for id := ""; id != "poison"; {
				id = s.receiveFrom("a run is taken over", entered[now])
			}
		}
		y.Kill()
	}
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.failed(s.Result(s.Attach(y, "poison")), helix.ErrCrashLoop)
	for i := range others {
		s.ended(s.Result(s.Attach(y, fmt.Sprintf("other-%d", i))), helix.Completed)
	}
	s.same(most.Load(), int64(1), "runs that were lost before at work at the same time")
}

func recoverMany(s *Stage) {
	const orphans = 300
	var asked tally
	all := make(chan struct{})
	agent := newAgent(scripted.New(scripted.Text("Done.")).ByPosition())
	agent.Hooks.BeforeLLMCall = func(ctx context.Context, _ *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		if n := asked.add(""); n > orphans {
			return nil
		} else if n == orphans {
			close(all)
		}
		<-ctx.Done()
		return ctx.Err()
	}
	// How long the others take to begin is up to the machine: no run may end for want of time.
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease, HookTimeout: time.Hour})
	var ids []string
	for i := range orphans {
		ids = append(ids, fmt.Sprintf("s-%d", i))
		s.Begin(x, agent, ids[i], "Hi!")
	}
	s.receive("all runs are at work", all)
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	for _, id := range ids {
		s.ended(s.Result(s.Attach(y, id)), helix.Completed)
		s.same(len(s.runs(id)), 1, "runs of %s", id)
	}
}

func recoverProgress(s *Stage) {
	const deaths = 5
	var asked tally
	gates := make([]*gate, deaths)
	var steps []scripted.Step
	for i := range deaths {
		gates[i] = s.newGate()
		steps = append(steps, scripted.Call("double", num{i}))
	}
	agent := newAgent(scripted.New(append(steps, scripted.Text("Done."))...).ByPosition(), double())
	agent.Hooks.BeforeLLMCall = func(ctx context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		if h.Step > 1 && asked.add(h.Key) == 1 {
			gates[h.Step-2].enter()
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	run := s.orphan(agent, gates[0])
	for i := 1; i < deaths; i++ {
		y, _ := s.heir(agent)
		s.receive("the run continues", gates[i].entered)
		y.Kill()
	}
	s.takenOver(run, agent)
	s.same(len(s.messages("s-1")), 2*deaths+2, "messages")
}

func recoverUnknownAgent(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Done."))))
	other := newAgent(scripted.New())
	other.Name = "other"
	run := s.orphan(agent, g)
	s.heir(other)
	s.until("the lease has expired", func() bool {
		now, err := s.store().Now(s.ctx())
		s.ok(err, "now")
		state := s.load("s-1")
		return now.After(state.Lease.ExpiresAt.Add(lease))
	})
	s.same(s.run("s-1", run.ID()).Status, session.RunRunning, "status of the run")
	s.same(s.run("s-1", run.ID()).Attempts, 0, "attempts")
	s.takenOver(run, agent)
}

func recoverAnotherRuntime(s *Stage) {
	agent := newAgent(scripted.New())
	s.foreignRun(time.Millisecond)
	epoch := s.load("s-1").Lease.Epoch
	x := s.mortal(agent)
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hello?")})
	s.refused(err, helix.ErrAlreadyRunning, "run-1")
	s.idle(lease)
	s.same(s.run("s-1", "run-1").Attempts, 0, "attempts")
	s.same(s.load("s-1").Lease.Epoch, epoch, "epoch of the lease")
}

func recoverToolGone(s *Stage) {
	g := s.newGate()
	var ran tally
	tool := countingTool(g, &ran, &journal{})
	tool.Idempotent = true
	model := scripted.New(scripted.Call("pay", num{5}), scripted.Text("It is gone.")).ByPosition()
	run := s.orphan(newAgent(model, tool), g)
	s.takenOver(run, newAgent(model, double()))
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":5})`, "tool pay failed: tool_not_found", "assistant: It is gone.")
}

func recoverPaused(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Done."))))
	run := s.orphan(agent, g)
	s.until("the session can be paused", func() bool {
		done, err := s.store().SetStatus(s.ctx(), "s-1", session.StatusChange{Expect: []session.Status{session.Active}, To: session.Paused})
		return err == nil && done.OK
	})
	y, _ := s.heir(agent)
	_, err := y.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hello?")})
	if err == nil {
		s.Fatal("a paused session takes a turn")
	}
	s.idle(lease)
	s.same(s.run("s-1", run.ID()).Attempts, 0, "attempts")
	s.same(s.load("s-1").Status, session.Paused, "status")
}

func recoverOnExecute(s *Stage) {
	g := s.newGate()
	again := s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(
		scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)), scripted.Reply(scripted.Do(again.enter), scripted.Until(again.open), scripted.Say("one"))),
		scripted.Text("two")))
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: time.Hour})
	run := s.orphan(agent, g)
	_, err := y.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("second")})
	s.refused(err, helix.ErrAlreadyRunning, run.ID())
	s.receive("the run is taken over", again.entered)
	again.release()
	s.ended(s.Result(s.Attach(y, "s-1")), helix.Completed)
	s.ended(s.Say(y, agent, "s-1", "second"), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: one", "user: second", "assistant: two")
}

// unclosed leaves session s-1 completed, by a process that died right after the
// last commit.
func (s *Stage) unclosed(agent *helix.Agent) helix.Run {
	s.Helper()
	return s.unclosedIn("s-1", agent)
}

// unclosedIn is unclosed for a session of any id.
func (s *Stage) unclosedIn(id string, agent *helix.Agent) helix.Run {
	s.Helper()
	backend := s.newFrail(s.Backend)
	died := make(chan struct{})
	once := sync.OnceFunc(func() { close(died) })
	backend.faults.committed = func(commit *session.Commit) {
		if commit.Outcome != nil {
			backend.kill()
			once()
		}
	}
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	run := s.Begin(x, agent, id, "Hi!")
	s.receive("the process dies", died)
	x.Kill()
	s.same(s.load(id).ClosePending, true, "ClosePending")
	return run
}

func recoverOwedClose(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("Done.")))
	var j journal
	agent.Hooks.OnAgentComplete = func(_ context.Context, _ *helix.HookContext, e helix.AgentCompleteEvent) error {
		j.add("complete %s", e.Reply)
		return nil
	}
	run := s.unclosed(agent)
	_, handle := s.heir(agent)
	s.same(handle.ID(), run.ID(), "run")
	s.ended(s.Result(handle), helix.Completed)
	items := s.collect(handle)
	s.same([]any{items[len(items)-1].Frame, items[len(items)-1].End.Status}, []any{stream.FrameEnd, stream.EndCompleted}, "the last item")
	s.until("the hook is told", func() bool { return strings.Contains(j.String(), "complete Done.") })
}

func recoverOwedCloseExecute(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Text("two")))
	run := s.unclosed(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Say(y, agent, "s-1", "second"), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: one", "user: second", "assistant: two")
	ends := ofKind(s.chunks("s-1"), stream.RunCompleted)
	s.same(len(ends), 2, "completed runs in the stream")
	s.same(ends[0].RunID, run.ID(), "the first of them")
}

func recoverOneTaker(s *Stage) {
	g := s.newGate()
	var ran tally
	tool := countingTool(g, &ran, &journal{})
	tool.Idempotent = true
	model := scripted.New(scripted.Call("pay", num{1}), scripted.Text("Done.")).ByPosition()
	agent := newAgent(model, tool)
	run := s.orphan(agent, g)
	epoch := s.load("s-1").Lease.Epoch
	var takers []Executor
	for range 4 { // with a lease that they can keep, however busy the machine is
		takers = append(takers, s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: 10 * lease}))
	}
	for _, y := range takers {
		res := s.Result(s.Attach(y, "s-1"))
		s.ended(res, helix.Completed)
		s.same(res.RunID, run.ID(), "run")
	}
	s.same(ran.of("pay"), 2, "payments")
	s.same(s.run("s-1", run.ID()).Attempts, 1, "attempts")
	s.same(s.load("s-1").Lease.Epoch, epoch+1, "epoch of the lease")
}

func recoverForced(s *Stage) {
	g := s.newGate()
	agent, model := finisher(scripted.Text("It is done."), scripted.Takes(
		scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open)), scripted.Finish(report{"done"})))
	run := s.orphan(agent, g)
	res := s.takenOver(run, agent)
	s.sameJSON(string(res.Output), `{"summary":"done"}`, "output")
	requests := model.Requests()
	s.same(requests[len(requests)-1].ToolChoice.Name, session.FinishTool, "the tool that must be called")
}

func recoverCrashLoopState(s *Stage) {
	var ran tally
	gates := []*gate{s.newGate(), s.newGate(), s.newGate(), s.newGate()}
	pay := newTool("pay", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
		gates[ran.add("pay")-1].enter()
		<-ctx.Done()
		return n, ctx.Err()
	})
	pay.Idempotent = true
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("pay", num{2})), scripted.Text("Better.")).ByPosition(),
		noteTool(), pay)
	agent.State = helix.StateOf(notes{})
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", gates[0].entered)
	s.settled(1)
	x.Kill()
	for _, g := range gates[1:] {
		y, _ := s.heir(agent)
		s.receive("the run is taken over", g.entered)
		y.Kill()
	}
	y, handle := s.heir(agent)
	s.same(handle.ID(), run.ID(), "run")
	s.failed(s.Result(handle), helix.ErrCrashLoop)
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1}), pay({"n":2})`, "tool note: 1", "tool pay failed: tool_outcome_unknown")
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":1}`, "state")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, s.chunks("s-1")), s.state("s-1"), "the folded patches")
	s.ended(s.Say(y, agent, "s-1", "Again!"), helix.Completed)
}

func recoverStarved(s *Stage) {
	const others = 170
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Text("ok"), scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Done."))))
	first := s.Start(agent)
	runtime := s.run("s-2", s.Say(first, agent, "s-2", "Hi!").RunID).Runtime
	s.ok(first.Shutdown(s.ctx()), "close")
	for i := range others { // all of them due before the run that can be taken over
		id, name, by := fmt.Sprintf("other-%03d", i), "gone", runtime
		if i%2 == 1 {
			name, by = "agent", "other"
		}
		_, err := s.store().StartRun(s.ctx(), &session.StartRun{
			SessionID: id, Owner: "other:1", TTL: time.Millisecond,
			Create: &session.State{Tenant: session.DefaultTenant, ID: id, Agent: name, StreamID: id, Status: session.Active},
			Run:    session.Run{ID: "run-" + id, Kind: session.RunExecute, Status: session.RunRunning, Agent: name, Runtime: by},
			Change: session.Change{Messages: []session.Message{{ID: "m-1", Role: session.RoleUser, Parts: []session.Part{session.Text("Hi!")}, RunID: "run-" + id}}},
		})
		s.ok(err, "start a run that no process here takes over")
	}
	s.takenOver(s.orphan(agent, g), agent)
	due, err := s.store().ExpiredLeases(s.ctx(), session.SweepRequest{Limit: 2 * others})
	s.ok(err, "expired leases")
	s.same(len(due), others, "runs that are not taken over")
}

func recoverOutage(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Say("Let me see. "), scripted.Do(g.enter), scripted.Until(g.open), scripted.Calling("note", num{1})), scripted.Text("Done.")), noteTool())
	agent.State = helix.StateOf(notes{})
	backend := s.newFrail(s.Backend)
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	epoch := s.load("s-1").Lease.Epoch
	backend.faults.noAppend.Store(true)
	g.release()
	s.until("the outage is noticed", func() bool { return backend.faults.refused.Load() > 0 })
	s.idle(time.Second)
	backend.faults.noAppend.Store(false)
	s.ended(s.Result(run), helix.Completed)
	s.same([]any{s.run("s-1", run.ID()).Attempts, s.load("s-1").Lease.Epoch}, []any{0, epoch}, "takeovers, and epoch of the lease")
	s.transcript("s-1", "user: Hi!", `assistant: Let me see. , note({"n":1})`, "tool note: 1", "assistant: Done.")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, s.chunks("s-1")), s.state("s-1"), "the folded patches")
}
