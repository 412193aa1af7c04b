package stream

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/helixagents/helix/session"
)

// Kind is the kind of a chunk. A program knows those below; it passes on the chunks of
// later ones, whose kinds it does not know.
type Kind string

// The kinds of chunks.
const (
	// TextDelta is a piece of the reply's text, in Delta.
	TextDelta Kind = "text_delta"
	// Thinking is a piece of the model's reasoning, in Delta.
	Thinking Kind = "thinking"
	// ToolArgsStart, ToolArgsDelta and ToolArgsEnd show the arguments of a call as the
	// model writes them.
	ToolArgsStart Kind = "tool_arg_stream_start"
	ToolArgsDelta Kind = "tool_arg_stream_delta"
	ToolArgsEnd   Kind = "tool_arg_stream_end"
	// ToolStart announces a call of the reply: CallID, Tool, Arguments.
	ToolStart Kind = "tool_start"
	// ToolEnd is a call's result: CallID, Tool, Result, Success, Error. MessageID is
	// set if the call belongs to an earlier run and the start of this run answered it. If
	// Result is only a preview, Data says where the whole is; see [Chunk.Evicted].
	ToolEnd Kind = "tool_end"
	// ApprovalRequest asks for an approval: CallID, Tool, Arguments, ApprovalID.
	ApprovalRequest Kind = "tool_approval_request"
	// SubAgentStart and SubAgentEnd enclose a child's chunks: CallID, Child, Tool.
	SubAgentStart Kind = "subagent_start"
	SubAgentEnd   Kind = "subagent_end"
	// StatePatch is a change of custom state, in Patches.
	StatePatch Kind = "state_patch"
	// Custom is an event of the application: Name, Data.
	Custom Kind = "custom"
	// Failure is an error that ends the run, in Error.
	Failure Kind = "error"
	// Output is the final structured output, in Data.
	Output Kind = "output"
	// FileOutput is a file that the model generated: a [File] in Data.
	FileOutput Kind = "file"

	// InputReceived shows the messages that began the turn, in Messages, and messages that
	// are added during it. That of a marker comes before the marker is committed:
	// MessageCount is how many messages precede it, and a [StepDiscarded] with at most as
	// many says that it was not.
	InputReceived Kind = "input"
	// RunStarted begins a run's chunks. RunResumed does so after a suspension or an
	// interruption.
	RunStarted Kind = "run_started"
	RunResumed Kind = "run_resumed"
	// RunCompleted, RunInterrupted and RunPaused end a run's chunks.
	RunCompleted   Kind = "run_completed"
	RunInterrupted Kind = "run_interrupted"
	RunPaused      Kind = "run_paused"
	// StepStarted begins an attempt at a step: MessageID is the reply's id.
	StepStarted Kind = "step_started"
	// StepCommitted says that everything before it is durable; CheckpointID names the
	// checkpoint, if one was written.
	StepCommitted Kind = "step_committed"
	// StepDiscarded retracts what the attempt of a step has shown: all of it, or the
	// part that Scope names. If MessageCount is set, messages after that number were
	// not added either.
	StepDiscarded Kind = "step_discarded"
	// Suspended lists what the run waits for, in Data.
	Suspended Kind = "suspended"
	// Rewound says that the session was rewound to MessageCount messages.
	Rewound Kind = "rewound"
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{
		TextDelta, Thinking, ToolArgsStart, ToolArgsDelta, ToolArgsEnd, ToolStart, ToolEnd, ApprovalRequest,
		SubAgentStart, SubAgentEnd, StatePatch, Custom, Failure, Output, FileOutput, InputReceived, RunStarted,
		RunResumed, RunCompleted, RunInterrupted, RunPaused, StepStarted, StepCommitted,
		StepDiscarded, Suspended, Rewound,
	}
}

// Valid reports whether k is a known kind.
func (k Kind) Valid() bool { return slices.Contains(Kinds(), k) }

// File is the data of a [FileOutput] chunk.
type File struct {
	URL       string `json:"url"`
	MediaType string `json:"mediaType"`
	Filename  string `json:"filename,omitempty"`
	// Index is the file's index among the reply's parts.
	Index int `json:"index"`
}

// Scopes of a discarded step.
const (
	ScopeReply   = "reply"   // the whole attempt
	ScopeResults = "results" // everything after the reply
	// ScopeReasoning is the reply's reasoning. A reply that was cut off is kept
	// without it.
	ScopeReasoning = "reasoning"
)

// Chunk is one event of a stream. Kind says which fields beyond the first five are
// set.
type Chunk struct {
	Kind Kind `json:"type"`
	// AgentID is the session that produced the chunk; AgentType is its agent.
	AgentID   string    `json:"agentId"`
	AgentType string    `json:"agentType"`
	At        time.Time `json:"timestamp"`
	Step      int       `json:"step"`
	RunID     string    `json:"runId"`

	Delta        string            `json:"delta,omitempty"`
	MessageID    string            `json:"messageId,omitempty"`
	MessageCount *int              `json:"messageCount,omitempty"`
	Messages     []session.Message `json:"messages,omitempty"`
	CallID       string            `json:"toolCallId,omitempty"`
	Tool         string            `json:"toolName,omitempty"`
	Arguments    json.RawMessage   `json:"arguments,omitempty"`
	Result       json.RawMessage   `json:"result,omitempty"`
	Success      bool              `json:"success,omitempty"`
	Error        *session.Error    `json:"error,omitempty"`
	ApprovalID   string            `json:"approvalId,omitempty"`
	Child        string            `json:"childSessionId,omitempty"`
	Patches      []session.Patch   `json:"patches,omitempty"`
	Name         string            `json:"eventName,omitempty"`
	Data         json.RawMessage   `json:"data,omitempty"`
	Attempt      int               `json:"attempt,omitempty"`
	Scope        string            `json:"scope,omitempty"`
	CheckpointID string            `json:"checkpointId,omitempty"`
	Turn         int               `json:"turn,omitempty"`
	Reason       string            `json:"reason,omitempty"`
	// Omitted is set when content was omitted because the chunk exceeded the stream's
	// limit.
	Omitted bool `json:"omitted,omitempty"`
}

// maxKind is the longest name of a kind, in bytes.
const maxKind = 64

// Check returns an error if the chunk must not be written. The kind may be one of a
// later program.
func (c *Chunk) Check() error {
	ok := len(c.Kind) > 0 && len(c.Kind) <= maxKind
	for _, r := range c.Kind {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
	}
	if !ok {
		return session.Invalid("chunk type", "%.80q is not a name", string(c.Kind))
	}
	return nil
}

// DefaultMaxChunk is the default maximum size of an encoded chunk.
const DefaultMaxChunk = 1 << 20

// Size returns the approximate length of the chunk's wire form.
func (c *Chunk) Size() int {
	n := 128 + len(c.AgentID) + len(c.AgentType) + len(c.RunID) + len(c.Delta) + len(c.Arguments) + len(c.Result) + len(c.Data)
	for _, text := range [...]string{c.MessageID, c.CallID, c.Tool, c.ApprovalID, c.Child, c.Name, c.CheckpointID, c.Reason} {
		if text != "" {
			n += len(text) + 20
		}
	}
	for i := range c.Messages {
		n += c.Messages[i].Size()
	}
	return n + 16
}

// Encode returns the chunk's wire form.
func (c *Chunk) Encode() ([]byte, error) { return c.AppendJSON(make([]byte, 0, c.Size())) }

// MarshalJSON implements [json.Marshaler].
func (c Chunk) MarshalJSON() ([]byte, error) { return c.Encode() }

// AppendJSON appends the chunk's wire form to b. It is written by hand because
// every token of every reply passes through it, and so that embedded JSON keeps
// its bytes.
func (c *Chunk) AppendJSON(b []byte) ([]byte, error) {
	b = append(b, `{"type":`...)
	b = session.AppendString(b, string(c.Kind))
	b = append(b, `,"agentId":`...)
	b = session.AppendString(b, c.AgentID)
	b = append(b, `,"agentType":`...)
	b = session.AppendString(b, c.AgentType)
	b = append(b, `,"timestamp":"`...)
	b = c.At.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","step":`...)
	b = strconv.AppendInt(b, int64(c.Step), 10)
	b = append(b, `,"runId":`...)
	b = session.AppendString(b, c.RunID)
	for _, f := range [...]struct{ name, value string }{
		{"delta", c.Delta},
		{"messageId", c.MessageID},
		{"toolCallId", c.CallID},
		{"toolName", c.Tool},
		{"approvalId", c.ApprovalID},
		{"childSessionId", c.Child},
		{"eventName", c.Name},
		{"scope", c.Scope},
		{"checkpointId", c.CheckpointID},
		{"reason", c.Reason},
	} {
		if f.value != "" {
			b = session.AppendString(appendName(b, f.name), f.value)
		}
	}
	for _, f := range [...]struct {
		name  string
		value json.RawMessage
	}{{"arguments", c.Arguments}, {"result", c.Result}, {"data", c.Data}} {
		if f.value == nil {
			continue
		}
		if !session.ValidJSON(f.value) {
			return nil, session.Invalid("chunk "+f.name, "is not valid JSON")
		}
		b = append(appendName(b, f.name), f.value...)
	}
	if c.Success {
		b = append(appendName(b, "success"), "true"...)
	}
	if c.Omitted {
		b = append(appendName(b, "omitted"), "true"...)
	}
	for _, f := range [...]struct {
		name  string
		value int
	}{{"attempt", c.Attempt}, {"turn", c.Turn}} {
		if f.value != 0 {
			b = strconv.AppendInt(appendName(b, f.name), int64(f.value), 10)
		}
	}
	return c.appendRest(b)
}

// appendRest appends the fields that only few chunks have, and the closing brace.
func (c *Chunk) appendRest(b []byte) ([]byte, error) {
	if c.MessageCount != nil {
		b = strconv.AppendInt(appendName(b, "messageCount"), int64(*c.MessageCount), 10)
	}
	for i := range c.Messages {
		if i == 0 {
			b = append(appendName(b, "messages"), '[')
		} else {
			b = append(b, ',')
		}
		var err error
		if b, err = c.Messages[i].AppendJSON(b); err != nil {
			return nil, err
		}
		if i == len(c.Messages)-1 {
			b = append(b, ']')
		}
	}
	if c.Error != nil {
		raw, err := session.Encode(c.Error)
		if err != nil {
			return nil, err
		}
		b = append(appendName(b, "error"), raw...)
	}
	if len(c.Patches) > 0 {
		raw, err := session.Encode(c.Patches)
		if err != nil {
			return nil, err
		}
		b = append(appendName(b, "patches"), raw...)
	}
	return append(b, '}'), nil
}

func appendName(b []byte, name string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

// Split encodes a chunk so that no piece exceeds limit. Text is split between
// runes into several chunks; any other chunk that is too large is refused with
// [session.ErrTooLarge].
func Split(c Chunk, limit int) ([][]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	raw, err := c.Encode()
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "%s chunk cannot be encoded", c.Kind)
	}
	if len(raw) <= limit {
		return [][]byte{raw}, nil
	}
	half := middle(c.Delta)
	if half == 0 || !roomForText(c, limit) {
		return nil, session.ErrTooLarge.WithMessage("%s chunk has %d bytes, at most %d are allowed", c.Kind, len(raw), limit)
	}
	var out [][]byte
	for _, delta := range []string{c.Delta[:half], c.Delta[half:]} {
		piece := c
		piece.Delta = delta
		pieces, err := Split(piece, limit)
		if err != nil {
			return nil, err
		}
		out = append(out, pieces...)
	}
	return out, nil
}

// roomForText reports whether the chunk without its text leaves half the limit for
// the text, so that splitting terminates. Encoding makes text longer, so the
// length of the text alone does not decide.
func roomForText(c Chunk, limit int) bool {
	c.Delta = ""
	raw, err := c.Encode()
	return err == nil && len(raw) <= limit/2
}

// middle returns an index near the middle of text between two runes, or 0 if there
// is none.
func middle(text string) int {
	half := len(text) / 2
	for at := half; at > max(0, half-utf8.UTFMax); at-- {
		if utf8.RuneStart(text[at]) {
			return at
		}
	}
	if utf8.ValidString(text) {
		return 0 // a single rune
	}
	return half
}
