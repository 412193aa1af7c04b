package helix

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/helixagents/helix/session"
)

// Question is what a tool asks a person in the middle of a call; see [Ask].
type Question struct {
	// Prompt is what the person reads.
	Prompt string
	// Schema is the JSON Schema that an answer has to match. Defaults to a text. [AskFor]
	// infers it from a Go type.
	Schema json.RawMessage
	// URL is where the person does what is asked for, such as signing in, and then confirms
	// it. A question has a Schema or a URL.
	URL string
	// Memo is what the tool wants to know again when it is called with the answer. It is
	// encoded as JSON and nobody else sees it; see [Call.Memo].
	Memo any
	// Deadline is how long the person has to answer. Defaults to the tool's Deadline.
	Deadline time.Duration
}

// Ask returns the error with which a tool that is marked [Tool.Asks] asks a person a
// question. The call waits for the answer, like one that needs an approval, and then runs
// again, in this process or another, from the beginning: [Call.Answers] has the answers so
// far. What the attempt that asked wrote to the state is dropped. A call asks at most
// [session.MaxQuestions] questions.
func Ask(q Question) error { return &AskError{Question: q} }

// AskFor is [Ask] with the schema of T.
func AskFor[T any](q Question) error {
	schema, err := SchemaFor[T]()
	if err != nil {
		return err
	}
	q.Schema = schema.JSON()
	return Ask(q)
}

// AskError is the error of [Ask]. Other code than a tool that returns it asks nothing: it
// is an error there.
type AskError struct{ Question Question }

// Error implements error.
func (e *AskError) Error() string { return "a person has to be asked: " + e.Question.Prompt }

// Answered is a person's answer to a question of a call.
type Answered struct {
	// Answer matches the question's schema. It is nil if the person declined, and may be if
	// the question had a URL.
	Answer json.RawMessage
	// Declined says that the person does not want to answer; Reason may say why.
	Declined bool
	Reason   string
	// By is the id of the user who answered.
	By string
}

// Decode decodes the answer into a variable. It fails if there is none.
func (a *Answered) Decode(into any) error {
	if a.Answer == nil {
		return session.Invalid("answer", "was not given")
	}
	if err := json.Unmarshal(a.Answer, into); err != nil {
		return session.ErrInvalid.WithCause(err, "decode the answer")
	}
	return nil
}

// Answers returns the answers to the questions that the call has asked, in their order.
func (c *Call) Answers() []Answered { return c.answers }

// Memo decodes the memo of the call's latest question into a variable. It reports whether
// there is one.
func (c *Call) Memo(into any) (bool, error) {
	if c.memo == nil {
		return false, nil
	}
	if err := json.Unmarshal(c.memo, into); err != nil {
		return true, session.ErrInvalid.WithCause(err, "decode the memo")
	}
	return true, nil
}

// IdempotencyKey returns a key that is the same for every attempt of this call and unique
// to it. Pass it to the service that the tool calls. After each answer to a question of the
// call the key is another one, because a service that recognises the earlier key would
// repeat what led to the question.
func (c *Call) IdempotencyKey() string {
	key := c.SessionID + "/" + c.ID
	if n := len(c.answers); n > 0 {
		key += "/answer/" + strconv.Itoa(n)
	}
	return key
}

// Reply answers a question. The answer has to match the question's schema; for a question
// with a URL it may be nil, which confirms that it was done.
func Reply(question session.Pending, answer any, by User) Submission {
	s := Submission{Submission: session.Reply(question.CallID, nil)}
	if answer != nil {
		raw, err := encodeResult(answer)
		if err != nil {
			s.err = session.Invalid("answer", "cannot be encoded: %v", err)
		}
		s.Answer = raw
	}
	return s.By(by)
}

// Decline declines to answer a question. The tool sees that, and the reason, if any.
func Decline(question session.Pending, by User, reason string) Submission {
	return Submission{Submission: session.Decline(question.CallID, reason)}.By(by)
}
