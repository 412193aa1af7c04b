package aisdk

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// Message is a UI message.
type Message struct {
	ID       string    `json:"id"`
	Role     string    `json:"role"`
	Metadata *Metadata `json:"metadata,omitempty"`
	Parts    []Part    `json:"parts"`
}

// Part is a part of a UI message. Type determines which fields are set.
type Part struct {
	Type string `json:"type"`
	// Text and reasoning; State also of tools.
	Text  string `json:"text,omitempty"`
	State string `json:"state,omitempty"`
	// Tools.
	Tool      string          `json:"toolName,omitempty"`
	CallID    string          `json:"toolCallId,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	ErrorText string          `json:"errorText,omitempty"`
	Approval  *Approval       `json:"approval,omitempty"`
	// Files.
	URL       string `json:"url,omitempty"`
	MediaType string `json:"mediaType,omitempty"`
	Filename  string `json:"filename,omitempty"`
	// Data parts.
	ID   string          `json:"id,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`

	raw string // the input streamed so far
	at  int    // the index in a received message
}

// Chat is a conversation as a page loads it.
type Chat struct {
	SessionID string    `json:"sessionId"`
	Messages  []Message `json:"messages"`
	// Earlier is the number of the session's messages before these. They are omitted if the
	// chat is larger than a page of messages.
	Earlier int `json:"earlier,omitempty"`
	// Total is the number of messages of the chat, and HasMore reports whether more follow.
	// They are set if a page was requested.
	Total   *int  `json:"total,omitempty"`
	HasMore *bool `json:"hasMore,omitempty"`
	// Running is set while a run is in progress; RunID is the latest run.
	Running bool   `json:"running"`
	RunID   string `json:"runId,omitempty"`
	// Sequence is the last sequence of the stream that Messages include, if the request had
	// tail.
	Sequence int64 `json:"sequence,omitempty"`
	// Error is the error of the latest run, if it failed.
	Error *wire.Error `json:"error,omitempty"`
	// Waiting are the calls at any depth that wait for people.
	Waiting []session.Pending `json:"waiting"`
}

// Approval is the approval in a tool part.
type Approval struct {
	ID       string `json:"id"`
	Approved *bool  `json:"approved,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// The types of parts.
const (
	PartText      = "text"
	PartReasoning = "reasoning"
	PartFile      = "file"
	PartStepStart = "step-start"
	PartTool      = "dynamic-tool"
)

// The states of tool parts, and of text.
const (
	StateStreaming         = "streaming"
	StateDone              = "done"
	StateInputStreaming    = "input-streaming"
	StateInputAvailable    = "input-available"
	StateApprovalRequested = "approval-requested"
	StateApprovalResponded = "approval-responded"
	StateOutputAvailable   = "output-available"
	StateOutputError       = "output-error"
	StateOutputDenied      = "output-denied"
)

// Apply applies a chunk to the message, as the client does.
func (m *Message) Apply(c *Chunk) {
	switch c.Type {
	case TypeStart:
		if c.MessageID != "" {
			m.ID = c.MessageID
		}
		m.merge(c.Metadata)
	case TypeFinish, TypeMetadata:
		m.merge(c.Metadata)
	case TypeStartStep:
		m.Parts = append(m.Parts, Part{Type: PartStepStart})
	case TypeResetStep:
		m.Parts = m.Parts[:m.step()]
	case TypeTextStart:
		m.Parts = append(m.Parts, Part{Type: PartText, State: StateStreaming, ID: c.ID})
	case TypeReasoningStart:
		m.Parts = append(m.Parts, Part{Type: PartReasoning, State: StateStreaming, ID: c.ID})
	case TypeTextDelta, TypeReasoningDelta:
		if p := m.streaming(c.ID); p != nil {
			p.Text += c.Delta
		}
	case TypeTextEnd, TypeReasoningEnd:
		if p := m.streaming(c.ID); p != nil {
			p.State, p.ID = StateDone, ""
		}
	case TypeFile:
		m.Parts = append(m.Parts, Part{Type: PartFile, URL: c.URL, MediaType: c.MediaType})
	default:
		if strings.HasPrefix(c.Type, DataPrefix) {
			m.applyData(c)
		} else {
			m.applyTool(c)
		}
	}
}

func (m *Message) applyData(c *Chunk) {
	if c.Transient {
		return
	}
	for i := range m.Parts {
		if c.ID != "" && m.Parts[i].Type == c.Type && m.Parts[i].ID == c.ID {
			m.Parts[i].Data = c.Data
			return
		}
	}
	m.Parts = append(m.Parts, Part{Type: c.Type, ID: c.ID, Data: c.Data})
}

func (m *Message) applyTool(c *Chunk) {
	switch c.Type {
	case TypeInputStart, TypeInputAvailable, TypeInputError:
		p := m.tool(c.CallID, m.step())
		if p == nil {
			m.Parts = append(m.Parts, Part{Type: PartTool, CallID: c.CallID})
			p = &m.Parts[len(m.Parts)-1]
		}
		p.Tool, p.State, p.Input, p.Output, p.ErrorText = c.Tool, StateInputAvailable, c.Input, nil, ""
		switch c.Type {
		case TypeInputStart:
			p.State = StateInputStreaming
		case TypeInputError:
			p.State, p.ErrorText = StateOutputError, c.ErrorText
		}
		return
	case TypeApprovalResponse:
		for i := range m.Parts {
			if a := m.Parts[i].Approval; a != nil && a.ID == c.ApprovalID {
				m.Parts[i].State = StateApprovalResponded
				m.Parts[i].Approval = &Approval{ID: a.ID, Approved: c.Approved, Reason: c.Reason}
			}
		}
		return
	}
	p := m.tool(c.CallID, 0)
	if p == nil {
		return
	}
	switch c.Type {
	case TypeInputDelta:
		p.raw += c.InputTextDelta
		if json.Valid([]byte(p.raw)) {
			p.Input = json.RawMessage(p.raw)
		}
	case TypeApprovalRequest:
		p.State, p.Approval = StateApprovalRequested, &Approval{ID: c.ApprovalID}
	case TypeOutputAvailable:
		p.State, p.Output, p.ErrorText = StateOutputAvailable, c.Output, ""
	case TypeOutputError:
		p.State, p.Output, p.ErrorText = StateOutputError, nil, c.ErrorText
	case TypeOutputDenied:
		p.State = StateOutputDenied
	}
}

// step returns the index of the first part of the current step.
func (m *Message) step() int {
	for i, p := range slices.Backward(m.Parts) {
		if p.Type == PartStepStart {
			return i + 1
		}
	}
	return 0
}

func (m *Message) streaming(id string) *Part {
	at := slices.IndexFunc(m.Parts, func(p Part) bool { return p.State == StateStreaming && p.ID == id })
	if at < 0 {
		return nil
	}
	return &m.Parts[at]
}

func (m *Message) tool(callID string, from int) *Part {
	for i := len(m.Parts) - 1; i >= from; i-- {
		if m.Parts[i].CallID == callID && callID != "" {
			return &m.Parts[i]
		}
	}
	return nil
}

func (m *Message) merge(more *Metadata) {
	if more == nil {
		return
	}
	if m.Metadata == nil {
		m.Metadata = &Metadata{}
	}
	for _, f := range [...]struct{ to, from *string }{
		{&m.Metadata.SessionID, &more.SessionID},
		{&m.Metadata.RunID, &more.RunID},
		{&m.Metadata.Status, &more.Status},
		{(*string)(&m.Metadata.Code), (*string)(&more.Code)},
		{&m.Metadata.Error, &more.Error},
		{&m.Metadata.FinishReason, &more.FinishReason},
	} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	if more.Usage != nil {
		m.Metadata.Usage = more.Usage
	}
	if len(more.Extra) > 0 {
		if m.Metadata.Extra == nil {
			m.Metadata.Extra = map[string]json.RawMessage{}
		}
		maps.Copy(m.Metadata.Extra, more.Extra)
	}
}

// ReplyID derives the id of the assistant's UI message from the id of the user's message
// before it.
func ReplyID(sessionID, userMessageID string) string {
	if userMessageID == "" {
		userMessageID = sessionID
	}
	return userMessageID + replySuffix
}

const replySuffix = ".reply"

// UserOf returns the id of the user's message that a UI message is or answers.
func UserOf(uiMessageID string) string { return strings.TrimSuffix(uiMessageID, replySuffix) }

// Group is a part of a transcript: a message of the user, and the assistant's reply to it,
// which is one UI message.
type Group struct {
	// ID is the id of the reply's UI message.
	ID string
	// User is nil if the conversation begins with the assistant.
	User *session.Message
	// End is the number of messages of the transcript up to and including User. Begun also
	// includes the hidden messages between User and the reply.
	End   int
	Begun int
	Reply []session.Message
}

// Groups splits a transcript. Hidden messages belong to the reply around them.
func Groups(sessionID string, messages []session.Message) []Group {
	var groups []Group
	for i := range messages {
		m := &messages[i]
		if m.Role == session.RoleUser && !m.Hidden() {
			groups = append(groups, Group{ID: ReplyID(sessionID, m.ID), User: m, End: i + 1, Begun: i + 1})
			continue
		}
		if len(groups) == 0 {
			groups = append(groups, Group{ID: ReplyID(sessionID, "")})
		}
		last := &groups[len(groups)-1]
		if m.Role == session.RoleUser && last.User != nil && last.Begun == i {
			last.Begun++
		}
		last.Reply = append(last.Reply, *m)
	}
	return groups
}

// Last returns the last group of the transcript.
func Last(sessionID string, messages []session.Message) Group {
	groups := Groups(sessionID, messages)
	if len(groups) == 0 {
		return Group{ID: ReplyID(sessionID, "")}
	}
	return groups[len(groups)-1]
}

// userMessage converts a message of the user to a UI message.
func userMessage(m *session.Message) Message {
	out := Message{ID: m.ID, Role: string(session.RoleUser), Parts: []Part{}}
	for i := range m.Parts {
		switch p := &m.Parts[i]; p.Kind {
		case session.PartText:
			out.Parts = append(out.Parts, Part{Type: PartText, Text: p.Text})
		case session.PartFile:
			out.Parts = append(out.Parts, Part{Type: PartFile, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename})
		}
	}
	return out
}
