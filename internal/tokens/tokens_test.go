package tokens_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/internal/tokens"
	"github.com/helixagents/helix/session"
)

func TestMessages(t *testing.T) {
	t.Parallel()
	call := session.Part{Kind: session.PartToolCall, CallID: "c", Tool: strings.Repeat("t", 36), Input: []byte(strings.Repeat("i", 72))}
	for name, c := range map[string]struct {
		m    session.Message
		want float64
	}{
		"text":            {session.UserText(strings.Repeat("a", 360)), 5 + 100},
		"other":           {session.UserText(strings.Repeat("é", 12) + strings.Repeat("語", 12)), 5 + 20},
		"call":            {session.Message{Role: session.RoleAssistant, Parts: []session.Part{call}}, 5 + 10 + 10 + 20},
		"result":          {session.ToolResult(call, []byte(`"`+strings.Repeat("r", 36)+`"`)), 5 + 8 + 10},
		"structured":      {session.ToolResult(call, []byte(`[`+strings.Repeat(" ", 34)+`]`)), 5 + 8 + 10},
		"failure":         {session.ToolFailure(call, &session.Error{Message: strings.Repeat("f", 36)}), 5 + 8 + 10},
		"image":           {file("data:image/png;base64,AAAA"), 5 + 1_600},
		"text in a file":  {file("data:text/" + strings.Repeat("x", 480)), 5 + 100},
		"signed thoughts": {session.Message{Role: session.RoleAssistant, Parts: []session.Part{{Kind: session.PartReasoning, Text: strings.Repeat("x", 36)}}}, 5 + 10},
	} {
		if got := tokens.Message(&c.m); math.Abs(got-c.want) > 0.01 {
			t.Errorf("%s: %f tokens, want %f", name, got, c.want)
		}
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	if n := tokens.Bytes(100); n != 360 || tokens.Text(strings.Repeat("a", n)) != 100 {
		t.Errorf("100 tokens have %d bytes", n)
	}
}

func file(url string) session.Message {
	return session.Message{Role: session.RoleUser, Parts: []session.Part{{Kind: session.PartFile, URL: url, MediaType: "x/y"}}}
}

func reply(in, out int64) *session.Message {
	u := session.ReplyUsage{In: in, Out: out}
	return &session.Message{
		Role: session.RoleAssistant, Parts: []session.Part{session.Text(strings.Repeat("a", 36))},
		Metadata: map[string]json.RawMessage{session.MetaUsage: u.AppendJSON(nil)},
	}
}

func TestMeter(t *testing.T) {
	t.Parallel()
	var m tokens.Meter
	user := session.UserText(strings.Repeat("a", 3_600)) // 1,005
	m.Add(&user)
	is := func(what string, want float64) {
		t.Helper()
		if got := m.Size(); math.Abs(got-want) > 0.5 {
			t.Errorf("%s: the size is %f, want %f", what, got, want)
		}
	}
	is("nothing is reported", 1_005)
	m.Add(reply(5_000, 100)) // with instructions and tools of 4,000
	is("reported", 5_100)
	m.Add(&user)
	is("one message later", 5_100+1_005)
	m.Add(reply(5_100+3*1_005, 100)) // the model counts three times as many
	m.Add(&user)
	if got := m.Ratio(); got != 2 {
		t.Errorf("the ratio is %f", got)
	}
	is("calibrated, within bounds", 5_100+3*1_005+100+2*1_005)
	for limit, want := range map[float64]bool{7_000: false, 8_300: true, 10_000: true, 12_500: false} { // 8,215 reported, and 2,010 estimated
		if got := m.Uncertain(limit); got != want {
			t.Errorf("uncertain at %f: %t", limit, got)
		}
	}
	m.Counted(7_000)
	is("counted", 7_000)
	m.Restart(300)
	m.Add(&user)
	is("restarted", 1_305)
	if got := m.Ratio(); got != 1 {
		t.Errorf("the ratio after a restart is %f", got)
	}
}

// A meter never says less than the model has reported, and grows with every message.
func TestMeterGrows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m tokens.Meter
		for i := range rapid.IntRange(1, 20).Draw(t, "messages") {
			before, ratio := m.Size(), m.Ratio()
			if ratio < 0.5 || ratio > 2 {
				t.Fatalf("the ratio is %f", ratio)
			}
			if rapid.Bool().Draw(t, fmt.Sprint("reply ", i)) {
				in := rapid.Int64Range(0, 1<<40).Draw(t, "in")
				m.Add(reply(in, 1))
				if m.Size() < float64(in) {
					t.Fatalf("%d was reported, but the size is %f", in, m.Size())
				}
				continue
			}
			text := session.UserText(rapid.StringN(1, 50, -1).Draw(t, "text") + "x")
			if m.Add(&text); m.Size() <= before {
				t.Fatalf("the size was %f and is %f", before, m.Size())
			}
		}
	})
}
