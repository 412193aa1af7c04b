package session

import (
	"bytes"
	"encoding/json"
	"time"
)

// PendingKind says what a call waits for.
type PendingKind string

// The kinds of waits.
const (
	PendingClientTool PendingKind = "client_tool"
	PendingApproval   PendingKind = "approval"
	PendingQuestion   PendingKind = "question"
)

// named returns the kind as a noun phrase for a message.
func (k PendingKind) named() string {
	switch k {
	case PendingApproval:
		return "an approval"
	case PendingQuestion:
		return "the answer to a question"
	}
	return "the result of a client tool"
}

// PendingState is the state of a wait.
type PendingState string

// The states of a pending entry. Waiting and answered entries are open; the others
// are kept so that a late or repeated answer gets the right outcome.
const (
	PendingWaiting    PendingState = "waiting"
	PendingAnswered   PendingState = "answered"
	PendingConsumed   PendingState = "consumed"   // the answer is in the transcript
	PendingTimedOut   PendingState = "timed_out"  // the deadline's error is in the transcript
	PendingAbandoned  PendingState = "abandoned"  // the conversation continued without an answer
	PendingSuperseded PendingState = "superseded" // a rewind undid the call
)

// Pending is a call that waits for a person.
type Pending struct {
	// CallID is the id under which the call waits: its own or, if the call has asked a
	// question, that of the question; see [Call.WaitID].
	CallID    string          `json:"toolCallId"`
	MessageID string          `json:"messageId,omitempty"`
	Tool      string          `json:"toolName"`
	Input     json.RawMessage `json:"input,omitempty"`
	Kind      PendingKind     `json:"kind"`
	// ApprovalID must be repeated by the answer to an approval.
	ApprovalID string `json:"approvalId,omitempty"`
	// For is the call that asked, if the entry is a question. Prompt is the question. Its
	// answer has to fit Schema; with a URL, the person does there what is asked for, and
	// then confirms it.
	For    string          `json:"for,omitempty"`
	Prompt string          `json:"prompt,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"`
	URL    string          `json:"url,omitempty"`
	// Fingerprint binds an approval to the exact input that the person saw; see
	// [Fingerprint].
	Fingerprint string `json:"fingerprint,omitempty"`
	// Policy is set when the tool decides who may answer: only a process that has the
	// tool can accept an answer.
	Policy bool `json:"approverPolicy,omitempty"`
	// SessionID is the session that owns the call; RunID is the run that suspended.
	SessionID string       `json:"sessionId,omitempty"`
	RunID     string       `json:"runId,omitempty"`
	State     PendingState `json:"state"`
	CreatedAt time.Time    `json:"createdAt,omitzero"`
	// Deadline is when the call is answered with a timeout; zero means never.
	Deadline    time.Time `json:"deadline,omitzero"`
	Response    *Response `json:"response,omitempty"`
	SubmittedAt time.Time `json:"submittedAt,omitzero"`
	// Late is an answer that arrived after the timeout was consumed; LateNoticed is
	// set once the model has seen it.
	Late        *Response `json:"late,omitempty"`
	LateNoticed bool      `json:"lateNoticed,omitempty"`
	Extra       Extra     `json:"-"`
}

// Call returns the id of the call that waits. It is not that of the entry if the call has
// asked a question.
func (p *Pending) Call() string {
	if p.For != "" {
		return p.For
	}
	return p.CallID
}

// Open reports whether the session's next step still needs this entry.
func (p *Pending) Open() bool { return p.State == PendingWaiting || p.State == PendingAnswered }

// Check returns an error if the entry cannot be stored.
func (p *Pending) Check() error {
	if err := CheckKeyID("tool call id", p.CallID); err != nil {
		return err
	}
	err := checkTexts("message id", p.MessageID, "tool", p.Tool, "approval id", p.ApprovalID,
		"owner session id", p.SessionID, "run id", p.RunID)
	if err != nil {
		return err
	}
	if err := p.checkQuestion(); err != nil {
		return err
	}
	return CheckJSON("input", p.Input)
}

// Begin fills in the defaults of an entry that a run writes now.
func (p *Pending) Begin(sessionID, runID string, now time.Time) {
	if p.State == "" {
		p.State = PendingWaiting
	}
	if p.SessionID == "" {
		p.SessionID = sessionID
	}
	if p.RunID == "" {
		p.RunID = runID
	}
	if p.CreatedAt.IsZero() {
		p.CreatedAt = now
	}
}

// Replaces reports whether the entry replaces one that exists, which it does if that
// still waits: an answer and an end stand. It then takes over since when the call waits.
func (p *Pending) Replaces(was *Pending) bool {
	if was.State != PendingWaiting {
		return false
	}
	p.CreatedAt = was.CreatedAt
	return true
}

// Response is a person's answer.
type Response struct {
	Kind     PendingKind     `json:"kind"`
	Approved bool            `json:"approved,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	// Answer is the answer to a question, unless the person declined to give one.
	Answer   json.RawMessage `json:"answer,omitempty"`
	Declined bool            `json:"declined,omitempty"`
	Error    string          `json:"error,omitempty"`
	By       string          `json:"by,omitempty"`
}

// Submission is an answer that is sent to a call.
type Submission struct {
	CallID     string `json:"toolCallId"`
	ApprovalID string `json:"approvalId,omitempty"`
	// Fingerprint, if set, is the fingerprint of the input that the submitter saw; an
	// answer to another input is refused.
	Fingerprint string `json:"fingerprint,omitempty"`
	Response
}

// Decide returns a person's decision on a call that waits for approval.
func Decide(callID, approvalID string, approved bool, reason string) Submission {
	return Submission{
		CallID: callID, ApprovalID: approvalID,
		Response: Response{Kind: PendingApproval, Approved: approved, Reason: reason},
	}
}

// Fingerprint identifies the exact input of a tool, regardless of whitespace and
// escapes in its JSON.
func Fingerprint(tool string, input json.RawMessage) string {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber()
	if decoder.Decode(&value) == nil {
		if canonical, err := json.Marshal(value); err == nil {
			input = canonical
		}
	}
	return hash(16, tool, string(input))
}

// Limits of a submission. A submission above them is refused and nothing is
// stored.
const (
	MaxSubmissionError  = 8 << 10
	MaxSubmissionResult = 1 << 20
)

// Check returns an error if the submission exceeds a limit or contradicts itself.
func (s *Submission) Check() error {
	if err := CheckKeyID("tool call id", s.CallID); err != nil {
		return err
	}
	for _, id := range []struct{ field, text string }{{"approval id", s.ApprovalID}, {"fingerprint", s.Fingerprint}, {"submitter", s.By}} {
		if len(id.text) > MaxIDBytes {
			return Invalid(id.field, "has %d bytes, at most %d are allowed", len(id.text), MaxIDBytes)
		}
	}
	for _, text := range []struct{ field, text string }{{"error", s.Error}, {"reason", s.Reason}} {
		if len(text.text) > MaxSubmissionError {
			return ErrTooLarge.WithMessage("%s has %d bytes, at most %d are allowed", text.field, len(text.text), MaxSubmissionError)
		}
	}
	if len(s.Result) > MaxSubmissionResult {
		return ErrTooLarge.WithMessage("result has %d bytes, at most %d are allowed", len(s.Result), MaxSubmissionResult)
	}
	switch s.Kind {
	case PendingApproval, PendingClientTool, PendingQuestion:
	default:
		return Invalid("submission kind", "%q is not one of %s, %s, %s", s.Kind, PendingClientTool, PendingApproval, PendingQuestion)
	}
	if err := s.checkAnswer(); err != nil {
		return err
	}
	if err := checkTexts("approval id", s.ApprovalID, "fingerprint", s.Fingerprint, "error", s.Error, "reason", s.Reason, "submitter", s.By); err != nil {
		return err
	}
	if err := CheckJSON("result", s.Result); err != nil {
		return err
	}
	if s.Result != nil && s.Error != "" {
		return Invalid("submission", "has both a result and an error")
	}
	return nil
}

// SubmitOutcome is the outcome of a submission.
type SubmitOutcome string

// The outcomes of a submission.
const (
	SubmitAccepted         SubmitOutcome = "accepted"
	SubmitAlreadyCompleted SubmitOutcome = "already_completed"
	SubmitLate             SubmitOutcome = "late_after_timeout"
	SubmitUnknownCall      SubmitOutcome = "unknown_tool_call"
)

// Accept decides a submission against its entry and, if the answer is accepted or
// recorded as late, changes the entry. For exactly-once behaviour the caller makes
// the read, the decision and the write one atomic step.
func (p *Pending) Accept(s *Submission, now time.Time) (SubmitOutcome, error) {
	if err := p.Fits(s); err != nil {
		return "", err
	}
	response := s.Response
	switch p.State {
	case PendingWaiting:
		p.State, p.Response, p.SubmittedAt = PendingAnswered, &response, now
		return SubmitAccepted, nil
	case PendingTimedOut:
		if p.Late == nil {
			p.Late, p.SubmittedAt = &response, now
		}
		return SubmitLate, nil
	}
	return SubmitAlreadyCompleted, nil
}

// Fits returns an error if a submission does not match the kind of its call: an
// approval accepts its own approval response or an error alone, a client tool
// accepts a client-tool result, and a question an answer or an error alone. Whether
// an answer fits the question's schema is not decided here.
func (p *Pending) Fits(s *Submission) error {
	errorOnly := s.Kind == PendingClientTool && s.Result == nil && s.Error != ""
	var why string
	switch {
	case s.Fingerprint != "" && s.Fingerprint != p.Fingerprint:
		why = "the answer is for a different input"
	case p.Kind == PendingApproval && s.Kind == PendingApproval && s.ApprovalID == p.ApprovalID,
		(p.Kind == PendingApproval || p.Kind == PendingQuestion) && errorOnly,
		p.Kind == PendingClientTool && s.Kind == PendingClientTool,
		p.Kind == PendingQuestion && s.Kind == PendingQuestion && (s.Answer != nil || s.Declined || p.URL != ""):
		return nil
	case p.Kind == PendingQuestion && s.Kind == PendingQuestion:
		why = "the answer is missing"
	case p.Kind == PendingApproval && s.Kind == PendingApproval:
		why = "the approval id does not match"
	default:
		why = "the call is waiting for " + p.Kind.named() + ", not for " + s.Kind.named()
	}
	out := ErrSubmissionKind.WithMessage("call %s: %s", p.CallID, why)
	out.Calls = []string{p.CallID}
	return out
}

type pendingJSON Pending

type versionedPending struct {
	V int `json:"v"`
	pendingJSON
}

// MarshalJSON implements [json.Marshaler].
func (p Pending) MarshalJSON() ([]byte, error) {
	return encodeWithExtra(&versionedPending{FormatVersion, pendingJSON(p)}, p.Extra)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *Pending) UnmarshalJSON(data []byte) error {
	var doc versionedPending
	extra, err := decodeWithExtra(data, &doc)
	if err != nil {
		return err
	}
	*p = Pending(doc.pendingJSON)
	p.Extra = extra
	return checkFormat("pending call "+p.CallID, doc.V)
}
