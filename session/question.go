package session

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of questions.
const (
	MaxQuestions = 16 // that one call may ask
	MaxPrompt    = 8 << 10
	MaxSchema    = 64 << 10
	MaxURL       = 2 << 10
	MaxMemo      = 64 << 10
	MaxAnswer    = 64 << 10
)

// QuestionID returns the id of the n-th question of a call, counted from 1.
func QuestionID(callID string, n int) string { return callID + ".q" + strconv.Itoa(n) }

// WaitID returns the id of the entry under which the call waits for a person: its own,
// or that of its latest question.
func (c *Call) WaitID() string {
	if c.Kind == CallQuestion {
		return QuestionID(c.ID, c.Asked)
	}
	return c.ID
}

// Ask records that a call asks a person a question. The call's tool has returned and
// is called again with the answer.
//
// A store applies all of it in one atomic write, or none of it, without changing the
// session's version; see [Ask.Apply].
type Ask struct {
	// Call is the call with the number of questions that it has now asked, and its memo.
	// Only these, and what identifies the call, are read of it.
	Call Call
	// Pending is the question's entry. Its id is that of the question.
	Pending Pending
	// Resolve ends the wait whose answer let the call run: its approval, or its earlier
	// question.
	Resolve []Resolution
	// Reopen names calls of the same message that were claimed and have not started.
	// They may start in a later run now.
	Reopen []string
}

// Check returns an error if no store could record the question.
func (a *Ask) Check() error {
	call, p := a.Call, &a.Pending
	call.Kind, call.Status, call.Result, call.Writes = CallQuestion, CallOpen, nil, Writes{}
	switch {
	case a.Call.Asked == 0:
		return Invalid("questions", "of call %q are not counted", call.ID)
	case p.Kind != PendingQuestion:
		return Invalid("question", "of call %q has an entry of kind %q", call.ID, p.Kind)
	case p.For != call.ID || p.CallID != call.WaitID() || p.MessageID != call.MessageID:
		return Invalid("question", "%q does not belong to call %q of message %q", p.CallID, call.ID, call.MessageID)
	}
	if err := call.Check(); err != nil {
		return err
	}
	return p.Check()
}

// Apply changes the rows of a message's calls, of which one asks. It returns the
// indexes of those that it changed: none if the question was recorded before, in which
// case the store changes nothing else either. Stores share it so that they agree on
// every case.
func (a *Ask) Apply(sessionID string, calls []Call) (changed []int, err error) {
	at := slices.IndexFunc(calls, func(c Call) bool { return c.ID == a.Call.ID })
	if at < 0 {
		err := ErrNotFound.WithMessage("session %s: call %s of message %s not found", sessionID, a.Call.ID, a.Call.MessageID)
		err.Calls = []string{a.Call.ID}
		return nil, err
	}
	row := &calls[at]
	switch {
	case row.Asked == a.Call.Asked:
		return nil, nil
	case row.Status == CallSettled:
		return nil, Invalid("question", "cannot be asked: call %q has a result", row.ID)
	case row.Asked+1 != a.Call.Asked:
		return nil, Invalid("question", "%d of call %q cannot follow question %d", a.Call.Asked, row.ID, row.Asked)
	}
	row.Kind, row.Status, row.BegunAt = CallQuestion, CallOpen, time.Time{}
	row.Asked, row.Memo = a.Call.Asked, a.Call.Memo
	changed = append(changed, at)
	for i := range calls {
		if i != at && calls[i].Status == CallBegun && slices.Contains(a.Reopen, calls[i].ID) {
			calls[i].Status, calls[i].BegunAt = CallOpen, time.Time{}
			changed = append(changed, i)
		}
	}
	return changed, nil
}

// checkAsked returns an error if what the row says about questions cannot be stored.
func (c *Call) checkAsked() error {
	switch {
	case c.Asked < 0 || c.Asked > MaxQuestions:
		return Invalid("questions", "of call %q are %d, at most %d are allowed", c.ID, c.Asked, MaxQuestions)
	case c.Kind == CallQuestion && c.Asked == 0:
		return Invalid("questions", "of call %q are not counted", c.ID)
	case len(c.Memo) > MaxMemo:
		return ErrTooLarge.WithMessage("the memo of call %s has %d bytes, at most %d are allowed", c.ID, len(c.Memo), MaxMemo)
	}
	return CheckJSON("memo", c.Memo)
}

// checkQuestion returns an error if the question of an entry cannot be stored.
func (p *Pending) checkQuestion() error {
	if p.Kind != PendingQuestion {
		if p.For != "" || p.Prompt != "" || p.Schema != nil || p.URL != "" {
			return Invalid("question", "%q is of a call that waits for %s", p.CallID, p.Kind.named())
		}
		return nil
	}
	if err := CheckKeyID("asking call id", p.For); err != nil {
		return err
	}
	if n, ok := strings.CutPrefix(p.CallID, p.For+".q"); !ok || !isQuestionNumber(n) {
		return Invalid("question", "%q is not one of call %q", p.CallID, p.For)
	}
	for _, text := range [...]struct {
		field string
		bytes int
		most  int
	}{{"prompt", len(p.Prompt), MaxPrompt}, {"schema", len(p.Schema), MaxSchema}, {"url", len(p.URL), MaxURL}} {
		if text.bytes > text.most {
			return ErrTooLarge.WithMessage("the %s of question %s has %d bytes, at most %d are allowed", text.field, p.CallID, text.bytes, text.most)
		}
	}
	switch {
	case p.Prompt == "":
		return Invalid("prompt", "of question %q must not be empty", p.CallID)
	case (p.Schema == nil) == (p.URL == ""):
		return Invalid("question", "%q must have either a schema or a url", p.CallID)
	}
	if p.URL != "" {
		// A user in the address would read like another host, as would letters of other
		// scripts that look like those of the host.
		u, err := url.Parse(p.URL)
		if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "https" && u.Scheme != "http") {
			return Invalid("url", "of question %q must be an http or https address without a user", p.CallID)
		}
		if strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return Invalid("url", "of question %q must have a host in ASCII, with other letters in punycode (xn--…)", p.CallID)
		}
	}
	if err := checkTexts("prompt", p.Prompt, "url", p.URL); err != nil {
		return err
	}
	if err := CheckJSON("schema", p.Schema); err != nil {
		return err
	}
	if p.Schema == nil {
		return nil
	}
	_, err := readQuestionSchema(p.CallID, p.Schema)
	return err
}

// isQuestionNumber reports whether a text is the number of a question.
func isQuestionNumber(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 1 && n <= MaxQuestions && text == strconv.Itoa(n)
}

// checkAnswer returns an error if the answer to a question exceeds its limit or
// contradicts itself.
func (s *Submission) checkAnswer() error {
	if len(s.Answer) > MaxAnswer {
		return ErrTooLarge.WithMessage("answer has %d bytes, at most %d are allowed", len(s.Answer), MaxAnswer)
	}
	switch {
	case s.Kind != PendingQuestion && (s.Answer != nil || s.Declined):
		return Invalid("answer", "is only for a question, not for %s", s.Kind.named())
	case s.Kind == PendingQuestion && (s.Result != nil || s.Error != "" || s.Approved):
		return Invalid("submission", "answers a question with something else")
	case s.Answer != nil && s.Declined:
		return Invalid("answer", "must be missing where the person declined")
	}
	return CheckJSON("answer", s.Answer)
}

// Reply returns a person's answer to a question.
func Reply(questionID string, answer json.RawMessage) Submission {
	return Submission{CallID: questionID, Response: Response{Kind: PendingQuestion, Answer: answer}}
}

// Decline returns that a person does not answer a question.
func Decline(questionID, reason string) Submission {
	return Submission{CallID: questionID, Response: Response{Kind: PendingQuestion, Declined: true, Reason: reason}}
}
