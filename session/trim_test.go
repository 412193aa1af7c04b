package session_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

// TestTrimProperties checks what is left of any call and any result.
func TestTrimProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(session.MinTrim, 1200).Draw(t, "limit")
		c := session.Compaction{Kind: session.CompactionTrim, Arguments: limit, Results: limit}
		call := assistant("1", "x")
		call.Parts[len(call.Parts)-1].Input = drawInput(t)
		for _, m := range []session.Message{call, drawResult(t, call.Calls()[0])} {
			cut := c.Trim(&m)
			large := len(m.Parts[len(m.Parts)-1].Input) > limit
			if m.Role == session.RoleTool {
				p := m.Parts[0]
				if large = len(p.Text) > limit || len(p.Output) > limit; p.Error != nil {
					large = len(p.Error.Message) > limit
				}
			}
			if large != (cut != nil) {
				t.Fatalf("cut: %t, too large: %t", cut != nil, large)
			}
			if cut == nil {
				continue
			}
			p := cut.Parts[len(cut.Parts)-1]
			for _, n := range []int{len(p.Input), len(p.Output), len(p.Text)} {
				if n > limit {
					t.Fatalf("%d bytes are left, the limit is %d: %s", n, limit, encoded(t, []session.Message{*cut}))
				}
			}
			var object map[string]any
			if p.Kind == session.PartToolCall && json.Unmarshal(p.Input, &object) != nil {
				t.Fatalf("the arguments are no object: %s", p.Input)
			}
			if err := cut.Check(); err != nil {
				t.Fatal(err)
			}
			if again := c.Trim(cut); again != nil {
				t.Fatalf("what was cut is cut again:\n%s\n%s", encoded(t, []session.Message{*cut}), encoded(t, []session.Message{*again}))
			}
			if !bytes.Equal(encoded(t, []session.Message{*cut}), encoded(t, []session.Message{*c.Trim(&m)})) {
				t.Fatal("the same message is cut in two ways")
			}
		}
	})
}

func TestTrim(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 100)
	call := assistant("1", "x")
	p := &call.Parts[len(call.Parts)-1]
	p.Tool = "write"
	c := session.Compaction{Kind: session.CompactionTrim, Arguments: 500, Results: 300}
	for input, want := range map[string]string{
		`{"path":"a","text":"` + long + `","n":1}`:      `{"path":"a","text":"01234567890123456789...(argument truncated)","n":1}`,
		`{"a":"` + long + `","b":"` + long[:300] + `"}`: `{"a":"01234567890123456789...(argument truncated)","b":"` + long[:300] + `"}`,
		`{"list":["` + long + `"]}`:                     `{"list":"...(argument truncated)"}`,
		`["` + long + `"]`:                              `{"truncated":"1004 bytes of arguments were left out"}`,
		`{"` + long + `":1}`:                            `{"truncated":"1006 bytes of arguments were left out"}`,
	} {
		p.Input = json.RawMessage(input)
		if got := c.Trim(&call); got == nil || string(got.Parts[len(got.Parts)-1].Input) != want {
			t.Errorf("%.40s is cut to %+v, want %s", input, got, want)
		}
	}
	result := session.ToolResult(*p, json.RawMessage(`{"rows":["`+long+`"]}`))
	cut := c.Trim(&result)
	if cut == nil || cut.Parts[0].Output != nil || !strings.HasPrefix(cut.Parts[0].Text, `{"rows":["0123`) || !strings.HasSuffix(cut.Parts[0].Text, `89"]}`) ||
		!strings.Contains(cut.Parts[0].Text, "bytes left out") {
		t.Errorf("the result is cut to %+v", cut)
	}
	c.Except = []string{"write"}
	if c.Trim(&result) != nil || c.Trim(&call) != nil {
		t.Error("a call of an excepted tool is cut")
	}
}

// TestTrimsInTheView checks which messages trims cut, together with summaries.
func TestTrimsInTheView(t *testing.T) {
	t.Parallel()
	large := func(id string) []session.Message {
		m := assistant(id, "c"+id)
		return []session.Message{m, session.ToolResult(m.Calls()[0], json.RawMessage(`"`+strings.Repeat("x", 1000)+`"`))}
	}
	size := func(messages []session.Message) (out []int) {
		for i := range messages {
			if messages[i].Role == session.RoleTool {
				out = append(out, len(messages[i].Parts[0].Text))
			}
		}
		return out
	}
	history := append([]session.Message{session.UserText("go")}, large("1")...)
	history = append(history, large("2")...)
	is := func(what string, want ...int) {
		t.Helper()
		got := size(session.View(history))
		if len(got) != len(want) {
			t.Fatalf("%s: results of %v bytes", what, got)
		}
		for i := range want {
			if (want[i] == 1000) != (got[i] == 1000) || got[i] > want[i] || got[i] < want[i]-10 {
				t.Errorf("%s: results of %v bytes, want %v", what, got, want)
			}
		}
	}
	is("no marker", 1000, 1000)
	history = append(history, trimming(t, 2, 0, 400))
	is("a trim before the last step", 400, 1000)
	history = append(history, large("3")...)
	is("the next step", 400, 1000, 1000)
	history = append(history, trimming(t, 3, 0, 600)) // keeps the last step and the trim before it
	is("a second trim with a higher limit", 400, 600, 1000)
	history = append(history, marker(t, "summary", 6)) // from step 2 on, with both trims
	is("a summary", 600, 1000)
	if view := session.View(history); view[0].Content() != "summary" || len(view) != 5 {
		t.Errorf("the view has %d messages and begins with %s", len(view), view[0].Content())
	}
	history = append(history, trimming(t, 0, 0, 200))
	is("a trim of everything", 200, 200)
	marks := session.Marks(nil).After(0, &session.Change{Messages: history})
	want := session.Marks{{Marker: 6, From: 1}, {Marker: 9, From: 1}, {Marker: 10, From: 4}, {Marker: 11, From: 4}}
	if len(marks) != 4 || marks[0] != want[0] || marks[1] != want[1] || marks[2] != want[2] || marks[3] != want[3] {
		t.Errorf("the marks are %v, want %v", marks, want)
	}
}
