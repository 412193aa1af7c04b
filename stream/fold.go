package stream

import (
	"encoding/json"
	"slices"

	"github.com/helixagents/helix/session"
)

// Fold turns the chunks of a session, in order, into the committed messages. It
// skips chunks of other sessions on the same stream, which belong to sub-agents.
func Fold(sessionID string, chunks []Chunk) []session.Message {
	return FoldOnto(sessionID, nil, chunks)
}

// FoldOnto folds chunks onto the messages before them. Chunks about messages that
// are already present have no effect, so the chunks may begin somewhat too early.
func FoldOnto(sessionID string, messages []session.Message, chunks []Chunk) []session.Message {
	f := folder{messages: slices.Clip(messages)}
	for i := range chunks {
		if chunks[i].AgentID == sessionID {
			f.add(&chunks[i])
		}
	}
	f.close()
	return f.messages
}

// folder keeps the step in flight apart from the committed messages.
type folder struct {
	messages []session.Message
	step     *foldedStep
}

type foldedStep struct {
	runID   string
	number  int
	reply   session.Message
	results map[string]session.Message
}

func (f *folder) add(c *Chunk) {
	switch c.Kind {
	case InputReceived:
		if f.step != nil && len(c.Messages) > 0 && c.Messages[0].Role == session.RoleTool {
			clear(f.step.results) // the turn begins with answers to all open calls
		}
		f.close()
		for i := range c.Messages {
			if f.find(c.Messages[i].ID) < 0 {
				f.messages = append(f.messages, c.Messages[i])
			}
		}
	case Rewound:
		f.close() // if the step was not committed, the count does not include it
		f.truncate(c.MessageCount)
	case StepStarted:
		f.close()
		if at := f.find(c.MessageID); at >= 0 {
			f.messages = f.messages[:at:at]
		}
		f.step = &foldedStep{
			runID: c.RunID, number: c.Step, results: map[string]session.Message{},
			reply: session.Message{ID: c.MessageID, Role: session.RoleAssistant, RunID: c.RunID, Step: c.Step},
		}
	case StepDiscarded:
		f.discard(c)
	default:
		if f.step != nil {
			f.step.add(c)
		}
	}
}

// find returns the index of a message, or -1.
func (f *folder) find(id string) int {
	if id == "" {
		return -1
	}
	for i, m := range slices.Backward(f.messages) {
		if m.ID == id {
			return i
		}
	}
	return -1
}

// truncate keeps the first count messages; all if count is nil.
func (f *folder) truncate(count *int) {
	if count != nil && *count < len(f.messages) {
		f.messages = slices.Clip(f.messages[:max(0, *count)])
	}
}

func (f *folder) discard(c *Chunk) {
	if c.MessageCount != nil {
		if f.step != nil && f.step.is(c) {
			f.step = nil
		}
		f.close()
		f.truncate(c.MessageCount)
		return
	}
	if f.step == nil || !f.step.is(c) {
		return
	}
	switch c.Scope {
	case ScopeResults:
		f.step.results = map[string]session.Message{}
		return
	case ScopeReasoning:
		f.step.reply.Parts = slices.DeleteFunc(f.step.reply.Parts, func(p session.Part) bool {
			return p.Kind == session.PartReasoning
		})
		return
	}
	f.step = nil
}

// is reports whether a chunk belongs to the step. A suspended step continues in
// another run.
func (s *foldedStep) is(c *Chunk) bool {
	if c.MessageID != "" {
		return s.reply.ID == c.MessageID
	}
	return s.runID == c.RunID && s.number == c.Step
}

func (s *foldedStep) add(c *Chunk) {
	switch c.Kind {
	case TextDelta:
		s.appendText(session.PartText, c.Delta)
	case Thinking:
		s.appendText(session.PartReasoning, c.Delta)
	case FileOutput:
		var file File
		if json.Unmarshal(c.Data, &file) == nil {
			at := max(0, min(file.Index, len(s.reply.Parts)))
			s.reply.Parts = slices.Insert(s.reply.Parts, at, session.Part{
				Kind: session.PartFile, URL: file.URL, MediaType: file.MediaType, Filename: file.Filename,
			})
		}
	case ToolArgsStart: // the index of the call among the reply's parts
		s.reply.Parts = append(s.reply.Parts, session.Part{Kind: session.PartToolCall, CallID: c.CallID})
	case ToolStart:
		part := session.Part{Kind: session.PartToolCall, CallID: c.CallID, Tool: c.Tool, Input: c.Arguments}
		at := slices.IndexFunc(s.reply.Parts, func(p session.Part) bool {
			return p.Kind == session.PartToolCall && p.CallID == c.CallID
		})
		if at < 0 {
			s.reply.Parts = append(s.reply.Parts, part)
		} else {
			s.reply.Parts[at] = part
		}
	case ToolEnd:
		call := session.Part{CallID: c.CallID, Tool: c.Tool}
		result := session.ToolResult(call, c.Result)
		if c.Error != nil {
			result = session.ToolFailure(call, c.Error)
		}
		if c.Evicted() != nil {
			result.Metadata = map[string]json.RawMessage{session.MetaEvicted: c.Data}
		}
		result.RunID, result.Step = c.RunID, c.Step
		s.results[c.CallID] = result
	}
}

// appendText joins consecutive deltas of one kind.
func (s *foldedStep) appendText(kind session.PartKind, delta string) {
	if n := len(s.reply.Parts); n > 0 && s.reply.Parts[n-1].Kind == kind {
		s.reply.Parts[n-1].Text += delta
		return
	}
	s.reply.Parts = append(s.reply.Parts, session.Part{Kind: kind, Text: delta})
}

// close treats the step in flight as committed.
func (f *folder) close() {
	if f.step == nil {
		return
	}
	// A call whose arguments began but that never started was not made.
	f.step.reply.Parts = slices.DeleteFunc(f.step.reply.Parts, func(p session.Part) bool {
		return p.Kind == session.PartToolCall && p.Tool == ""
	})
	if len(f.step.reply.Parts) == 0 {
		f.step = nil
		return
	}
	f.messages = append(f.messages, f.step.reply)
	for _, call := range f.step.reply.Calls() {
		if result, ok := f.step.results[call.CallID]; ok {
			f.messages = append(f.messages, result)
		}
	}
	f.step = nil
}
