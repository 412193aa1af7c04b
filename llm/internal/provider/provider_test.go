package provider_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

func TestFailuresAreClassified(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		failure   provider.Failure
		code      session.Code
		retryable bool
	}{
		{provider.Failure{Status: 429}, session.CodeRateLimited, true},
		{provider.Failure{Status: 429, Code: "insufficient_quota"}, session.CodeQuota, false},
		{provider.Failure{Status: 400, Message: "Your credit balance is too low"}, session.CodeQuota, false},
		{provider.Failure{Status: 402, Type: "billing_error"}, session.CodeQuota, false},
		{provider.Failure{Status: 401}, session.CodeAuth, false},
		{provider.Failure{Status: 403}, session.CodeAuth, false},
		{provider.Failure{Status: 404, Type: "not_found_error"}, session.CodeBadRequest, false},
		{provider.Failure{Status: 422}, session.CodeBadRequest, false},
		{provider.Failure{Status: 400, Code: "context_length_exceeded"}, session.CodeContextLength, false},
		{provider.Failure{Status: 400, Message: "prompt is too long: 210000 tokens > 200000 maximum"}, session.CodeContextLength, false},
		{provider.Failure{Status: 413}, session.CodeContextLength, false},
		{provider.Failure{Status: 400, Code: "content_filter"}, session.CodeContentFilter, false},
		{provider.Failure{Status: 400, Message: "Output blocked by content filtering policy"}, session.CodeContentFilter, false},
		{provider.Failure{Status: 529, Type: "overloaded_error"}, session.CodeOverloaded, true},
		{provider.Failure{Status: 503, Message: "The model is overloaded."}, session.CodeOverloaded, true},
		{provider.Failure{Status: 503, Message: "This model is currently experiencing high demand."}, session.CodeOverloaded, true},
		{provider.Failure{Status: 503}, session.CodeProviderDown, true},
		{provider.Failure{Status: 500}, session.CodeProviderDown, true},
		{provider.Failure{Status: 409}, session.CodeProviderDown, true},
		{provider.Failure{Status: 408}, session.CodeProviderDown, true},
		{provider.Failure{Status: 500, Header: http.Header{"X-Should-Retry": {"false"}}}, session.CodeProviderDown, false},
		{provider.Failure{Type: "overloaded_error"}, session.CodeOverloaded, true},
		{provider.Failure{Type: "api_error"}, session.CodeProviderDown, true},
		{provider.Failure{Type: "server_error", Message: "The server is overloaded."}, session.CodeOverloaded, true},
		{provider.Failure{Type: "invalid_request_error"}, session.CodeBadRequest, false},
		{provider.Failure{Code: "invalid_prompt"}, session.CodeBadRequest, false},
		{provider.Failure{Code: "bio_policy"}, session.CodeContentFilter, false},
		{provider.Failure{Type: "something_new"}, session.CodeProvider, true},
		{provider.Failure{Status: 302}, session.CodeBadRequest, false},
	} {
		e := c.failure.Error(nil)
		if e.Code != c.code || e.Retryable != c.retryable || e.StatusCode != c.failure.Status {
			t.Errorf("%+v: got %s, retryable %v, want %s, %v", c.failure, e.Code, e.Retryable, c.code, c.retryable)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		header http.Header
		want   time.Duration
	}{
		"seconds":      {http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		"a fraction":   {http.Header{"Retry-After": {"0.5"}}, 500 * time.Millisecond},
		"milliseconds": {http.Header{"Retry-After-Ms": {"250"}, "Retry-After": {"1"}}, 250 * time.Millisecond},
		"a date":       {http.Header{"Retry-After": {"Sat, 01 Mar 2025 12:00:30 GMT"}}, 30 * time.Second},
		"a past date":  {http.Header{"Retry-After": {"Sat, 01 Mar 2025 11:00:30 GMT"}}, 0},
		"nothing":      {nil, 0},
		"nonsense":     {http.Header{"Retry-After": {"soon"}}, 0},
		"endless":      {http.Header{"Retry-After": {"1e300"}}, 24 * time.Hour},
		"negative":     {http.Header{"Retry-After": {"-3"}}, 0},
		"not a number": {http.Header{"Retry-After": {"NaN"}}, 0},
		"a renewal": {http.Header{
			"X-Ratelimit-Remaining-Tokens": {"0"}, "X-Ratelimit-Reset-Tokens": {"1m2s"},
			"X-Ratelimit-Remaining-Requests": {"9"}, "X-Ratelimit-Reset-Requests": {"9h"},
		}, 62 * time.Second},
		"a renewal at a time": {http.Header{
			"Anthropic-Ratelimit-Tokens-Remaining": {"0"}, "Anthropic-Ratelimit-Tokens-Reset": {"2025-03-01T12:00:09Z"},
		}, 9 * time.Second},
	} {
		if got := provider.RetryAfter(c.header, now); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	e := (&provider.Failure{Status: 429, Header: http.Header{"Retry-After": {"7"}}}).Error(nil)
	if after, ok := errors.AsType[*llm.RetryAfterError](e); !ok || after.After != 7*time.Second {
		t.Errorf("%v does not say when to come back", e)
	}
}

func TestSecretsAreRemoved(t *testing.T) {
	t.Parallel()
	const key = "sk-test/1234567890"
	secrets := provider.NewSecrets(key, map[string]string{"Authorization": "Bearer tok-abcdefgh", "X-Team": "ordinary words"})
	failure := provider.Failure{
		Provider: "test", Status: 401, Type: "authentication_error",
		Message: "key " + key + " and tok-abcdefgh are wrong, ordinary words are not",
	}
	broken := provider.Broken("test", errors.New("Get http://x?key=sk-test%2F1234567890: refused"), secrets)
	for _, text := range []string{failure.Error(secrets).Error(), broken.Error()} {
		if strings.Contains(text, "1234567890") || strings.Contains(text, "tok-abcdefgh") {
			t.Errorf("a secret is left in %q", text)
		}
	}
	if text := failure.Error(secrets).Error(); !strings.Contains(text, "ordinary words are not") {
		t.Errorf("got %q", text)
	}
	// A secret at the place where the text is cut is removed before the cut.
	for _, before := range []int{990, 999, 1000} {
		failure := provider.Failure{Provider: "test", Message: strings.Repeat("x", before) + key}
		broken := provider.Broken("test", errors.New(failure.Message), secrets)
		for _, text := range []string{failure.Error(secrets).Error(), broken.Error()} {
			if strings.Contains(text, "sk-") {
				t.Errorf("half a secret is left in %q", text)
			}
		}
	}
	if text := provider.NewSecrets("none").Redact("none of it"); text != "none of it" {
		t.Errorf("a placeholder for a key tore a hole: %q", text)
	}
}

func TestBrokenConnectionsAndGarbage(t *testing.T) {
	t.Parallel()
	var into struct{}
	for err, want := range map[error]session.Code{
		io.ErrUnexpectedEOF:                session.CodeProviderDown,
		errors.New("connection reset"):     session.CodeProviderDown,
		json.Unmarshal([]byte("{"), &into): session.CodeMalformed,
		json.Unmarshal([]byte("5"), &into): session.CodeMalformed,
	} {
		if e := provider.Broken("test", err, nil); e.Code != want || !e.Retryable {
			t.Errorf("%v: got %s, retryable %v, want %s", err, e.Code, e.Retryable, want)
		}
	}
}

func TestReplyKeepsOrder(t *testing.T) {
	t.Parallel()
	var deltas []llm.Delta
	r := provider.NewReply(func(d llm.Delta) { deltas = append(deltas, d) })
	r.Say(session.PartReasoning, "hm")
	r.Say(session.PartText, "a")
	first := r.Call("id1", "x")
	second := r.Call("id2", "y")
	second.Add("[1")
	first.Add(`{"a"`)
	second.Add("]")
	first.Add(":1}")
	first.End()
	first.Add("too late")
	if p := r.Partial(); len(p.Parts) != 3 || p.Parts[2].Tool != "x" {
		t.Errorf("the partial reply is %+v", p)
	}
	r.Finish = llm.FinishStop
	got, err := r.Response()
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Parts) != 4 || string(got.Parts[2].Input) != `{"a":1}` || string(got.Parts[3].Input) != "[1]" || got.Finish != llm.FinishToolCalls {
		t.Errorf("got %+v", got)
	}
	if last := deltas[len(deltas)-1]; last.Kind != llm.DeltaCallEnd || last.Index != 1 {
		t.Errorf("the last delta is %+v", last)
	}
}

func TestEmptyRepliesThatWereFilteredFail(t *testing.T) {
	t.Parallel()
	r := provider.NewReply(nil)
	r.Finish = llm.FinishContentFilter
	if _, err := r.Response(); !errors.Is(err, &session.Error{Code: session.CodeContentFilter}) || session.IsRetryable(err) {
		t.Errorf("got %v", err)
	}
}

func TestCallIDsAreUniqueAndStable(t *testing.T) {
	t.Parallel()
	calls := []session.Part{
		{CallID: "s:1", ProviderCallID: "toolu_1"},
		{CallID: "s:2", ProviderCallID: "toolu_1"},
		{CallID: "s:3", ProviderCallID: "fc/é"},
		{CallID: "s:4"},
	}
	ids := func(n int) []string {
		var c provider.CallIDs
		var out []string
		for i := range calls[:n] {
			out = append(out, c.Call(&calls[i]))
			if got := c.Result(&session.Part{CallID: calls[i].CallID}); got != out[i] {
				t.Errorf("the result is for %s, the call was %s", got, out[i])
			}
		}
		return out
	}
	all := ids(4)
	seen := map[string]bool{}
	for i, id := range all {
		if seen[id] || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz_0123456789") != "" {
			t.Errorf("id %q is not unique and plain", id)
		}
		seen[id] = true
		if again := ids(i + 1); again[i] != id {
			t.Errorf("call %d changed its id from %s to %s", i, again[i], id)
		}
	}
	if all[0] != "toolu_1" {
		t.Errorf("a good id was changed to %s", all[0])
	}
}

func TestInputsBecomeObjects(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"": "{}", `{"a":1}`: `{"a":1}`, "[1]": `{"invalid_arguments":[1]}`, `{"a`: `{"invalid_arguments":"{\"a"}`,
	} {
		if got := string(provider.Object(json.RawMessage(input))); got != want {
			t.Errorf("%s: got %s, want %s", input, got, want)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                   "",
		`{"b":1,"a":{"x":2}}`:                `a={"x":2} b=1 `,
		`{"anthropic":{"b":1},"openai":{}}`:  "b=1 ",
		`{"openai":{"b":1}}`:                 "",
		`{"anthropic":{"b":1},"thinking":0}`: `anthropic={"b":1} thinking=0 `,
	} {
		options, err := provider.Options(provider.Anthropic, json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, o := range options {
			got.WriteString(o.Name + "=" + string(o.Value) + " ")
		}
		if got.String() != want {
			t.Errorf("%s: got %s, want %s", raw, got.String(), want)
		}
	}
	if _, err := provider.Options(provider.Anthropic, json.RawMessage("[1]")); !errors.Is(err, &session.Error{Code: session.CodeBadRequest}) {
		t.Errorf("got %v", err)
	}
}

func TestStrictSchemas(t *testing.T) {
	t.Parallel()
	loose := provider.Strict{Keywords: []string{"type", "properties", "required", "additionalProperties", "items", "anyOf", "format"}, Formats: []string{"date"}}
	tight := loose
	tight.AllRequired = true
	for _, c := range []struct {
		schema       string
		loose, tight bool
	}{
		{`{"type":"object","additionalProperties":false}`, true, true},
		{`{"type":"object"}`, false, false},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`, true, true},
		{`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`, true, false},
		{`{"type":"object","properties":{"a":{"type":"string","minLength":2}},"required":["a"],"additionalProperties":false}`, false, false},
		{`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"],"additionalProperties":false}`, false, false},
		{`{"type":"object","properties":{"a":{"type":["null","object"]}},"required":["a"],"additionalProperties":false}`, false, false},
		{`{"type":"object","properties":{"a":true},"required":["a"],"additionalProperties":false}`, false, false},
		{`{"type":"object","properties":{"a":{"type":"string","format":"date"}},"required":["a"],"additionalProperties":false}`, true, true},
		{`{"type":"object","properties":{"a":{"type":"string","format":"regex"}},"required":["a"],"additionalProperties":false}`, false, false},
		{`{"type":"string"}`, false, false},
		{`nonsense`, false, false},
	} {
		if got := loose.Fits(json.RawMessage(c.schema)); got != c.loose {
			t.Errorf("%s: got %v", c.schema, got)
		}
		if got := tight.Fits(json.RawMessage(c.schema)); got != c.tight {
			t.Errorf("%s, all required: got %v", c.schema, got)
		}
	}
}

func TestDataURLs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][2]string{
		"data:image/png;base64,AAEC":           {"image/png", "AAEC"},
		"data:text/plain;charset=utf-8,a%20b":  {"text/plain", "YSBi"},
		provider.DataURL("x/y", []byte("a b")): {"x/y", "YSBi"},
	} {
		mediaType, content, err := provider.Base64(raw)
		if err != nil || mediaType != want[0] || content != want[1] {
			t.Errorf("%s: got %s, %s, %v", raw, mediaType, content, err)
		}
	}
	if _, _, err := provider.Base64("https://example.com/a.png"); err == nil {
		t.Error("a link passed for a data URL")
	}
	if text, err := provider.TextOf("data:text/plain;base64,YSBi"); err != nil || text != "a b" {
		t.Errorf("got %q, %v", text, err)
	}
	for mediaType, want := range map[string]bool{
		"text/x-go": true, "application/json": true, "application/json; charset=utf-8": true, "application/yaml": true, "APPLICATION/X-YAML": true,
		"application/ld+json": true, "image/svg+xml": true,
		"application/zip": false, "": false, "image/png": false,
	} {
		if got := provider.IsText(mediaType); got != want {
			t.Errorf("%q is text: got %v", mediaType, got)
		}
	}
}

// TestOptionsAreAMergePatch has the examples of RFC 7396, as members of a request, and
// wants members to keep their order.
func TestOptionsAreAMergePatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, ``},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"z":1,"a":2,"m":3}`, `{"m":{"\"<é":4},"a":12345678901234567890}`, `{"z":1,"a":12345678901234567890,"m":{"\"\u003cé":4}}`},
		{`{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":1}}`},
	} {
		options := []provider.Option{{Name: "m", Value: json.RawMessage(c.patch)}}
		want := `{"m":` + c.want + `,"n":1}`
		if c.want == "" {
			want = `{"n":1}`
		}
		if got, err := provider.Body("test", []byte(`{"m":`+c.target+`,"n":1}`), options); err != nil || string(got) != want {
			t.Errorf("%s with %s gives %s, %v, want %s", c.target, c.patch, got, err, want)
		}
	}
}

func TestBaseURLs(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://h/v1": true, "http://127.0.0.1:1": true,
		"": false, "h/v1": false, "ftp://h": false, "https://user:password@h": false, "https://user@h": false,
	} {
		if err := provider.CheckBaseURL("test", address); (err == nil) != ok || err != nil && strings.Contains(err.Error(), "password@") {
			t.Errorf("%q: got %v", address, err)
		}
	}
}

// Counts of a server are data like any other: they are kept within what is possible.
func TestImpossibleUsage(t *testing.T) {
	t.Parallel()
	r := provider.NewReply(nil)
	r.Model = strings.Repeat("m", 1<<20)
	r.Usage = session.Usage{InputTokens: math.MaxInt64, OutputTokens: -5, CacheReadTokens: 7}
	out, err := r.Response()
	if err != nil {
		t.Fatal(err)
	}
	if want := (session.Usage{InputTokens: 1e12, CacheReadTokens: 7}); out.Usage != want || len(out.Model) > 200 {
		t.Errorf("got %+v and a name of %d bytes", out.Usage, len(out.Model))
	}
}

func TestLongestWait(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, f := range []*provider.Failure{
		{Status: 429, After: 1000 * time.Hour},
		{Status: 429, Header: http.Header{"Retry-After": {now.Add(1000 * time.Hour).UTC().Format(http.TimeFormat)}}},
		{Status: 429, Header: http.Header{"Retry-After": {"1e300"}}},
	} {
		if after, ok := errors.AsType[*llm.RetryAfterError](f.Error(nil)); !ok || after.After != 24*time.Hour {
			t.Errorf("%+v: got %v", f, after)
		}
	}
}
