package runtimetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// evictionScenarios are about results that are too large for the conversation.
func evictionScenarios() []Scenario {
	return []Scenario{
		{"read back", "a result of one line that exceeds MaxResult is evicted in two blobs, and the model reads all of it in pieces", evictReadBack},
		{"five megabytes", "a result of 5 MB survives the death of its process and a branch, is read in pieces, and is gone after the deletion", evictFiveMegabytes},
		{"lines", "of a long text the message has the beginning and the end, and how to read the lines between; the blob has all of it", evictLines},
		{"taken over", "a result that was evicted by a process that died is not made again, and the next one reads it", evictTakenOver},
		{"before the commit", "a process that dies after the bytes were put and before anything names them leaves a turn that goes on", evictBeforeCommit},
		{"branch and delete", "a branch reads what its source has evicted, also once that is deleted; with the last of them the bytes go", evictBranch},
		{"behind a marker", "the model reads a result whose preview it is no longer sent", evictBehindMarker},
		{"rewind", "a rewind drops no bytes", evictRewind},
		{"every kind", "results of clients, sub-agents, remote agents, approved calls and calls that asked are evicted like those of tools", evictKinds},
		{"a remote evicts", "what a remote agent evicts stays on its server, and nothing here says that it is here", evictRemote},
		{"equal results", "equal results of parallel calls are evicted and stored once", evictEqual},
		{"finish with", "the output of a run is whole, although the message has only a preview", evictFinishWith},
		{"exceptions", "results of the tools that the policy names, and of those that read, stay whole", evictExceptions},
		{"filtered", "filters see the whole result, and what they return is evicted; hooks see the preview", evictFiltered},
		{"no room", "a result for which the session has no room is a tool error, and the session stays usable", evictNoRoom},
		{"foreign", "an id of another session, one that was guessed and nonsense give the model nothing", evictForeign},
		{"bad ranges", "each range that is not there is a tool error that says what is", evictBadRanges},
		{"offered", "read_result is offered in every step at the same place, and only if the policy evicts", evictOffered},
		{"off", "without EvictOver nothing is evicted, and MaxResult holds", evictOff},
		{"reserved", "no tool of an application, and of no extension, has the name", evictReserved},
	}
}

// evicting gives an agent a policy that evicts results of more than so many bytes, and
// nothing else.
func evicting(agent *helix.Agent, over int) *helix.Agent {
	agent.Context = &helix.ContextPolicy{
		TriggerMessages: helix.Unlimited, TriggerTokens: helix.Unlimited, TriggerFraction: helix.Unlimited, EvictOver: over,
	}
	return agent
}

// lines is a text of n lines.
func lines(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "line %d of many, no two of which are equal\n", i+1)
	}
	return out.String()
}

// printer is a tool that returns lines.
func printer(name string) helix.Tool {
	return newTool(name, func(_ context.Context, _ *helix.Call, n int) (string, error) { return lines(n), nil })
}

// idOf is the id of a result that has one blob.
func idOf(text string) string { return blob.Digits(blob.RefOf([]byte(text))) }

type readArgs struct {
	ID     string `json:"id"`
	From   int    `json:"from,omitempty"`
	Lines  int    `json:"lines,omitempty"`
	Offset *int   `json:"offset,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`
}

// piece is what a page of a result has behind what it says about itself.
func piece(page string) string {
	_, text, _ := strings.Cut(page, ".]\n\n")
	return text
}

// evictedAs checks that a message has a preview of a result, and that the blobs that it
// names are the result.
func (s *Stage) evictedAs(id string, m session.Message, whole string, isJSON bool) {
	s.Helper()
	about := m.Evicted()
	if about == nil {
		s.Fatalf("the result of %s is not evicted: %.300v", m.Parts[0].Tool, m.Parts[0])
	}
	s.same(about.JSON, isJSON, "whether it is JSON")
	s.same(about.Bytes, int64(len(whole)), "bytes")
	var data []byte
	for _, ref := range about.Blobs {
		part, err := s.Backend.Blobs().Get(s.ctx(), id, ref)
		s.ok(err, "blob of %s", id)
		data = append(data, part...)
	}
	s.same(bytes.Equal(data, []byte(whole)), true, "the blobs are the result")
	text := m.Parts[0].Text
	if !strings.Contains(text, about.ID) || !strings.Contains(text, whole[:100]) || !strings.HasSuffix(text, whole[len(whole)-100:]) || len(text) > 20_000 {
		s.Fatalf("the preview is %.2000q", text)
	}
}

// resultsOf are the messages with the results of a tool.
func (s *Stage) resultsOf(id, tool string) []session.Message {
	s.Helper()
	return slices.DeleteFunc(s.messages(id), func(m session.Message) bool {
		return m.Role != session.RoleTool || m.Parts[0].Tool != tool
	})
}

// idIn is the id of the first result that is evicted in a request.
func idIn(r *llm.Request) string {
	for i := range r.Messages {
		if about := r.Messages[i].Evicted(); about != nil {
			return about.ID
		}
	}
	return ""
}

// reads is a step in which the model reads a part of a result by bytes, as many pieces at
// once as it may.
func reads(from, to, size int) scripted.Step {
	return scripted.Func(func(r *llm.Request) scripted.Step {
		var calls []scripted.Part
		for at := from; at < to; at += size {
			calls = append(calls, scripted.Calling(helix.ReadResultTool, readArgs{ID: idIn(r), Offset: &at}))
		}
		return scripted.Reply(calls...)
	})
}

func evictReadBack(s *Stage) {
	const page = 32 << 10
	rows := make([]string, 25_000)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":%d,"name":"row with a name of its own"}`, i)
	}
	whole := "[" + strings.Join(rows, ",") + "]"
	if len(whole) < 1_100_000 {
		s.Fatalf("the result has only %d bytes", len(whole))
	}
	fetch := helix.Tool{Name: "fetch", Description: "fetch", Execute: helix.RawFunc(json.RawMessage(`{"type":"object"}`),
		func(context.Context, *helix.Call, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(whole), nil
		})}
	const at = 20 * page
	agent := evicting(newAgent(scripted.New(scripted.Call("fetch", nil), reads(0, at, page), reads(at, len(whole), page),
		scripted.Text("I have it.")), fetch), 80_000)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.evictedAs("s-1", s.resultsOf("s-1", "fetch")[0], whole, true)
	s.same(len(s.resultsOf("s-1", "fetch")[0].Evicted().Blobs), 2, "blobs")
	var got strings.Builder
	for _, m := range s.resultsOf("s-1", helix.ReadResultTool) {
		if m.Evicted() != nil || m.Parts[0].Error != nil {
			s.Fatalf("a piece is %.300v", m)
		}
		got.WriteString(piece(m.Parts[0].Text))
	}
	s.same(got.String() == whole, true, "the pieces are the result")
}

func evictLines(s *Stage) {
	whole := lines(5000)
	offset := len(lines(10))
	agent := evicting(newAgent(scripted.New(scripted.Call("print", num{5000}), scripted.Reply(
		scripted.Calling(helix.ReadResultTool, readArgs{ID: idOf(whole), From: 2500, Lines: 2}),
		scripted.Calling(helix.ReadResultTool, readArgs{ID: idOf(whole), From: 5000}),
		scripted.Calling(helix.ReadResultTool, readArgs{ID: idOf(whole)}),
		scripted.Calling(helix.ReadResultTool, readArgs{ID: idOf(whole), Offset: &offset, Bytes: 10}),
	), scripted.Text("ok")), printer("print")), 80_000)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.evictedAs("s-1", s.resultsOf("s-1", "print")[0], whole, false)
	got := s.resultsOf("s-1", helix.ReadResultTool)
	from, to := len(lines(2499)), len(lines(2501))
	s.same(got[0].Parts[0].Text, fmt.Sprintf("[Lines 2500 to 2501 of 5000, bytes %d to %d of %d. Continue with from=2502.]\n\n%s", from, to, len(whole), whole[from:to]), "two lines")
	s.same(got[1].Parts[0].Text, fmt.Sprintf("[Lines 5000 to 5000 of 5000, bytes %d to %d of %d. This is the end.]\n\n%s", len(lines(4999)), len(whole), len(whole), whole[len(lines(4999)):]), "the last line")
	first := piece(got[2].Parts[0].Text)
	s.same(strings.HasPrefix(whole, first) && strings.HasSuffix(first, "\n") && len(first) > 32_000, true, "the first page is whole lines")
	s.same(piece(got[3].Parts[0].Text), "line 11 of", "ten bytes")
	ends := slices.DeleteFunc(s.chunks("s-1"), func(c stream.Chunk) bool { return c.Kind != stream.ToolEnd || c.Tool != "print" })
	s.same(len(ends), 1, "results on the stream")
	s.same(ends[0].Evicted().Blobs[0], blob.RefOf([]byte(whole)), "the blob that the stream names")
}

func evictTakenOver(s *Stage) {
	g := s.newGate()
	var ran tally
	dump := newTool("dump", func(_ context.Context, _ *helix.Call, n int) (string, error) {
		ran.add("dump")
		return lines(n), nil
	})
	wait := blocking(g)
	wait.Idempotent = true
	whole := lines(3000)
	agent := evicting(newAgent(scripted.New(scripted.Reply(scripted.Calling("dump", num{3000}), scripted.Calling("wait", num{1})),
		scripted.Call(helix.ReadResultTool, readArgs{ID: idOf(whole), From: 3000}), scripted.Text("ok")), dump, wait), 50_000)
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the run is where it is to die", g.entered)
	s.awaitFirstResult(run)
	x.Kill()
	g.release()
	s.takenOver(run, agent)
	s.same(ran.of("dump"), 1, "how often the tool ran")
	s.evictedAs("s-1", s.resultsOf("s-1", "dump")[0], whole, false)
	s.same(piece(s.resultsOf("s-1", helix.ReadResultTool)[0].Parts[0].Text), whole[len(lines(2999)):], "what was read")
}

// awaitFirstResult waits until the first call of a run's first step on s-1 has a stored result.
func (s *Stage) awaitFirstResult(run helix.Run) {
	s.Helper()
	s.until("the result is stored", func() bool {
		rows, err := s.store().Calls(s.ctx(), "s-1", session.ReplyID(run.ID(), 1))
		s.ok(err, "calls")
		return len(rows) > 0 && rows[0].Status == session.CallSettled
	})
}

func evictFiveMegabytes(s *Stage) {
	const n = 110_000
	whole := lines(n)
	if len(whole) < 5_000_000 {
		s.Fatalf("the result has only %d bytes", len(whole))
	}
	g := s.newGate()
	var ran tally
	dump := newTool("dump", func(_ context.Context, _ *helix.Call, n int) (string, error) {
		ran.add("dump")
		return lines(n), nil
	})
	wait := blocking(g)
	wait.Idempotent = true
	middle := len(whole) / 2
	pieces := scripted.Func(func(r *llm.Request) scripted.Step {
		id := idIn(r)
		return scripted.Reply(
			scripted.Calling(helix.ReadResultTool, readArgs{ID: id, Lines: 1}),
			scripted.Calling(helix.ReadResultTool, readArgs{ID: id, Offset: &middle, Bytes: 1000}),
			scripted.Calling(helix.ReadResultTool, readArgs{ID: id, From: n}))
	})
	agent := evicting(newAgent(scripted.New(scripted.Reply(scripted.Calling("dump", num{n}), scripted.Calling("wait", num{1})),
		pieces, scripted.Text("ok"), pieces, scripted.Text("ok"), pieces, scripted.Text("ok")), dump, wait), 80_000)
	dies := s.mortal(agent)
	run := s.Begin(dies, agent, "s-1", "Hi!")
	s.receive("the run is where it is to die", g.entered)
	s.awaitFirstResult(run)
	dies.Kill()
	g.release()
	x, again := s.heir(agent)
	s.same(again.ID(), run.ID(), "the run after the takeover")
	s.ended(s.Result(again), helix.Completed)
	s.same(ran.of("dump"), 1, "how often the tool ran")
	readBack := func(id string, times int) {
		s.Helper()
		s.evictedAs(id, s.resultsOf(id, "dump")[0], whole, false)
		got := s.resultsOf(id, helix.ReadResultTool)
		s.same(len(got), 3*times, "pieces that %s has read", id)
		for i, want := range []string{lines(1), whole[middle : middle+1000], whole[len(lines(n-1)):]} {
			s.same(piece(got[len(got)-3+i].Parts[0].Text), want, "piece %d", i)
		}
	}
	readBack("s-1", 1)
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Read it!")), helix.Completed)
	readBack("s-2", 2)
	parts := s.resultsOf("s-1", "dump")[0].Evicted().Blobs
	deleted := func(id string) {
		s.Helper()
		_, err := s.store().Delete(s.ctx(), id)
		s.ok(err, "delete")
		for _, ref := range parts {
			_, err = s.Backend.Blobs().Get(s.ctx(), id, ref)
			s.refused(err, helix.ErrNotFound)
		}
	}
	deleted("s-1")
	swept, err := s.Backend.Blobs().Sweep(s.ctx(), 0, 1000)
	s.ok(err, "sweep")
	s.same(swept, 0, "blobs whose bytes are removed while the branch has them")
	s.ended(s.Say(x, agent, "s-2", "Again!"), helix.Completed)
	readBack("s-2", 3)
	deleted("s-2")
	swept, err = s.Backend.Blobs().Sweep(s.ctx(), 0, 1000)
	s.ok(err, "sweep")
	s.same(swept, len(parts)+1, "blobs whose bytes are removed: the parts and their index")
}

func evictBeforeCommit(s *Stage) {
	g := s.newGate()
	var ran tally
	tool := newTool("print", func(_ context.Context, _ *helix.Call, n int) (string, error) {
		ran.add("print")
		return lines(n), nil
	})
	tool.ReadOnly = true
	agent := evicting(newAgent(scripted.New(scripted.Call("print", num{3000}), scripted.Text("ok")).ByPosition(), tool), 50_000)
	agent.Hooks.AfterTool = func(ctx context.Context, _ *helix.HookContext, _ helix.AfterToolEvent) error { return g.pass(ctx) }
	run := s.orphan(agent, g) // what has the result is about to be committed
	s.same(len(s.messages("s-1")), 1, "messages")
	_, err := s.Backend.Blobs().Get(s.ctx(), "s-1", blob.RefOf([]byte(lines(3000))))
	s.ok(err, "the bytes")
	g.release()
	s.takenOver(run, agent)
	s.same(ran.of("print"), 2, "how often the tool ran")
	s.evictedAs("s-1", s.resultsOf("s-1", "print")[0], lines(3000), false)
	size, err := s.Backend.Blobs().Size(s.ctx(), "s-1")
	s.ok(err, "size")
	s.same(size, int64(len(lines(3000))), "size of the blobs")
}

func evictBranch(s *Stage) {
	whole := lines(3000)
	read := scripted.Call(helix.ReadResultTool, readArgs{ID: idOf(whole), From: 3000})
	agent := evicting(newAgent(scripted.New(scripted.Call("print", num{3000}), scripted.Text("ok"), read, scripted.Text("ok"), read, scripted.Text("ok")),
		printer("print")), 50_000)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Read it!")), helix.Completed)
	_, err := s.store().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	_, err = s.Backend.Blobs().Sweep(s.ctx(), 0, 1000)
	s.ok(err, "sweep")
	s.ended(s.Say(x, agent, "s-2", "Again!"), helix.Completed)
	s.evictedAs("s-2", s.resultsOf("s-2", "print")[0], whole, false)
	for _, m := range s.resultsOf("s-2", helix.ReadResultTool) {
		s.same(piece(m.Parts[0].Text), whole[len(lines(2999)):], "what the branch read")
	}
	_, err = s.store().Delete(s.ctx(), "s-2")
	s.ok(err, "delete")
	for _, id := range []string{"s-1", "s-2"} {
		_, err = s.Backend.Blobs().Get(s.ctx(), id, blob.RefOf([]byte(whole)))
		s.refused(err, helix.ErrNotFound)
	}
	used, err := s.Backend.Blobs().Referenced(s.ctx(), blob.RefOf([]byte(whole)))
	s.ok(err, "referenced")
	s.same(used, false, "the bytes are referenced after the deletion")
	swept, err := s.Backend.Blobs().Sweep(s.ctx(), 0, 1000)
	s.ok(err, "sweep")
	s.same(swept, 1, "blobs whose bytes are removed")
}

func evictBehindMarker(s *Stage) {
	whole := lines(3000)
	model := scripted.New(scripted.Call("print", num{3000}), scripted.Text("one"),
		scripted.Call(helix.ReadResultTool, readArgs{ID: idOf(whole), From: 3000}), scripted.Text("two"))
	agent := evicting(newAgent(model, printer("print")), 50_000)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.mark("You printed "+idOf(whole)+".", 0)
	s.ended(s.Say(x, agent, "s-1", "Read it!"), helix.Completed)
	s.same(len(model.Requests()[2].Messages), 2, "messages that the model was sent")
	s.same(piece(s.resultsOf("s-1", helix.ReadResultTool)[0].Parts[0].Text), whole[len(lines(2999)):], "what was read")
}

func evictRewind(s *Stage) {
	whole := lines(3000)
	agent := evicting(newAgent(scripted.New(scripted.Call("print", num{3000}), scripted.Text("one"),
		scripted.Call(helix.ReadResultTool, readArgs{ID: idOf(whole), From: 3000}), scripted.Text("two")), printer("print")), 50_000)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: s.atTheStart()})), helix.Completed)
	s.same(piece(s.messages("s-1")[2].Parts[0].Text), whole[len(lines(2999)):], "what was read after the rewind")
}

func evictKinds(s *Stage) {
	var ran tally
	report := guarded(&ran, "report")
	report.Execute = printer("report").Execute
	ask := newTool("ask", func(_ context.Context, call *helix.Call, n int) (string, error) {
		if len(call.Answers()) == 0 {
			return "", helix.Ask(helix.Question{Prompt: "Really?"})
		}
		return lines(n), nil
	})
	ask.Asks = true
	n := s.elsewhere(named("far", scripted.New(scripted.Text(lines(3400)))), Options{})
	near := named("near", scripted.New(scripted.Text(lines(3300))))
	agent := evicting(newAgent(scripted.New(scripted.Reply(
		scripted.Calling("pick", num{1}), scripted.Calling("report", num{3100}), scripted.Calling("ask", num{3200}),
		handing("near", "do it"), handing("far", "do it")), scripted.Text("ok")), onClient("pick"), report, ask), 50_000)
	agent.SubAgents = []helix.SubAgent{{Agent: near}, n.sub()}
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	pick, approval, question := s.waiting(res, "pick"), s.waiting(res, "report"), s.waiting(res, "ask")
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, lines(3000)), helix.SubmitAccepted)
	s.Submit(x, "s-1", approve(approval.CallID, approval.ApprovalID), helix.SubmitAccepted)
	s.Submit(x, "s-1", helix.Reply(question, "yes", helix.User{}), helix.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	for tool, size := range map[string]int{"pick": 3000, "report": 3100, "ask": 3200, "subagent__near": 3300, "subagent__far": 3400} {
		s.evictedAs("s-1", s.resultsOf("s-1", tool)[0], lines(size), false)
	}
	s.same(len(s.messages(s.children("s-1")[0].SessionID)[1].Parts[0].Text) > 50_000, true, "a reply is not evicted")
}

func evictRemote(s *Stage) {
	n := s.elsewhere(evicting(named("far", scripted.New(scripted.Call("print", num{3000}), scripted.Text("ok")), printer("print")), 50_000), Options{})
	agent := n.remotely()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	n.evictedAs(n.there(s), n.resultsOf(n.there(s), "print")[0], lines(3000), false)
	ends := 0
	for _, c := range s.chunks("s-1") {
		if c.Kind == stream.ToolEnd && c.Tool == "print" {
			ends++
			s.same(c.Evicted() == nil && bytes.Contains(c.Result, []byte("Only its beginning and its end are shown")), true, "the chunk is a preview and names no blob")
		}
	}
	s.same(ends, 1, "results of the remote on the stream")
}

func evictEqual(s *Stage) {
	for _, readOnly := range []bool{false, true} {
		id := fmt.Sprintf("s-%t", readOnly)
		tool := printer("print")
		tool.ReadOnly = readOnly
		agent := evicting(newAgent(scripted.New(scripted.Reply(scripted.Calling("print", num{3000}), scripted.Calling("print", num{3000}), scripted.Calling("print", num{3000})),
			scripted.Text("ok")), tool), 50_000)
		x := s.Start(agent)
		s.ended(s.Say(x, agent, id, "Go!"), helix.Completed)
		for _, m := range s.resultsOf(id, "print") {
			s.evictedAs(id, m, lines(3000), false)
		}
		size, err := s.Backend.Blobs().Size(s.ctx(), id)
		s.ok(err, "size")
		s.same(size, int64(len(lines(3000))), "size of the blobs")
		s.ok(x.Close(), "close") // the next one has the same agent with another tool
	}
}

func evictFinishWith(s *Stage) {
	publish := printer("publish")
	publish.FinishWith = true
	agent := evicting(newAgent(scripted.New(scripted.Reply(scripted.Calling("print", num{3000}), scripted.Calling("publish", num{3100})), scripted.Text("Next.")),
		printer("print"), publish), 50_000)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	var output string
	s.ok(json.Unmarshal(res.Output, &output), "decode the output")
	s.same(output == lines(3100), true, "the output is whole")
	s.evictedAs("s-1", s.resultsOf("s-1", "publish")[0], lines(3100), false)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.Completed)
}

func evictExceptions(s *Stage) {
	whole := lines(3000)
	agent := evicting(newAgent(scripted.New(scripted.Reply(scripted.Calling("print", num{3000}), scripted.Calling("quote", num{3000}), scripted.Calling("search_memory", num{3000})),
		scripted.Call(helix.ReadResultTool, readArgs{ID: idOf(whole)}), scripted.Text("ok")), printer("print"), printer("quote"), printer("search_memory")), 10_000)
	agent.Context.EvictExcept = []string{"quote"}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.evictedAs("s-1", s.resultsOf("s-1", "print")[0], whole, false)
	for _, tool := range []string{"quote", "search_memory"} {
		s.same(s.resultsOf("s-1", tool)[0].Parts[0].Text == whole, true, "the result of %s is whole", tool)
	}
	read := s.resultsOf("s-1", helix.ReadResultTool)[0]
	s.same(read.Evicted() == nil && len(read.Parts[0].Text) > 30_000, true, "what was read is not evicted")
}

func evictFiltered(s *Stage) {
	var seen journal
	censor := &filtering{extension: extension{name: "censor"}, filter: func(_ *helix.Call, r helix.CallResult) (helix.CallResult, error) {
		seen.add("filter %d", len(r.Output))
		r.Output = bytes.ReplaceAll(r.Output, []byte("many"), []byte("****"))
		return r, nil
	}}
	agent := evicting(extending(newAgent(scripted.New(scripted.Call("print", num{3000}), scripted.Text("ok")), printer("print")), censor), 50_000)
	agent.Hooks.AfterTool = func(_ context.Context, _ *helix.HookContext, e helix.AfterToolEvent) error {
		seen.add("hook %t", e.Result.Evicted() != nil)
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.evictedAs("s-1", s.resultsOf("s-1", "print")[0], strings.ReplaceAll(lines(3000), "many", "****"), false)
	encoded, err := json.Marshal(lines(3000))
	s.ok(err, "encode")
	s.same(seen.String(), fmt.Sprintf("filter %d\nhook true", len(encoded)), "what filters and hooks saw")
}

func evictNoRoom(s *Stage) {
	agent := evicting(newAgent(scripted.New(scripted.Call("print", num{3000}), scripted.Call("print", num{1000}), scripted.Text("ok"), scripted.Text("ok")), printer("print")), 30_000)
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, MaxSession: 120_000})
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	got := s.resultsOf("s-1", "print")
	s.refused(got[0].Parts[0].Error, code(session.CodeToolOutput), "print", fmt.Sprint(len(lines(3000))), "at most 120000")
	s.evictedAs("s-1", got[1], lines(1000), false)
	s.ended(s.Say(x, agent, "s-1", "Still there?"), helix.Completed)
}

func evictForeign(s *Stage) {
	whole := lines(3000)
	ids := []string{idOf(whole), idOf("never"), idOf(whole) + "-2", "sha256:" + idOf(whole), "../../etc/passwd", ""}
	var calls []scripted.Part
	for _, id := range ids {
		calls = append(calls, scripted.Calling(helix.ReadResultTool, readArgs{ID: id}))
	}
	agent := evicting(newAgent(scripted.New(scripted.Call("print", num{3000}), scripted.Text("ok"), scripted.Reply(calls...), scripted.Text("ok")), printer("print")), 50_000)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-2", "Read what s-1 has!"), helix.Completed)
	got := s.resultsOf("s-2", helix.ReadResultTool)
	s.same(len(got), len(ids), "reads")
	for i := range got {
		s.refused(got[i].Parts[0].Error, helix.ErrNotFound, "there is no result with the id")
	}
	s.same(strings.Contains(render(s.messages("s-2")), "line 1 of many"), false, "the other session's text is there")
}

func evictBadRanges(s *Stage) {
	whole := lines(3000)
	calls, wants := []scripted.Part{}, []string{}
	for _, c := range []struct{ args, want string }{
		{`"from":3001`, "from is 3001, but the result has 3000 lines"},
		{`"offset":99999999`, fmt.Sprintf("offset is 99999999, but the result has %d bytes", len(whole))},
		{`"from":1,"offset":1`, "either from and lines, or offset and bytes"},
		{`"lines":1,"offset":1`, "either from and lines, or offset and bytes"},
		{`"bytes":10`, "bytes needs offset"},
		{`"from":0`, "from"},
		{`"lines":-1`, "lines"},
		{`"offset":-1`, "offset"},
		{`"from":1.5`, "from"},
		{`"line":1`, "line"},
	} {
		calls = append(calls, scripted.Calling(helix.ReadResultTool, `{"id":"`+idOf(whole)+`",`+c.args+`}`))
		wants = append(wants, c.want)
	}
	agent := evicting(newAgent(scripted.New(scripted.Call("print", num{3000}), scripted.Reply(calls...), scripted.Text("ok")), printer("print")), 50_000)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	got := s.resultsOf("s-1", helix.ReadResultTool)
	for i, want := range wants {
		s.refused(got[i].Parts[0].Error, code(session.CodeToolInput), want)
	}
}

func evictOffered(s *Stage) {
	model := scripted.New(scripted.Call("print", num{3000}), scripted.Call("double", num{1}), scripted.Finish(map[string]int{"total": 1}))
	other := func(name string) *helix.Agent { return &helix.Agent{Name: name, Model: scripted.New()} }
	agent := evicting(extending(newAgent(model, printer("print")), adding("one", "", double())), 50_000)
	agent.SubAgents = []helix.SubAgent{{Agent: other("sub")}}
	agent.Output = helix.OutputOf[map[string]int]()
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	for i, request := range model.Requests() {
		s.same(offered(request), "print double read_result subagent__sub __finish__", "tools of request %d", i+1)
		s.same(slices.EqualFunc(request.Tools, model.Requests()[0].Tools, func(a, b llm.Tool) bool {
			return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Schema, b.Schema)
		}), true, "the tools of request %d are those of the first", i+1)
	}
}

func evictOff(s *Stage) {
	model := scripted.New(scripted.Call("print", num{3000}), scripted.Call("print", num{30_000}), scripted.Call(helix.ReadResultTool, readArgs{ID: idOf(lines(3000))}), scripted.Text("ok"))
	agent := evicting(newAgent(model, printer("print")), 0)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	got := s.resultsOf("s-1", "print")
	s.same(got[0].Parts[0].Text == lines(3000) && got[0].Evicted() == nil, true, "the result is whole")
	s.refused(got[1].Parts[0].Error, code(session.CodeToolOutput), "at most 1000000 are allowed")
	s.refused(s.resultsOf("s-1", helix.ReadResultTool)[0].Parts[0].Error, code(session.CodeToolUnknown))
	s.same(offered(model.Requests()[0]), "print", "tools")
	size, err := s.Backend.Blobs().Size(s.ctx(), "s-1")
	s.ok(err, "size")
	s.same(size, int64(0), "size of the blobs")
}

func evictReserved(s *Stage) {
	x := s.Start()
	agent := newAgent(scripted.New(scripted.Text("ok")), printer(helix.ReadResultTool))
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrInvalid, `"read_result" is reserved for the framework`)
	model := scripted.New(scripted.Text("ok"))
	other := extending(named("other", model), builtIn{finder: adding("skills", "", printer(helix.ReadResultTool))})
	s.ended(s.Say(x, other, "s-2", "Hi!"), helix.Completed)
	s.same(offered(model.Requests()[0]), "", "tools")
}
