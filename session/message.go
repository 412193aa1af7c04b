package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Role says who wrote a message.
type Role string

// The roles of a transcript. Instructions are not stored in it: the agent's
// definition supplies them at each model call.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of a session's transcript. Once stored it never changes.
type Message struct {
	ID    string
	Role  Role
	Parts []Part
	// Metadata belongs to the application, except for the Meta keys, which the
	// framework writes.
	Metadata map[string]json.RawMessage
	RunID    string
	Step     int
	At       time.Time
	Extra    Extra
}

// Metadata keys that the framework writes.
const (
	// MetaHidden marks a message that is part of the conversation with the model
	// but not shown to people.
	MetaHidden = "hidden"
	// MetaInterrupted marks the partial reply of a stopped run; its value is
	// {"stop":"interrupt"} or {"stop":"abort"}.
	MetaInterrupted = "helixInterrupted"
	// MetaFinish marks a reply that the model did not end on its own; its value is the
	// reason, "length" or "content-filter".
	MetaFinish = "helixFinish"
	// MetaCompaction marks the marker of a summary or a clear; its value is a [Compaction].
	MetaCompaction = "helixCompaction"
	// MetaTrim marks the marker of a trim; its value is a [Compaction] as well. To processes
	// that do not know trims it is one more hidden message, while MetaCompaction would have
	// them take the text of the trim for all that was said before.
	MetaTrim = "helixTrim"
	// MetaUncompacted is on the reply after a compaction that was tried in vain; its value
	// is an [Uncompacted].
	MetaUncompacted = "helixUncompacted"
	// MetaUsage is what a reply cost; its value is a [ReplyUsage].
	MetaUsage = "helixUsage"
	// MetaPrompt is a digest of the instructions and tools that a reply was made with.
	MetaPrompt = "helixPrompt"
	// MetaEvicted marks a result of which the message has only the beginning and the end; its
	// value is an [Evicted].
	MetaEvicted = "helixEvicted"
	// MetaSkills are the skills that the sender of a message chose; its value is a list of
	// names. It is the only one of these besides MetaHidden that callers may set.
	MetaSkills = "helixSkills"
	// MetaSkill marks a hidden message with the content of a skill; its value is the name.
	MetaSkill = "helixSkill"
)

// PartKind says what a part of a message contains.
type PartKind string

// The kinds of parts.
const (
	PartText       PartKind = "text"
	PartReasoning  PartKind = "reasoning"
	PartFile       PartKind = "file"
	PartToolCall   PartKind = "tool_call"
	PartToolResult PartKind = "tool_result"
)

// Part is a piece of a message. Kind says which fields are set.
type Part struct {
	Kind PartKind
	// Text is the text, the reasoning, or a tool result that is a plain string,
	// kept verbatim.
	Text string
	// Provider is data that the model's provider expects back with this part, such as
	// a reasoning signature. It is opaque to the framework.
	Provider json.RawMessage
	// URL, MediaType and Filename describe a file; URL may be a data URL.
	URL       string
	MediaType string
	Filename  string
	// CallID, Tool, ProviderCallID and Input describe a tool call; a result
	// repeats the first three.
	CallID         string
	ProviderCallID string
	Tool           string
	Input          json.RawMessage
	// Output is a tool's result as JSON, unless it is Text or Error.
	Output json.RawMessage
	// Error is set when the call failed.
	Error *Error
	Extra Extra
}

// Text returns a text part.
func Text(s string) Part { return Part{Kind: PartText, Text: s} }

// UserText returns a message from the user.
func UserText(text string) Message { return Message{Role: RoleUser, Parts: []Part{Text(text)}} }

// Content returns the message's text parts, joined.
func (m *Message) Content() string {
	var b strings.Builder
	for i := range m.Parts {
		if m.Parts[i].Kind == PartText {
			b.WriteString(m.Parts[i].Text)
		}
	}
	return b.String()
}

// Calls returns the message's tool calls in order.
func (m *Message) Calls() []Part {
	var calls []Part
	for i := range m.Parts {
		if m.Parts[i].Kind == PartToolCall {
			calls = append(calls, m.Parts[i])
		}
	}
	return calls
}

// Hidden reports whether the message is hidden from people.
func (m *Message) Hidden() bool { return string(m.Metadata[MetaHidden]) == "true" }

// FinishReason returns why the model ended the reply, if it did not do so on its
// own: "length" or "content-filter".
func (m *Message) FinishReason() string {
	reason, _ := jsonString(m.Metadata[MetaFinish])
	return reason
}

// ToolResult returns the message that answers a call with a value. A value that is
// a JSON string is kept verbatim as text.
func ToolResult(call Part, output json.RawMessage) Message {
	p := resultPart(call)
	if text, ok := jsonString(output); ok {
		p.Text = text
	} else {
		p.Output = output
	}
	return Message{ID: ResultID(call.CallID), Role: RoleTool, Parts: []Part{p}}
}

// ToolFailure returns the message that answers a call with an error. The cause
// becomes part of the error's text, as it does in the store, so that the model
// sees the same text before and after.
func ToolFailure(call Part, err *Error) Message {
	p := resultPart(call)
	p.Error = err
	if err.Cause != nil {
		told := *err
		told.Message, told.Cause = err.Message+": "+err.Cause.Error(), nil
		p.Error = &told
	}
	return Message{ID: ResultID(call.CallID), Role: RoleTool, Parts: []Part{p}}
}

func resultPart(call Part) Part {
	return Part{Kind: PartToolResult, CallID: call.CallID, ProviderCallID: call.ProviderCallID, Tool: call.Tool}
}

func jsonString(raw json.RawMessage) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if text := raw[1 : len(raw)-1]; raw[len(raw)-1] == '"' && plain(text) {
		return string(text), true
	}
	var s string
	return s, json.Unmarshal(raw, &s) == nil
}

// ResultJSON returns a tool result's value as JSON: the output, the text as a
// string, or the error's message.
func (p *Part) ResultJSON() json.RawMessage {
	switch {
	case p.Error != nil:
		out, _ := Encode(map[string]string{"error": p.Error.Message, "code": string(p.Error.Code)})
		return out
	case p.Output != nil:
		return p.Output
	}
	return AppendString(nil, p.Text)
}

// Check returns an error if a caller's message is not valid.
func (m *Message) Check() error {
	switch m.Role {
	case RoleUser, RoleAssistant, RoleTool, RoleSystem:
	default:
		return Invalid("message role", "%q is not one of user, assistant, tool, system", m.Role)
	}
	if len(m.Parts) == 0 {
		return Invalid("message", "from %s has no content", m.Role)
	}
	if err := checkTexts("message id", m.ID, "run id", m.RunID); err != nil {
		return err
	}
	for i := range m.Parts {
		if err := m.Parts[i].check(m.Role); err != nil {
			return err
		}
		if err := m.Parts[i].checkBytes(); err != nil {
			return err
		}
	}
	for name, value := range m.Metadata {
		if err := CheckText("message metadata", name); err != nil {
			return err
		}
		if !utf8.Valid(value) {
			return Invalid("message metadata", "%q is not valid UTF-8", name)
		}
	}
	return nil
}

// checkBytes returns an error for names and values that a store would not return
// unchanged. Whether the values are JSON is checked when they are encoded.
func (p *Part) checkBytes() error {
	if err := checkTexts("tool call id", p.CallID, "provider call id", p.ProviderCallID, "tool", p.Tool); err != nil {
		return err
	}
	for _, f := range [...]struct {
		name string
		raw  json.RawMessage
	}{{"provider data", p.Provider}, {"tool input", p.Input}, {"tool output", p.Output}} {
		if !utf8.Valid(f.raw) {
			return Invalid(f.name, "is not valid UTF-8")
		}
	}
	return nil
}

func (p *Part) check(role Role) error {
	switch p.Kind {
	case PartText, PartReasoning:
		if p.Text == "" && p.Kind == PartText && role == RoleUser {
			return Invalid("message", "from %s has an empty text", role)
		}
	case PartFile:
		if p.URL == "" || p.MediaType == "" {
			return Invalid("file", "must have a URL (or data URL) and a media type")
		}
	case PartToolCall:
		if role != RoleAssistant {
			return Invalid("message part", "%s belongs in an assistant message, not in one from %s", p.Kind, role)
		}
		if p.CallID == "" || p.Tool == "" {
			return Invalid("tool call", "must have a call id and a tool name")
		}
	case PartToolResult:
		if role != RoleTool {
			return Invalid("message part", "%s belongs in a tool message, not in one from %s", p.Kind, role)
		}
		if p.CallID == "" {
			return Invalid("tool result", "must have a call id")
		}
	default:
		return Invalid("message part kind", "%q is unknown", p.Kind)
	}
	return nil
}

// AppendJSON appends the persisted form of the message to b. The encoder is
// written by hand so that embedded JSON (inputs, outputs) keeps its bytes;
// encoding/json would change its whitespace, and the history must stay what the
// model saw.
func (m *Message) AppendJSON(b []byte) ([]byte, error) {
	b = slices.Grow(b, m.Size())
	b = append(b, `{"v":`...)
	b = strconv.AppendInt(b, FormatVersion, 10)
	b = appendField(b, "id", m.ID)
	b = appendField(b, "role", string(m.Role))
	b = append(b, `,"parts":[`...)
	var err error
	for i := range m.Parts {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = m.Parts[i].appendJSON(b); err != nil {
			return nil, fmt.Errorf("message %s: part %d: %w", m.ID, i, err)
		}
	}
	b = append(b, ']')
	if len(m.Metadata) > 0 {
		b = append(b, `,"metadata":`...)
		if b, err = appendObject(b, m.Metadata); err != nil {
			return nil, fmt.Errorf("message %s: %w", m.ID, err)
		}
	}
	b = appendField(b, "runId", m.RunID)
	if m.Step != 0 {
		b = append(b, `,"step":`...)
		b = strconv.AppendInt(b, int64(m.Step), 10)
	}
	if !m.At.IsZero() {
		b = append(b, `,"at":"`...)
		if b, err = m.At.UTC().AppendText(b); err != nil {
			return nil, fmt.Errorf("message %s: %w", m.ID, err)
		}
		b = append(b, '"')
	}
	return appendExtra(b, m.Extra)
}

// Size returns the approximate length of the message's persisted form.
func (m *Message) Size() int {
	n := 160
	for key, value := range m.Metadata {
		n += len(key) + len(value) + 8
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		n += 160 + len(p.Text) + len(p.URL) + len(p.Input) + len(p.Output) + len(p.Provider)
	}
	return n
}

func (p *Part) appendJSON(b []byte) ([]byte, error) {
	b = append(b, `{"kind":`...)
	b = AppendString(b, string(p.Kind))
	b = appendField(b, "text", p.Text)
	b = appendField(b, "url", p.URL)
	b = appendField(b, "mediaType", p.MediaType)
	b = appendField(b, "filename", p.Filename)
	b = appendField(b, "callId", p.CallID)
	b = appendField(b, "providerCallId", p.ProviderCallID)
	b = appendField(b, "tool", p.Tool)
	var err error
	for _, f := range []struct {
		name string
		raw  json.RawMessage
	}{{"provider", p.Provider}, {"input", p.Input}, {"output", p.Output}} {
		if f.raw == nil {
			continue
		}
		b = append(b, `,"`...)
		b = append(append(b, f.name...), `":`...)
		if b, err = appendRaw(b, f.name, f.raw); err != nil {
			return nil, err
		}
	}
	if p.Error != nil {
		raw, err := p.Error.MarshalJSON()
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"error":`...), raw...)
	}
	return appendExtra(b, p.Extra)
}

// appendField appends a string field, or nothing when it is empty.
func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(append(b, name...), `":`...)
	return AppendString(b, value)
}

func appendObject(b []byte, fields map[string]json.RawMessage) ([]byte, error) {
	b = append(b, '{')
	var err error
	names := make([]string, 0, 8) // on the stack: messages have few
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(AppendString(b, name), ':')
		if b, err = appendRaw(b, name, fields[name]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendExtra appends unknown fields and the closing brace.
func appendExtra(b []byte, extra Extra) ([]byte, error) {
	if len(extra) == 0 {
		return append(b, '}'), nil
	}
	var err error
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		b = append(AppendString(append(b, ','), name), ':')
		if b, err = appendRaw(b, name, extra[name]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// MarshalJSON implements [json.Marshaler].
func (m Message) MarshalJSON() ([]byte, error) { return m.AppendJSON(nil) }

// messageJSON and partJSON are the persisted forms, for decoding.
type messageJSON[P partJSON | Part] struct {
	V        int                        `json:"v"`
	ID       string                     `json:"id"`
	Role     Role                       `json:"role"`
	Parts    []P                        `json:"parts"`
	Metadata map[string]json.RawMessage `json:"metadata"`
	RunID    string                     `json:"runId"`
	Step     int                        `json:"step"`
	At       time.Time                  `json:"at"`
}

type partJSON struct {
	Kind           PartKind        `json:"kind"`
	Text           string          `json:"text"`
	URL            string          `json:"url"`
	MediaType      string          `json:"mediaType"`
	Filename       string          `json:"filename"`
	CallID         string          `json:"callId"`
	ProviderCallID string          `json:"providerCallId"`
	Tool           string          `json:"tool"`
	Provider       json.RawMessage `json:"provider"`
	Input          json.RawMessage `json:"input"`
	Output         json.RawMessage `json:"output"`
	Error          *Error          `json:"error"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Message) UnmarshalJSON(data []byte) error {
	// Long transcripts are read often, so a message without unknown fields, which is
	// nearly every message, is decoded in one pass.
	var doc messageJSON[partJSON]
	if err := json.Unmarshal(data, &doc); err != nil {
		return err
	}
	if err := checkFormat("message "+doc.ID, doc.V); err != nil {
		return err
	}
	*m = Message{ID: doc.ID, Role: doc.Role, Metadata: doc.Metadata, RunID: doc.RunID, Step: doc.Step, At: doc.At}
	if hasUnknown(data, fieldNames(reflect.TypeFor[messageJSON[partJSON]]()), fieldNames(reflect.TypeFor[partJSON]())) {
		var full messageJSON[Part]
		extra, err := decodeWithExtra(data, &full)
		m.Parts, m.Extra = full.Parts, extra
		return err
	}
	if doc.Parts != nil {
		m.Parts = make([]Part, len(doc.Parts))
		for i := range doc.Parts {
			m.Parts[i] = doc.Parts[i].part()
		}
	}
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *Part) UnmarshalJSON(data []byte) error {
	var doc partJSON
	extra, err := decodeWithExtra(data, &doc)
	if err != nil {
		return err
	}
	*p = doc.part()
	p.Extra = extra
	return nil
}

func (doc *partJSON) part() Part {
	return Part{
		Kind: doc.Kind, Text: doc.Text, URL: doc.URL, MediaType: doc.MediaType, Filename: doc.Filename,
		CallID: doc.CallID, ProviderCallID: doc.ProviderCallID, Tool: doc.Tool,
		Provider: doc.Provider, Input: doc.Input, Output: doc.Output, Error: doc.Error,
	}
}

// MarshalJSON implements [json.Marshaler].
func (p Part) MarshalJSON() ([]byte, error) { return p.appendJSON(nil) }

// Equal reports whether two messages have the same persisted form.
func (m *Message) Equal(other *Message) bool {
	a, errA := m.AppendJSON(nil)
	b, errB := other.AppendJSON(nil)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
