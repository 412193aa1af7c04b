package stream_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// narrator generates the chunks of a session and keeps the session's real
// transcript, which Fold must reproduce.
type narrator struct {
	t         *rapid.T
	chunks    []stream.Chunk
	committed []session.Message
	run       string
	step      int
}

func (l *narrator) tell(kind stream.Kind, fill func(*stream.Chunk)) {
	c := stream.Chunk{Kind: kind, AgentID: "s-1", RunID: l.run, Step: l.step}
	if fill != nil {
		fill(&c)
	}
	l.chunks = append(l.chunks, c)
	if rapid.IntRange(0, 4).Draw(l.t, "noise") == 0 { // a sub-agent on the same stream
		l.chunks = append(l.chunks, stream.Chunk{
			Kind:    rapid.SampledFrom([]stream.Kind{stream.StepStarted, stream.TextDelta, stream.StepDiscarded, stream.ToolStart}).Draw(l.t, "noise kind"),
			AgentID: "s-1-sub-x", RunID: l.run, Step: l.step, Delta: "noise", MessageID: "noise",
		})
	}
}

// attempt streams a reply and returns it.
func (l *narrator) attempt(take int) session.Message {
	id := session.ReplyID(l.run, l.step)
	reply := session.Message{ID: id, Role: session.RoleAssistant, RunID: l.run, Step: l.step}
	l.tell(stream.StepStarted, func(c *stream.Chunk) { c.MessageID, c.Attempt = id, take })
	kinds := map[session.PartKind]stream.Kind{session.PartText: stream.TextDelta, session.PartReasoning: stream.Thinking}
	for _, kind := range rapid.SliceOfN(rapid.SampledFrom([]session.PartKind{session.PartText, session.PartReasoning, session.PartToolCall}), 0, 4).Draw(l.t, "parts") {
		n := len(reply.Parts)
		if kind == session.PartToolCall {
			call := session.Part{
				Kind: kind, CallID: session.CallID("s-1", id, n), Tool: "t",
				Input: json.RawMessage(fmt.Sprintf(`{"take":%d}`, take)),
			}
			reply.Parts = append(reply.Parts, call)
			l.tell(stream.ToolArgsStart, func(c *stream.Chunk) { c.CallID, c.Tool = call.CallID, call.Tool })
			l.tell(stream.ToolArgsDelta, func(c *stream.Chunk) { c.CallID, c.Delta = call.CallID, string(call.Input) })
			l.tell(stream.ToolArgsEnd, func(c *stream.Chunk) { c.CallID = call.CallID })
			l.tell(stream.ToolStart, func(c *stream.Chunk) { c.CallID, c.Tool, c.Arguments = call.CallID, call.Tool, call.Input })
			continue
		}
		text := ""
		for range rapid.IntRange(1, 3).Draw(l.t, "pieces") {
			piece := rapid.StringN(1, 5, -1).Draw(l.t, "piece")
			text += piece
			l.tell(kinds[kind], func(c *stream.Chunk) { c.Delta = piece })
		}
		if n > 0 && reply.Parts[n-1].Kind == kind {
			reply.Parts[n-1].Text += text // consecutive texts are one part
		} else {
			reply.Parts = append(reply.Parts, session.Part{Kind: kind, Text: text})
		}
	}
	return reply
}

// results streams the results of calls, in any order, and returns their messages.
func (l *narrator) results(reply session.Message, take int) []session.Message {
	calls := reply.Calls()
	messages := make([]session.Message, len(calls))
	for _, i := range rapid.Permutation(indexes(len(calls))).Draw(l.t, "order") {
		call := calls[i]
		if rapid.Bool().Draw(l.t, "fails") {
			messages[i] = session.ToolFailure(call, session.ErrInternal.WithMessage("take %d", take))
			l.tell(stream.ToolEnd, func(c *stream.Chunk) { c.CallID, c.Tool, c.Error = call.CallID, call.Tool, messages[i].Parts[0].Error })
		} else {
			value := rapid.SampledFrom([]string{`"text"`, `{"a" : 1}`, `null`, `[]`}).Draw(l.t, "result")
			messages[i] = session.ToolResult(call, json.RawMessage(value))
			l.tell(stream.ToolEnd, func(c *stream.Chunk) {
				c.CallID, c.Tool, c.Result, c.Success = call.CallID, call.Tool, json.RawMessage(value), true
			})
		}
		messages[i].RunID, messages[i].Step = l.run, l.step
	}
	return messages
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// turn streams one run: input, then steps, of which any attempt may be discarded.
func (l *narrator) turn(n int) {
	l.run, l.step = fmt.Sprintf("run_%d", n), 0
	l.tell(stream.RunStarted, nil)
	input := session.UserText(fmt.Sprint("turn ", n))
	l.tell(stream.InputReceived, func(c *stream.Chunk) { c.Messages = []session.Message{input} })
	l.committed = append(l.committed, input)
	for range rapid.IntRange(0, 3).Draw(l.t, "steps") {
		l.step++
		take := 1
		for ; rapid.IntRange(0, 3).Draw(l.t, "discard") == 0; take++ {
			reply := l.attempt(take)
			if rapid.Bool().Draw(l.t, "with results") {
				l.results(reply, take)
			}
			l.tell(stream.StepDiscarded, func(c *stream.Chunk) {
				c.Scope = rapid.SampledFrom([]string{"", stream.ScopeReply}).Draw(l.t, "scope")
			})
		}
		reply := l.attempt(take)
		for ; rapid.IntRange(0, 3).Draw(l.t, "discard results") == 0; take++ {
			l.results(reply, take)
			l.tell(stream.StepDiscarded, func(c *stream.Chunk) { c.Scope = stream.ScopeResults })
		}
		results := l.results(reply, take)
		l.tell(stream.StatePatch, nil)
		l.tell(stream.StepCommitted, func(c *stream.Chunk) { c.CheckpointID = "cp" })
		if len(reply.Parts) > 0 { // an empty reply stores nothing
			l.committed = append(append(l.committed, reply), results...)
		}
	}
	l.end()
}

// end streams the end of the run: completed, or abandoned in the middle of a step
// and rewound.
func (l *narrator) end() {
	switch rapid.SampledFrom([]string{"completed", "left", "rewound"}).Draw(l.t, "end") {
	case "completed":
		l.tell(stream.RunCompleted, nil)
	case "left":
		l.step++
		l.attempt(1)
		l.rewind(len(l.committed))
	case "rewound":
		l.rewind(rapid.IntRange(0, len(l.committed)).Draw(l.t, "keep"))
	}
}

func (l *narrator) rewind(keep int) {
	l.committed = l.committed[:keep:keep]
	l.tell(stream.Rewound, func(c *stream.Chunk) { c.MessageCount = &keep })
}

func TestFoldGivesWhatWasCommitted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &narrator{t: t}
		for n := range rapid.IntRange(1, 4).Draw(t, "turns") {
			l.turn(n)
		}
		got := stream.Fold("s-1", l.chunks)
		if len(got) != len(l.committed) {
			t.Fatalf("got %d messages, want %d:\n%s\n%s", len(got), len(l.committed), text(got), text(l.committed))
		}
		for i := range got {
			if !got[i].Equal(&l.committed[i]) {
				t.Fatalf("message %d:\n got %s\nwant %s", i, text(got[i:i+1]), text(l.committed[i:i+1]))
			}
		}
	})
}

func text(messages []session.Message) string {
	raw, err := json.Marshal(messages)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// The results of a suspended step arrive in a later run, before its input or
// reply.
func TestFoldOfASuspendedStep(t *testing.T) {
	t.Parallel()
	fill := func(kind stream.Kind, run string, change func(*stream.Chunk)) stream.Chunk {
		c := stream.Chunk{Kind: kind, AgentID: "s-1", RunID: run, Step: 1}
		if change != nil {
			change(&c)
		}
		return c
	}
	call := func(id string) func(*stream.Chunk) {
		return func(c *stream.Chunk) { c.CallID, c.Tool, c.Arguments = id, "t", json.RawMessage(`{}`) }
	}
	end := func(id string) func(*stream.Chunk) {
		return func(c *stream.Chunk) { c.CallID, c.Tool, c.Result = id, "t", json.RawMessage(`1`) }
	}
	chunks := []stream.Chunk{
		fill(stream.StepStarted, "run_1", func(c *stream.Chunk) { c.MessageID = "m1" }),
		fill(stream.ToolStart, "run_1", call("a")),
		fill(stream.ToolStart, "run_1", call("b")),
		fill(stream.ToolEnd, "run_1", end("b")),
		fill(stream.Suspended, "run_1", nil),
	}
	if got := stream.Fold("s-1", chunks); len(got) != 2 || got[1].Parts[0].CallID != "b" {
		t.Errorf("while it waits: %s", text(got))
	}
	chunks = append(chunks,
		fill(stream.RunResumed, "run_2", nil),
		fill(stream.ToolEnd, "run_2", end("a")),
		fill(stream.StepStarted, "run_2", func(c *stream.Chunk) { c.MessageID = "m2" }),
		fill(stream.TextDelta, "run_2", func(c *stream.Chunk) { c.Delta = "done" }),
	)
	got := stream.Fold("s-1", chunks)
	if len(got) != 4 || got[1].Parts[0].CallID != "a" || got[2].Parts[0].CallID != "b" || got[3].Content() != "done" {
		t.Errorf("after it was resumed: %s", text(got))
	}
	if _, err := session.NewTranscript(got); err != nil {
		t.Error(err)
	}
}
