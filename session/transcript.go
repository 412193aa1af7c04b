package session

import (
	"encoding/json"
	"slices"
)

// Transcript is a message history that can always be sent to a model: every tool
// call is answered exactly once, in order, by the messages that directly follow
// it. It grows by [Transcript.Append], which checks only the new message, so the
// cost of an extension does not depend on the length of the history.
//
// It may hold only the end of a history, from where its view begins; see [Tail].
type Transcript struct {
	before   int // how many messages came before those that it holds
	messages []Message
	// calls is the index of the message that made the last calls, and open how many
	// of its calls, the last ones, have no result yet.
	calls, open int
	bytes       int64
	// view is what a model is sent, if that is not all: it is nil if there is no marker.
	// It grows with the messages, so that asking for it costs nothing.
	view []Message
}

// NewTranscript checks a stored history.
func NewTranscript(messages []Message) (*Transcript, error) {
	return Tail{Messages: messages}.Transcript()
}

// Append adds one message. It returns an error if a provider would refuse the
// resulting history.
func (t *Transcript) Append(m Message) error {
	if err := m.Check(); err != nil {
		return err
	}
	if m.Role == RoleTool {
		if err := t.answer(&m); err != nil {
			return err
		}
	} else {
		if next := t.nextOpen(); next != nil {
			return Invalid("transcript", "has call %s to %s without a result before the next %s message",
				next.CallID, next.Tool, m.Role)
		}
		calls, err := countCalls(m.Parts)
		if err != nil {
			return err
		}
		t.calls, t.open = len(t.messages), calls
	}
	if len(t.messages) == cap(t.messages) { // a long history doubles: append alone would copy it more often
		t.messages = slices.Grow(t.messages, max(16, len(t.messages)))
	}
	t.messages = append(t.messages, m)
	t.bytes += int64(m.Size())
	if m.Compaction() != nil {
		t.view = View(t.messages)
	} else if t.view != nil {
		t.view = append(t.view, m)
	}
	return nil
}

func (t *Transcript) answer(m *Message) error {
	if len(m.Parts) != 1 {
		return Invalid("tool message", "has %d parts, must have one", len(m.Parts))
	}
	result := &m.Parts[0]
	next := t.nextOpen()
	switch {
	case next == nil:
		return Invalid("transcript", "has a result for call %s, which no message contains", result.CallID)
	case next.CallID != result.CallID:
		return Invalid("transcript", "has a result for call %s where the result of %s is expected", result.CallID, next.CallID)
	}
	t.open--
	return nil
}

// nextOpen returns the first call that has no result yet, or nil.
func (t *Transcript) nextOpen() *Part {
	if t.open == 0 {
		return nil
	}
	parts, after := t.messages[t.calls].Parts, t.open
	for i := len(parts) - 1; ; i-- {
		if parts[i].Kind == PartToolCall {
			if after--; after == 0 {
				return &parts[i]
			}
		}
	}
}

// countCalls returns how many calls a message makes. Their ids must be distinct.
func countCalls(parts []Part) (n int, err error) {
	seen := map[string]bool{}
	for i := range parts {
		if parts[i].Kind != PartToolCall {
			continue
		}
		if seen[parts[i].CallID] {
			return 0, Invalid("transcript", "repeats call id %s in one message", parts[i].CallID)
		}
		seen[parts[i].CallID] = true
		n++
	}
	return n, nil
}

// Messages returns the messages that the transcript holds: the whole history if
// nothing came before. They are shared: callers must not change them.
func (t *Transcript) Messages() []Message { return slices.Clip(t.messages) }

// View returns what a model is sent of the history; see [View]. It is shared:
// callers must not change it.
func (t *Transcript) View() []Message {
	if t.view == nil {
		return t.Messages()
	}
	return slices.Clip(t.view)
}

// Before returns how many messages of the history came before those that the
// transcript holds.
func (t *Transcript) Before() int { return t.before }

// Len returns the number of messages of the history.
func (t *Transcript) Len() int { return t.before + len(t.messages) }

// Bytes returns the approximate stored size of the history.
func (t *Transcript) Bytes() int64 { return t.bytes }

// BytesBefore returns the approximate stored size of the history without the last
// messages.
func (t *Transcript) BytesBefore(last int) int64 {
	size := t.bytes
	for i := max(0, len(t.messages)-last); i < len(t.messages); i++ {
		size -= int64(t.messages[i].Size())
	}
	return size
}

// Open returns the calls of the last assistant message that have no result yet.
func (t *Transcript) Open() []Part {
	if t.open == 0 {
		return nil
	}
	calls := t.messages[t.calls].Calls()
	return calls[len(calls)-t.open:]
}

// Sendable returns an error if the history cannot be sent to a model as it is.
func (t *Transcript) Sendable() error {
	if next := t.nextOpen(); next != nil {
		return Invalid("transcript", "has call %s to %s without a result", next.CallID, next.Tool)
	}
	return nil
}

// Truncate drops every message after the history's first keep ones. It cannot drop
// messages that the transcript does not hold.
func (t *Transcript) Truncate(keep int) error {
	if keep < t.before || keep > t.Len() {
		return Invalid("message count", "%d is not within %d and %d", keep, t.before, t.Len())
	}
	held := t.messages[:keep-t.before]
	rest, err := Tail{Before: t.before, Bytes: t.BytesBefore(len(t.messages)), Messages: held}.Transcript()
	if err != nil {
		return err
	}
	*t = *rest
	return nil
}

// Heal returns messages that answer every open call of the history with the result
// of answer, so that the history can be continued. A finish call that was never
// acknowledged gets its acknowledgement.
func Heal(messages []Message, answer func(call Part) *Error) []Message {
	var healed []Message
	for _, call := range OpenCalls(messages) {
		if call.Tool == FinishTool {
			healed = append(healed, ToolResult(call, FinishAcknowledged))
			continue
		}
		healed = append(healed, ToolFailure(call, answer(call)))
	}
	return healed
}

// OpenCalls returns the unanswered calls at the end of a history.
func OpenCalls(messages []Message) []Part {
	answered := map[string]bool{}
	for i := len(messages) - 1; i >= 0; i-- {
		switch m := &messages[i]; m.Role {
		case RoleTool:
			for j := range m.Parts {
				answered[m.Parts[j].CallID] = true
			}
		case RoleAssistant:
			var open []Part
			for _, call := range m.Calls() {
				if !answered[call.CallID] {
					open = append(open, call)
				}
			}
			return open
		default:
			return nil
		}
	}
	return nil
}

// FinishTool is the name of the tool that an agent with an output type finishes
// with.
const FinishTool = "__finish__"

// FinishAcknowledged is the result that answers a finish call.
var FinishAcknowledged = json.RawMessage(`{"acknowledged":true}`)
