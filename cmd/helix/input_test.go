package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// hostileInput is what an approval has to show: 40 keys, a value of 10 KB, characters that
// reverse text or have no width, and keys that mean something for other tools.
func hostileInput(t *testing.T) json.RawMessage {
	t.Helper()
	var keys []string
	for i := range 36 {
		keys = append(keys, fmt.Sprintf(`"key%02d": %d`, i, i))
	}
	keys = append(keys,
		`"question": "Refund 5 EUR for order 7?"`, `"options": []`,
		`"note": "`+strings.Repeat("lorem ipsum ", 853)+`THE END"`,
		`"payee\u202e\u200b": {"na\u200dme": "Bob \u202e321 \u2066x\u2069 \u00ad\ufeff\udb40\udc41 \u001b[2J\n שלום \u00a0 \ufe0f end", "amount": 5000000.00, "big": 12345678901234567890123}`)
	raw := json.RawMessage("{" + strings.Join(keys, ",") + "}")
	var decoded map[string]any
	if err := json.Unmarshal(raw, &decoded); err != nil || len(decoded) != 40 || len(decoded["note"].(string)) < 10_000 {
		t.Fatalf("%v, %d keys", err, len(decoded))
	}
	// Half of it as characters, half as escapes, as models write either.
	return json.RawMessage(strings.NewReplacer(`\u202e`, "\u202e", `\u200b`, "\u200b", `\ufe0f`, "\ufe0f").Replace(string(raw)))
}

// checkShown wants a text that stands for the same input, with a line per key and nothing
// in it that does not show.
func checkShown(t *testing.T, shown string, input json.RawMessage) {
	t.Helper()
	if got, want := session.Fingerprint("t", json.RawMessage(shown)), session.Fingerprint("t", input); got != want {
		t.Errorf("what is shown stands for another input:\n%.3000s", shown)
	}
	lines := strings.Split(shown, "\n")
	for _, key := range []string{`"key00": 0,`, `"key35": 35,`, `"question": "Refund 5 EUR for order 7?",`, `"options": [],`, `"amount": 5000000.00,`, `"big": 12345678901234567890123`} {
		found := 0
		for _, line := range lines {
			if strings.TrimSpace(line) == key {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d lines are %s", found, key)
		}
	}
	for _, text := range []string{`THE END"`, `payee\u202e\u200b`, `na\u200dme`, `Bob \u202e321 \u2066x\u2069 \u00ad\ufeff\udb40\udc41 \u001b[2J\n שלום \u00a0 \ufe0f end`} {
		if !strings.Contains(shown, text) {
			t.Errorf("it does not show %s", text)
		}
	}
	for _, r := range shown {
		if r != '\n' && (!unicode.IsPrint(r) || unicode.Is(unicode.Variation_Selector, r)) {
			t.Errorf("it has the character %U, which does not show", r)
		}
	}
}

// What a terminal asks to approve is the whole call.
func TestApprovalOnATerminal(t *testing.T) {
	t.Parallel()
	input := hostileInput(t)
	for _, interactive := range []bool{true, false} {
		var out bytes.Buffer
		screen := &screen{out: &out, side: &out, interactive: interactive}
		screen.question(&session.Pending{Kind: session.PendingApproval, Tool: "ref\u202eund", Input: input})
		asked, ok := strings.CutPrefix(out.String(), "Approve ref\\u202eund?\n")
		shown, whole := strings.CutSuffix(asked, "\ny, or n and why\n")
		if !ok || !whole {
			t.Fatalf("asked %.300s … %s", out.String(), out.String()[out.Len()-100:])
		}
		checkShown(t, shown, input)
	}
}

// So is what is shown of a session that waits for one.
func TestApprovalOfASession(t *testing.T) {
	t.Parallel()
	input := hostileInput(t)
	var out bytes.Buffer
	printSession(&out, &shownSession{Session: &session.State{ID: "s-1"}, Status: &wire.Status{Pending: []session.Pending{
		{Kind: session.PendingApproval, CallID: "c-1", ApprovalID: "a-1", Tool: "refund", Input: input},
	}}})
	_, shown, ok := strings.Cut(out.String(), "refund {")
	if !ok {
		t.Fatalf("%.500s", out.String())
	}
	checkShown(t, "{"+shown, input)
	if !strings.Contains(out.String(), "approval a-1 of call c-1") {
		t.Errorf("%.500s", out.String())
	}
}

// A question is what a tool of the client's asks, and no approval.
func TestQuestionOnATerminal(t *testing.T) {
	t.Parallel()
	for kind, want := range map[session.PendingKind]string{
		session.PendingClientTool: "Refund 5 EUR? 1 yes, 2 no\n",
		session.PendingApproval:   "Approve refund?\n{\n  \"amount\": 5000000,\n  \"question\": \"Refund 5 EUR?\",\n  \"options\": [\n    \"yes\",\n    \"no\"\n  ]\n}\ny, or n and why\n",
	} {
		var out bytes.Buffer
		screen := &screen{out: &out, side: &out, interactive: true}
		screen.question(&session.Pending{Kind: kind, Tool: "refund", Input: json.RawMessage(`{"amount":5000000,"question":"Refund 5 EUR?","options":["yes","no"]}`)})
		if out.String() != want {
			t.Errorf("%s: %s", kind, out.String())
		}
	}
}

func TestWholeInput(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		`{}`: `{}`, `null`: `null`, ` [] `: `[]`, `"\u0041\"\\"`: `"A\"\\"`, `{"a":1.50}`: "{\n  \"a\": 1.50\n}",
		`{"a":{"b":[1,{}],"c":true}}`: "{\n  \"a\": {\n    \"b\": [\n      1,\n      {}\n    ],\n    \"c\": true\n  }\n}",
		"{\x1b[2J":                    `{\u001b[2J`, `{} {}`: `{} {}`, "": "",
	} {
		if got := wholeInput(json.RawMessage(input)); got != want {
			t.Errorf("%q is shown as %s", input, got)
		}
	}
}
