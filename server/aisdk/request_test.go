package aisdk_test

import (
	"encoding/json"
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
		`{"id":"a","messages":[{"role":"user","parts":[{"type":"file","url":"x"}]}]}`:                "file",
		`{"id":"a","messages":[{"id":"\u0001","role":"user","parts":[{"type":"text","text":"x"}]}]}`: "message id",
	} {
		_, err := request(t, body).Input()
		if err == nil || session.AsError(err).Field != field {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{`{"messages":[{"parts":[7]}]}`, `{"messages":[{"parts":[{"type":"text","text":7}]}]}`, `{"messages":7}`} {
		if err := json.Unmarshal([]byte(body), &aisdk.Request{}); err == nil {
			t.Errorf("%s is read", body)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"id":"a","messages":[{"role":"assistant","parts":[{"type":"tool-x","toolCallId":"c","state":"approval-responded","approval":{"id":"x","approved":true}}]}]}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		var r aisdk.Request
		if json.Unmarshal(body, &r) != nil || r.Check() != nil {
			return
		}
		for _, p := range r.Answered() {
			s := p.Submission()
			_ = s.Check() // must not panic, whatever it says
		}
		if len(r.Messages) > 0 {
			_, _ = r.Input()
		}
	})
}
