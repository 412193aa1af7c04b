package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/internal/request"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// Past a limit nothing more of a body is looked at.
func TestReadersStopAtTheLimit(t *testing.T) {
	t.Parallel()
	var limits Limits
	limits.fill()
	for _, c := range []struct {
		body  string
		most  int // entries: fields of the request, and those of what is limited
		field string
	}{
		{`{"tags":[` + strings.Repeat(`"t",`, 9_000) + `"t"]}`, 1 + 65, "tags"},
		{`{"metadata":{` + numbered(30_000, `"%d":""`) + `}}`, 1 + 65, "metadata"},
		{`{"state":{` + numbered(38_000, `"%d":1`) + `}}`, 1 + 1001, "state"},
		{`{"message":[` + strings.Repeat(`{"parts":[{"kind":"text","text":"x"}]},`, 5_000) + `{}]}`, 1 + 101*5, "message"},
		{`{"message":[{"parts":[` + strings.Repeat(`{"kind":"text","text":"x"},`, 15_000) + `{}]}]}`, 3 + 1001*3, "message[0].parts[1000]"},
	} {
		s := request.NewScanner([]byte(c.body))
		_, err := decodeBody(s, &limits, readStart)
		if e := session.AsError(err); e == nil || e.Field != c.field || s.Entries() > c.most {
			t.Errorf("%.30s…: %v after %d entries, of at most %d", c.body, err, s.Entries(), c.most)
		}
	}
}

func numbered(n int, format string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(all, ",")
}

// few are limits that fuzzing reaches.
var few = Limits{Tags: 2, Metadata: 2, StateKeys: 2, Messages: 2, Parts: 3}

// fuzzBody decodes bodies of one type. Whatever they are, the decoder lives, looks at
// no more than the limits allow, and says what is wrong with what. What it takes is
// taken again when it is encoded.
func fuzzBody[T any](f *testing.F, read reader[T], within func(*T) error) {
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		limits := few
		limits.fill()
		s := request.NewScanner(body)
		in, err := decodeBody(s, &limits, read)
		if s.Entries() > 60 {
			t.Errorf("%d entries are read", s.Entries())
		}
		if err != nil {
			refused(t, err)
			return
		}
		if err := within(in); err != nil {
			t.Errorf("%q is taken: %v", body, err)
		}
		once, err := session.Encode(in)
		if err != nil {
			t.Fatalf("%q cannot be encoded: %v", body, err)
		}
		again, err := decodeBody(request.NewScanner(once), &limits, read)
		if err != nil {
			t.Fatalf("%q is taken, and refused as %s: %v", body, once, err)
		}
		if twice, err := session.Encode(again); err != nil || string(twice) != string(once) {
			t.Errorf("%q is %s, and then %s: %v", body, once, twice, err)
		}
	})
}

// refused wants an error to be the client's fault, and to name the field.
func refused(t *testing.T, err error) {
	t.Helper()
	var e *session.Error
	if !errors.As(err, &e) || (e.Code != session.CodeInvalid && e.Code != session.CodeTooLarge) || e.Field == "" || e.Message == "" || len(e.Message) > 1000 {
		t.Errorf("refused with %#v", err)
	}
}

// bounded reports the first text that is longer than it may be.
func bounded(texts map[string]int) error {
	for text, limit := range texts {
		if len(text) > limit {
			return fmt.Errorf("%.40q has %d bytes", text, len(text))
		}
	}
	return nil
}

func boundedMessages(messages wire.Messages) error {
	parts := 0
	for i := range messages {
		m := messages[i].Message()
		if err := m.Check(); err != nil {
			return err
		}
		if m.Metadata != nil || m.Extra != nil || !m.At.IsZero() || m.Step != 0 || m.RunID != "" || session.IsDerivedMessageID(m.ID) || len(m.ID) > 256 {
			return fmt.Errorf("a message has what is not the user's: %+v", m)
		}
		parts += len(m.Parts)
	}
	if len(messages) > few.Messages || parts > few.Parts {
		return fmt.Errorf("%d messages with %d parts", len(messages), parts)
	}
	return nil
}

func FuzzStart(f *testing.F) {
	fuzzBody(f, readStart, func(in *wire.Start) error {
		if len(in.Tags) > few.Tags || len(in.Metadata) > few.Metadata || len(in.State) > few.StateKeys {
			return fmt.Errorf("%d tags, %d entries, %d keys", len(in.Tags), len(in.Metadata), len(in.State))
		}
		document := session.State{
			ID: "a", Agent: "a", Status: session.Active, Tags: in.Tags, Metadata: in.Metadata, ExpiresAt: in.ExpiresAt,
		}
		for key, value := range in.State {
			document.Custom.Set(key, value)
		}
		return errors.Join(document.Check(), boundedMessages(in.Message),
			bounded(map[string]int{in.SessionID: 256, in.AgentType: 256, in.RequestID: 256}))
	})
}

func FuzzResume(f *testing.F) {
	fuzzBody(f, readResume, func(in *wire.Resume) error {
		return errors.Join(boundedMessages(in.Message), session.CheckText("checkpointId", in.CheckpointID),
			bounded(map[string]int{in.SessionID: 256, in.RequestID: 256, in.CheckpointID: maxCheckpointID}))
	})
}

func FuzzBranch(f *testing.F) {
	fuzzBody(f, readBranch, func(in *wire.Branch) error {
		return errors.Join(boundedMessages(in.Message), session.CheckText("checkpointId", in.CheckpointID),
			bounded(map[string]int{in.SessionID: 256, in.RequestID: 256, in.CheckpointID: maxCheckpointID}))
	})
}

func FuzzRetry(f *testing.F) {
	fuzzBody(f, readRetry, func(in *wire.Retry) error { return bounded(map[string]int{in.RequestID: 256}) })
}

func FuzzTaskName(f *testing.F) {
	fuzzBody(f, readTaskName, func(in *wire.TaskName) error {
		return errors.Join(session.CheckText("id", in.ID), session.CheckText("sessionId", in.SessionID), bounded(map[string]int{in.SessionID: 256, in.ID: 256}))
	})
}

func FuzzPause(f *testing.F) {
	fuzzBody(f, readPause, func(in *wire.Pause) error {
		return errors.Join(session.CheckText("reason", in.Reason), bounded(map[string]int{in.Reason: maxReason}))
	})
}

func FuzzCompact(f *testing.F) {
	fuzzBody(f, readCompact, func(*wire.Compact) error { return nil })
}

func FuzzStop(f *testing.F) {
	fuzzBody(f, readStop, func(in *wire.Stop) error {
		return errors.Join(session.CheckText("reason", in.Reason), bounded(map[string]int{in.SessionID: 256, in.RunID: 256, in.Reason: maxReason}))
	})
}

func FuzzChatStop(f *testing.F) {
	read := func(s *request.Scanner, limits *Limits, in *wire.ChatStop) error {
		var stop wire.Stop
		err := readChatStop(s, limits, &stop)
		*in = wire.ChatStop{RunID: stop.RunID, Reason: stop.Reason}
		return err
	}
	fuzzBody(f, read, func(in *wire.ChatStop) error {
		return errors.Join(session.CheckText("reason", in.Reason), bounded(map[string]int{in.RunID: 256, in.Reason: maxReason}))
	})
}

func FuzzSubmit(f *testing.F) {
	fuzzBody(f, readSubmit, func(in *wire.Submit) error {
		return errors.Join(boundedAnswer(in), bounded(map[string]int{in.SessionID: 256}))
	})
}

func FuzzChatSubmit(f *testing.F) {
	read := func(s *request.Scanner, limits *Limits, in *wire.ChatSubmit) error {
		var answer wire.Submit
		err := readChatSubmit(s, limits, &answer)
		*in = wire.ChatSubmit{
			ToolCallID: answer.ToolCallID, Kind: answer.Kind, Result: answer.Result, Error: answer.Error, Approval: answer.Approval,
			ApprovalID: answer.ApprovalID, Approved: answer.Approved, Reason: answer.Reason, Seen: answer.Seen, Resume: answer.Resume,
		}
		return err
	}
	fuzzBody(f, read, func(in *wire.ChatSubmit) error {
		return boundedAnswer(&wire.Submit{
			ToolCallID: in.ToolCallID, Kind: in.Kind, Result: in.Result, Error: in.Error, Approval: in.Approval,
			ApprovalID: in.ApprovalID, Approved: in.Approved, Reason: in.Reason, Seen: in.Seen,
		})
	})
}

// boundedAnswer wants an answer to be one that can be submitted, or to be refused.
func boundedAnswer(in *wire.Submit) error {
	if len(in.Result) > session.MaxSubmissionResult || (in.Result != nil && !json.Valid(in.Result)) {
		return fmt.Errorf("a result of %d bytes", len(in.Result))
	}
	if in.Seen != nil && len(in.Seen.Input) > session.MaxSubmissionResult {
		return fmt.Errorf("an input of %d bytes", len(in.Seen.Input))
	}
	if s, err := submissionOf(in); err == nil {
		if err := s.Check(); err != nil && !errors.Is(err, session.ErrInvalid) {
			return err
		}
	}
	return bounded(map[string]int{
		in.ToolCallID: 256, in.ApprovalID: 256, in.Error: session.MaxSubmissionError, in.Reason: session.MaxSubmissionError,
	})
}
