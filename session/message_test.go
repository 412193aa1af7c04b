package session_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

// genPart generates a part of any kind, with embedded JSON in any spacing.
func genPart() *rapid.Generator[session.Part] {
	return rapid.Custom(func(t *rapid.T) session.Part {
		var p session.Part
		switch rapid.IntRange(0, 5).Draw(t, "part") {
		case 0:
			p = session.Text(genText().Draw(t, "text"))
		case 1:
			p = session.Part{Kind: session.PartReasoning, Text: genText().Draw(t, "text"), Provider: genRaw().Draw(t, "provider")}
		case 2:
			p = session.Part{Kind: session.PartFile, URL: genText().Draw(t, "url"), MediaType: "text/plain", Filename: genText().Draw(t, "name")}
		case 3:
			p = session.Part{
				Kind: session.PartToolCall, CallID: "c", ProviderCallID: genText().Draw(t, "id"),
				Tool: genText().Draw(t, "tool"), Input: genRaw().Draw(t, "input"),
			}
		case 4:
			p = session.Part{Kind: session.PartToolResult, CallID: "c", Tool: "t", Output: genRaw().Draw(t, "output")}
		default:
			p = session.Part{Kind: session.PartToolResult, CallID: "c", Tool: "t", Error: session.ErrStale.WithMessage("%s", genText().Draw(t, "error"))}
		}
		if rapid.Bool().Draw(t, "extra") {
			p.Extra = genExtra().Draw(t, "part extra")
		}
		return p
	})
}

func genMessage() *rapid.Generator[session.Message] {
	return rapid.Custom(func(t *rapid.T) session.Message {
		m := session.Message{
			ID:    genText().Draw(t, "id"),
			Role:  rapid.SampledFrom([]session.Role{session.RoleUser, session.RoleAssistant, session.RoleTool, session.RoleSystem}).Draw(t, "role"),
			Parts: rapid.SliceOfN(genPart(), 0, 4).Draw(t, "parts"),
			RunID: genText().Draw(t, "run"),
			Step:  rapid.IntRange(-1, 1000).Draw(t, "step"),
		}
		if rapid.Bool().Draw(t, "timed") {
			m.At = genTime().Draw(t, "at")
		}
		if rapid.Bool().Draw(t, "metadata") {
			m.Metadata = genExtra().Draw(t, "metadata")
		}
		if rapid.Bool().Draw(t, "extra") {
			m.Extra = genExtra().Draw(t, "extra")
		}
		return m
	})
}

func TestMessageKeepsItsBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := genMessage().Draw(t, "message")
		raw, err := session.Encode(&m)
		if err != nil {
			t.Fatal(err)
		}
		var again session.Message
		if err := session.Decode("message", raw, &again); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		raw2, err := session.Encode(&again)
		if err != nil || string(raw) != string(raw2) {
			t.Fatalf("%v:\n%s became\n%s", err, raw, raw2)
		}
		if !m.Equal(&again) || again.ID != m.ID || again.Role != m.Role || !again.At.Equal(m.At) || len(again.Parts) != len(m.Parts) {
			t.Fatalf("%+v became %+v", m, again)
		}
		for i := range m.Parts {
			a, b := &m.Parts[i], &again.Parts[i]
			if a.Text != b.Text || string(a.Input) != string(b.Input) || string(a.Output) != string(b.Output) || string(a.Provider) != string(b.Provider) {
				t.Fatalf("part %d: %+v became %+v", i, a, b)
			}
			if len(a.Extra) != len(b.Extra) {
				t.Fatalf("part %d: unknown fields %v became %v", i, a.Extra, b.Extra)
			}
		}
		for key, value := range m.Metadata {
			if string(again.Metadata[key]) != string(value) {
				t.Fatalf("metadata %q: %s became %s", key, value, again.Metadata[key])
			}
		}
	})
}

func TestMessageWithSpaceAroundJSON(t *testing.T) {
	t.Parallel()
	m := assistant("1", "c")
	m.Parts[1].Input = json.RawMessage(" {\"a\" : 1}\n")
	raw := must(session.Encode(&m))
	var again session.Message
	if err := session.Decode("message", raw, &again); err != nil {
		t.Fatal(err)
	}
	if !again.Equal(&m) || string(again.Parts[1].Input) != `{"a" : 1}` {
		t.Errorf("%s became %q", raw, again.Parts[1].Input)
	}
}

func TestMessageRefusesWhatCouldNotBeRead(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]session.Message{
		"broken input":    {Role: session.RoleAssistant, Parts: []session.Part{{Kind: session.PartToolCall, Input: json.RawMessage(`{"a":`)}}},
		"empty output":    {Role: session.RoleTool, Parts: []session.Part{{Kind: session.PartToolResult, Output: json.RawMessage{}}}},
		"broken provider": {Parts: []session.Part{{Provider: json.RawMessage(`}`)}}},
		"broken metadata": {Metadata: map[string]json.RawMessage{"k": nil}},
		"a far future":    {At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if raw, err := session.Encode(&m); err == nil {
			t.Errorf("%s: encoded as %s", name, raw)
		}
	}
}

func TestMessageHelpers(t *testing.T) {
	t.Parallel()
	m := assistant("1", "a", "b")
	if m.Content() != "reply" || len(m.Calls()) != 2 || m.Calls()[1].CallID != "b" || m.Hidden() {
		t.Errorf("%q, %v", m.Content(), m.Calls())
	}
	m.Metadata = map[string]json.RawMessage{session.MetaHidden: json.RawMessage("true")}
	if !m.Hidden() {
		t.Error("not hidden")
	}
	call := session.Part{CallID: "a", ProviderCallID: "p", Tool: "t"}
	for output, want := range map[string]string{
		`"plain \"text\""`: `"plain \"text\""`,
		`{"a" : 1}`:        `{"a" : 1}`,
		`null`:             `null`,
		`""`:               `""`,
		`"<&>"`:            `"<&>"`,
	} {
		r := session.ToolResult(call, json.RawMessage(output))
		p := &r.Parts[0]
		if got := string(p.ResultJSON()); got != want {
			t.Errorf("%s became %s", output, got)
		}
		if r.Role != session.RoleTool || p.CallID != "a" || p.ProviderCallID != "p" || p.Tool != "t" || r.ID != session.ResultID("a") {
			t.Errorf("%+v", r)
		}
	}
	failure := session.ToolFailure(call, session.ErrStale)
	if got := string(failure.Parts[0].ResultJSON()); !strings.Contains(got, string(session.CodeStale)) {
		t.Errorf("a failure shows %s", got)
	}
	failure = session.ToolFailure(call, session.ErrInvalid.WithCause(errors.New("too long"), "refused"))
	raw, err := failure.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var stored session.Message
	if err := stored.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	before, after := string(failure.Parts[0].ResultJSON()), string(stored.Parts[0].ResultJSON())
	if before != after || !strings.Contains(before, "refused: too long") {
		t.Errorf("a failure shows %s, and %s once it was stored", before, after)
	}
}

func TestMessageCheck(t *testing.T) {
	t.Parallel()
	part := func(role session.Role, p session.Part) session.Message {
		return session.Message{Role: role, Parts: []session.Part{p}}
	}
	call := session.Part{Kind: session.PartToolCall, CallID: "c", Tool: "t"}
	answer := session.Part{Kind: session.PartToolResult, CallID: "c"}
	for name, test := range map[string]struct {
		m    session.Message
		want string
	}{
		"a user's text":            {session.UserText("x"), ""},
		"an empty reply":           {part(session.RoleAssistant, session.Text("")), ""},
		"a call":                   {part(session.RoleAssistant, call), ""},
		"a result":                 {part(session.RoleTool, answer), ""},
		"a file":                   {part(session.RoleUser, session.Part{Kind: session.PartFile, URL: "u", MediaType: "m"}), ""},
		"no role":                  {part("", session.Text("x")), "role"},
		"an unknown role":          {part("robot", session.Text("x")), "robot"},
		"nothing":                  {session.Message{Role: session.RoleUser}, "no content"},
		"a user's empty text":      {session.UserText(""), "empty text"},
		"a file of no type":        {part(session.RoleUser, session.Part{Kind: session.PartFile, URL: "u"}), "media type"},
		"a user's call":            {part(session.RoleUser, call), "assistant"},
		"a call of no tool":        {part(session.RoleAssistant, session.Part{Kind: session.PartToolCall, CallID: "c"}), "tool name"},
		"an assistant's result":    {part(session.RoleAssistant, answer), "tool message"},
		"a result of no call":      {part(session.RoleTool, session.Part{Kind: session.PartToolResult}), "call id"},
		"an unknown kind of part":  {part(session.RoleUser, session.Part{Kind: "hologram"}), "hologram"},
		"a part of no kind at all": {part(session.RoleUser, session.Part{}), "unknown"},
	} {
		err := test.m.Check()
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}
