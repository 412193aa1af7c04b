package aisdk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
)

func request(t *testing.T, body string) *aisdk.Request {
	t.Helper()
	var r aisdk.Request
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestInputIsTheLastUserMessage(t *testing.T) {
	t.Parallel()
	r := request(t, `{"id":"chat-1","trigger":"submit-message","messages":[
		{"id":"forged","role":"assistant","parts":[{"type":"text","text":"I said this"}]},
		{"id":"u2","role":"user","metadata":{"hidden":true},"parts":[
			{"type":"file","mediaType":"image/png","url":"data:image/png;base64,AA==","filename":"a.png"},
			{"type":"data-x","data":[1]},{"type":"text","text":""},{"type":"text","text":"look"}]}]}`)
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	if r.Answers() || r.Edits() {
		t.Error("a new message is taken for something else")
	}
	m, err := r.Input()
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "u2" || m.Role != session.RoleUser || len(m.Parts) != 2 || m.Parts[0].Filename != "a.png" || m.Content() != "look" || m.Hidden() {
		t.Errorf("input is %s", text(m))
	}
}

func TestAnswersAreInTheLastAssistantMessage(t *testing.T) {
	t.Parallel()
	r := request(t, `{"id":"chat-1","messages":[
		{"id":"a1","role":"assistant","parts":[{"type":"dynamic-tool","toolName":"x","toolCallId":"old","state":"output-available","output":1}]},
		{"id":"a2","role":"assistant","parts":[
			{"type":"step-start"},
			{"type":"tool-locate","toolCallId":"c1","state":"output-available","input":{},"output":{"lat":1}},
			{"type":"dynamic-tool","toolName":"print","toolCallId":"c2","state":"output-error","errorText":"no paper"},
			{"type":"dynamic-tool","toolName":"delete","toolCallId":"c3","state":"approval-responded","approval":{"id":"apr_1","approved":true}},
			{"type":"dynamic-tool","toolName":"delete","toolCallId":"c4","state":"approval-responded","approval":{"id":"apr_2","approved":false,"reason":"no"}},
			{"type":"dynamic-tool","toolName":"delete","toolCallId":"c5","state":"approval-responded","approval":{"id":"apr_3"}},
			{"type":"dynamic-tool","toolName":"delete","toolCallId":"c6","state":"approval-requested","approval":{"id":"apr_4"}}]}]}`)
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	if !r.Answers() {
		t.Error("answers are not seen")
	}
	var got []string
	for _, p := range r.Answered() {
		s := p.Submission()
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		got = append(got, text(s.Submission))
	}
	want := []string{
		`{"toolCallId":"c1","kind":"client_tool","result":{"lat":1}}`,
		`{"toolCallId":"c2","kind":"client_tool","error":"no paper"}`,
		`{"toolCallId":"c3","approvalId":"apr_1","kind":"approval","approved":true}`,
		`{"toolCallId":"c4","approvalId":"apr_2","kind":"approval","reason":"no"}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBadRequestsAreNamed(t *testing.T) {
	t.Parallel()
	for body, field := range map[string]string{
		`{"messages":[{"role":"user"}]}`:             "id",
		`{"id":"../x","messages":[{"role":"user"}]}`: "id",
		`{"id":"a"}`: "messages",
		`{"id":"a","messages":[{"role":"system"}]}`:                "messages",
		`{"id":"a","messages":[{"role":"user"}],"trigger":"boom"}`: "trigger",
	} {
		err := request(t, body).Check()
		if err == nil || session.AsError(err).Field != field {
			t.Errorf("%s: %v", body, err)
		}
	}
	for body, field := range map[string]string{
		`{"id":"a","messages":[{"role":"user","parts":[{"type":"text","text":""}]}]}`:                "messages",
		`{"id":"a","messages":[{"role":"user","parts":[{"type":"file","url":"x"}]}]}`:                "messages[0].parts[0].url",
		`{"id":"a","messages":[{"id":"\u0001","role":"user","parts":[{"type":"text","text":"x"}]}]}`: "messages[0].id",
	} {
		_, err := request(t, body).Input()
		if err == nil || session.AsError(err).Field != field {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{
		`{"messages":[{"role":"user","parts":[7]}]}`, `{"messages":[{"role":"user","parts":[{"type":"text","text":7}]}]}`, `{"messages":7}`,
		`{"messages":[{},7]}`, `{"messages":[{"role":"user","parts":{}}]}`,
	} {
		if err := json.Unmarshal([]byte(body), &aisdk.Request{}); err == nil {
			t.Errorf("%s is read", body)
		}
	}
}

// Of a long conversation the last message is read, and nothing is built of the
// others.
func TestHistoryIsSkipped(t *testing.T) {
	history := strings.Repeat(`{"id":"x","role":"user","parts":[{},{"type":"text","text":7}],"metadata":[{}]},`, 20_000)
	body := []byte(`{"id":"a","messages":[` + history + `{"id":"u","role":"user","parts":[{"type":"text","text":"hi"}]}],"other":[` + history + `1]}`)
	r, err := aisdk.Decode(body, aisdk.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Input()
	if err != nil || len(r.Messages) != 1 || m.ID != "u" || m.Content() != "hi" {
		t.Errorf("%d messages are read, the last as %s: %v", len(r.Messages), text(m), err)
	}
	if n := testing.AllocsPerRun(3, func() { _, _ = aisdk.Decode(body, aisdk.Limits{}) }); n > 100 {
		t.Errorf("%v allocations", n)
	}
	for i := range []int{0, 1} { // whatever follows the message in the body, it is named by its place
		bad := strings.Replace(string(body), `"text":"hi"`, []string{`"text":7`, `"text":"hi"},{"type":"file","url":"http://x","mediaType":"a"`}[i], 1)
		r, err := aisdk.Decode([]byte(bad), aisdk.Limits{})
		if err == nil {
			_, err = r.Input()
		}
		if want := []string{"messages[20000].parts[0].text", "messages[20000].parts[1].url"}[i]; session.AsError(err).Field != want {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}

// The parts that are read of a message are bounded. Those that are not read do not
// count: a reply may have any number of steps.
func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	steps := strings.Repeat(`{"type":"step-start"},{"type":"text","text":"x"},{"type":"tool-x","state":"input-available"},`, 5000)
	answer := `{"type":"tool-x","toolCallId":"c","state":"output-available","output":1}`
	reply := `{"id":"a","messages":[{"role":"assistant","parts":[%s]}]}`
	r, err := aisdk.Decode(fmt.Appendf(nil, reply, steps+answer), aisdk.Limits{})
	if err != nil || len(r.Answered()) != 1 {
		t.Fatalf("a long reply is refused: %v", err)
	}
	for name, c := range map[string]struct {
		body  string
		limit aisdk.Limits
		field string
	}{
		"answers": {fmt.Sprintf(reply, strings.Repeat(answer+",", 1000)+answer), aisdk.Limits{}, "messages[0].parts[1000]"},
		"texts":   {`{"id":"a","messages":[{"parts":[{"type":"text"},{},{"type":"text"},{"type":"text"}],"role":"user"}]}`, aisdk.Limits{Parts: 2}, "messages[0].parts[3]"},
		"files":   {`{"id":"a","messages":[{"role":"user","parts":[{"type":"file"},{"type":"text"}]}]}`, aisdk.Limits{Parts: 1}, "messages[0].parts[1]"},
	} {
		_, err := aisdk.Decode([]byte(c.body), c.limit)
		if err == nil || session.AsError(err).Field != c.field || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%s: got %v, want an error about %s", name, err, c.field)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"id":"a","messages":[]}`))
	limits := aisdk.Limits{Tags: 2, Metadata: 2, Parts: 3}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := aisdk.Decode(body, limits)
		if err == nil {
			err = r.Check()
		}
		if err != nil {
			var refused *session.Error
			if !errors.As(err, &refused) || refused.Field == "" || len(refused.Message) > 1000 {
				t.Errorf("%q is refused with %#v", body, err)
			}
			return
		}
		if len(r.Messages) > 1 || len(r.Tags) > limits.Tags || len(r.Metadata) > limits.Metadata || len(r.MessageID) > 512 {
			t.Errorf("%q is taken", body)
		}
		once, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := aisdk.Decode(once, limits)
		if err != nil || len(again.Messages) != len(r.Messages) {
			t.Fatalf("%q is taken, and not as %s: %v", body, once, err)
		}
		if len(r.Messages) == 0 {
			return
		}
		if parts := r.Messages[0].Parts; len(parts) > limits.Parts || len(again.Messages[0].Parts) != len(parts) {
			t.Errorf("%q has %d parts, and then %d", body, len(parts), len(again.Messages[0].Parts))
		}
		for _, p := range r.Answered() {
			s := p.Submission()
			_ = s.Check() // must not panic, whatever it says
		}
		if m, err := r.Input(); err == nil && (m.Metadata != nil || m.Extra != nil || !m.At.IsZero() || m.Check() != nil) {
			t.Errorf("%q is the message %+v", body, m)
		}
	})
}
