package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func streamScenarios() []Scenario {
	return []Scenario{
		{"whole turn", "a turn's chunks describe all of it, numbered from 1, ending in a terminal item", streamWhole},
		{"live", "a reader sees text while the model is still writing", streamLive},
		{"resumable", "a reader can drop anywhere and continue from the last sequence it saw", streamResumable},
		{"several readers", "several readers, also in other processes, see the same", streamReaders},
		{"late reader", "a reader that starts after the end gets everything and the terminal item", streamLate},
		{"break", "breaking out of the loop and starting over works", streamBreak},
		{"cancelled", "the end of the reader's context ends its reading with an error", streamCancelled},
		{"runs apart", "a handle's stream holds its own run, however many turns the session has", streamRunsApart},
		{"next turn", "the stream of a new turn does not end with the end of the turn before", streamNextTurn},
		{"nothing erased", "a later turn does not erase earlier chunks", streamKept},
		{"folds", "folding the chunks of an eventful turn gives its transcript", streamFolds},
		{"order", "text after a call and files before text fold in the reply's order", streamOrder},
		{"no deltas", "the text of a model that streams nothing is streamed all the same, in the reply's order", streamNoDeltas},
		{"custom events", "a tool's events are streamed in order; data that cannot be encoded is reported instead", streamCustom},
		{"failure", "a failed run ends its stream with the error, for readers of before and after", streamFailure},
		{"interrupted", "an interrupted run ends its stream as interrupted, without an error", streamInterrupted},
		{"aborted", "an aborted run fails its stream as cancelled, without an error chunk", streamAborted},
		{"commits", "every committed step has a chunk with its checkpoint", streamCommits},
		{"large text", "a text larger than a chunk is split and folds into one", streamLargeText},
		{"large result", "a large result of characters that JSON escapes is streamed or left out, and the run continues", streamLargeResult},
		{"trimmed", "a reader behind trimmed chunks gets a gap, with the floor", streamTrimmed},
		{"rewound", "readers of a rewound session see the rewind", streamRewound},
		{"slow reader", "a slow reader delays nobody", streamSlow},
	}
}

func streamWhole(s *Stage) {
	agent := newAgent(scripted.New(scripted.Reply(scripted.Say("Hm. "), scripted.Calling("double", num{1})), scripted.Text("ok")), double())
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	items := s.collect(run)
	var got []string
	next := int64(1)
	for _, item := range items {
		if item.Chunk == nil {
			continue
		}
		c := item.Chunk
		s.same(item.Sequence, next, "sequence")
		next++
		if c.AgentID != "s-1" || c.AgentType != "agent" || c.RunID != run.ID() || c.At.IsZero() {
			s.Fatalf("chunk %d does not say where it comes from: %+v", item.Sequence, *c)
		}
		if line := fmt.Sprintf("%s %d", c.Kind, c.Step); len(got) == 0 || got[len(got)-1] != line {
			got = append(got, line) // however a text was cut
		}
	}
	want := "run_started|input|step_started 1|text_delta 1|tool_arg_stream_start 1|tool_arg_stream_delta 1|tool_arg_stream_end 1|" +
		"tool_start 1|tool_end 1|step_committed 1|step_started 2|text_delta 2|step_committed 2|run_completed 2"
	joined := strings.Join(got, "|")
	for _, first := range []string{"run_started", "input"} {
		joined = strings.Replace(joined, first+" 0", first, 1)
		joined = strings.Replace(joined, first+" 1", first, 1)
	}
	s.same(joined, want, "chunks")
	last := items[len(items)-1]
	s.same([]any{last.Frame, last.End.Status}, []any{stream.FrameEnd, stream.EndCompleted}, "the terminal item")
}

func streamLive(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Say("One moment. "), scripted.Until(g.open), scripted.Say("Done."))))
	x := s.Start(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	run := s.Begin(x, agent, "s-1", "Hi!")
	for _, reader := range []helix.Run{run, s.Attach(y, "s-1")} {
		var text strings.Builder
		for item, err := range reader.Stream(s.ctx()) {
			s.ok(err, "stream")
			if item.Chunk != nil {
				text.WriteString(item.Chunk.Delta)
			}
			if text.String() == "One moment. " {
				break // it was seen while the model still waits
			}
		}
		s.same(text.String(), "One moment. ", "what a reader sees")
	}
	g.release()
	s.same(s.Result(run).Text, "One moment. Done.", "the reply")
}

func streamResumable(s *Stage) {
	agent := newAgent(scripted.New(scripted.Reply(scripted.Say("Let me see. "), scripted.Calling("double", num{1})), scripted.Text("So it is.")), double())
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(run), helix.Completed)
	all := s.chunks("s-1")
	for from := range int64(len(all) + 1) {
		var seen []stream.Item
		for item, err := range s.Backend.Streams().Read(s.ctx(), "s-1", from, false) {
			s.ok(err, "read from %d", from)
			seen = append(seen, item)
		}
		s.same(seen[len(seen)-1].Frame, stream.FrameEnd, "the last item from %d", from)
		seen = seen[:len(seen)-1]
		s.same(len(seen), int64(len(all))-from, "chunks from %d", from)
		for i, item := range seen {
			s.same(item.Sequence, from+int64(i)+1, "sequence from %d", from)
			s.same(item.Chunk.Kind, all[from+int64(i)].Kind, "chunk from %d", from)
		}
	}
}

func streamReaders(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Say("One "), scripted.Until(g.open), scripted.Say("two three.")).WithPieceSize(2)))
	x := s.Start(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	run := s.Begin(x, agent, "s-1", "Hi!")
	readers := []helix.Run{run, run, s.Attach(x, "s-1"), s.Attach(y, "s-1"), s.Attach(y, "s-1")}
	seen := make([]string, len(readers))
	var started, finished sync.WaitGroup
	for i, reader := range readers {
		started.Add(1)
		finished.Go(func() {
			begun := sync.OnceFunc(started.Done)
			for item, err := range reader.Stream(s.ctx()) {
				begun()
				if err != nil {
					s.Errorf("reader %d: %v", i, err)
					return
				}
				if item.Chunk != nil {
					seen[i] += fmt.Sprintf("%d %s %s\n", item.Sequence, item.Chunk.Kind, item.Chunk.Delta)
				} else if item.Terminal() {
					seen[i] += string(item.Frame)
				}
			}
		})
	}
	started.Wait()
	g.release()
	finished.Wait()
	for i := range seen {
		s.same(seen[i], seen[0], "what reader %d saw", i)
	}
	if !strings.HasSuffix(seen[0], "end") {
		s.Fatalf("the readers saw %s", seen[0])
	}
}

func streamLate(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok")))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(run), helix.Completed)
	s.same(kinds(s.collect(run)), kinds(s.collect(s.Attach(x, "s-1"))), "what late readers see")
	y := s.StartOther(Options{})
	items := s.collect(s.Attach(y, "s-1"))
	s.same(items[len(items)-1].End.Status, stream.EndCompleted, "how it ended")
}

func streamBreak(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("a b c d")))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	for range 3 {
		for _, err := range run.Stream(s.ctx()) {
			s.ok(err, "stream")
			break
		}
	}
	var sequences []int64
	for _, item := range s.collect(run) {
		if item.Chunk != nil {
			sequences = append(sequences, item.Sequence)
		}
	}
	s.same(sequences[0], 1, "the first sequence")
	s.same(len(sequences), len(s.chunks("s-1")), "chunks seen")
	s.ended(s.Result(run), helix.Completed)
}

func streamCancelled(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Until(g.open), scripted.Say("ok"))))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel()
	var last error
	for _, err := range run.Stream(ctx) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		s.Fatalf("the reading ended with %v", last)
	}
	_, err := run.Result(ctx)
	if !errors.Is(err, context.Canceled) {
		s.Fatalf("waiting for the result ended with %v", err)
	}
	g.release()
	s.ended(s.Result(run), helix.Completed)
}

func streamRunsApart(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Text("one"), scripted.Fail(session.CodeProvider, false, "two fails"), scripted.Call("double", num{3}), scripted.Text("three")), double())
	x := s.Start(agent)
	var runs []helix.Run
	for _, text := range []string{"first", "second", "third"} {
		run := s.Begin(x, agent, "s-1", text)
		s.Result(run)
		runs = append(runs, run)
	}
	for i, run := range runs {
		items := s.collect(run)
		for _, item := range items {
			if item.Chunk != nil && item.Chunk.RunID != run.ID() {
				s.Fatalf("the stream of run %d holds a chunk of another: %+v", i+1, *item.Chunk)
			}
		}
		s.same(items[0].Chunk.Kind, stream.RunStarted, "the first chunk of run %d", i+1)
		last := items[len(items)-1]
		s.same(last.Frame, []stream.FrameKind{stream.FrameEnd, stream.FrameFail, stream.FrameEnd}[i], "the last item of run %d", i+1)
		if i == 1 {
			s.refused(last.Error, code(session.CodeProvider), "two fails")
		}
	}
}

func streamNextTurn(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Reply(scripted.Until(g.open), scripted.Say("two"))))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	run := s.Begin(x, agent, "s-1", "second")
	for item, err := range run.Stream(s.ctx()) {
		s.ok(err, "stream")
		if item.Terminal() && item.Frame != stream.FrameEnd {
			s.Fatalf("the stream ended with %s", item.Frame)
		}
		g.release() // something was seen: it must not be the end
		if item.Terminal() {
			s.same(s.run("s-1", run.ID()).Status, session.RunCompleted, "the run at the end of its stream")
		}
	}
}

func streamKept(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Text("two")))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	before := s.chunks("s-1")
	second := s.Begin(x, agent, "s-1", "second")
	s.ended(s.Result(second), helix.Completed)
	after := s.chunks("s-1")
	for i := range before {
		s.same(after[i].Kind, before[i].Kind, "chunk %d", i+1)
	}
	s.same(s.run("s-1", second.ID()).StartSequence, len(before), "where the second run starts")
}

func streamFolds(s *Stage) {
	boom := newTool("boom", func(context.Context, *helix.Call, int) (int, error) { panic("boom") })
	agent, _ := finisher(
		scripted.Reply(scripted.Think("Let me think."), scripted.Say("Three at once. "),
			scripted.Calling("double", num{1}), scripted.Calling("boom", num{2}), scripted.Calling("unknown", num{3})),
		scripted.Takes(
			scripted.Reply(scripted.Say("I was about to "), scripted.Calling("double", num{9}), scripted.Failing(llm.Error(session.CodeProvider, true, "cut"))),
			scripted.Call("double", `{"n":"x"}`)),
		scripted.Text("I am done."),
		scripted.Reply(scripted.Say("Really. "), scripted.Finishing(report{"done"})),
	)
	agent.Tools = append(agent.Tools, boom)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	messages := s.messages("s-1")
	s.same(rendered(stream.Fold("s-1", s.chunks("s-1"))), rendered(messages), "the folded stream")
	s.same(len(messages), 10, "messages")
}

func streamCustom(s *Stage) {
	tool := newTool("emit", func(_ context.Context, call *helix.Call, n int) (int, error) {
		for i := range 3 {
			call.Emit("progress", map[string]int{"i": i})
		}
		call.Emit("odd", make(chan int))
		call.Emit("nothing", nil)
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Call("emit", num{1}), scripted.Text("ok")), tool)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	events := ofKind(s.chunks("s-1"), stream.Custom)
	s.same(len(events), 5, "events")
	for i := range 3 {
		s.same(fmt.Sprintf("%s %s %d", events[i].Name, events[i].Data, events[i].Step), fmt.Sprintf(`progress {"i":%d} 1`, i), "event %d", i)
	}
	if !strings.Contains(string(events[3].Data), "cannot be encoded") {
		s.Fatalf("the event that cannot be encoded says %s", events[3].Data)
	}
}

func streamFailure(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Failing(llm.Error(session.CodeProvider, false, "gone")))))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	live := make(chan []stream.Item, 1)
	go func() {
		var items []stream.Item
		for item, err := range run.Stream(s.ctx()) {
			if err != nil {
				s.Errorf("stream: %v", err)
			}
			items = append(items, item)
		}
		live <- items
	}()
	g.release()
	for who, items := range map[string][]stream.Item{"live": <-live, "late": s.collect(run)} {
		last := items[len(items)-1]
		s.same(last.Frame, stream.FrameFail, "the last item of the %s reader", who)
		s.refused(last.Error, code(session.CodeProvider), "gone")
	}
	failures := ofKind(s.chunks("s-1"), stream.Failure)
	s.same(len(failures), 1, "failure chunks")
	s.refused(failures[0].Error, code(session.CodeProvider), "gone")
}

func streamInterrupted(s *Stage) {
	run, x := s.stopped(func(run helix.Run) error { return run.Interrupt(s.ctx(), "enough") })
	items := s.collect(run)
	last := items[len(items)-1]
	s.same([]any{last.Frame, last.End.Status}, []any{stream.FrameEnd, stream.EndInterrupted}, "the last item")
	chunks := s.chunks("s-1")
	s.same(len(ofKind(chunks, stream.Failure)), 0, "failure chunks")
	s.same(chunks[len(chunks)-1].Kind, stream.RunInterrupted, "the last chunk")
	s.same(chunks[len(chunks)-1].Reason, "enough", "the reason")
	s.same(kinds(s.collect(s.Attach(x, "s-1"))), kinds(items), "what a late reader sees")
}

func streamAborted(s *Stage) {
	run, _ := s.stopped(func(run helix.Run) error { return run.Abort(s.ctx(), "enough") })
	items := s.collect(run)
	last := items[len(items)-1]
	s.same(last.Frame, stream.FrameFail, "the last item")
	s.refused(last.Error, helix.ErrCancelled, "enough")
	s.same(len(ofKind(s.chunks("s-1"), stream.Failure)), 0, "failure chunks")
}

// stopped runs a session whose model has said something and waits, stops it, and
// waits for the end.
func (s *Stage) stopped(stop func(run helix.Run) error) (helix.Run, Executor) {
	s.Helper()
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Say("I was about to"), scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("ok"), scripted.Text("ok")))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(stop(run), "stop")
	s.Result(run)
	return run, x
}

func streamCommits(s *Stage) {
	agent, _ := finisher(scripted.Call("double", num{1}), scripted.Text("Hm."), scripted.Finish(report{"done"}))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	commits := ofKind(s.chunks("s-1"), stream.StepCommitted)
	checkpoints := s.checkpoints("s-1")[1:] // the first is the start's
	s.same(len(commits), len(checkpoints), "commits told")
	for i := range commits {
		s.same([]any{commits[i].Step, commits[i].CheckpointID}, []any{i + 1, checkpoints[i].ID}, "commit %d", i+1)
	}
}

func streamLargeText(s *Stage) {
	text := strings.Repeat("0123456789abcdé🧭", s.Backend.Streams().Limits().MaxChunk/19) // 20 bytes each
	agent := newAgent(scripted.New(scripted.Text(text).WithPieceSize(len(text))))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.Completed)
	if s.messages("s-1")[1].Content() != text {
		s.Fatal("the transcript holds another text")
	}
	s.loose["s-1"] = true // it is compared here
	chunks := s.chunks("s-1")
	if folded := stream.Fold("s-1", chunks); folded[1].Content() != text {
		s.Fatal("the stream folds into another text")
	}
	if len(ofKind(chunks, stream.TextDelta)) < 2 {
		s.Fatal("the text is in one chunk")
	}
}

func streamLargeResult(s *Stage) {
	results := []string{strings.Repeat("<", 900_000), strings.Repeat("\x01", 160_000)}
	tool := newTool("big", func(_ context.Context, _ *helix.Call, n int) (string, error) { return results[n], nil })
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("big", num{0}), scripted.Calling("big", num{1})), scripted.Text("ok")), tool)
	x := s.Start(agent)
	s.loose["s-1"] = true // a chunk that is too large is told without its content
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	messages := s.messages("s-1")
	for i, want := range results {
		if got := messages[2+i].Parts[0]; got.Text != want {
			s.Fatalf("result %d is stored as another", i)
		}
	}
	s.same(len(ofKind(s.chunks("s-1"), stream.ToolEnd)), len(results), "results told")
}

func streamTrimmed(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Text("two")))
	x := s.Start(agent)
	s.loose["s-1"] = true
	first := s.Begin(x, agent, "s-1", "first")
	s.ended(s.Result(first), helix.Completed)
	second := s.Begin(x, agent, "s-1", "second")
	s.ended(s.Result(second), helix.Completed)
	start := s.run("s-1", second.ID()).StartSequence
	floor, err := s.Backend.Streams().Trim(s.ctx(), "s-1", stream.TrimPolicy{Through: start})
	s.ok(err, "trim")
	s.same(floor, start, "the floor")
	_, err = s.text(first)
	s.refused(err, session.ErrTruncated, first.ID())
	items := s.collect(first)
	last := items[len(items)-1]
	s.same([]any{last.Frame, last.Floor}, []any{stream.FrameTruncated, start}, "what a reader behind it gets")
	items = s.collect(second)
	s.same([]any{items[0].Sequence, items[len(items)-1].Frame}, []any{start + 1, stream.FrameEnd}, "what the second run's reader gets")
	// The numbering is checked to begin at 1 otherwise.
	s.tenants = nil
}

func streamRewound(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("one"), scripted.Text("another")), double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	info, err := s.Backend.Streams().Info(s.ctx(), "s-1")
	s.ok(err, "info")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: s.checkpoints("s-1")[1].ID})), helix.Completed)
	var frames []stream.Item
	for item, err := range s.Backend.Streams().Read(s.ctx(), "s-1", info.Last, false) {
		s.ok(err, "read")
		if item.Frame == stream.FrameRewound {
			frames = append(frames, item)
		}
	}
	s.same(len(frames), 1, "rewound frames")
	s.same(frames[0].Sequence, info.Last+1, "its sequence")
	s.same(*frames[0].Chunk.MessageCount, 3, "the messages that are left")
	s.transcript("s-1", "user: first", `assistant: double({"n":1})`, "tool double: 2", "assistant: another")
}

func streamSlow(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text(strings.Repeat("word ", 2000)).WithPieceSize(5)))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	ctx := s.ctx()
	for _, err := range run.Stream(ctx) {
		s.ok(err, "stream")
		// This reader does not come back before the run is over and another one has
		// read it all.
		s.ended(s.Result(run), helix.Completed)
		s.collect(run)
		break
	}
}

func streamOrder(s *Stage) {
	file := func(name string) scripted.Part {
		return scripted.Content(session.Part{Kind: session.PartFile, URL: "https://example.com/" + name, MediaType: "image/png"})
	}
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Say("before"), scripted.Calling("double", num{1}), scripted.Say("between"), scripted.Calling("double", num{2}), scripted.Say("after")),
		scripted.Reply(file("1"), scripted.Think("Hm."), scripted.Say("one"), file("2"), scripted.Calling("double", num{3}), file("3"), scripted.Say("two")),
		scripted.Reply(file("4"), scripted.Say("ok"))), double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	want := []string{
		"user: Hi!", `assistant: before, double({"n":1}), between, double({"n":2}), after`, "tool double: 2", "tool double: 4",
		`assistant: [image/png https://example.com/1], <Hm.>, one, [image/png https://example.com/2], double({"n":3}), [image/png https://example.com/3], two`,
		"tool double: 6", "assistant: [image/png https://example.com/4], ok",
	}
	s.transcript("s-1", want...)
	s.same(render(stream.Fold("s-1", s.chunks("s-1"))), strings.Join(want, "\n"), "the folded stream")
}

func streamNoDeltas(s *Stage) {
	call := session.Part{Kind: session.PartToolCall, Tool: "double", Input: []byte(`{"n":1}`)}
	file := session.Part{Kind: session.PartFile, URL: "https://example.com/1", MediaType: "image/png"}
	thought := session.Part{Kind: session.PartReasoning, Text: "Hm."}
	replies := [][]session.Part{
		{thought, session.Text("before"), call, session.Text("after")}, {session.Text("Here: "), file, session.Text("That was it.")},
	}
	var asked tally
	agent := newAgent(modelFunc(func(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error) {
		return &llm.Response{Parts: replies[asked.add("")-1]}, nil
	}), double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	want := []string{
		"user: Hi!", `assistant: <Hm.>, before, double({"n":1}), after`, "tool double: 2",
		"assistant: Here: , [image/png https://example.com/1], That was it.",
	}
	s.transcript("s-1", want...)
	s.same(render(stream.Fold("s-1", s.chunks("s-1"))), strings.Join(want, "\n"), "the folded stream")
}
