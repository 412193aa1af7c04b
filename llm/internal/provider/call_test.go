package provider_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	read := func(all func(io.Reader) func(func(provider.Event, error) bool), stream string) []string {
		var out []string
		all(strings.NewReader(stream))(func(e provider.Event, err error) bool {
			out = append(out, fmt.Sprintf("%s %q %v", e.Name, e.Data, err))
			return true
		})
		return out
	}
	strict := func(r io.Reader) func(func(provider.Event, error) bool) { return provider.Events(r) }
	loose := func(r io.Reader) func(func(provider.Event, error) bool) { return provider.LooseEvents(r) }
	for name, c := range map[string]struct {
		stream        string
		strict, loose []string
	}{
		"nothing":           {"", nil, nil},
		"comments":          {": a\n\n:b\n\nretry: 5\n\n", nil, nil},
		"name and data":     {"event: a\ndata: 1\n\ndata:2\n\n", []string{`a "1\n" <nil>`, ` "2\n" <nil>`}, []string{`a "1\n" <nil>`, ` "2\n" <nil>`}},
		"a name only":       {"event: a\n\n", []string{`a "" <nil>`}, []string{`a "" <nil>`}},
		"several lines":     {"data: 1\ndata\ndata: 2\n\n", []string{` "1\n\n2\n" <nil>`}, []string{` "1\n\n2\n" <nil>`}},
		"carriage returns":  {"data: 1\r\n\r\ndata: 2\r\n\r\n", []string{` "1\n" <nil>`, ` "2\n" <nil>`}, []string{` "1\n" <nil>`, ` "2\n" <nil>`}},
		"one space is gone": {"data:  1\n\n", []string{` " 1\n" <nil>`}, []string{` " 1\n" <nil>`}},
		"an end that lacks": {"data: 1\n\ndata: 2\n", []string{` "1\n" <nil>`}, []string{` "1\n" <nil>`, ` "2\n" <nil>`}},
		"an event cut off":  {"data: 1\n\ndata: {\"a\n", []string{` "1\n" <nil>`}, []string{` "1\n" <nil>`}},
		"bare JSON":         {"data: 1\n\n{\n\"data\": 2\n}\n\ndata: 3\n\n", []string{` "1\n" <nil>`, ` "3\n" <nil>`}, []string{` "1\n" <nil>`, ` "{\n\"data\": 2\n}\n" <nil>`, ` "3\n" <nil>`}},
	} {
		if got := read(strict, c.stream); !slices.Equal(got, c.strict) {
			t.Errorf("%s: got %q, want %q", name, got, c.strict)
		}
		if got := read(loose, c.stream); !slices.Equal(got, c.loose) {
			t.Errorf("%s, loose: got %q, want %q", name, got, c.loose)
		}
	}
}

// endless repeats a text.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// A server that never ends a line or an event is not followed forever.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{
		strings.Repeat("x", 1<<16), "data: " + strings.Repeat("x", 1<<20) + "\n", "data: [" + strings.Repeat("{},", 1<<20) + "{}]\n\n",
	} {
		var last error
		for _, err := range provider.Events(endless(stream)) {
			last = err
		}
		if e := provider.Broken("test", last, nil); e.Code != session.CodeMalformed || e.Retryable {
			t.Errorf("%.10q: got %v, retryable %v", stream, e, e.Retryable)
		}
	}
}

func TestPartsOfReplyAreBounded(t *testing.T) {
	t.Parallel()
	deltas := 0
	reply := provider.NewReply(func(llm.Delta) { deltas++ })
	for range provider.MaxParts {
		reply.Call("id", "tool")
	}
	if err := reply.CheckSize(); err != nil {
		t.Fatal(err)
	}
	reply.Call("id", "tool").Add("{}")
	if deltas != provider.MaxParts {
		t.Errorf("%d deltas", deltas)
	}
	e := provider.Broken("test", reply.CheckSize(), nil)
	if _, err := reply.Response(); e.Code != session.CodeMalformed || e.Retryable || !errors.Is(err, &session.Error{Code: session.CodeMalformed}) {
		t.Errorf("got %v and %v", e, err)
	}
}

func TestCheckValues(t *testing.T) {
	t.Parallel()
	const most = 250_000
	for name, c := range map[string]struct {
		data string
		ok   bool
	}{
		"most":            {"[" + strings.Repeat("1,", most-1) + "1]", true},
		"one more":        {"[" + strings.Repeat("1,", most) + "1]", false},
		"within a text":   {`["` + strings.Repeat(`1,\"`, most) + `"]`, true},
		"behind a text":   {`["\\",` + strings.Repeat("1,", most) + "1]", false},
		"of many objects": {`{"a":` + strings.Repeat(`{},`, most) + "1}", false},
	} {
		if err := provider.CheckValues([]byte(c.data)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// transport answers requests without a network.
type transport func(*http.Request) *http.Response

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r), nil }

func TestCallIsBounded(t *testing.T) {
	t.Parallel()
	client := &http.Client{Transport: transport(func(r *http.Request) *http.Response {
		status := http.StatusOK
		if r.URL.Path == "/refused" {
			status = http.StatusBadRequest
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(endless(strings.Repeat("x", 1<<16)))}
	})}
	var size int
	call := &provider.Call{
		Provider: "test", Client: provider.Client(client), URL: "http://h/refused", Header: provider.Header(nil),
		Failure: func(_ http.Header, body []byte) provider.Failure {
			size = len(body)
			return provider.Failure{}
		},
	}
	answer, err := call.Post(t.Context())
	if err == nil {
		_ = answer.Body.Close()
	}
	if !errors.Is(err, &session.Error{Code: session.CodeBadRequest}) || size == 0 || size > 1<<20 {
		t.Errorf("got %v after %d bytes", err, size)
	}
	call.URL = "http://h/"
	answer, err = call.Post(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if e := provider.Broken("test", err, nil); n > 64<<20 || e.Code != session.CodeMalformed || e.Retryable {
		t.Errorf("read %d bytes, %v, retryable %v", n, e, e.Retryable)
	}
}

// The target of a redirection may contain a secret of another server. It is not followed and not repeated.
func TestRedirectionsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"http://other/?token=secret-of-another", "http://%zz/secret-of-another"} {
		requests := 0
		client := &http.Client{Transport: transport(func(*http.Request) *http.Response {
			requests++
			return &http.Response{
				StatusCode: http.StatusTemporaryRedirect, Header: http.Header{"Location": {target}},
				Body: io.NopCloser(strings.NewReader("see " + target)),
			}
		})}
		call := &provider.Call{
			Provider: "test", Client: provider.Client(client), URL: "http://h/", Header: provider.Header(nil),
			Failure: func(http.Header, []byte) provider.Failure { return provider.Failure{} },
		}
		answer, err := call.Post(t.Context())
		if err == nil {
			_ = answer.Body.Close()
		}
		if !errors.Is(err, &session.Error{Code: session.CodeBadRequest}) || strings.Contains(err.Error(), "secret") || requests != 1 {
			t.Errorf("%s: got %v after %d requests", target, err, requests)
		}
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"http://h":                  "http://h/v1/messages",
		"http://h/":                 "http://h/v1/messages",
		"http://h:1/a":              "http://h:1/a/v1/messages",
		"http://h/a/?api-version=1": "http://h/a/v1/messages",
		"https://h/a%20b/":          "https://h/a%20b/v1/messages",
		"https://u:p@h/v1#fragment": "https://u:p@h/v1/v1/messages",
	} {
		if got := provider.Join(base, "v1/messages"); got != want {
			t.Errorf("%s: got %s, want %s", base, got, want)
		}
	}
}
