package llmtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// key is what the adapter under test sends; it must be seen nowhere else.
const key = "sk-llmtest-0123456789abcdef"

// errHung ends the context of a call that hangs.
var errHung = errors.New("the call hung")

// wire is a provider's server.
type wire struct {
	server *httptest.Server
	model  llm.Model
	seen   func(*http.Request, []byte) // may be nil

	mu       sync.Mutex
	play     http.HandlerFunc
	requests []received
}

// received is a request as it arrived.
type received struct {
	path   string
	header http.Header
	body   []byte
}

func newWire(t testing.TB, p *Provider) *wire {
	t.Helper()
	w := &wire{}
	if p.OnRequest != nil {
		w.seen = func(r *http.Request, body []byte) { p.OnRequest(t, r, body) }
	}
	w.server = httptest.NewServer(w)
	t.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
	})
	w.model = p.New(w.server.URL, key)
	return w
}

// ServeHTTP records the request and answers it as the test has set up.
func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	w.mu.Lock()
	w.requests = append(w.requests, received{r.URL.RequestURI(), r.Header.Clone(), body})
	play := w.play
	w.mu.Unlock()
	if w.seen != nil {
		w.seen(r, body)
	}
	play(rw, r)
}

func (w *wire) answer(play http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.play = play
}

// last is the latest request.
func (w *wire) last(t testing.TB) received {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.requests) == 0 {
		t.Fatal("no request arrived")
	}
	return w.requests[len(w.requests)-1]
}

// recording is a body with the way it is sent.
type recording struct {
	Answer
	body []byte
}

// record reads the recording of a case.
func (p *Provider) record(t testing.TB, name string) recording {
	t.Helper()
	for _, kind := range []struct{ ext, contentType string }{
		{".sse", "text/event-stream; charset=utf-8"}, {".json", "application/json"}, {".html", "text/html"},
	} {
		body, err := fs.ReadFile(p.Exchanges, name+kind.ext)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r := recording{Answer{Status: http.StatusOK, Header: http.Header{}}, bytes.ReplaceAll(body, []byte("{{key}}"), []byte(key))}
		r.Header.Set("Content-Type", kind.contentType)
		r.merge(defaultAnswers[name])
		r.merge(p.Answers[name])
		return r
	}
	t.Fatalf("there is no recording of %s: it has to hold %s", name, Cases()[name])
	return recording{}
}

func (r *recording) merge(a Answer) {
	if a.Status != 0 {
		r.Status = a.Status
	}
	for name, values := range a.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
}

// begin sends the status and the headers.
func (r *recording) begin(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.Header)
	w.WriteHeader(r.Status)
}

// play answers with the whole recording at once.
func (r *recording) play(w http.ResponseWriter, _ *http.Request) {
	r.begin(w)
	_, _ = w.Write(r.body)
}

// outcome is what came of a call.
type outcome struct {
	response *llm.Response
	err      error
	deltas   []llm.Delta
}

// ask makes a call and waits for it, but not forever. Whatever comes of it, the
// key is not in it.
func ask(t testing.TB, ctx context.Context, m llm.Model, r *llm.Request) outcome {
	t.Helper()
	// Not a deadline, which an adapter may tell its provider.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hung := time.AfterFunc(eventually.Patience, func() { cancel(errHung) })
	defer hung.Stop()
	var out outcome
	done := make(chan struct{})
	go func() {
		defer close(done)
		out.response, out.err = m.Generate(ctx, r, func(d llm.Delta) { out.deltas = append(out.deltas, d) })
	}()
	select {
	case <-done:
	case <-time.After(eventually.Patience + 10*time.Second): // waits: longer than the context of the call
		t.Fatal("the call did not return even when its context had ended")
	}
	if errors.Is(context.Cause(ctx), errHung) {
		t.Fatal(errHung)
	}
	checkSecret(t, &out)
	return out
}

// outcome reports what came of a recording.
func (p *Provider) outcome(t testing.TB, out outcome) outcome {
	t.Helper()
	if p.OnOutcome != nil {
		p.OnOutcome(t, out.response, out.deltas, out.err)
	}
	return out
}

// ask makes a plain call.
func (w *wire) ask(t testing.TB) outcome {
	t.Helper()
	return ask(t, t.Context(), w.model, plainRequest())
}

func plainRequest() *llm.Request {
	return &llm.Request{
		Agent: "tester", SessionID: "s1", RunID: "r1", Step: 1,
		Instructions: "You are terse.",
		Messages:     []session.Message{session.UserText("Hello?")},
		Tools: []llm.Tool{
			{Name: "search", Description: "Searches.", Schema: searchSchema},
			{Name: "weather", Description: "Tells the weather.", Schema: weatherSchema},
		},
	}
}

// checkSecret looks for the key in everything that a call gives.
func checkSecret(t testing.TB, out *outcome) {
	t.Helper()
	for err := out.err; err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), key) {
			t.Errorf("the key is in the error: %v", err)
		}
	}
	for _, d := range out.deltas {
		if strings.Contains(d.Text, key) || strings.Contains(d.Tool, key) {
			t.Errorf("the key is in a delta: %+v", d)
		}
	}
	if out.response == nil {
		return
	}
	raw, err := session.Encode(session.Message{Role: session.RoleAssistant, Parts: encodable(out.response.Parts)})
	if err != nil {
		t.Errorf("the parts cannot be stored: %v", err)
	}
	if bytes.Contains(raw, []byte(key)) {
		t.Errorf("the key is in a part: %s", raw)
	}
}

// encodable makes arguments that are not JSON a string, as the engine does.
func encodable(parts []session.Part) []session.Part {
	out := append([]session.Part(nil), parts...)
	for i := range out {
		if out[i].Input != nil && !validJSON(out[i].Input) {
			out[i].Input = session.AppendString(nil, string(out[i].Input))
		}
	}
	return out
}
