package wiretest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/helixagents/helix/llm"
)

// Answer is what a server says to a request.
type Answer struct {
	Name   string
	Status int // 200 if it is 0
	Header map[string]string
	Body   string
	// Cut breaks the connection after the body.
	Cut bool
}

// Serve answers a request.
func (a *Answer) Serve(w http.ResponseWriter, _ *http.Request) {
	for name, value := range a.Header {
		w.Header().Set(name, value)
	}
	if a.Cut {
		w.Header().Set("Content-Length", fmt.Sprint(len(a.Body)+100))
	}
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
	_, _ = io.WriteString(w, a.Body)
	if a.Cut {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// Refusals returns answers that refuse a request, as providers, gateways and proxies word them.
func Refusals() []Answer {
	var out []Answer
	for _, status := range []int{300, 304, 400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 425, 429, 499, 500, 501, 502, 503, 504, 520, 529} {
		out = append(
			out,
			Answer{Name: fmt.Sprintf("%d-empty", status), Status: status},
			Answer{
				Name: fmt.Sprintf("%d-error", status), Status: status, Header: map[string]string{"Content-Type": "application/json", "Request-Id": "req_1"},
				Body: `{"type":"error","error":{"type":"some_error","code":"some_code","status":"SOME_STATUS","message":"It did not work: <b> & é."},"request_id":"req_2"}`,
			},
		)
	}
	limited := func(name string, header map[string]string) Answer {
		return Answer{Name: "429-" + name, Status: 429, Header: header, Body: `{"error":{"type":"rate_limit_error","message":"Slow down."}}`}
	}
	return append(
		out,
		Answer{
			Name: "529-retry-after", Status: 529, Header: map[string]string{"Retry-After": "12", "Request-Id": "req_529"},
			Body: `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
		},
		limited("retry-after", map[string]string{"Retry-After": "7", "X-Request-Id": "req_429"}),
		limited("retry-after-fraction", map[string]string{"Retry-After": "0.5"}),
		limited("retry-after-ms", map[string]string{"Retry-After-Ms": "250", "Retry-After": "1"}),
		limited("retry-after-nonsense", map[string]string{"Retry-After": "soon"}),
		limited("retry-after-past", map[string]string{"Retry-After": "Mon, 02 Jan 2006 15:04:05 GMT"}),
		limited("renewed", map[string]string{"X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "6m0s"}),
		limited("no-retry", map[string]string{"X-Should-Retry": "false"}),
		Answer{Name: "400-retry", Status: 400, Header: map[string]string{"X-Should-Retry": "true"}, Body: `{"error":{"message":"Odd."}}`},
		Answer{Name: "502-page", Status: 502, Header: map[string]string{"Content-Type": "text/html"}, Body: "\n<html><body>Bad gateway</body></html>"},
		Answer{Name: "503-text", Status: 503, Body: "upstream connect error or\ndisconnect  before headers"},
		Answer{Name: "400-text-in-error", Status: 400, Body: `{"error":"model 'x' not found"}`},
		Answer{Name: "400-list", Status: 400, Body: `[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]`},
		Answer{Name: "400-detail", Status: 400, Body: `{"detail":"Not this way."}`},
		Answer{Name: "400-number", Status: 400, Body: `17`},
		Answer{Name: "400-broken-json", Status: 400, Body: `{"error":{"type":"invalid_request_error","message":"half`},
		Answer{Name: "400-long", Status: 400, Body: `{"error":{"message":"` + strings.Repeat("é", 3000) + `"}}`},
		Answer{Name: "400-huge", Status: 400, Body: `{"error":{"message":"` + strings.Repeat("x", 3<<20) + `"}}`},
		Answer{Name: "500-cut", Status: 500, Body: `{"error":{"message":"half`, Cut: true},
		Answer{Name: "400-key", Status: 400, Body: `{"error":{"message":"Incorrect key: sk-wiretest-0123456789"}}`},
	)
}

// Streams returns answers with status 200 that end badly or say little, whatever the provider's wire is.
func Streams() []Answer {
	return []Answer{
		{Name: "empty"},
		{Name: "204", Status: 204},
		{Name: "page", Header: map[string]string{"Content-Type": "text/html"}, Body: "<html><body>Welcome</body></html>"},
		{Name: "text", Body: "hello"},
		{Name: "done", Body: "data: [DONE]\n\n"},
		{Name: "comment", Body: ": ping\n\n: ping\n\n"},
		{Name: "not-json", Body: "event: message_start\ndata: {\"type\":\n\n"},
		{Name: "wrong-kinds", Body: "event: message_start\ndata: [1]\n\n"},
		{Name: "null", Body: "event: message_start\ndata: null\n\n"},
		{Name: "error-object", Body: `{"error":{"type":"invalid_request_error","code":"invalid_api_key","message":"no"}}`},
		{Name: "error-event", Body: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"code\":503,\"status\":\"UNAVAILABLE\",\"message\":\"Overloaded\"}}\n\n"},
		{Name: "error-event-text", Body: "event: error\ndata: it broke\n\n"},
		{Name: "error-event-in-lines", Body: "event: error\ndata: {\"type\":\"error\",\ndata: \"error\":{\"message\":\"in two lines\"}}\n\n"},
		{Name: "error-event-unended", Body: "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"cut\"}}\n"},
	}
}

// Key is the key that the models of the recordings send. It must not be in any outcome.
const Key = "sk-wiretest-0123456789"

// Send sends a request to a server that answers well and holds what arrives to what was recorded for this very test.
func (r *Recording) Send(t testing.TB, open func(baseURL string) llm.Model, answer Answer, request *llm.Request) {
	t.Helper()
	r.forget(t)
	seen := func(q *http.Request, body []byte) { r.check(t, t.Name(), q, body) }
	if _, _, err := ask(t, open, answer, request, seen); err != nil {
		t.Error(err)
	}
}

// Play sends a request to a server and holds what comes of the answer to the recording.
func (r *Recording) Play(t testing.TB, open func(baseURL string) llm.Model, answer Answer, request *llm.Request) {
	t.Helper()
	response, deltas, err := ask(t, open, answer, request, func(*http.Request, []byte) {})
	r.Outcome(t, response, deltas, err)
}

func ask(
	t testing.TB, open func(baseURL string) llm.Model, answer Answer, request *llm.Request, seen func(*http.Request, []byte),
) (*llm.Response, []llm.Delta, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		seen(q, body)
		answer.Serve(w, q)
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	var deltas []llm.Delta
	response, err := open(server.URL).Generate(t.Context(), request, func(d llm.Delta) { deltas = append(deltas, d) })
	return response, deltas, err
}

// Answering answers requests without a network.
type Answering func(r *http.Request, body string) (status int, answer string)

// RoundTrip implements [http.RoundTripper].
func (a Answering) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	status, answer := a(r, string(body))
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// Elsewhere returns a client that connects to the server at baseURL whatever host a request names, so that a test can ask
// for a provider's own address.
func Elsewhere(t testing.TB, baseURL string) *http.Client {
	t.Helper()
	u, err := url.Parse(baseURL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, u.Host)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Gateways returns headers that a gateway may want with every request.
func Gateways() []map[string]string {
	return []map[string]string{
		{"X-Gateway-Tenant": "t1", "cf-aig-authorization": "Bearer gateway-token"},
		{"authorization": "Bearer of-the-gateway"},
		{"X-API-Key": "key-of-the-gateway", "api-key": "key-of-azure", "x-goog-api-key": "key-of-google"},
		{"Authorization": ""},
		{"User-Agent": "gateway/1", "OpenAI-Organization": "org-2", "anthropic-beta": "zero-2025-01-01", "Accept": "x/y", "Content-Type": "x/z"},
	}
}

// Paths returns what may follow the host in a base URL.
func Paths() []string {
	return []string{"", "/", "/v1", "/v1/", "/v1//", "/gateway/a%2Fb/v1", "/openai/deployments/d1?api-version=2024-10-21", "/v1#part", "/a b"}
}
