package main

import (
	"encoding/json"
	"testing"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func TestQuestionReply(t *testing.T) {
	t.Parallel()
	schema := func(text string) *session.Pending {
		return &session.Pending{Kind: session.PendingQuestion, Prompt: "?", Schema: json.RawMessage(text)}
	}
	for name, test := range map[string]struct {
		asked *session.Pending
		line  string
		want  string // the answer, "declined", "confirmed", or "" if the line is refused
	}{
		"text":           {schema(`{"type":"string"}`), "L", `"L"`},
		"text as JSON":   {schema(`{"type":"string"}`), `"L"`, `"\"L\""`},
		"yes":            {schema(`{"type":"boolean"}`), "Yes", "true"},
		"no":             {schema(`{"type":"boolean"}`), "n", "false"},
		"perhaps":        {schema(`{"type":"boolean"}`), "perhaps", ""},
		"an object":      {schema(`{"type":"object"}`), `{"a":1}`, `{"a":1}`},
		"no object":      {schema(`{"type":"object"}`), `{"a"`, ""},
		"nothing":        {schema(`{"type":"string"}`), "", ""},
		"declined":       {schema(`{"type":"string"}`), "/decline too private", "declined"},
		"done":           {&session.Pending{Kind: session.PendingQuestion, URL: "https://example.com"}, "done", "confirmed"},
		"something else": {&session.Pending{Kind: session.PendingQuestion, URL: "https://example.com"}, "maybe", ""},
	} {
		got, problem := reply(test.asked, test.line)
		said := string(got.Answer)
		switch {
		case problem != "":
			said = ""
		case got.Declined && got.Reason == "too private":
			said = "declined"
		case got.Answer == nil:
			said = "confirmed"
		}
		if said != test.want || got.Kind != wire.SubmitAnswer {
			t.Errorf("%s: %q answers %q (%+v, %s), want %q", name, test.line, said, got, problem, test.want)
		}
	}
}
