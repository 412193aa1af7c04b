package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func remoteScenarios() []Scenario {
	return []Scenario{
		{"result", "a remote agent's reply is the call's result, and its chunks are in the caller's stream", remoteResult},
		{"output", "a remote agent's structured output is the call's result", remoteOutput},
		{"input", "a remote agent gets the message that the sub-agent's Prompt makes, and the caller's identity", remoteInput},
		{"cuts", "a stream that is cut off again and again shows every chunk once", remoteCuts},
		{"answers lost", "requests whose responses are lost are repeated and take effect once", remoteLost},
		{"same store", "a remote agent may keep its sessions in the store of its caller", remoteSameStore},
		{"trimmed", "chunks that the remote no longer has are left out, and the rest is shown", remoteTrimmed},
		{"later version", "a chunk of a kind that is unknown here is passed on", remoteLaterVersion},
		{"framework events", "a remote cannot show events of the framework; an application's own pass", remoteReserved},
		{"forged", "a remote's chunks cannot pretend to be another agent's", remoteForged},
		{"other's call", "a remote cannot take the answers to another agent's calls", remoteOthersCall},
		{"unreachable", "a remote that cannot be started is a tool error, and the siblings continue", remoteOutOfReach},
		{"unknown agent", "a remote that has no such agent is a tool error at once", remoteUnknownAgent},
		{"wrong version", "a remote that speaks another version is a tool error at once", remoteWrongVersion},
		{"failed", "a remote's failure is a tool error with its code", remoteFailed},
		{"interrupted there", "a remote that is interrupted where it runs is a tool error", remoteInterruptedThere},
		{"deleted there", "a remote whose session is deleted where it is kept is a tool error", remoteDeletedThere},
		{"lost for good", "a remote that does not come back in time is a tool error, and is sent a stop later", remoteLostForGood},
		{"mute", "a remote that is reachable and sends nothing is not waited for forever", remoteMute},
		{"mute to the end", "the result of a remote that sends nothing is read from its status", remoteMuteEnd},
		{"comes back", "a remote that was unreachable for a while is followed from where reading stopped", remoteComesBack},
		{"killed there", "a remote whose process dies is recovered, and its caller continues", remoteKilledThere},
		{"killed", "a caller whose process dies continues with the same remote run, and shows every chunk once", remoteKilled},
		{"killed at start", "a caller that dies before it knows that the remote has started starts it once", remoteKilledAtStart},
		{"killed after the end", "a caller that dies after the remote's end takes its result from there", remoteKilledAfterEnd},
		{"trimmed and killed", "a caller that dies, and whose remote has trimmed its stream, shows no chunk twice", remoteTrimmedKilled},
		{"too large", "a chunk that is too large for the caller's stream is left out, and no other", remoteTooLarge},
		{"crash loop", "a caller that fails because its processes keep dying aborts the remote", remoteCrashLoop},
		{"many crashes", "a caller whose processes die again and again continues as long as the remote makes progress", remoteManyCrashes},
		{"crash loop below", "a remote whose caller below the root fails because its processes keep dying is aborted", remoteCrashLoopBelow},
		{"shutdown", "a caller that is shut down leaves the remote at work, and the next continues", remoteShutdown},
		{"approval", "an approval inside a remote is asked for and given at the caller", remoteApproval},
		{"approval without a fingerprint", "an approval inside a remote that sends no fingerprint of the input can be given", remoteApprovalUnmarked},
		{"denial", "a denial reaches the call inside the remote", remoteDenial},
		{"client tool", "a result submitted at the caller is the result of the call inside the remote", remoteClientTool},
		{"at sight", "a call inside a remote can be answered as soon as it is seen", remoteAtSight},
		{"status fails at sight", "an approval inside a remote is shown though its status could not be read at first", remoteStatusFails},
		{"too many waits", "a remote that names more and more calls that wait is a tool error", remoteTooManyWaits},
		{"nobody waits", "requests that a remote only shows do not have its status read again and again", remoteNobodyWaits},
		{"too many calls", "a remote that shows the beginnings of ever more calls is a tool error", remoteTooManyCalls},
		{"two calls", "calls inside a remote may be answered one by one", remoteTwoCalls},
		{"answered there", "a call that is answered at the remote is not waited for any more", remoteAnsweredThere},
		{"ended there", "a caller whose remote continued without it can be resumed", remoteEndedThere},
		{"one answered there", "a call that was answered at the remote continues when the caller is resumed", remoteOneAnsweredThere},
		{"below a child", "a remote may be called by a sub-agent, and waits at the root", remoteBelowChild},
		{"of a remote", "a remote may call another, and its waits reach the first caller", remoteOfRemote},
		{"policy", "the policy of the remote decides who may answer, before the answer is accepted", remotePolicy},
		{"policy and approval id", "the remote does not carry out an answer with another approval id", remotePolicyFits},
		{"policy and two answers", "of two answers that a remote decides on the first counts, though the response to its caller was lost", remotePolicyTwice},
		{"forwarding fails", "an answer reaches the remote though forwarding fails at first", remoteForwardingFails},
		{"killed with an answer", "an answer that was given before the process died reaches the remote", remoteKilledWithAnswer},
		{"deadline", "a deadline that passes inside a remote is a timeout there, and its caller continues", remoteDeadline},
		{"deadline and policy", "a remote whose clock is behind times out a call itself, if its policy lets nobody else answer it", remoteDeadlinePolicy},
		{"in time", "an answer that is accepted in time reaches the remote in time, though nobody resumes the caller", remoteInTime},
		{"in time but lost", "an answer that is accepted in time, and reaches the remote too late, is told to its model", remoteInTimeLost},
		{"late", "an answer that is late is told to the remote's model", remoteLate},
		{"abort", "aborting the caller aborts the remote", func(s *Stage) { remoteStop(s, session.StopAbort) }},
		{"interrupt", "interrupting the caller interrupts the remote", func(s *Stage) { remoteStop(s, session.StopInterrupt) }},
		{"stop undelivered", "a stop that does not reach the remote is kept, and sent when it can be", remoteStopOwed},
		{"stop undelivered at death", "a stop that a dead process had not sent is sent by another", remoteStopOwedByDead},
		{"stop before start", "a remote that starts only after it was stopped is stopped all the same", remoteStopBeforeStart},
		{"harder stop", "a stop that becomes an abort while it is sent is sent again", remoteHarderStop},
		{"expired", "a caller that expires aborts the remote, and has no stop left to send", remoteExpired},
		{"abort while waiting", "aborting a caller that waits aborts the remote", remoteAbortWaiting},
		{"abandoned", "a message that abandons pending calls aborts the remote", remoteAbandoned},
		{"rewind", "going back to before the call aborts the remote", remoteRewind},
		{"deleted", "deleting a caller deletes the stand-in, and nothing at the remote", remoteDeleted},
		{"two at once", "two remotes of one reply work at the same time", remoteTwoAtOnce},
		{"names", "a remote's name is an agent's, and must not be another's", remoteNames},
	}
}

// remoteCall is the line of a transcript that calls the remote of most scenarios.
const remoteCall = `assistant: subagent__child({"task":"do it"})`

func remoteResult(s *Stage) {
	n := s.elsewhere(named("child", scripted.New(scripted.Call("double", num{4}), scripted.Text("It is 8.")), double()), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "It is 8."`, "assistant: Thanks.")
	s.transcript(s.child("s-1"), "user: do it", "assistant: It is 8.")
	n.transcript(n.there(s), "user: do it", `assistant: double({"n":4})`, "tool double: 8", "assistant: It is 8.")
	s.bracketed("s-1")
	ref := s.children("s-1")[0]
	s.same(ref.Status, session.ChildCompleted, "status of the reference")
	s.same(ref.StopPending, false, "StopPending")
	if ref.Remote == nil || !strings.HasPrefix(ref.SessionID, "s-1-remote-") {
		s.Fatalf("the reference is not that of a remote: %+v", ref)
	}
	s.same(n.calls.of("start"), 1, "starts")
}

func remoteOutput(s *Stage) {
	type sum struct {
		Total int `json:"total"`
	}
	child := named("child", scripted.New(scripted.Finish(sum{8})))
	child.Output = helix.OutputOf[sum]()
	n := s.elsewhere(child, Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: {"total":8}`, "assistant: Thanks.")
	s.bracketed("s-1")
}

func remoteInput(s *Stage) {
	n := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{})
	sub := n.sub()
	sub.Prompt = func(input json.RawMessage) (string, error) { return "Please: " + string(input), nil }
	agent := parentOf(sub)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	n.transcript(n.there(s), `user: Please: {"task":"do it"}`, "assistant: ok")
	s.same(n.load(n.there(s)).Metadata[helix.MetaCallerSession], "s-1", "the caller")
	s.same(n.load(n.there(s)).Metadata[helix.MetaCallerAgent], agent.Name, "the agent that called")
}

// talkative is an agent whose reply has many chunks.
func talkative() *helix.Agent {
	words := strings.Repeat("one two three ", 20)
	return named("child", scripted.New(
		scripted.Reply(scripted.Say(words), scripted.Calling("double", num{1})).WithPieceSize(7),
		scripted.Text(words).WithPieceSize(5)), double())
}

func remoteCuts(s *Stage) {
	for _, cut := range []int{1, 2, 3, 7} {
		n := s.elsewhere(talkative(), Options{})
		n.cut = cut
		agent := n.remotely()
		x := s.Start(agent)
		id := fmt.Sprintf("s-%d", cut)
		s.ended(s.Say(x, agent, id, "Hi!"), helix.Completed)
		s.bracketed(id)
		if reads := n.calls.of("read"); reads < 3 {
			s.Fatalf("the stream was read %d times, and every reading was cut off", reads)
		}
	}
}

func remoteLost(s *Stage) {
	var ran tally
	n := s.elsewhere(named("child", scripted.New(scripted.Call("sign", num{3}), scripted.Text("signed")), guarded(&ran, "sign")), Options{})
	n.lost = map[string]int{"start": 2, "resume": 2, "submit": 2, "status": 3}
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.same(n.calls.of("start"), 3, "starts")
	s.same(n.calls.of("resume"), 3, "resumes")
	s.same(len(n.runs(n.there(s))), 2, "runs of the remote")
	s.same(ran.of("sign"), 1, "signatures")
}

func remoteSameStore(s *Stage) {
	child := named("far", scripted.New(scripted.Text("ok")))
	n := &server{Stage: s, agent: child, faults: map[string]int{}, lost: map[string]int{}}
	n.x = s.Start(child)
	agent := parentOf(helix.SubAgent{Name: "child", Remote: n})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "ok"`, "assistant: Thanks.")
	s.same(len(s.sessions()), 3, "sessions")
}

func remoteTrimmed(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(named("child", scripted.New(
		scripted.Call("double", num{1}), scripted.Reply(scripted.Say("so far "), scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("so good"))), double()), Options{})
	n.cut = 2 // so that a reading is begun behind what is trimmed
	trim := sync.OnceFunc(func() {
		s.receive("the remote is at its second step", g.entered)
		s.until("that is shown", func() bool { return len(ofKind(n.chunks(n.there(s)), stream.TextDelta)) > 0 })
		_, err := n.Backend.Streams().Trim(s.ctx(), n.there(s), stream.TrimPolicy{KeepLast: 1})
		s.ok(err, "trim")
		g.release()
	})
	n.read = func(item stream.Item) {
		if item.Sequence == 2 {
			trim()
		}
	}
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "so far so good"`, "assistant: Thanks.")
	below := s.child("s-1")
	s.servers = nil // the remote no longer has what was shown
	seen := map[string]int{}
	for _, c := range s.chunks("s-1") {
		if c.AgentID == below {
			seen[string(c.Kind)]++
		}
	}
	s.same(seen[string(stream.RunStarted)], 1, "beginnings")
	s.same(seen[string(stream.RunCompleted)], 1, "ends")
	s.same(seen[string(stream.ToolEnd)], 0, "results that were trimmed")
	n.loose[s.peer(below)] = true
}

func remoteLaterVersion(s *Stage) {
	n := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{})
	n.change = func(item stream.Item) stream.Item {
		if item.Chunk != nil && item.Chunk.Kind == stream.StepCommitted {
			c := *item.Chunk
			c.Kind, item.Chunk = "hologram", &c
		}
		return item
	}
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.servers = nil
	s.same(len(ofKind(s.chunks("s-1"), "hologram")), 1, "chunks of the later kind")
}

func remoteReserved(s *Stage) {
	names := []string{"question", "compacting", "compacted", "evicted", "skill_loaded", "warning", "mine", "remote.warning"}
	say := newTool("say", func(ctx context.Context, call *helix.Call, n int) (int, error) {
		for _, name := range names[:6] {
			call.Emit(name, n)
		}
		return n, nil
	})
	n := s.elsewhere(named("child", scripted.New(scripted.Call("say", num{1}), scripted.Text("ok")), say), Options{})
	next := 0
	n.change = func(item stream.Item) stream.Item {
		if c := item.Chunk; c != nil && next < len(names) && c.Kind != stream.Custom {
			data := json.RawMessage("7")
			if names[next] == "compacted" {
				data = json.RawMessage(`{"kind":"summary","reason":"the key sk-1 is wrong","code":"provider_auth"}`)
			}
			item.Chunk = &stream.Chunk{Kind: stream.Custom, AgentID: c.AgentID, AgentType: c.AgentType, At: c.At, Name: names[next], Data: data}
			next++
		}
		return item
	}
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.servers = nil
	var got []string
	for _, c := range ofKind(s.chunks("s-1"), stream.Custom) {
		got = append(got, c.Name)
		if c.Name == "remote.compacted" {
			s.same(string(c.Data), `{"kind":"summary","code":"provider_auth"}`, "what is told of the remote's provider")
		}
	}
	slices.Sort(got)
	s.same(strings.Join(got, " "), "app.compacted app.compacting app.evicted app.question app.skill_loaded app.warning mine "+
		"remote.compacted remote.compacting remote.evicted remote.question remote.skill_loaded remote.warning remote.warning", "events")
}

func remoteForged(s *Stage) {
	for _, id := range []string{"s-1", strings.Repeat("s", 180)} { // the ids of all that is below a long one begin like it
		n := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{})
		n.change = func(item stream.Item) stream.Item {
			if item.Chunk != nil {
				c := *item.Chunk
				c.AgentID, c.AgentType, item.Chunk = id, "agent", &c
			}
			return item
		}
		agent := n.remotely()
		x := s.Start(agent)
		run := s.Begin(x, agent, id, "Hi!")
		items := s.collect(run)
		s.ended(s.Result(run), helix.Completed)
		s.same(items[len(items)-1].Frame, stream.FrameEnd, "the end of the stream")
		s.bracketed(id) // and the stream folds to the transcript
	}
}

func remoteOthersCall(s *Stage) {
	var ran tally
	n := s.elsewhere(named("child", scripted.New(scripted.Call("sign", num{3}), scripted.Text("signed")), guarded(&ran, "sign")), Options{})
	own := named("own", scripted.New(scripted.Call("pay", num{1}), scripted.Text("paid")), guarded(&ran, "pay"))
	agent := newAgent(scripted.New(scripted.Reply(handing("own", "do it"), handing("child", "do it")), scripted.Text("Thanks.")).ByPosition())
	lying := &liar{server: n}
	agent.SubAgents = []helix.SubAgent{{Agent: own}, {Name: "child", Remote: lying}}
	x := s.Start(agent)
	lying.others = sync.OnceValue(func() string { return s.open(x, "pay").CallID })
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedStepPartial)
	s.same(s.open(x, "pay").SessionID, s.children("s-1")[0].SessionID, "whose call it is")
	s.approve(x, "pay")
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("pay"), 1, "payments")
	part := s.result("subagent__child")
	s.refused(part.Error, code(session.CodeSubAgent), "belongs to another agent")
	peer := s.peer(s.children("s-1")[1].SessionID)
	s.until("the liar is aborted", func() bool { return n.load(peer).Status == session.Failed })
}

// liar is a remote that says that another agent's call, which waits, is its own.
type liar struct {
	*server
	others func() string // that call's id
}

func (l *liar) Status(ctx context.Context, sessionID string) (*helix.RemoteStatus, error) {
	status, err := l.server.Status(ctx, sessionID)
	if err == nil && len(status.Pending) > 0 {
		status.Pending[0].CallID = l.others()
	}
	return status, err
}

func remoteOutOfReach(s *Stage) {
	n := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{})
	n.down = true
	near := named("near", scripted.New(scripted.Text("here")))
	agent := newAgent(scripted.New(scripted.Reply(handing("child", "1"), handing("near", "2")), scripted.Text("I see.")).ByPosition())
	agent.SubAgents = []helix.SubAgent{n.sub(), {Agent: near}}
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, RemotePatience: 400 * time.Millisecond, LeaseTTL: lease})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"1"}), subagent__near({"task":"2"})`,
		"tool subagent__child failed: tool_subagent_failed", `tool subagent__near: "here"`, "assistant: I see.")
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "unreachable", string(session.CodeRemote))
	s.logged("subagent.dispatch_failed", "child")
	s.bracketed("s-1")
	s.same(s.children("s-1")[0].StopPending, true, "StopPending: it is unknown whether the remote started")
	n.set(func(n *server) { n.down = false })
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
	s.same(n.calls.of("start"), 0, "starts")
}

func remoteUnknownAgent(s *Stage) {
	s.refusedStart(session.ErrUnknownAgent.WithMessage("no agent named %q", "child"), "no agent named")
}

func remoteWrongVersion(s *Stage) {
	s.refusedStart(&session.Error{Code: "validation_version", Message: "this server speaks version 7"}, "version 7")
}

// refusedStart makes a remote refuse its start.
func (s *Stage) refusedStart(why error, words string) {
	s.Helper()
	n := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{})
	n.refuse = why
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), words)
	s.same(n.calls.of("start"), 1, "starts")
	s.bracketed("s-1")
}

func remoteFailed(s *Stage) {
	n := s.elsewhere(named("child", scripted.New(scripted.Fail(session.CodeAuth, false, "the key is wrong"))), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "its model could not answer", string(session.CodeAuth))
	s.same(s.children("s-1")[0].Status, session.ChildFailed, "status of the reference")
	s.same(s.children("s-1")[0].StopPending, false, "StopPending")
	s.bracketed("s-1")
}

// busy is an agent that works until the test lets it continue.
func busy(g *gate) *helix.Agent {
	return named("child", scripted.New(scripted.Takes(
		scripted.Reply(scripted.Say("I am at it"), scripted.Do(g.enter), scripted.Until(g.open), scripted.Say(", and done.")), scripted.Text("ok"))))
}

func remoteInterruptedThere(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	s.ok(n.x.Interrupt(s.ctx(), n.there(s), "enough"), "interrupt")
	s.ended(s.Result(run), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "interrupted")
	s.bracketed("s-1")
}

func remoteDeletedThere(s *Stage) {
	var ran tally
	n := s.elsewhere(named("child", scripted.New(scripted.Call("sign", num{3})), guarded(&ran, "sign")), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	_, err := n.store().Delete(s.ctx(), n.there(s))
	s.ok(err, "delete")
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), string(session.CodeNotFound))
	s.nobodyWaits(x)
}

func remoteLostForGood(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, RemotePatience: 2 * time.Second, LeaseTTL: lease})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	n.set(func(n *server) { n.down, n.cut = true, 1 })
	_, err := n.Backend.Streams().Append(s.ctx(), n.there(s), stream.Batch{ // a reading notices only when something comes
		Producer: stream.Producer{Session: "noise", Epoch: 1}, First: 1,
		Chunks: []stream.Chunk{{Kind: stream.Custom, AgentID: n.there(s), AgentType: "child", At: time.Now(), Name: "noise"}},
	})
	s.ok(err, "append")
	s.ended(s.Result(run), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "unreachable")
	s.same(s.children("s-1")[0].StopPending, true, "StopPending")
	n.set(func(n *server) { n.down = false })
	s.until("the remote is aborted", func() bool { return n.load(n.there(s)).Status == session.Failed })
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
	n.loose[n.there(s)] = true
}

// mute is a remote whose stream has no chunks and stays open for some time.
type mute struct {
	*server
	lasts time.Duration
}

func (m *mute) Read(ctx context.Context, _ string, _ int64) iter.Seq2[stream.Item, error] {
	return func(func(stream.Item, error) bool) {
		select {
		case <-ctx.Done():
		case <-time.After(m.lasts): // waits: it lasts that long and shows nothing
		}
	}
}

// muted calls a remote that shows nothing.
func (s *Stage) muted(child *helix.Agent, lasts time.Duration) *server {
	s.Helper()
	n := s.elsewhere(child, Options{})
	agent := parentOf(helix.SubAgent{Name: "child", Remote: &mute{n, lasts}})
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, RemotePatience: 1200 * time.Millisecond, LeaseTTL: lease})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	return n
}

func remoteMute(s *Stage) {
	g := s.newGate()
	n := s.muted(busy(g), 1100*time.Millisecond)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "unreachable", "stream has stopped")
	s.until("the remote is aborted", func() bool { return n.load(n.there(s)).Status == session.Failed })
}

func remoteMuteEnd(s *Stage) {
	s.muted(named("child", scripted.New(scripted.Text("ok"))), time.Hour)
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "ok"`, "assistant: Thanks.")
	s.servers = nil // nothing of it was shown
	s.loose[s.child("s-1")] = true
}

func remoteComesBack(s *Stage) {
	n := s.elsewhere(talkative(), Options{})
	times := 0
	n.read = func(item stream.Item) {
		if item.Sequence == 4 || item.Sequence == 9 {
			n.set(func(n *server) {
				times++
				n.faults["status"], n.faults["read"] = 3, 2
				n.cut = int(item.Sequence)
			})
		}
	}
	n.cut = 4
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.bracketed("s-1")
	if times == 0 {
		s.Fatal("the remote was never unreachable")
	}
}

func remoteKilledThere(s *Stage) {
	g := s.newGate()
	agents := busy(g)
	n := s.elsewhere(agents, Options{LeaseTTL: lease})
	agent := n.remotely()
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	n.set(func(n *server) {
		n.x.(Executor).Kill()
		n.down = true
	})
	heir := n.StartOther(Options{Agents: []*helix.Agent{agents}, LeaseTTL: lease})
	n.set(func(n *server) { n.x, n.down = heir, false })
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "ok"`, "assistant: Thanks.")
	s.bracketed("s-1")
}

func remoteKilled(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	s.until("some of it is shown", func() bool { return len(ofKind(s.chunks("s-1"), stream.TextDelta)) > 0 })
	x.Kill()
	g.release()
	s.takenOver(run, agent)
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "I am at it, and done."`, "assistant: Thanks.")
	s.same(len(n.runs(n.there(s))), 1, "runs of the remote")
	s.bracketed("s-1")
	s.nothingRuns()
}

func remoteKilledAtStart(s *Stage) {
	n := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{LeaseTTL: lease})
	n.lost["start"] = 1 << 30
	agent := n.remotely()
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.until("the remote was started", func() bool { return n.calls.of("start") > 0 })
	x.Kill()
	n.set(func(n *server) { n.lost["start"] = 0 })
	s.takenOver(run, agent)
	s.same(len(n.runs(n.there(s))), 1, "runs of the remote")
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "ok"`, "assistant: Thanks.")
	s.bracketed("s-1")
}

func remoteKilledAfterEnd(s *Stage) {
	n := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{})
	agent := n.remotely()
	backend := s.newFrail(s.Backend)
	died := make(chan struct{})
	once := sync.OnceFunc(func() { close(died) })
	backend.faults.committing = func(commit *session.Commit) {
		if commit.SessionID != "s-1" && commit.Outcome != nil {
			backend.kill()
			once()
		}
	}
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the process dies", died)
	x.Kill()
	s.takenOver(run, agent)
	s.same(n.calls.of("start"), 1, "starts")
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "ok"`, "assistant: Thanks.")
	s.bracketed("s-1")
}

func remoteTrimmedKilled(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	there := n.there(s)
	s.until("all of it is shown", func() bool {
		return len(ofKind(n.chunks(there), stream.TextDelta)) > 0 &&
			len(ofKind(s.chunks("s-1"), stream.TextDelta)) == len(ofKind(n.chunks(there), stream.TextDelta))
	})
	x.Kill()
	info, err := n.Backend.Streams().Info(s.ctx(), there)
	s.ok(err, "info")
	// What was noted of how far the remote was followed may be behind the stream.
	_, err = s.store().UpdateChild(s.ctx(), "s-1", s.child("s-1"), func(ref *session.ChildRef) error {
		var at map[string]any
		if err := json.Unmarshal(ref.Remote, &at); err != nil {
			return err
		}
		at["sequence"] = 1
		ref.Remote, err = json.Marshal(at)
		return err
	})
	s.ok(err, "update child")
	theirs := shownTo(n.chunks(there), there)
	_, err = n.Backend.Streams().Trim(s.ctx(), there, stream.TrimPolicy{Through: info.Last - 1})
	s.ok(err, "trim")
	g.release()
	s.takenOver(run, agent)
	s.servers = nil // the remote no longer has what was shown
	ours := shownTo(s.chunks("s-1"), s.child("s-1"))
	s.same(strings.Join(ours[:len(theirs)], " "), strings.Join(theirs, " "), "what was shown before")
	rest, err := n.Backend.Streams().Chunks(s.ctx(), there, info.Last, 100)
	s.ok(err, "chunks")
	s.same(len(ours), len(theirs)+len(rest), "chunks of the remote")
	n.loose[there] = true
}

// shownTo lists the kinds of an agent's chunks.
func shownTo(chunks []stream.Chunk, agentID string) []string {
	var kinds []string
	for i := range chunks {
		if chunks[i].AgentID == agentID {
			kinds = append(kinds, string(chunks[i].Kind))
		}
	}
	return kinds
}

func remoteTooLarge(s *Stage) {
	n := s.elsewhere(talkative(), Options{})
	n.change = func(item stream.Item) stream.Item {
		if item.Chunk != nil && item.Sequence == 3 {
			c := *item.Chunk
			c.CallID, item.Chunk = strings.Repeat("x", 2<<20), &c
		}
		return item
	}
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.logged("stream.chunk_refused")
	s.servers = nil // it has one more
	s.loose[s.child("s-1")] = true
	s.same(len(shownTo(s.chunks("s-1"), s.child("s-1"))), len(n.chunks(n.there(s)))-1, "chunks of the remote")
}

func remoteCrashLoop(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	s.orphan(agent, g)
	given := func() bool { return s.load("s-1").Status == session.Failed }
	for rounds := 0; !given(); rounds++ {
		if rounds == 12 { // relayed chunks count as progress once
			s.Fatal("the caller does not fail")
		}
		reads := n.calls.of("read")
		y, _ := s.heir(agent)
		s.until("the caller was taken over", func() bool { return n.calls.of("read") > reads || given() })
		y.Kill()
	}
	s.heir(agent)
	s.refused(s.load("s-1").Error, helix.ErrCrashLoop)
	s.until("the remote is aborted", func() bool { return n.load(n.there(s)).Status == session.Failed })
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
	s.same(len(n.runs(n.there(s))), 1, "runs of the remote")
	s.bracketed("s-1")
}

func remoteManyCrashes(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	run := s.orphan(agent, g)
	there, below := n.there(s), s.child("s-1")
	for i := range 5 {
		_, err := n.Backend.Streams().Append(s.ctx(), there, stream.Batch{
			Producer: stream.Producer{Session: "noise", Epoch: 1}, First: int64(i) + 1,
			Chunks: []stream.Chunk{{Kind: stream.Custom, AgentID: there, AgentType: "child", At: time.Now(), Name: "noise"}},
		})
		s.ok(err, "append")
		version := s.load(below).Version
		y, _ := s.heir(agent)
		s.until("some of it was relayed", func() bool {
			return s.load(below).Version > version && len(ofKind(s.chunks("s-1"), stream.Custom)) == i+1
		})
		y.Kill()
	}
	g.release()
	s.takenOver(run, agent)
	s.same(len(n.runs(there)), 1, "runs of the remote")
	s.bracketed("s-1")
	n.loose[there] = true
}

func remoteCrashLoopBelow(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	s.orphan(agent, g)
	below := s.child("s-1")
	for range 3 { // as if its caller had made progress in between
		state := s.load(below)
		_, err := s.store().TakeOver(s.ctx(), &session.TakeOver{
			SessionID: below, RunID: state.CurrentRunID, Owner: "another", TTL: lease, Epoch: state.Lease.Epoch, Force: true,
		})
		s.ok(err, "take over")
	}
	_, run := s.heir(agent)
	s.ended(s.Result(run), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), string(session.CodeCrashLoop))
	s.until("the remote is aborted", func() bool { return n.load(n.there(s)).Status == session.Failed })
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
	s.bracketed("s-1")
}

func remoteShutdown(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	s.ok(x.Close(), "close")
	s.same(n.run(n.there(s), n.runs(n.there(s))[0].ID).Status, session.RunRunning, "the remote's run after the shutdown")
	g.release()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	res := s.Result(s.Attach(y, "s-1"))
	s.ended(res, helix.Completed)
	s.same(res.RunID, run.ID(), "run")
	s.same(n.calls.of("stop"), 0, "stops")
	s.bracketed("s-1")
}

// signer is another server whose agent needs a signature.
func (s *Stage) signer(ran *tally) *server {
	s.Helper()
	return s.elsewhere(signing(ran), Options{})
}

func remoteApproval(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedAwaitingChildren)
	p := s.waiting(res, "sign")
	s.same(p.Kind, session.PendingApproval, "kind")
	s.same(p.SessionID, s.child("s-1"), "owner")
	s.sameJSON(string(p.Input), `{"n":3}`, "input")
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	_, err = x.Submit(s.ctx(), "s-1", approve(p.CallID, "another"))
	s.refused(err, helix.ErrSubmissionKind)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	out := s.Submit(y, "s-1", helix.Approve(p, helix.User{ID: "alice"}), helix.SubmitAccepted)
	s.same(out.Continuation, helix.CallerResumes, "continuation")
	s.same(out.RootID, "s-1", "whom to resume")
	s.Submit(x, "s-1", deny(p.CallID, p.ApprovalID, ""), helix.SubmitAlreadyCompleted)
	s.ended(s.resumed(y), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "signed"`, "assistant: Thanks.")
	n.transcript(n.there(s), "user: do it", `assistant: sign({"n":3})`, "tool sign: 6", "assistant: signed")
	s.same(len(n.runs(n.there(s))), 2, "runs of the remote")
	s.bracketed("s-1")
	s.nobodyWaits(x)
	s.Submit(x, "s-1", deny(p.CallID, p.ApprovalID, ""), helix.SubmitAlreadyCompleted)
}

// unmarked is a remote that sends no fingerprints.
type unmarked struct{ *server }

func (u *unmarked) Status(ctx context.Context, sessionID string) (*helix.RemoteStatus, error) {
	status, err := u.server.Status(ctx, sessionID)
	if err == nil {
		for i := range status.Pending {
			status.Pending[i].Fingerprint = ""
		}
	}
	return status, err
}

func remoteApprovalUnmarked(s *Stage) {
	var ran tally
	agent := parentOf(helix.SubAgent{Name: "child", Remote: &unmarked{s.signer(&ran)}})
	x := s.Start(agent)
	p := s.waiting(s.Say(x, agent, "s-1", "Hi!"), "sign")
	s.Submit(x, "s-1", helix.Approve(p, helix.User{ID: "alice"}), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
}

func remoteDenial(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	p := s.open(x, "sign")
	s.Submit(x, "s-1", deny(p.CallID, p.ApprovalID, "too dear"), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 0, "signatures")
	n.transcript(n.there(s), "user: do it", `assistant: sign({"n":3})`, "tool sign failed: tool_not_approved", "assistant: signed")
}

// picking is an agent with a tool that runs on the client.
func picking() *helix.Agent {
	return named("child", scripted.New(scripted.Call("pick", num{1}), scripted.Text("Blue it is.")).ByPosition(), onClient("pick"))
}

func remoteClientTool(s *Stage) {
	n := s.elsewhere(picking(), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	p := s.open(x, "pick")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	n.transcript(n.there(s), "user: do it", `assistant: pick({"n":1})`, `tool pick: "blue"`, "assistant: Blue it is.")
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "Blue it is."`, "assistant: Thanks.")
	s.bracketed("s-1")
}

func remoteAtSight(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(named("child", scripted.New(
		scripted.Reply(scripted.Calling("wait", num{1}), scripted.Calling("pick", num{2})), scripted.Text("Blue it is.")).ByPosition(),
		blocking(g), onClient("pick")), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	out := s.answerAtSight(run, x, "s-1")
	s.same(out.Continuation, helix.ContinuesRunning, "continuation")
	g.release()
	s.ended(s.Result(run), helix.Completed) // without having been suspended
	n.transcript(n.there(s), "user: do it", `assistant: wait({"n":1}), pick({"n":2})`, "tool wait: 1", `tool pick: "blue"`, "assistant: Blue it is.")
	s.same(len(s.runs("s-1")), 1, "runs")
	s.bracketed("s-1")
}

func remoteStatusFails(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	n.read = func(item stream.Item) {
		if item.Chunk != nil && item.Chunk.Kind == stream.ApprovalRequest {
			n.set(func(n *server) { n.faults["status"] = 3 })
		}
	}
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.same(len(ofKind(s.chunks("s-1"), stream.ApprovalRequest)), 1, "requests that are shown")
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.bracketed("s-1")
}

func remoteTooManyWaits(s *Stage) {
	for i, c := range []struct {
		each  int    // how many calls each status names, none of them twice
		input string // of each
		why   string
	}{
		{600, `{}`, "1200 calls have waited"},
		{3, `"` + strings.Repeat("x", 60_000) + `"`, "at most 100000 are allowed"},
	} {
		var ran tally
		n := s.signer(&ran)
		var named atomic.Int64 // two goroutines may ask at once
		lying := &pretender{server: n, pending: func(theirs []session.Pending) []session.Pending {
			p := theirs[0]
			p.Input, p.Fingerprint = json.RawMessage(c.input), ""
			list := make([]session.Pending, c.each)
			for i := range list {
				list[i] = p
				list[i].CallID = fmt.Sprintf("call-%d", named.Add(1))
			}
			return list
		}}
		agent := parentOf(helix.SubAgent{Name: "child", Remote: lying})
		x := s.StartWith(Options{Agents: []*helix.Agent{agent}, MaxSession: 100_000})
		id := fmt.Sprintf("s-%d", i+1)
		s.ended(s.Say(x, agent, id, "Hi!"), helix.Completed)
		s.refused(s.messages(id)[2].Parts[0].Error, code(session.CodeSubAgent), c.why)
	}
	s.servers = nil
}

func remoteNobodyWaits(s *Stage) {
	const requests = 100
	say := newTool("say", func(ctx context.Context, call *helix.Call, n int) (int, error) {
		for range requests {
			call.Emit("mine", n)
		}
		return n, nil
	})
	n := s.elsewhere(named("child", scripted.New(scripted.Call("say", num{1}), scripted.Text("ok")), say), Options{})
	n.change = func(item stream.Item) stream.Item {
		if item.Chunk != nil && item.Chunk.Kind == stream.Custom {
			c := *item.Chunk
			c.Kind, c.Name, c.Data, c.CallID, c.Tool, c.ApprovalID = stream.ApprovalRequest, "", nil, "x", "bank", "x"
			item.Chunk = &c
		}
		return item
	}
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.servers = nil
	s.same(len(ofKind(s.chunks("s-1"), stream.ApprovalRequest)), 0, "requests that are shown")
	s.same(len(ofKind(s.chunks("s-1"), stream.Custom)), requests, "events that they become")
	if reads := n.calls.of("status"); reads > requests/2 {
		s.Errorf("the status was read %d times for %d requests", reads, requests)
	}
}

// flood is a remote that shows the beginnings of calls without end.
type flood struct {
	*server
	status func() (*helix.RemoteStatus, error)
}

func (f *flood) Start(ctx context.Context, start helix.RemoteStart) (*helix.RemoteRun, error) {
	run, err := f.server.Start(ctx, start)
	if err == nil {
		f.status = func() (*helix.RemoteStatus, error) {
			return &helix.RemoteStatus{RunID: run.RunID, Status: session.RunRunning, Sequence: 1 << 40}, nil
		}
	}
	return run, err
}

func (f *flood) Status(context.Context, string) (*helix.RemoteStatus, error) { return f.status() }

func (f *flood) Read(ctx context.Context, sessionID string, from int64) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		for at := from + 1; at < 3000 && ctx.Err() == nil; at++ {
			c := &stream.Chunk{Kind: stream.ToolStart, AgentID: sessionID, AgentType: "child", At: time.Now(), Tool: "t", CallID: fmt.Sprint("call-", at)}
			if !yield(stream.Item{Frame: stream.FrameChunk, Sequence: at, Chunk: c}, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

func remoteTooManyCalls(s *Stage) {
	n := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{})
	agent := parentOf(helix.SubAgent{Name: "child", Remote: &flood{server: n}})
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, RemotePatience: time.Minute})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "more than 1000 calls")
	s.servers = nil
	s.loose[s.child("s-1")] = true
}

func remoteTwoCalls(s *Stage) {
	var ran tally
	n := s.elsewhere(named("child", scripted.New(
		scripted.Reply(scripted.Calling("sign", num{1}), scripted.Calling("pick", num{2})), scripted.Text("ok")).ByPosition(),
		guarded(&ran, "sign"), onClient("pick")), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "sign")
	res := s.resumed(x)
	s.ended(res, helix.SuspendedAwaitingChildren)
	s.same(len(res.Pending), 1, "calls that wait")
	s.same(ran.of("sign"), 1, "signatures")
	s.Submit(x, "s-1", helix.ToolResult(s.open(x, "pick").CallID, "blue"), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	n.transcript(n.there(s), "user: do it", `assistant: sign({"n":1}), pick({"n":2})`, "tool sign: 2", `tool pick: "blue"`, "assistant: ok")
	s.bracketed("s-1")
}

func remoteAnsweredThere(s *Stage) {
	n := s.elsewhere(picking(), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	p := s.open(x, "pick")
	n.Stage.Submit(n.x, n.there(s), helix.ToolResult(p.CallID, "green"), helix.SubmitAccepted)
	n.ended(n.Result(n.Stage.Resume(n.x, n.there(s), helix.ResumeOptions{})), helix.Completed)
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted) // nobody here knows
	s.ended(s.resumed(x), helix.Completed)
	n.transcript(n.there(s), "user: do it", `assistant: pick({"n":1})`, `tool pick: "green"`, "assistant: Blue it is.")
	s.bracketed("s-1")
}

func remoteEndedThere(s *Stage) {
	n := s.elsewhere(picking(), Options{})
	middle := n.remotely()
	middle.Name = "middle"
	agent := parent(middle)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	p := s.open(x, "pick")
	there := s.peer(p.SessionID)
	n.set(func(n *server) { n.down = true })
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	n.set(func(n *server) { n.down = false })
	n.Stage.Submit(n.x, there, helix.ToolResult(p.CallID, "green"), helix.SubmitAccepted)
	n.ended(n.Result(n.Stage.Resume(n.x, there, helix.ResumeOptions{})), helix.Completed)
	s.ended(s.resumed(x), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__middle({"task":"do it"})`, `tool subagent__middle: "Thanks."`, "assistant: Thanks.")
	s.nobodyWaits(x)
	s.bracketed("s-1")
}

func remoteOneAnsweredThere(s *Stage) {
	var ran tally
	n := s.elsewhere(named("child", scripted.New(
		scripted.Reply(scripted.Calling("sign", num{1}), scripted.Calling("pick", num{2})), scripted.Text("ok")).ByPosition(),
		guarded(&ran, "sign"), onClient("pick")), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	p := s.open(x, "sign")
	n.Stage.Submit(n.x, n.there(s), approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	res := s.resumed(x)
	s.ended(res, helix.SuspendedAwaitingChildren)
	s.same(toolsOf(res.Pending), "pick", "calls that wait")
	s.same(ran.of("sign"), 1, "signatures")
	_, err = x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	s.Submit(x, "s-1", helix.ToolResult(s.open(x, "pick").CallID, "blue"), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.bracketed("s-1")
}

func remoteBelowChild(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	middle := n.remotely()
	middle.Name = "middle"
	agent := parent(middle)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__middle({"task":"do it"})`, `tool subagent__middle: "Thanks."`, "assistant: Thanks.")
	s.transcript(s.child("s-1"), "user: do it", remoteCall, `tool subagent__child: "signed"`, "assistant: Thanks.")
	s.bracketed("s-1")
}

func remoteOfRemote(s *Stage) {
	var ran tally
	far := s.signer(&ran)
	middle := far.remotely()
	middle.Name = "middle"
	near := s.elsewhere(middle, Options{})
	near.servers = append(near.servers, far)
	agent := near.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__middle({"task":"do it"})`, `tool subagent__middle: "Thanks."`, "assistant: Thanks.")
	s.bracketed("s-1")
	near.bracketed(near.there(s))
}

// strict is another server whose agent needs a signature that only the boss, or
// the other one, may give.
func (s *Stage) strict(ran *tally) *server {
	s.Helper()
	tool := guarded(ran, "sign")
	tool.Approver = func(_ context.Context, answer *helix.Answer) error {
		if answer.By.ID != "boss" && answer.By.ID != "other boss" {
			return errors.New("only the boss may")
		}
		return nil
	}
	return s.elsewhere(named("child", scripted.New(scripted.Call("sign", num{3}), scripted.Text("signed")).ByPosition(), tool), Options{LeaseTTL: lease})
}

func remotePolicy(s *Stage) {
	var ran tally
	n := s.strict(&ran)
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	p := s.open(x, "sign")
	_, err := x.Submit(s.ctx(), "s-1", helix.Approve(p, helix.User{ID: "clerk"}))
	s.refused(err, helix.ErrNotAllowed)
	n.set(func(n *server) { n.down = true })
	_, err = x.Submit(s.ctx(), "s-1", helix.Approve(p, helix.User{ID: "boss"}))
	s.refused(err, session.ErrRemote)
	n.set(func(n *server) { n.down = false })
	s.Submit(x, "s-1", helix.Approve(p, helix.User{ID: "boss"}), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
}

func remotePolicyFits(s *Stage) {
	var ran tally
	n := s.strict(&ran)
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	p := s.open(x, "sign")
	boss := helix.User{ID: "boss"}
	for _, answer := range []helix.Submission{
		approve(p.CallID, "another"),
		approveSeen(p.CallID, p.ApprovalID, "sign", json.RawMessage(`{"n":4}`)),
		helix.ToolResult(p.CallID, "signed"),
	} {
		_, err := x.Submit(s.ctx(), "s-1", answer.By(boss))
		s.refused(err, helix.ErrSubmissionKind)
	}
	s.same(n.calls.of("submit"), 0, "answers that the remote got")
	s.Submit(x, "s-1", helix.Deny(p, boss, "no"), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 0, "signatures")
}

func remotePolicyTwice(s *Stage) {
	var ran tally
	n := s.strict(&ran)
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	p := s.open(x, "sign")
	n.set(func(n *server) { n.lost["submit"] = 1 })
	_, err := x.Submit(s.ctx(), "s-1", helix.Approve(p, helix.User{ID: "boss"}))
	s.refused(err, session.ErrRemote)
	out := s.Submit(x, "s-1", helix.Deny(p, helix.User{ID: "other boss"}, "no"), helix.SubmitAlreadyCompleted)
	s.same(out.Continuation, helix.CallerResumes, "continuation")
	s.same(out.RootID, "s-1", "whom to resume")
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.nobodyWaits(x)
	list, err := s.store().PendingCalls(s.ctx(), s.child("s-1"), true)
	s.ok(err, "pending calls")
	s.same(list[0].Response == nil, true, "that the denial is not kept")
}

func remoteForwardingFails(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "sign")
	n.set(func(n *server) { n.faults = map[string]int{"submit": 2, "resume": 2, "status": 2, "read": 2} })
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.bracketed("s-1")
}

func remoteKilledWithAnswer(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "sign")
	n.set(func(n *server) { n.lost["resume"] = 1 << 30 })
	run := s.Resume(x, "s-1", helix.ResumeOptions{})
	s.until("the remote was resumed", func() bool { return n.calls.of("resume") > 0 })
	x.Kill()
	n.set(func(n *server) { n.lost["resume"] = 0 })
	s.takenOver(run, agent)
	s.same(ran.of("sign"), 1, "signatures")
	s.same(len(n.runs(n.there(s))), 2, "runs of the remote")
	s.bracketed("s-1")
}

func remoteDeadline(s *Stage) {
	tool := onClient("pick")
	tool.Deadline = s.pace(3 * time.Second) // long enough to be waited for first
	n := s.elsewhere(named("child", scripted.New(scripted.Call("pick", num{1}), scripted.Text("Nobody knows.")).ByPosition(), tool), Options{LeaseTTL: lease})
	agent := n.remotely()
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.until("the caller continues by itself", func() bool { return s.load("s-1").Status == session.Completed })
	n.transcript(n.there(s), "user: do it", `assistant: pick({"n":1})`, "tool pick failed: client_tool_timeout", "assistant: Nobody knows.")
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "Nobody knows."`, "assistant: Thanks.")
	s.nobodyWaits(x)
}

// early is a remote whose calls are overdue here before they are there.
type early struct{ *server }

func (e *early) Status(ctx context.Context, sessionID string) (*helix.RemoteStatus, error) {
	status, err := e.server.Status(ctx, sessionID)
	if err == nil {
		for i := range status.Pending {
			status.Pending[i].Deadline = status.Pending[i].CreatedAt.Add(time.Millisecond)
		}
	}
	return status, err
}

func remoteDeadlinePolicy(s *Stage) {
	var ran tally
	tool := guarded(&ran, "sign")
	tool.Approver = func(context.Context, *helix.Answer) error { return errors.New("only the boss may") }
	tool.Deadline = s.pace(3 * time.Second)
	n := s.elsewhere(named("child", scripted.New(scripted.Call("sign", num{3}), scripted.Text("Nobody knows.")).ByPosition(), tool), Options{LeaseTTL: lease})
	agent := parentOf(helix.SubAgent{Name: "child", Remote: &early{n}})
	x := s.mortal(agent)
	s.Begin(x, agent, "s-1", "Hi!")
	s.until("the caller continues by itself", func() bool { return s.load("s-1").Status == session.Completed })
	n.transcript(n.there(s), "user: do it", `assistant: sign({"n":3})`, "tool sign failed: client_tool_timeout", "assistant: Nobody knows.")
	s.transcript("s-1", "user: Hi!", remoteCall, `tool subagent__child: "Nobody knows."`, "assistant: Thanks.")
	s.same(ran.of("sign"), 0, "signatures")
	s.nobodyWaits(x)
}

// hasty is a remote whose call times out soon; its caller is about to be resumed by
// nobody but us.
func (s *Stage) hasty() (*server, helix.Executor, session.Pending) {
	s.Helper()
	tool := onClient("pick")
	tool.Deadline = s.pace(3 * time.Second) // long enough to be waited for first
	n := s.elsewhere(named("child", scripted.New(scripted.Call("pick", num{1}), scripted.Text("I see.")).ByPosition(), tool), Options{LeaseTTL: lease})
	agent := n.remotely()
	x := s.startUnhurried(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedAwaitingChildren)
	return n, x, s.waiting(res, "pick")
}

func remoteInTime(s *Stage) {
	n, x, p := s.hasty()
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted)
	list, err := n.store().PendingCalls(s.ctx(), n.there(s), true)
	s.ok(err, "pending calls")
	s.same(list[0].State, session.PendingAnswered, "the entry there")
	s.ended(s.resumed(x), helix.Completed)
	n.transcript(n.there(s), "user: do it", `assistant: pick({"n":1})`, `tool pick: "blue"`, "assistant: I see.")
	s.nobodyWaits(x)
}

func remoteInTimeLost(s *Stage) {
	n, x, p := s.hasty()
	n.set(func(n *server) { n.faults["submit"] = 1 })
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted)
	s.until("the remote continued without it", func() bool { return n.load(n.there(s)).Status == session.Completed })
	s.ended(s.resumed(x), helix.Completed)
	n.transcript(n.there(s), "user: do it", `assistant: pick({"n":1})`, "tool pick failed: client_tool_timeout", "assistant: I see.")
	inbox, err := n.store().Inbox(s.ctx(), n.there(s))
	s.ok(err, "inbox")
	s.same(len(inbox), 1, "notices for the remote's model")
	s.nobodyWaits(x)
}

func remoteLate(s *Stage) {
	tool := onClient("pick")
	tool.Deadline = s.pace(3 * time.Second) // long enough to be waited for first
	n := s.elsewhere(named("child", scripted.New(scripted.Call("pick", num{1}), scripted.Text("Nobody knows.")).ByPosition(), tool), Options{LeaseTTL: lease})
	agent := n.remotely()
	x := s.mortal(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedAwaitingChildren)
	p := s.waiting(res, "pick")
	s.until("the caller continues by itself", func() bool { return s.load("s-1").Status == session.Completed })
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitLate)
	inbox, err := n.store().Inbox(s.ctx(), n.there(s))
	s.ok(err, "inbox")
	s.same(len(inbox), 1, "notices for the remote's model")
}

func remoteStop(s *Stage, kind session.StopKind) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	s.until("some of it is shown", func() bool { return len(ofKind(s.chunks("s-1"), stream.TextDelta)) > 0 })
	want, there := helix.Interrupted, session.Interrupted
	if kind == session.StopAbort {
		want, there = helix.Failed, session.Failed
		s.ok(run.Abort(s.ctx(), "enough"), "abort")
	} else {
		s.ok(run.Interrupt(s.ctx(), "enough"), "interrupt")
	}
	s.ended(s.Result(run), want)
	s.until("the remote stops", func() bool { return n.load(n.there(s)).Status == there })
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
	s.same(s.result("subagent__child").Error.Code, session.CodeRunStopped, "the call's result")
	s.until("no wake is left", func() bool {
		wakes, err := s.store().Wakes(s.ctx(), session.WakeRequest{Limit: 10})
		s.ok(err, "wakes")
		return len(wakes) == 0
	})
	s.bracketed("s-1")
}

func remoteStopOwed(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	n.set(func(n *server) { n.faults["stop"], n.lost["stop"] = 2, 1 })
	s.ok(run.Abort(s.ctx(), "enough"), "abort")
	s.ended(s.Result(run), helix.Failed)
	s.same(s.children("s-1")[0].StopPending, true, "StopPending")
	s.until("the remote is aborted", func() bool { return n.load(n.there(s)).Status == session.Failed })
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
	s.refused(n.load(n.there(s)).Error, helix.ErrCancelled, "enough")
}

func remoteStopOwedByDead(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	agent := n.remotely()
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	n.set(func(n *server) { n.down = true })
	s.ok(run.Abort(s.ctx(), "enough"), "abort")
	s.ended(s.Result(run), helix.Failed)
	x.Kill()
	s.same(s.children("s-1")[0].StopPending, true, "StopPending")
	s.heir(agent)
	n.set(func(n *server) { n.down = false })
	s.until("the remote is aborted", func() bool { return n.load(n.there(s)).Status == session.Failed })
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
}

// slow is a remote that receives its start request late.
type slow struct {
	*server
	asked chan struct{}
	begin chan struct{}
}

func (l *slow) Start(ctx context.Context, start helix.RemoteStart) (*helix.RemoteRun, error) {
	close(l.asked)
	<-ctx.Done()
	go func() {
		<-l.begin
		_, _ = l.server.Start(context.WithoutCancel(ctx), start)
	}()
	return nil, context.Cause(ctx)
}

func remoteStopBeforeStart(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	late := &slow{server: n, asked: make(chan struct{}), begin: make(chan struct{})}
	agent := parentOf(helix.SubAgent{Name: "child", Remote: late})
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is asked to begin", late.asked)
	s.ok(run.Abort(s.ctx(), "enough"), "abort")
	s.ended(s.Result(run), helix.Failed)
	told := n.calls.of("status")
	s.until("the stop was tried", func() bool { return n.calls.of("status") > told+1 })
	close(late.begin)
	s.receive("the remote is at work", g.entered)
	s.until("the remote is aborted", func() bool { return n.load(n.there(s)).Status == session.Failed })
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
}

// deaf is a remote that continues in spite of interrupts.
type deaf struct {
	*server
	told func() // of the first one
}

func (d *deaf) Stop(ctx context.Context, sessionID, runID string, kind session.StopKind, reason string) error {
	if kind == session.StopInterrupt {
		d.told()
		return nil
	}
	return d.server.Stop(ctx, sessionID, runID, kind, reason)
}

func remoteHarderStop(s *Stage) {
	g := s.newGate()
	n := s.elsewhere(busy(g), Options{})
	d := &deaf{server: n, told: sync.OnceFunc(func() {
		_, err := s.store().UpdateChild(s.ctx(), "s-1", s.child("s-1"), func(ref *session.ChildRef) error {
			var at map[string]any
			if err := json.Unmarshal(ref.Remote, &at); err != nil {
				return err
			}
			at["stop"] = map[string]any{"kind": session.StopAbort, "reason": "harder"}
			var err error
			ref.Remote, err = json.Marshal(at)
			return err
		})
		s.ok(err, "update child")
	})}
	agent := parentOf(helix.SubAgent{Name: "child", Remote: d})
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the remote is at work", g.entered)
	s.ok(run.Interrupt(s.ctx(), "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.until("the remote is aborted", func() bool { return n.load(n.there(s)).Status == session.Failed })
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
}

func remoteExpired(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	agent.SessionExpiry = s.pace(time.Second)
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.until("the caller expires", func() bool { return s.load("s-1").Status == session.Failed })
	n.gaveUp(s, n.there(s))
	s.until("no wake is left", func() bool {
		wakes, err := s.store().Wakes(s.ctx(), session.WakeRequest{Limit: 10})
		s.ok(err, "wakes")
		return len(wakes) == 0
	})
}

// gaveUp checks that the remote of session s-1, which waited, is aborted.
func (n *server) gaveUp(s *Stage, peer string) {
	s.Helper()
	s.until("the remote is aborted", func() bool { return n.load(peer).Status == session.Failed })
	n.refused(n.load(peer).Error, helix.ErrCancelled)
	list, err := n.x.Waiting(s.ctx(), peer)
	s.ok(err, "waiting")
	s.same(len(list), 0, "calls that wait there")
	s.until("the stop is delivered", func() bool { return !s.children("s-1")[0].StopPending })
}

func remoteAbortWaiting(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.ok(x.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.until("the caller has failed", func() bool { return s.load("s-1").Status == session.Failed })
	n.gaveUp(s, n.there(s))
	s.nobodyWaits(x)
}

func remoteAbandoned(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	agent.Model = scripted.New(hand("child", "do it"), scripted.Text("As you like.")).ByPosition()
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	run := s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Never mind."), AbandonPending: true})
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", "user: Hi!", remoteCall, "tool subagent__child failed: client_tool_abandoned", "user: Never mind.", "assistant: As you like.")
	n.gaveUp(s, n.there(s))
	s.nobodyWaits(x)
}

func remoteRewind(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	agent.Model = scripted.New(hand("child", "do it"), scripted.Text("Something else."))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	there := n.there(s)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: s.checkpoints("s-1")[0].ID})), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: Something else.")
	n.gaveUp(s, there)
	s.same(s.children("s-1")[0].Status, session.ChildSuperseded, "status of the reference")
}

func remoteDeleted(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	there := n.there(s)
	_, err := s.store().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	s.same(len(s.sessions()), 0, "sessions")
	s.same(n.load(there).Status, session.Active, "status of the remote")
	s.same(n.calls.of("stop"), 0, "stops")
}

func remoteTwoAtOnce(s *Stage) {
	g, h := s.newGate(), s.newGate()
	one, two := busy(g), busy(h)
	one.Name, two.Name = "one", "two"
	n, m := s.elsewhere(one, Options{}), s.elsewhere(two, Options{})
	agent := newAgent(scripted.New(scripted.Reply(handing("one", "1"), handing("two", "2")), scripted.Text("Thanks.")).ByPosition())
	agent.SubAgents = []helix.SubAgent{n.sub(), m.sub()}
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the first is at work", g.entered)
	s.receive("the second is at work", h.entered)
	h.release()
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.bracketed("s-1")
}

func remoteNames(s *Stage) {
	n := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{})
	m := s.elsewhere(named("child", scripted.New(scripted.Text("ok"))), Options{})
	near := named("child", scripted.New(scripted.Text("ok")))
	x := s.Start(n.remotely())
	for _, other := range []*helix.Agent{near, m.remotely()} {
		_, err := x.Execute(s.ctx(), other, helix.Input{SessionID: "s-2", Message: helix.UserText("Hi!")})
		s.refused(err, helix.ErrInvalid, "already registered")
	}
	for _, sub := range []helix.SubAgent{{}, {Remote: n}, {Remote: n, Name: "9"}, {Remote: n, Name: "a.b"}, {Remote: n, Name: "x", Agent: near}, {Agent: near, Name: "y"}} {
		agent := newAgent(scripted.New(scripted.Text("ok")))
		agent.SubAgents = []helix.SubAgent{sub}
		_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-2", Message: helix.UserText("Hi!")})
		s.refused(err, helix.ErrInvalid)
	}
	clash := named("clash", scripted.New(scripted.Text("ok")))
	clash.SubAgents = []helix.SubAgent{{Agent: named("other", scripted.New())}, {Name: "clash", Remote: m}}
	_, err := x.Execute(s.ctx(), clash, helix.Input{SessionID: "s-2", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrInvalid, "rename")
}
