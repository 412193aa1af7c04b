package aisdk

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/internal/request"
	"github.com/helixagents/helix/session"
)

// The triggers of a request.
const (
	TriggerSubmit     = "submit-message"
	TriggerRegenerate = "regenerate-message"
)

// Limits limit what is decoded of a request. Zero fields have defaults.
type Limits struct {
	// Tags and Metadata are the maximum numbers for a new chat. They default to the limits
	// of a session.
	Tags     int
	Metadata int
	// Parts is the maximum number of parts of a message. Defaults to 1,000.
	Parts int
	// RefuseRemoteFiles refuses files that are not data URLs.
	RefuseRemoteFiles bool
}

func (l *Limits) fill() {
	l.Tags = cmp.Or(l.Tags, session.MaxTags)
	l.Metadata = cmp.Or(l.Metadata, session.MaxMetadata)
	l.Parts = cmp.Or(l.Parts, 1000)
}

// Request is what a client posts: the whole conversation as the client knows it. The store
// has the history, so the server decodes only the last message: a new message of the user,
// or answers in the assistant's. It skips all others.
type Request struct {
	// ID is the id of the chat, which is a session.
	ID string `json:"id"`
	// Messages is the conversation. The server reads only the last message.
	Messages  []Sent `json:"messages,omitempty"`
	Trigger   string `json:"trigger,omitempty"`
	MessageID string `json:"messageId,omitempty"`
	// Agent is the agent of a new chat. This and the following fields are extensions of
	// Helix.
	Agent string `json:"agent,omitempty"`
	// AbandonPending continues without the answers that the session waits for.
	AbandonPending bool `json:"abandonPending,omitempty"`
	// Skills are the names of skills that the agent loads before it replies to a new message,
	// at most 16.
	Skills   []string          `json:"skills,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	limits Limits
}

// Sent is a UI message from a client. Only the relevant fields are decoded.
type Sent struct {
	ID   string `json:"id,omitempty"`
	Role string `json:"role"`
	// Parts are the texts and files of a user's message, or the answers in the assistant's.
	Parts []Part `json:"parts"`
	// Metadata is the metadata that the server sent with a reply.
	Metadata *SentMetadata `json:"metadata,omitempty"`

	path string // of the message in the request
}

// SentMetadata is the decoded part of a reply's metadata.
type SentMetadata struct {
	// RunID is the last run of the reply that the client has seen.
	RunID string `json:"runId,omitempty"`
}

// Decode decodes a request's body. It ignores unknown fields, which belong to the
// application.
func Decode(body []byte, limits Limits) (*Request, error) {
	limits.fill()
	s := request.NewScanner(body)
	if err := s.Object(); err != nil {
		return nil, err
	}
	r := &Request{limits: limits}
	if err := r.read(s); err != nil {
		return nil, err
	}
	return r, s.End()
}

// UnmarshalJSON implements [json.Unmarshaler], as [Decode] with the default limits.
func (r *Request) UnmarshalJSON(data []byte) error {
	decoded, err := Decode(data, Limits{})
	if err != nil {
		return err
	}
	*r = *decoded
	return nil
}

// maxUIMessageID allows for the id of a user's message with the suffix of its reply.
const maxUIMessageID = 2 * session.MaxIDBytes

var requestFields = []string{"id", "messages", "trigger", "messageId", "agent", "abandonPending", "skills", "tags", "metadata"}

func (r *Request) read(s *request.Scanner) error {
	var last message
	err := s.Fields(requestFields, true, func(name string) (err error) {
		switch name {
		case "id":
			r.ID, err = s.ID()
		case "messages":
			last, err = lastMessage(s)
		case "trigger":
			r.Trigger, err = s.ID()
		case "messageId":
			r.MessageID, err = s.Text(maxUIMessageID)
		case "agent":
			r.Agent, err = s.ID()
		case "abandonPending":
			r.AbandonPending, err = s.Bool()
		case "skills":
			r.Skills, err = s.Skills()
		case "tags":
			r.Tags, err = s.Tags(r.limits.Tags)
		case "metadata":
			r.Metadata, err = s.Metadata(r.limits.Metadata)
		}
		return err
	})
	if err != nil || last.raw == nil {
		return err
	}
	sent, err := last.read(s, &r.limits)
	r.Messages = []Sent{sent}
	return err
}

// message is an undecoded message of the request.
type message struct {
	raw   []byte
	index int
}

// lastMessage skips all messages and returns the position of the last one.
func lastMessage(s *request.Scanner) (last message, err error) {
	err = s.List(request.NoLimit, func(i int) (err error) {
		if !s.IsObject() {
			return s.Invalid("must be a message")
		}
		last.index = i
		last.raw, err = s.Span()
		return err
	})
	return last, err
}

// read decodes the relevant fields of a message.
func (m message) read(body *request.Scanner, limits *Limits) (out Sent, err error) {
	s := body.Within(m.raw, "messages", m.index)
	out.path = s.Path()
	begin := s.Mark()
	err = s.Fields([]string{"role"}, true, func(string) (err error) {
		out.Role, err = s.ID()
		return err
	})
	if err != nil {
		return out, err
	}
	s.Rewind(begin) // which fields are relevant depends on the role
	err = s.Fields([]string{"id", "parts", "metadata"}, true, func(name string) (err error) {
		switch name {
		case "id":
			out.ID, err = s.Text(maxUIMessageID)
		case "parts":
			out.Parts, err = readParts(s, limits, out.Role)
		case "metadata":
			out.Metadata, err = readMetadata(s)
		}
		return err
	})
	return out, err
}

// readMetadata decodes the metadata of a message. It may also be the application's, so it
// may have any form.
func readMetadata(s *request.Scanner) (*SentMetadata, error) {
	if !s.IsObject() {
		return nil, s.Skip()
	}
	out := new(SentMetadata)
	return out, s.Fields([]string{"runId"}, true, func(string) error {
		if !s.IsText() {
			return nil
		}
		text, err := s.AnyText()
		if len(text) <= session.MaxIDBytes {
			out.RunID = text
		}
		return err
	})
}

// readParts decodes the relevant parts of a message.
func readParts(s *request.Scanner, limits *Limits, role string) ([]Part, error) {
	var out []Part
	err := s.List(request.NoLimit, func(i int) error {
		if !s.IsObject() {
			return s.Invalid("must be a part of a message")
		}
		begin := s.Mark()
		if does, err := matters(s, role); err != nil || !does {
			return err
		}
		if len(out) == limits.Parts {
			return s.Invalid("is one too many: a message may have at most %d parts", limits.Parts)
		}
		s.Rewind(begin)
		p, err := readPart(s)
		p.at = i
		out = append(out, p)
		return err
	})
	return out, err
}

// matters decodes a part and reports whether it is relevant: a text or a file of the user,
// or a call in the assistant's message that may have an answer.
func matters(s *request.Scanner, role string) (bool, error) {
	var kind, state []byte
	err := s.Fields([]string{"type", "state"}, true, func(name string) (err error) {
		if name == "type" {
			kind, err = s.Word()
		} else {
			state, err = s.Word()
		}
		return err
	})
	switch role {
	case string(session.RoleUser):
		return string(kind) == PartText || string(kind) == PartFile, err
	case string(session.RoleAssistant):
		switch string(state) {
		case StateApprovalResponded, StateOutputAvailable, StateOutputError:
			return string(kind) == PartTool || bytes.HasPrefix(kind, []byte(staticTool)), err
		}
	}
	return false, err
}

// staticTool is the type prefix of a call whose tool the client knows; its name follows.
const staticTool = "tool-"

var partFields = []string{
	"type", "text", "state", "toolName", "toolCallId", "input", "output", "errorText", "approval", "url", "mediaType", "filename",
}

func readPart(s *request.Scanner) (p Part, err error) {
	err = s.Fields(partFields, true, func(name string) (err error) {
		switch name {
		case "type":
			p.Type, err = s.ID()
		case "text":
			p.Text, err = s.AnyText()
		case "state":
			p.State, err = s.ID()
		case "toolName":
			p.Tool, err = s.ID()
		case "toolCallId":
			p.CallID, err = s.ID()
		case "input":
			p.Input, err = s.AnyRaw()
		case "output":
			p.Output, err = s.AnyRaw()
		case "errorText":
			p.ErrorText, err = s.AnyText()
		case "approval":
			p.Approval, err = readApproval(s)
		case "url":
			p.URL, err = s.AnyText()
		case "mediaType":
			p.MediaType, err = s.AnyText()
		case "filename":
			p.Filename, err = s.AnyText()
		}
		return err
	})
	if name, static := strings.CutPrefix(p.Type, staticTool); static {
		p.Type, p.Tool = PartTool, name
	}
	return p, err
}

func readApproval(s *request.Scanner) (*Approval, error) {
	if s.Null() {
		return nil, nil
	}
	out := new(Approval)
	return out, s.Fields([]string{"id", "approved", "reason"}, true, func(name string) (err error) {
		switch name {
		case "id":
			out.ID, err = s.ID()
		case "approved":
			if s.Null() {
				return nil
			}
			var approved bool
			approved, err = s.Bool()
			out.Approved = &approved
		case "reason":
			out.Reason, err = s.AnyText()
		}
		return err
	})
}

// Check returns an error if the request is invalid.
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

// Answers reports whether the request has answers and no new message.
func (r *Request) Answers() bool {
	return r.Trigger != TriggerRegenerate && r.last().Role == string(session.RoleAssistant)
}

// ShownRun returns the run whose beginning the client has seen, according to the request.
func (r *Request) ShownRun() string {
	if m := r.last().Metadata; m != nil {
		return m.RunID
	}
	return ""
}

// Asks reports whether the request ends with a message of the user, to which a reply is
// made or repeated.
func (r *Request) Asks() bool {
	return len(r.Messages) > 0 && r.last().Role == string(session.RoleUser)
}

// Target returns the message whose reply is repeated, which may be the user's; empty for
// the last one.
func (r *Request) Target() string {
	if r.MessageID == "" && r.Asks() {
		return r.last().ID
	}
	return r.MessageID
}

// TargetSent reports whether the request contains the message whose reply is repeated.
func (r *Request) TargetSent() bool { return r.Asks() && UserOf(r.Target()) == r.last().ID }

// Edits reports whether the request replaces an earlier message of the user.
func (r *Request) Edits() bool {
	return r.Trigger != TriggerRegenerate && !r.Answers() && r.MessageID != "" && r.MessageID == r.last().ID
}

// Input returns the user's message.
func (r *Request) Input() (session.Message, error) {
	in := r.last()
	m := session.Message{ID: in.ID, Role: session.RoleUser}
	if in.ID != "" {
		if err := session.CheckKeyID(in.path+".id", in.ID); err != nil {
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
			path := fmt.Sprintf("%s.parts[%d]", in.path, p.at)
			if err := request.CheckFile(path, p.URL, p.MediaType, p.Filename, !r.limits.RefuseRemoteFiles); err != nil {
				return m, err
			}
			m.Parts = append(m.Parts, session.Part{Kind: session.PartFile, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename})
		}
	}
	if len(m.Parts) == 0 {
		return m, session.Invalid("messages", "end in one without text or files")
	}
	m = m.WithSkills(r.Skills...)
	err := m.Check()
	return m, err
}

// CheckNewID refuses an id for a new message that has the format of the framework's own
// ids.
func (r *Request) CheckNewID() error {
	if in := r.last(); session.IsDerivedMessageID(in.ID) {
		return session.Invalid(in.path+".id", "%.60q has the format of the server's own message ids", in.ID)
	}
	return nil
}

// Answered returns the tool parts of the assistant's message that may answer a call because
// a person has handled them.
func (r *Request) Answered() []Part {
	if len(r.Messages) == 0 || !r.Answers() {
		return nil
	}
	var out []Part
	for _, p := range r.last().Parts {
		if p.Type == PartTool && p.CallID != "" && p.answers() {
			out = append(out, p)
		}
	}
	return out
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

// Submission returns the answer in a tool part.
func (p *Part) Submission() helix.Submission {
	switch p.State {
	case StateApprovalResponded:
		return helix.Submission{Submission: session.Decide(p.CallID, p.Approval.ID, *p.Approval.Approved, p.Approval.Reason)}
	case StateOutputError:
		return helix.ToolError(p.CallID, p.ErrorText)
	}
	return helix.ToolResult(p.CallID, json.RawMessage(bytes.TrimSpace(orNull(p.Output))))
}

// Shows reports whether the part shows a call's exact input, as far as a page that parses
// JSON in JavaScript can. A part whose input was omitted, because it is too large for a
// stream, does not.
func (p *Part) Shows(input json.RawMessage) bool { return request.SameJSON(p.Input, input) }

// Decision returns the approval or denial in the output of a tool part, for clients without
// native approvals: an object with approvalId, approved and an optional reason. It reports
// whether the output has that form.
func (p *Part) Decision() (helix.Submission, bool) {
	said := p.decided()
	if said == nil {
		return helix.Submission{}, false
	}
	return (&Part{CallID: p.CallID, State: StateApprovalResponded, Approval: said}).Submission(), true
}

// decided returns the approval or denial in the output of a tool part, or nil.
func (p *Part) decided() *Approval {
	var said struct {
		ApprovalID string `json:"approvalId"`
		Approved   *bool  `json:"approved"`
		Reason     string `json:"reason"`
	}
	if p.State != StateOutputAvailable || json.Unmarshal(p.Output, &said) != nil || said.Approved == nil {
		return nil
	}
	return &Approval{ID: said.ApprovalID, Approved: said.Approved, Reason: said.Reason}
}
