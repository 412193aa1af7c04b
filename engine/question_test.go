package engine

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/helixagents/helix/session"
)

// TestAnswersAreBounded refuses an answer that would take long to check before checking it.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	branches := strings.Repeat(`{"type":"string"},`, 400)
	p := &session.Pending{
		CallID: "call-1.q1", Kind: session.PendingQuestion, Schema: json.RawMessage(`{"items":{"anyOf":[` + branches + `{"type":"integer"}]}}`),
	}
	answer := session.Reply(p.CallID, json.RawMessage(`[`+strings.Repeat("1,", 5000)+`1]`))
	if err := checkAnswer(p, &answer); !errors.Is(err, session.ErrTooLarge) || !strings.Contains(err.Error(), "answer") {
		t.Errorf("the error is %.200v", err)
	}
	answer.Answer = json.RawMessage(`[1,2,3]`)
	if err := checkAnswer(p, &answer); err != nil {
		t.Errorf("a short answer: %v", err)
	}
}

// TestMisfitsHaveNoControlCharacters keeps what would control a terminal out of the error.
func TestMisfitsHaveNoControlCharacters(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{`{"type":"integer"}`, `{"enum":["a"]}`, `{"properties":{"a":{"type":"integer"}}}`, `{"additionalProperties":false}`} {
		p := &session.Pending{CallID: "call-1.q1", Kind: session.PendingQuestion, Schema: json.RawMessage(schema)}
		for _, value := range []string{`"\u001b]0;title\u0007\u009b31m\u202e"`, `{"a":"\u001b[31m\u202e"}`, `{"\u001b[31m\u202e":1}`, `{"\u001b[31m":1,"\u001b[31m":1}`} {
			answer := session.Reply(p.CallID, json.RawMessage(value))
			err := checkAnswer(p, &answer)
			if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
				t.Errorf("the error about %s for %s is %q", value, schema, err.Error())
			}
		}
	}
}
