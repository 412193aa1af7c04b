package aisdk

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// The triggers of a request.
const (
	TriggerSubmit     = "submit-message"
	TriggerRegenerate = "regenerate-message"
)

// Request is what a client posts. Of its messages only the last user message and
// answers in the last assistant message are of interest: history is the store's.
type Request struct {
	// ID is that of the chat, which is a session.
	ID        string `json:"id"`
	Messages  []Sent `json:"messages,omitempty"`
	Trigger   string `json:"trigger,omitempty"`
	MessageID string `json:"messageId,omitempty"`
	// Agent is who a new chat is with; the rest are fields of ours, too.
	Agent string `json:"agent,omitempty"`
	// AbandonPending goes on without the answers that the session waits for.
	AbandonPending bool              `json:"abandonPending,omitempty"`
	Tags           []string          `json:"tags,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
}

// Sent is a UI message that a client sent. Nothing else is known of it, so only
// what may matter is read.
type Sent struct {
	ID    string `json:"id,omitempty"`
	Role  string `json:"role"`
	Parts []Part `json:"parts"`
	// Metadata is what the server told of a reply.
	Metadata *SentMetadata `json:"metadata,omitempty"`
}

// SentMetadata is the part of a reply's metadata that is read.
type SentMetadata struct {
	// RunID is the last run of the reply that the client was shown.
	RunID string `json:"runId,omitempty"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Sent) UnmarshalJSON(data []byte) error {
	var doc struct {
		ID    string            `json:"id"`
		Role  string            `json:"role"`
		Parts []json.RawMessage `json:"parts"`
		// It is the application's as much as ours, so it may be anything.
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return session.Invalid("messages", "hold one that cannot be read: %v", err)
	}
	*m = Sent{ID: doc.ID, Role: doc.Role}
	if meta := new(SentMetadata); json.Unmarshal(doc.Metadata, meta) == nil {
		m.Metadata = meta
	}
	for i, raw := range doc.Parts {
		var kind struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(raw, &kind); err != nil {
			return unreadable(i, err)
		}
		if !readable(kind.Type) {
			continue
		}
		var p Part
		if err := json.Unmarshal(raw, &p); err != nil {
			return unreadable(i, err)
		}
		if name, static := strings.CutPrefix(p.Type, "tool-"); static {
			p.Type, p.Tool = PartTool, name
		}
		m.Parts = append(m.Parts, p)
	}
	return nil
}

func unreadable(part int, err error) error {
	return session.Invalid("messages", "hold one whose part %d cannot be read: %v", part+1, err)
}

// readable reports whether a part of that type may matter.
func readable(kind string) bool {
	return kind == PartText || kind == PartFile || kind == PartTool || kind == PartStepStart || strings.HasPrefix(kind, "tool-")
}

// Check reports a request that cannot be understood.
func (r *Request) Check() error {
	if err := session.CheckID(r.ID); err != nil {
		return session.Invalid("id", "%s", strings.TrimPrefix(err.Error(), "session id "))
	}
	switch r.Trigger {
	case "", TriggerSubmit:
		if len(r.Messages) == 0 {
			return session.Invalid("messages", "must not be empty")
		}
		switch role := r.last().Role; role {
		case string(session.RoleUser), string(session.RoleAssistant):
		default:
			return session.Invalid("messages", "end in one with the role %.20q, which is neither user nor assistant", role)
		}
	case TriggerRegenerate:
	default:
		return session.Invalid("trigger", "%.40q is neither %s nor %s", r.Trigger, TriggerSubmit, TriggerRegenerate)
	}
	return nil
}

func (r *Request) last() *Sent { return &r.Messages[len(r.Messages)-1] }

// Answers reports whether the request carries answers, and no new message.
func (r *Request) Answers() bool {
	return r.Trigger != TriggerRegenerate && r.last().Role == string(session.RoleAssistant)
}

// ShownRun is the run that the client was shown the beginning of, as far as it says.
func (r *Request) ShownRun() string {
	if m := r.last().Metadata; m != nil {
		return m.RunID
	}
	return ""
}

// Asks reports whether the request ends in a message of the user's: what a reply is
// for, also where it is to be made anew.
func (r *Request) Asks() bool {
	return len(r.Messages) > 0 && r.last().Role == string(session.RoleUser)
}

// Target is the message whose reply is to be made anew, which may be the user's;
// empty for the last one.
func (r *Request) Target() string {
	if r.MessageID == "" && r.Asks() {
		return r.last().ID
	}
	return r.MessageID
}

// TargetSent reports whether the message whose reply is to be made anew is the one
// that was sent along.
func (r *Request) TargetSent() bool { return r.Asks() && UserOf(r.Target()) == r.last().ID }

// Edits reports whether the request replaces an earlier message of the user.
func (r *Request) Edits() bool {
	return r.Trigger != TriggerRegenerate && !r.Answers() && r.MessageID != "" && r.MessageID == r.last().ID
}

// Input is the user's message.
func (r *Request) Input() (session.Message, error) {
	in := r.last()
	m := session.Message{ID: in.ID, Role: session.RoleUser}
	if in.ID != "" {
		if err := session.CheckKeyID("message id", in.ID); err != nil {
			return m, err
		}
	}
	for i := range in.Parts {
		switch p := &in.Parts[i]; p.Type {
		case PartText:
			if p.Text != "" {
				m.Parts = append(m.Parts, session.Text(p.Text))
			}
		case PartFile:
			m.Parts = append(m.Parts, session.Part{Kind: session.PartFile, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename})
		}
	}
	if len(m.Parts) == 0 {
		return m, session.Invalid("messages", "end in one without text or files")
	}
	err := m.Check()
	return m, err
}

// Answered lists the tool parts of the last assistant message that may answer a
// call: those which a person has dealt with.
func (r *Request) Answered() []Part {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role != string(session.RoleAssistant) {
			continue
		}
		var out []Part
		for _, p := range m.Parts {
			if p.Type == PartTool && p.CallID != "" && p.answers() {
				out = append(out, p)
			}
		}
		return out
	}
	return nil
}

func (p *Part) answers() bool {
	switch p.State {
	case StateApprovalResponded:
		return p.Approval != nil && p.Approval.Approved != nil
	case StateOutputAvailable, StateOutputError:
		return true
	}
	return false
}

// Submission is the answer that a tool part is.
func (p *Part) Submission() helix.Submission {
	switch {
	case p.State == StateApprovalResponded && *p.Approval.Approved:
		s := helix.Approve(p.CallID, p.Approval.ID)
		s.Response.Reason = p.Approval.Reason
		return s
	case p.State == StateApprovalResponded:
		return helix.Deny(p.CallID, p.Approval.ID, p.Approval.Reason)
	case p.State == StateOutputError:
		return helix.ToolError(p.CallID, p.ErrorText)
	}
	return helix.ToolResult(p.CallID, json.RawMessage(bytes.TrimSpace(orNull(p.Output))))
}
