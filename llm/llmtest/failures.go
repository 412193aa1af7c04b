package llmtest

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// failure is what comes of a recording that ends badly.
type failure struct {
	about     string
	code      session.Code
	retryable bool
	status    int
	after     time.Duration
	seen      string // text that was streamed before
	needs     []Feature
}

var failures = map[string]failure{
	"rate-limited": {
		about: "the answer to too many requests", code: session.CodeRateLimited, retryable: true,
		status: http.StatusTooManyRequests, after: 7 * time.Second,
	},
	"overloaded": {
		about: "the answer of a provider that is overloaded", code: session.CodeOverloaded, retryable: true,
		needs: []Feature{Overloaded},
	},
	"auth": {
		about: "the answer to a wrong key, with {{key}} in it", code: session.CodeAuth, status: http.StatusUnauthorized,
	},
	"context-length": {
		about: "the answer to a prompt that is too long", code: session.CodeContextLength, status: http.StatusBadRequest,
	},
	"bad-request": {
		about: "the answer to a request that is not valid", code: session.CodeBadRequest, status: http.StatusBadRequest,
	},
	"model-not-found": {
		about: "the answer to the name of a model that does not exist", code: session.CodeBadRequest, status: http.StatusNotFound,
	},
	"server-error": {
		about: "a web page of a proxy", code: session.CodeProviderDown, retryable: true, status: http.StatusBadGateway,
	},
	"refused": {
		about: "a reply without content that the provider's filter stopped", code: session.CodeContentFilter,
		needs: []Feature{SafetyStop},
	},
	"error-mid-stream": {
		about: "the text \"Hel\", then an error within the stream: overloaded, with {{key}} in its message",
		code:  session.CodeOverloaded, retryable: true, seen: "Hel", needs: []Feature{StreamErrors},
	},
	"stopped-stream": {
		about: "the text \"Hel\", then the end of the stream", code: session.CodeProviderDown, retryable: true, seen: "Hel",
	},
	"garbage": {
		about: "the text \"Hel\", then an event that is not JSON", code: session.CodeMalformed, retryable: true, seen: "Hel",
	},
}

// defaultAnswers are how the recordings are sent unless the provider says otherwise.
var defaultAnswers = map[string]Answer{
	"rate-limited":    {http.StatusTooManyRequests, http.Header{"Retry-After": {"7"}}},
	"overloaded":      {Status: http.StatusServiceUnavailable},
	"auth":            {Status: http.StatusUnauthorized},
	"context-length":  {Status: http.StatusBadRequest},
	"bad-request":     {Status: http.StatusBadRequest},
	"model-not-found": {Status: http.StatusNotFound},
	"server-error":    {Status: http.StatusBadGateway},
}

func failureCases() []testCase {
	var cases []testCase
	for _, name := range sorted(failures) {
		want := failures[name]
		cases = append(cases, testCase{"failure/" + name, want.needs, func(t testing.TB, p *Provider) {
			r := p.record(t, name)
			w := newWire(t, p)
			w.answer(r.play)
			if status := p.Answers[name].Status; status != 0 {
				want.status = status
			}
			checkFailure(t, p, p.outcome(t, w.ask(t)), &want)
		}})
	}
	return append(
		cases,
		testCase{"failure/unreachable", nil, unreachable},
		testCase{"failure/once", nil, asksOnce},
		testCase{"failure/redirect", nil, redirected},
	)
}

func checkFailure(t testing.TB, p *Provider, out outcome, want *failure) {
	t.Helper()
	e, ok := errors.AsType[*session.Error](out.err)
	if !ok {
		t.Fatalf("got the error %v, which is not classified", out.err)
	}
	if e.Code != want.code || e.Retryable != want.retryable {
		t.Errorf("it is %s, retryable %v, want %s, %v: %v", e.Code, e.Retryable, want.code, want.retryable, e)
	}
	if want.status != 0 && e.StatusCode != want.status {
		t.Errorf("the status is %d, want %d", e.StatusCode, want.status)
	}
	if after, ok := errors.AsType[*llm.RetryAfterError](out.err); p.Can(RetryAfter) && (ok != (want.after > 0) || ok && after.After != want.after) {
		t.Errorf("it says to wait %v, want %s", after, want.after)
	}
	var seen strings.Builder
	for _, d := range out.deltas {
		if d.Kind == llm.DeltaText {
			seen.WriteString(d.Text)
		}
	}
	if seen.String() != want.seen {
		t.Errorf("%q was streamed before, want %q", seen.String(), want.seen)
	}
	if len(e.Message) > session.MaxSubmissionError {
		t.Errorf("the message has %d bytes", len(e.Message))
	}
}

// unreachable requires a server that is not there to count as a fault that passes.
func unreachable(t testing.TB, p *Provider) {
	w := newWire(t, p)
	w.server.Close()
	checkFailure(t, p, w.ask(t), &failure{code: session.CodeProviderDown, retryable: true})
}

// redirected requires a redirection not to be followed: the key is for one address, and
// so is what is said to the model.
func redirected(t testing.TB, p *Provider) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	w := newWire(t, p)
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		for _, to := range []string{elsewhere.URL, w.server.URL} {
			w.answer(func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, to+r.URL.Path, status) })
			before := len(w.requests)
			checkFailure(t, p, w.ask(t), &failure{code: session.CodeBadRequest, status: status})
			if n := len(w.requests) - before; n != 1 || asked.Load() != 0 {
				t.Errorf("status %d was followed: %d requests here, %d elsewhere", status, n, asked.Load())
			}
		}
	}
}

// asksOnce requires retries left to the engine, which knows what was shown of an
// attempt and takes it back.
func asksOnce(t testing.TB, p *Provider) {
	w := newWire(t, p)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusConflict} {
		w.answer(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) })
		before := len(w.requests)
		if out := w.ask(t); !session.IsRetryable(out.err) {
			t.Errorf("status %d without a body gives %v, which is not retryable", status, out.err)
		}
		if n := len(w.requests) - before; n != 1 {
			t.Errorf("status %d was asked for %d times", status, n)
		}
	}
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
