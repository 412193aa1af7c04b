package server

import (
	"encoding/json"

	"github.com/helixagents/helix/server/internal/request"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// reader decodes a body of one type, field by field. It keeps no more of a body than the
// limits allow.
type reader[T any] func(s *request.Scanner, limits *Limits, in *T) error

// Limits of strings, in bytes.
const (
	maxReason = 1 << 10
	// maxCheckpointID has room for a session's id and what its checkpoints add to it.
	maxCheckpointID = 2 * session.MaxIDBytes
)

// maxAnswerValues limits the values in an answer that [Config.SubmitSchema] checks, at any
// depth, because it is decoded for that.
const maxAnswerValues = 100_000

// maxSeenValues limits the values in the input that a person saw, at any depth, because it
// is compared value by value.
const maxSeenValues = 100_000

var startFields = []string{
	"sessionId", "agentType", "message", "state", "metadata", "tags", "requestId", "expiresAt", "abandonPending",
}

func readStart(s *request.Scanner, limits *Limits, in *wire.Start) error {
	return s.Fields(startFields, false, func(name string) (err error) {
		switch name {
		case "sessionId":
			in.SessionID, err = s.ID()
		case "agentType":
			in.AgentType, err = s.ID()
		case "message":
			in.Message, err = readMessages(s, limits)
		case "state":
			in.State, err = readState(s, limits)
		case "metadata":
			in.Metadata, err = s.Metadata(limits.Metadata)
		case "tags":
			in.Tags, err = s.Tags(limits.Tags)
		case "requestId":
			in.RequestID, err = s.ID()
		case "expiresAt":
			in.ExpiresAt, err = s.Time()
		case "abandonPending":
			in.AbandonPending, err = s.Bool()
		}
		return err
	})
}

// readState reads the initial state of a session. It is not nil if the request has one,
// even an empty one.
func readState(s *request.Scanner, limits *Limits) (map[string]json.RawMessage, error) {
	if s.Null() {
		return nil, nil
	}
	out := map[string]json.RawMessage{}
	err := s.Map(limits.StateKeys, session.MaxIDBytes, func(name string) error {
		if err := session.CheckText(s.Path(), name); err != nil {
			return err
		}
		value, err := s.AnyRaw()
		out[name] = value
		return err
	})
	return out, err
}

var resumeFields = []string{"sessionId", "message", "checkpointId", "requestId"}

func readResume(s *request.Scanner, limits *Limits, in *wire.Resume) error {
	return s.Fields(resumeFields, false, func(name string) (err error) {
		switch name {
		case "sessionId":
			in.SessionID, err = s.ID()
		case "message":
			in.Message, err = readMessages(s, limits)
		case "checkpointId":
			in.CheckpointID, err = readName(s, maxCheckpointID)
		case "requestId":
			in.RequestID, err = s.ID()
		}
		return err
	})
}

var branchFields = []string{"sessionId", "checkpointId", "messageIndex", "message", "requestId"}

func readBranch(s *request.Scanner, limits *Limits, in *wire.Branch) error {
	return s.Fields(branchFields, false, func(name string) (err error) {
		switch name {
		case "sessionId":
			in.SessionID, err = s.ID()
		case "checkpointId":
			in.CheckpointID, err = readName(s, maxCheckpointID)
		case "messageIndex":
			if s.Null() {
				return nil
			}
			var n int
			n, err = s.Int()
			in.MessageIndex = &n
		case "message":
			in.Message, err = readMessages(s, limits)
		case "requestId":
			in.RequestID, err = s.ID()
		}
		return err
	})
}

func readRetry(s *request.Scanner, _ *Limits, in *wire.Retry) error {
	return s.Fields([]string{"requestId"}, false, func(string) (err error) {
		in.RequestID, err = s.ID()
		return err
	})
}

func readPause(s *request.Scanner, _ *Limits, in *wire.Pause) error {
	return s.Fields([]string{"reason"}, false, func(string) (err error) {
		in.Reason, err = readName(s, maxReason)
		return err
	})
}

func readCompact(s *request.Scanner, _ *Limits, in *wire.Compact) error {
	return s.Fields([]string{"force"}, false, func(string) (err error) {
		in.Force, err = s.Bool()
		return err
	})
}

func readStop(s *request.Scanner, _ *Limits, in *wire.Stop) error {
	return s.Fields([]string{"sessionId", "runId", "reason"}, false, stopField(s, in))
}

// readChatStop reads a [wire.ChatStop]. Its session is in the path.
func readChatStop(s *request.Scanner, _ *Limits, in *wire.Stop) error {
	return s.Fields([]string{"runId", "reason"}, false, stopField(s, in))
}

func stopField(s *request.Scanner, in *wire.Stop) func(name string) error {
	return func(name string) (err error) {
		switch name {
		case "sessionId":
			in.SessionID, err = s.ID()
		case "runId":
			in.RunID, err = s.ID()
		case "reason":
			in.Reason, err = readName(s, maxReason)
		}
		return err
	}
}

// readName reads a string that stores keep in a column.
func readName(s *request.Scanner, limit int) (string, error) {
	text, err := s.Text(limit)
	if err != nil {
		return "", err
	}
	return text, session.CheckText(s.Path(), text)
}

var chatSubmitFields = []string{
	"toolCallId", "kind", "result", "error", "approval", "answer", "declined", "approvalId", "approved", "reason", "seen", "resume",
}

// readChatSubmit reads a [wire.ChatSubmit]. Its session is in the path.
func readChatSubmit(s *request.Scanner, _ *Limits, in *wire.Submit) error {
	return s.Fields(chatSubmitFields, false, submitField(s, in))
}

var submitFields = append([]string{"sessionId"}, chatSubmitFields...)

func readSubmit(s *request.Scanner, _ *Limits, in *wire.Submit) error {
	return s.Fields(submitFields, false, submitField(s, in))
}

func submitField(s *request.Scanner, in *wire.Submit) func(name string) error {
	return func(name string) (err error) {
		switch name {
		case "sessionId":
			in.SessionID, err = s.ID()
		case "toolCallId":
			in.ToolCallID, err = s.ID()
		case "kind":
			in.Kind, err = readSubmitKind(s)
		case "result":
			in.Result, err = s.Raw(session.MaxSubmissionResult)
		case "error":
			in.Error, err = readName(s, session.MaxSubmissionError)
		case "approval":
			in.Approval, err = readApproval(s)
		case "answer":
			in.Answer, err = s.Raw(session.MaxAnswer)
		case "declined":
			in.Declined, err = s.Bool()
		case "approvalId":
			in.ApprovalID, err = s.ID()
		case "approved":
			if s.Null() {
				return nil
			}
			var approved bool
			approved, err = s.Bool()
			in.Approved = &approved
		case "reason":
			in.Reason, err = readName(s, session.MaxSubmissionError)
		case "seen":
			in.Seen, err = readSeen(s)
		case "resume":
			in.Resume, err = s.Bool()
		}
		return err
	}
}

func readSubmitKind(s *request.Scanner) (wire.SubmitKind, error) {
	text, err := s.ID()
	kind := wire.SubmitKind(text)
	switch {
	case err != nil:
	case kind == "" || kind == wire.SubmitResult || kind == wire.SubmitApproval || kind == wire.SubmitAnswer:
	default:
		err = s.Invalid("%.40q is not one of %s, %s, %s", text, wire.SubmitResult, wire.SubmitApproval, wire.SubmitAnswer)
	}
	return kind, err
}

func readApproval(s *request.Scanner) (*wire.Approval, error) {
	if s.Null() {
		return nil, nil
	}
	out := new(wire.Approval)
	return out, s.Fields([]string{"approvalId", "approved", "reason"}, false, func(name string) (err error) {
		switch name {
		case "approvalId":
			out.ApprovalID, err = s.ID()
		case "approved":
			out.Approved, err = s.Bool()
		case "reason":
			out.Reason, err = readName(s, session.MaxSubmissionError)
		}
		return err
	})
}

func readSeen(s *request.Scanner) (*wire.Seen, error) {
	if s.Null() {
		return nil, nil
	}
	out := new(wire.Seen)
	return out, s.Fields([]string{"toolName", "input"}, false, func(name string) (err error) {
		switch name {
		case "toolName":
			out.ToolName, err = s.ID()
		case "input":
			out.Input, err = s.Bounded(session.MaxSubmissionResult, maxSeenValues)
		}
		return err
	})
}

// readMessages reads a string, or a list of the user's messages.
func readMessages(s *request.Scanner, limits *Limits) (wire.Messages, error) {
	if s.Null() {
		return nil, nil
	}
	if s.IsText() {
		text, err := s.AnyText()
		if err == nil && text == "" {
			err = s.Invalid("must not be empty")
		}
		return wire.Text(text), err
	}
	if !s.IsList() {
		return nil, s.Invalid("must be a string or a list of messages")
	}
	var out wire.Messages
	parts := 0
	err := s.List(limits.Messages, func(int) error {
		m, err := readMessage(s, limits, &parts)
		out = append(out, m)
		return err
	})
	return out, err
}

// readMessage reads a message. Users cannot set the framework's own fields. Clients of
// earlier versions send the format version.
func readMessage(s *request.Scanner, limits *Limits, parts *int) (wire.UserMessage, error) {
	m := wire.UserMessage{Role: session.RoleUser}
	err := s.Fields([]string{"id", "role", "parts", "skills", "v"}, false, func(name string) (err error) {
		switch name {
		case "id":
			m.ID, err = readMessageID(s)
		case "role":
			var role string
			if role, err = s.ID(); err == nil && role != string(session.RoleUser) && role != "" {
				err = s.Invalid("is %.40q, but only a user's message can be sent", role)
			}
		case "parts":
			m.Parts, err = readParts(s, limits, parts)
		case "skills":
			m.Skills, err = s.Skills()
		case "v":
			if s.Null() {
				return nil
			}
			var v int
			if v, err = s.Int(); err == nil && v != session.FormatVersion {
				err = s.Invalid("is %d, but this server reads messages of version %d", v, session.FormatVersion)
			}
		}
		return err
	})
	if err == nil && len(m.Parts) == 0 {
		err = s.At("parts", "must not be empty")
	}
	return m, err
}

func readMessageID(s *request.Scanner) (string, error) {
	id, err := s.ID()
	if err != nil || id == "" {
		return "", err
	}
	if session.IsDerivedMessageID(id) {
		return "", s.Invalid("%.60q has the format of the server's own message ids", id)
	}
	return id, session.CheckKeyID(s.Path(), id)
}

// readParts reads the parts of a message. parts counts the parts of all messages.
func readParts(s *request.Scanner, limits *Limits, parts *int) ([]wire.UserPart, error) {
	var out []wire.UserPart
	err := s.List(request.NoLimit, func(int) error {
		if *parts++; *parts > limits.Parts {
			return s.Invalid("is one too many: a request may have at most %d parts", limits.Parts)
		}
		p, err := readPart(s, limits)
		out = append(out, p)
		return err
	})
	return out, err
}

func readPart(s *request.Scanner, limits *Limits) (p wire.UserPart, err error) {
	var kind string
	err = s.Fields([]string{"kind", "text", "url", "mediaType", "filename"}, false, func(name string) (err error) {
		switch name {
		case "kind":
			kind, err = s.ID()
		case "text":
			p.Text, err = s.AnyText()
		case "url":
			p.URL, err = s.AnyText()
		case "mediaType":
			p.MediaType, err = s.ID()
		case "filename":
			p.Filename, err = s.AnyText()
		}
		return err
	})
	if err != nil {
		return p, err
	}
	p.Kind = session.PartKind(kind)
	switch p.Kind {
	case session.PartText:
		for _, f := range [...]struct{ name, value string }{{"url", p.URL}, {"mediaType", p.MediaType}, {"filename", p.Filename}} {
			if f.value != "" {
				return p, s.At(f.name, "belongs to a file, but the part is a text")
			}
		}
		if p.Text == "" {
			return p, s.At("text", "must not be empty")
		}
		return p, nil
	case session.PartFile:
		if p.Text != "" {
			return p, s.At("text", "belongs to a text, but the part is a file")
		}
		return p, request.CheckFile(s.Path(), p.URL, p.MediaType, p.Filename, !limits.RefuseRemoteFiles)
	}
	return p, s.At("kind", "%.40q is neither %s nor %s", kind, session.PartText, session.PartFile)
}
