package session

import (
	"encoding/json"
	"slices"
)

// Transcript is a message history that can always be sent to a model: every tool
// call is answered exactly once, in order, by the messages that directly follow
// it. It grows by [Transcript.Append], which checks only the new message, so the
// cost of an extension does not depend on the length of the history.
type Transcript struct {
	messages []Message
	// calls is the index of the message that made the last calls, and open how many
	// of its calls, the last ones, have no result yet.
	calls, open int
	bytes       int64
}

// NewTranscript checks a stored history.
func NewTranscript(messages []Message) (*Transcript, error) {
	t := &Transcript{messages: make([]Message, 0, len(messages)+16)}
	for i := range messages {
		if err := t.Append(messages[i]); err != nil {
			return nil, err
		}
	}
	return t, nil
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

// Messages returns the history. It is shared: callers must not change it.
func (t *Transcript) Messages() []Message { return slices.Clip(t.messages) }

// Len returns the number of messages.
func (t *Transcript) Len() int { return len(t.messages) }

// Bytes returns the approximate stored size of all messages.
func (t *Transcript) Bytes() int64 { return t.bytes }

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

// Truncate drops every message after the first keep ones.
func (t *Transcript) Truncate(keep int) error {
	if keep < 0 || keep > len(t.messages) {
		return Invalid("message count", "%d is not within 0 and %d", keep, len(t.messages))
	}
	rest, err := NewTranscript(t.messages[:keep])
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
