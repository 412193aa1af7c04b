package aisdk

import (
	"slices"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// is reports whether a chunk belongs to the step.
func (s *step) is(c *stream.Chunk) bool {
	if c.MessageID != "" {
		return s.reply == c.MessageID
	}
	return s.run == c.RunID && s.n == c.Step
}

// discard removes what a step has shown.
func (e *Encoder) discard(c *stream.Chunk) {
	if !e.step.is(c) || e.step.reply == "" {
		return
	}
	switch c.Scope {
	case stream.ScopeResults:
		for _, k := range e.step.calls {
			k.final = false // the rest is shown once more
		}
	case stream.ScopeReasoning:
		e.keepText()
	default:
		e.drop()
	}
}

// drop removes the whole step.
func (e *Encoder) drop() {
	if e.step.empty() {
		e.step.reset = e.inStep
		return
	}
	kept := step{reply: e.step.reply, run: e.step.run, n: e.step.n, reset: true}
	if e.CanDiscard() {
		e.forget()
		e.emit(Chunk{Type: TypeResetStep})
		e.step = kept
		return
	}
	e.endText()
	var dropped []string
	for _, t := range e.step.texts {
		if !t.omitted {
			dropped = append(dropped, t.id)
		}
	}
	for _, k := range e.step.calls {
		if e.end(k, nil, errTakenBack); !k.omitted {
			dropped = append(dropped, k.id)
		}
	}
	e.emitDropped(dropped)
	e.forget()
	kept.reset = false
	e.closeStep()
	e.step = kept
}

// errTakenBack is the final state of a call of a discarded reply.
var errTakenBack = &session.Error{Code: session.CodeToolNotRun, Message: "the reply was discarded and is retried"}

// keepText removes all but the text of a reply that was cut off. Its complete calls follow.
func (e *Encoder) keepText() {
	if e.CanDiscard() {
		texts := e.step.texts
		e.forget()
		e.emit(Chunk{Type: TypeResetStep})
		e.step = step{reply: e.step.reply, run: e.step.run, n: e.step.n}
		for _, t := range texts {
			if t.kind == PartText {
				e.addText(PartText, t.text)
			}
			e.endText()
		}
		return
	}
	e.endText()
	var dropped []string
	for _, t := range e.step.texts {
		if t.kind == PartReasoning && !t.omitted {
			dropped = append(dropped, t.id)
		}
	}
	for _, k := range e.step.calls {
		if !k.available && !k.omitted {
			dropped = append(dropped, k.id)
		}
	}
	e.emitDropped(dropped)
}

func (e *Encoder) emitDropped(ids []string) {
	if len(ids) > 0 {
		e.data(Chunk{Type: DataPrefix + "dropped", Data: encoded(map[string]any{"ids": ids}), Transient: true})
	}
}

// forget removes the calls of the step, because the next attempt gives its calls the same
// ids.
func (e *Encoder) forget() {
	for _, k := range e.step.calls {
		delete(e.calls, k.id)
	}
}

func (s *step) empty() bool { return len(s.texts) == 0 && len(s.calls) == 0 }

// Prune removes items that later ones discard, so that a client that connects late does not
// see them. Items that are not part of the session's own reply stay.
func Prune(sessionID string, items []stream.Item) []stream.Item {
	out := slices.Clone(items)
	start, current := -1, step{}
	for i := range items {
		c := items[i].Chunk
		if c == nil || c.AgentID != sessionID {
			continue
		}
		switch c.Kind {
		case stream.StepStarted:
			start, current = i, step{reply: c.MessageID, run: c.RunID, n: c.Step}
		case stream.StepDiscarded:
			if start < 0 || !current.is(c) {
				continue
			}
			out[i].Chunk = nil
			for j := start; j < i; j++ {
				if k := items[j].Chunk; k != nil && k.AgentID == sessionID && taken(k.Kind, c.Scope) {
					out[j].Chunk = nil
				}
			}
			if c.Scope == "" || c.Scope == stream.ScopeReply {
				start = -1
			}
		}
	}
	return slices.DeleteFunc(out, func(i stream.Item) bool { return i.Frame == stream.FrameChunk && i.Chunk == nil })
}

// InFlight returns the session's unfinished step: the index of its first item, or the
// number of items if there is none, and the id of its reply.
func InFlight(sessionID string, items []stream.Item) (at int, reply string) {
	at = len(items)
	for i := range items {
		c := items[i].Chunk
		if c == nil || c.AgentID != sessionID {
			continue
		}
		switch c.Kind {
		case stream.StepStarted:
			at, reply = i, c.MessageID
		case stream.StepCommitted, stream.Suspended, stream.RunCompleted, stream.RunInterrupted, stream.RunPaused, stream.Failure:
			at, reply = len(items), ""
		}
	}
	return at, reply
}

// taken reports whether a discard of a scope removes chunks of a kind.
func taken(kind stream.Kind, scope string) bool {
	switch scope {
	case stream.ScopeResults:
		return kind == stream.ToolEnd
	case stream.ScopeReasoning:
		return kind == stream.Thinking || kind == stream.ToolArgsStart || kind == stream.ToolArgsDelta || kind == stream.ToolArgsEnd
	}
	switch kind {
	case stream.StepStarted, stream.TextDelta, stream.Thinking, stream.FileOutput, stream.ToolArgsStart, stream.ToolArgsDelta,
		stream.ToolArgsEnd, stream.ToolStart, stream.ToolEnd, stream.ApprovalRequest:
		return true
	}
	return false
}
