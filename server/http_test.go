package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, func(cfg *server.Config) { cfg.Limits.Body = 1 << 10 })
	good := `{"agentType":"echo","message":"hello"}`
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		code                     session.Code
		field                    string
	}{
		{"version", "GET", "/agents", "", []string{wire.HeaderVersion, "2"}, 400, wire.CodeVersion, wire.HeaderVersion},
		{"no route", "GET", "/nothing", "", nil, 404, wire.CodeNoRoute, ""},
		{"method", "GET", "/start", "", nil, 405, wire.CodeMethod, ""},
		{"media type", "POST", "/start", good, []string{"Content-Type", "text/plain"}, 415, wire.CodeMediaType, "Content-Type"},
		{"no media type", "POST", "/start", good, []string{"Content-Type", ""}, 415, wire.CodeMediaType, "Content-Type"},
		{"no body", "POST", "/start", "", []string{"Content-Type", ""}, 400, session.CodeInvalid, "agentType"},
		{"no body of a chat", "POST", "/chat", "", []string{"Content-Type", ""}, 400, session.CodeInvalid, "body"},
		{"too large", "POST", "/start", `{"message":"` + strings.Repeat("x", 1<<10) + `"}`, nil, 413, session.CodeTooLarge, ""},
		{"no object", "POST", "/start", `"hello"`, nil, 400, session.CodeInvalid, "body"},
		{"cut off", "POST", "/start", good[:20], nil, 400, session.CodeInvalid, "body"},
		{"trailing", "POST", "/start", good + "{}", nil, 400, session.CodeInvalid, "body"},
		{"unknown field", "POST", "/start", `{"agent":"echo"}`, nil, 400, session.CodeInvalid, "agent"},
		{"wrong type", "POST", "/start", `{"agentType":7}`, nil, 400, session.CodeInvalid, "agentType"},
		{"wrong nested type", "POST", "/submit-tool-result", `{"approval":{"approved":"yes"}}`, nil, 400, session.CodeInvalid, "approval.approved"},
		{"no agent", "POST", "/start", `{"message":"x"}`, nil, 400, session.CodeInvalid, "agentType"},
		{"unknown agent", "POST", "/start", `{"agentType":"x","message":"x"}`, nil, 404, session.CodeUnknownAgent, "agentType"},
		{"no message", "POST", "/start", `{"agentType":"echo"}`, nil, 400, session.CodeInvalid, "message"},
		{"assistant's message", "POST", "/start", `{"agentType":"echo","message":[{"role":"assistant","parts":[{"kind":"text","text":"x"}]}]}`, nil, 400, session.CodeInvalid, "message[0].role"},
		{"bad id", "POST", "/start", `{"sessionId":"../x","agentType":"echo","message":"x"}`, nil, 400, session.CodeInvalid, "sessionId"},
		{"bad time", "POST", "/start", `{"expiresAt":"soon"}`, nil, 400, session.CodeInvalid, "expiresAt"},
		{"no session", "GET", "/status", "", nil, 400, session.CodeInvalid, "sessionId"},
		{"bad limit", "GET", "/sessions?limit=0", "", nil, 400, session.CodeInvalid, "limit"},
		{"large limit", "GET", "/sessions?limit=201", "", nil, 400, session.CodeInvalid, "limit"},
		{"large offset", "GET", "/sessions?offset=1000001", "", nil, 400, session.CodeInvalid, "offset"},
		{"large offset", "GET", "/waiting?offset=9223372036854775807", "", nil, 400, session.CodeInvalid, "offset"},
		{"bad cursor", "GET", "/sessions?cursor=x", "", nil, 400, session.CodeInvalid, "cursor"},
		{"bad status", "GET", "/sessions?status=lost", "", nil, 400, session.CodeInvalid, "status"},
		{"unknown filter", "GET", "/sessions?users=alice", "", nil, 400, session.CodeInvalid, "users"},
		{"bad flag", "GET", "/sessions?roots=maybe", "", nil, 400, session.CodeInvalid, "roots"},
		{"bad time", "GET", "/sessions?createdAfter=today", "", nil, 400, session.CodeInvalid, "createdAfter"},
		{"zero byte", "GET", "/sessions?agent=%00", "", nil, 400, session.CodeInvalid, "agent"},
		{"zero byte", "GET", "/sessions?user=a%00b", "", nil, 400, session.CodeInvalid, "user"},
		{"zero byte", "GET", "/sessions?parent=%00", "", nil, 400, session.CodeInvalid, "parent"},
		{"no UTF-8", "GET", "/sessions?tag=a&tag=%ff", "", nil, 400, session.CodeInvalid, "tag"},
		{"no UTF-8", "GET", "/sessions?metadata.a=%ff", "", nil, 400, session.CodeInvalid, "metadata.a"},
		{"zero byte", "POST", "/resume", `{"sessionId":"a","checkpointId":"\u0000"}`, nil, 400, session.CodeInvalid, "checkpointId"},
		{"zero byte", "POST", "/sessions/a/branch", `{"checkpointId":"\u0000"}`, nil, 400, session.CodeInvalid, "checkpointId"},
		{"zero byte", "POST", "/sessions/a/pause", `{"reason":"\u0000"}`, nil, 400, session.CodeInvalid, "reason"},
		{"zero byte", "POST", "/interrupt", `{"sessionId":"a","reason":"\u0000"}`, nil, 400, session.CodeInvalid, "reason"},
		{"zero byte", "POST", "/chat/a/abort", `{"reason":"\u0000"}`, nil, 400, session.CodeInvalid, "reason"},
		{"three answers", "POST", "/submit-tool-result", `{"sessionId":"a","toolCallId":"c","result":1,"error":"x"}`, nil, 400, session.CodeInvalid, "result"},
		{"no answer", "POST", "/submit-tool-result", `{"sessionId":"a","toolCallId":"c"}`, nil, 400, session.CodeInvalid, "result"},
		{"unknown kind", "POST", "/submit-tool-result", `{"sessionId":"a","kind":"answer","toolCallId":"c","result":1}`, nil, 400, session.CodeInvalid, "kind"},
		{"approval of another kind", "POST", "/submit-tool-result", `{"sessionId":"a","kind":"client-tool-result","toolCallId":"c","approved":true}`, nil, 400, session.CodeInvalid, "approved"},
		{"result and approval", "POST", "/submit-tool-result", `{"sessionId":"a","kind":"client-tool-result","toolCallId":"c","result":1,"approval":{"approvalId":"a"}}`, nil, 400, session.CodeInvalid, "approval"},
		{"result of another kind", "POST", "/chat/a/submit-tool-result", `{"kind":"approval-response","toolCallId":"c","approvalId":"a","approved":true,"result":null}`, nil, 400, session.CodeInvalid, "result"},
		{"error of another kind", "POST", "/submit-tool-result", `{"sessionId":"a","kind":"approval-response","toolCallId":"c","approvalId":"a","approved":true,"error":"x"}`, nil, 400, session.CodeInvalid, "error"},
		{"two forms of approval", "POST", "/submit-tool-result", `{"sessionId":"a","kind":"approval-response","toolCallId":"c","approvalId":"a","approved":true,"approval":{"approvalId":"a","approved":true}}`, nil, 400, session.CodeInvalid, "approval"},
		{"approval without an id", "POST", "/submit-tool-result", `{"sessionId":"a","kind":"approval-response","toolCallId":"c","approved":true}`, nil, 400, session.CodeInvalid, "approvalId"},
		{"approval without a decision", "POST", "/chat/a/submit-tool-result", `{"kind":"approval-response","toolCallId":"c","approvalId":"a","approved":null}`, nil, 400, session.CodeInvalid, "approved"},
		{"approval without a kind", "POST", "/submit-tool-result", `{"sessionId":"a","toolCallId":"c","approvalId":"a","approved":true}`, nil, 400, session.CodeInvalid, "approvalId"},
		{"kind without an answer", "POST", "/submit-tool-result", `{"sessionId":"a","kind":"client-tool-result","toolCallId":"c"}`, nil, 400, session.CodeInvalid, "result"},
		{"two answers of a kind", "POST", "/submit-tool-result", `{"sessionId":"a","kind":"client-tool-result","toolCallId":"c","result":1,"error":"x"}`, nil, 400, session.CodeInvalid, "result"},
		{"no call", "POST", "/submit-tool-result", `{"sessionId":"a","result":1}`, nil, 400, session.CodeInvalid, "toolCallId"},
		{"no workspace", "GET", "/workspace?sessionId=a", "", nil, 404, wire.CodeNoWorkspace, ""},
		{"metrics", "GET", "/metrics", "", nil, 403, wire.CodeForbidden, ""},
		{"other site", "POST", "/start", good, []string{"Sec-Fetch-Site", "cross-site"}, 403, wire.CodeForbidden, ""},
	} {
		if e := s.refused(c.status, c.code, c.method, c.path, c.body, c.headers...); e.Field != c.field || e.Detail != "" {
			t.Errorf("%s: refused as %+v, not with field %q", c.name, e, c.field)
		}
	}
	if ids := tenantSessions(t, s.db, "north"); len(ids) > 0 {
		t.Errorf("what was refused has made %q", ids)
	}
	answer := s.request(http.MethodPut, "/sessions/a", nil)
	_ = answer.Body.Close()
	if allow := answer.Header.Get("Allow"); allow != "GET, DELETE" {
		t.Errorf("Allow is %q", allow)
	}
}

// A server is not made of a configuration that means nothing.
func TestConfig(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, nil)
	for field, change := range map[string]func(*server.Config){
		"Executor":             func(c *server.Config) { c.Executor = nil },
		"Backend":              func(c *server.Config) { c.Backend = nil },
		"Agents":               func(c *server.Config) { c.Agents = nil },
		"Authenticate":         func(c *server.Config) { c.AllowUnauthenticated = false },
		"AllowUnauthenticated": func(c *server.Config) { c.Authenticate = func(*http.Request) (server.Identity, error) { panic(0) } },
		"CORS":                 func(c *server.Config) { c.CORS = []string{"*"} },
		"Limits":               func(c *server.Config) { c.Limits.Body = -1 },
		"KeepAlive":            func(c *server.Config) { c.KeepAlive = -1 },
		"ServiceName":          func(c *server.Config) { c.ServiceName = strings.Repeat("n", 257) },
	} {
		cfg := server.Config{Executor: s.runtime, Backend: s.db, Agents: func() []*helix.Agent { return nil }, AllowUnauthenticated: true}
		change(&cfg)
		if _, err := server.New(cfg); session.AsError(err) == nil || session.AsError(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, tokens := range [][]server.Token{
		nil, {{Token: ""}}, {{Token: "a"}}, {{Token: "a", Identity: server.Identity{User: "x"}}, {Token: "a", Identity: server.Identity{User: "y"}}},
	} {
		if _, err := server.Tokens(tokens...); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("the tokens %v are taken: %v", tokens, err)
		}
	}
}

// Whoever authenticates is believed, but nobody is nobody.
func TestAuthenticate(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, func(cfg *server.Config) {
		cfg.Verbose = true
		cfg.Authenticate = func(r *http.Request) (server.Identity, error) {
			switch r.Header.Get("Who") {
			case "nobody":
				return server.Identity{}, nil
			case "down":
				return server.Identity{}, session.ErrUnavailable
			case "anna":
				return server.Identity{User: "anna"}, nil
			}
			return server.Identity{}, errors.New("who are you?")
		}
	})
	s.refused(http.StatusUnauthorized, wire.CodeUnauthorized, http.MethodGet, "/agents", nil, "Who", "nobody")
	if e := s.refused(http.StatusUnauthorized, wire.CodeUnauthorized, http.MethodGet, "/agents", nil); e.Detail != "who are you?" {
		t.Errorf("a verbose server tells %+v", e)
	}
	if e := s.refused(http.StatusServiceUnavailable, session.CodeUnavailable, http.MethodGet, "/agents", nil, "Who", "down"); !e.Retryable {
		t.Errorf("refused as %+v", e)
	}
	started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "echo", Message: wire.Text("x")}, "Who", "anna")
	state, err := s.db.Sessions().Load(t.Context(), started.SessionID)
	if err != nil || state.UserID != "anna" || state.Tenant != session.DefaultTenant {
		t.Errorf("anna's session is %+v, %v", state, err)
	}
}

// Without authentication everybody is the operator of the default tenant.
func TestUnauthenticated(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, func(cfg *server.Config) {
		cfg.Authenticate, cfg.AllowUnauthenticated = nil, true
	}).as("")
	started := s.start(wire.Start{AgentType: "echo", Message: wire.Text("x")})
	page := call[wire.Sessions](s, http.StatusOK, http.MethodGet, "/sessions", nil)
	if len(page.Items) != 1 || page.Items[0].ID != started.SessionID || page.Items[0].Tenant != session.DefaultTenant {
		t.Errorf("the sessions are %+v", page.Items)
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	const app = "https://app.example.com"
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, func(cfg *server.Config) { cfg.CORS = []string{app} })
	ask := func(origin string) (int, http.Header) {
		answer := s.request(http.MethodOptions, "/start", nil, "Origin", origin, "Access-Control-Request-Method", "POST")
		_ = answer.Body.Close()
		return answer.StatusCode, answer.Header
	}
	if status, header := ask(app); status != http.StatusNoContent || header.Get("Access-Control-Allow-Origin") != app ||
		!strings.Contains(header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("the app is told %d %v", status, header)
	}
	if status, header := ask("https://evil.example.com"); status < 400 || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another site is told %d %v", status, header)
	}
	in := wire.Start{AgentType: "echo", Message: wire.Text("x")}
	call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", in, "Origin", app, "Sec-Fetch-Site", "cross-site")
	s.refused(http.StatusForbidden, wire.CodeForbidden, http.MethodPost, "/start", in, "Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site")
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, func(cfg *server.Config) { cfg.RateLimit = server.RateLimit{PerSecond: 0.001, Burst: 3} })
	for range 3 {
		call[wire.Agents](s, http.StatusOK, http.MethodGet, "/agents", nil)
	}
	if e := s.refused(http.StatusTooManyRequests, wire.CodeRateLimited, http.MethodGet, "/agents", nil); !e.Retryable {
		t.Errorf("refused as %+v", e)
	}
	answer := s.request(http.MethodGet, "/agents", nil)
	_ = answer.Body.Close()
	if after := number(t, answer.Header.Get("Retry-After")); after < 900 || after > 1000 {
		t.Errorf("Retry-After is %d", after)
	}
	call[wire.Agents](s.as("bob-token"), http.StatusOK, http.MethodGet, "/agents", nil) // he has a bucket of his own
	call[wire.Health](s, http.StatusOK, http.MethodGet, "/healthz", nil)
}

// A client that went away was not failed.
func TestClientGone(t *testing.T) {
	t.Parallel()
	var log lines
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, func(cfg *server.Config) { cfg.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	started := s.start(wire.Start{AgentType: "echo", Message: wire.Text("x")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/sse?sessionId="+started.SessionID, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	s.server.ServeHTTP(httptest.NewRecorder(), r)
	if out := log.String(); !strings.Contains(out, `"status":499`) || strings.Contains(out, "ERROR") {
		t.Errorf("the log is %s", out)
	}
}

// A request whose time is over, because what the server is mounted in gives it
// some, is answered with that: nothing at all would look like an empty answer.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	s := staffed(t, inMemory(t), nil)
	f := s.fill("l-")
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second)) // waits: for nothing, it is over
	defer cancel()
	for _, path := range []string{"/status?sessionId=" + f.done, "/sse?sessionId=" + f.running, "/status?sessionId=none"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.token)
		w := httptest.NewRecorder()
		s.server.ServeHTTP(w, r)
		if e := decodeAs[wire.Error](t, w.Body.String()); w.Code != http.StatusServiceUnavailable || e.Code != session.CodeUnavailable ||
			!e.Retryable || w.Header().Get("Retry-After") == "" {
			t.Errorf("GET %s is %d: %s", path, w.Code, w.Body)
		}
	}
	// A stream that has begun says so.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	late := &overdue{Context: ctx}
	r, err := http.NewRequestWithContext(late, http.MethodGet, "/sse?sessionId="+f.running, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	w := &flushed{ResponseRecorder: httptest.NewRecorder(), then: cancel}
	s.server.ServeHTTP(w, r)
	events, _ := parseEvents(w.Body.Bytes())
	if e := events[len(events)-1]; e.kind != "fail" || !strings.Contains(e.data, `"recoverable":true`) {
		t.Errorf("a stream whose time is over ends with %+v", e)
	}
}

// overdue is a context whose end is a deadline.
type overdue struct{ context.Context }

func (o *overdue) Err() error {
	if o.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// flushed is told when something was answered.
type flushed struct {
	*httptest.ResponseRecorder
	then func()
}

func (f *flushed) Flush() { f.then() }

// deadlines is a connection's as a handler leaves it.
type deadlines struct {
	*httptest.ResponseRecorder
	write, read time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = t; return nil }

// A deadline of one request is none of the next on the same connection, which may
// be for another handler.
func TestDeadlinesAreNotLeft(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, nil)
	started := s.start(wire.Start{AgentType: "echo", Message: wire.Text("x")})
	for _, request := range [][3]string{
		{http.MethodGet, "/agents"},
		{http.MethodGet, "/status"},
		{http.MethodPost, "/start", `{"agentType":"echo","message":"y"}`},
		{http.MethodGet, "/sse?sessionId=" + started.SessionID},
	} {
		r, err := http.NewRequestWithContext(t.Context(), request[0], request[1], strings.NewReader(request[2]))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.token)
		r.Header.Set("Content-Type", wire.ContentJSON)
		left := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		s.server.ServeHTTP(left, r)
		if closes := left.Header().Get("Connection") == "close"; !left.read.IsZero() || (!left.write.IsZero() && !closes) {
			t.Errorf("%s %s leaves deadlines: %s to write, %s to read", request[0], request[1], left.write, left.read)
		}
	}
}

// A body that does not come holds its connection for a while only, whether or not
// anybody reads it. Streams, which have no end, are not cut by that.
func TestStalledBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 30 * time.Second // by default
		s, listener := serveOnPipes(t, inMemory(t), staff(make(chan struct{})), nil)
		started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "slow", Message: wire.Text("go")})
		reading := s.request(http.MethodGet, "/sse?sessionId="+started.SessionID, nil)
		var reader sync.WaitGroup
		reader.Go(func() { _, _ = io.Copy(io.Discard, reading.Body) }) // until it is closed
		defer reader.Wait()
		defer reading.Body.Close()
		began := time.Now()
		const post = "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
		for request, want := range map[string][]string{ // the status, and what follows
			"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx": {"200"},
			"GET /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx": {"404"},
			"POST /start HTTP/1.1\r\nHost: x" + post:                           {"401"},
			"POST /start HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.token + post: {
				"408", "\r\nConnection: close\r\n", "\r\nRetry-After: 1\r\n", `"code":"framework_body_timeout"`, `"field":"body"`, `"retryable":true`,
			},
		} {
			conn, err := listener.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			_ = conn.SetReadDeadline(at.Add(limit + time.Second))
			raw, err := io.ReadAll(conn)
			if took := time.Since(at); err != nil || !bytes.HasPrefix(raw, []byte("HTTP/1.1 "+want[0])) {
				t.Errorf("%q is answered after %s with %v: %s", request, took, err, raw)
			}
			for _, part := range want[1:] {
				if !bytes.Contains(raw, []byte(part)) {
					t.Errorf("the answer to %q has no %q: %s", request, part, raw)
				}
			}
			_ = conn.Close()
		}
		if passed := time.Since(began); passed <= limit {
			t.Fatalf("only %s have passed", passed)
		}
		if n := s.openStreams(); n != 1 {
			t.Errorf("%d streams are open, not the one that waits", n)
		}
	})
}

// lines is a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// The log has a line per request that says what was done for whom, and not what
// was said. A panic is one request's end.
func TestLog(t *testing.T) {
	t.Parallel()
	var log lines
	var panics atomic.Bool
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, func(cfg *server.Config) {
		agents := cfg.Agents
		cfg.Logger = slog.New(slog.NewJSONHandler(&log, nil))
		cfg.Agents = func() []*helix.Agent {
			if panics.Load() {
				panic("no agents today")
			}
			return agents()
		}
	})
	started := s.start(wire.Start{AgentType: "echo", Message: wire.Text(secret)})
	want := `"msg":"request","method":"POST","route":"/start","request":"my-request","session":"` + started.SessionID + `","run":"`
	in := wire.Start{SessionID: started.SessionID, AgentType: "echo", Message: wire.Text(secret)}
	call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", in, wire.HeaderRequestID, "my-request")
	// A request's line is written when its handler has returned, which the client does not wait for.
	logged := func() bool { return strings.Contains(log.String(), want) }
	eventually.Poll(t, "the request is logged", logged)
	if out := log.String(); !strings.Contains(out, `"user":"alice","tenant":"north","status":200,"duration":`) {
		t.Errorf("the log is %s", out)
	}
	panics.Store(true)
	s.refused(http.StatusInternalServerError, session.CodeInternal, http.MethodGet, "/agents", nil)
	panics.Store(false)
	out := log.String()
	if !strings.Contains(out, `"msg":"request.panicked"`) || !strings.Contains(out, "no agents today") || !strings.Contains(out, "agents.go") {
		t.Errorf("a panic is logged as %s", out)
	}
	if strings.Contains(out, secret) || strings.Contains(out, "alice-token") {
		t.Errorf("the log tells too much: %s", out)
	}
	call[wire.Agents](s, http.StatusOK, http.MethodGet, "/agents", nil)
	s.refused(http.StatusNotFound, wire.CodeNoRoute, http.MethodGet, "/nothing", nil)
	eventually.Poll(t, "the last request is logged", func() bool { return strings.Contains(log.String(), "/openapi.json lists them") })
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, `"method":"GET"`) && strings.Contains(line, `"status":200`) {
			t.Errorf("what only reads and succeeds is logged: %s", line)
		}
	}
}

// A program without a page says where to get one.
func TestNoPage(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, func(*server.Config) {})
	if err := s.refused(http.StatusNotFound, wire.CodeNoRoute, http.MethodGet, "/", nil); !strings.Contains(err.Message, "server/page") {
		t.Errorf("it says %q", err.Message)
	}
}

// tampered is a stream manager that does something to the third item of a stream.
type tampered struct {
	stream.Manager
	third func(*stream.Item)
}

func (m tampered) Tenant(tenant string) stream.Manager {
	return tampered{m.Manager.Tenant(tenant), m.third}
}

func (m tampered) Read(ctx context.Context, id string, from int64, raw bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		for item, err := range m.Manager.Read(ctx, id, from, raw) {
			if item.Sequence == 3 {
				m.third(&item)
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// A panic amid a stream ends that stream, and so that it does not look complete.
func TestPanicAmidStream(t *testing.T) {
	t.Parallel()
	for name, third := range map[string]func(*stream.Item){
		"of the reader": func(*stream.Item) { panic("no more today") },
		"of the writer": func(item *stream.Item) { item.Chunk = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, begun := inMemory(t), make(chan struct{})
			s := serve(t, db, []*helix.Agent{echo()}, func(cfg *server.Config) {
				cfg.Backend = only{db, tampered{db.Streams(), func(item *stream.Item) {
					<-begun
					third(item)
				}}}
			})
			started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "echo", Message: wire.Text("x")})
			answer := s.request(http.MethodGet, "/sse?sessionId="+started.SessionID, nil)
			defer answer.Body.Close()
			close(begun)
			raw, err := io.ReadAll(answer.Body)
			events, _ := parseEvents(raw)
			if last := events[len(events)-1]; err == nil && (last.kind != "fail" || !strings.Contains(last.data, `"recoverable":true`)) {
				t.Errorf("the stream looks complete: %s", raw)
			}
			call[wire.Agents](s, http.StatusOK, http.MethodGet, "/agents", nil)
		})
	}
}

// only is a backend with other streams.
type only struct {
	store.Backend
	streams stream.Manager
}

func (o only) Streams() stream.Manager { return o.streams }

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := staffed(t, inMemory(t), nil)
	f := s.fill("m-")
	submit := wire.Submit{SessionID: f.waiting, ToolCallID: f.call, Approval: &wire.Approval{ApprovalID: f.approval, Approved: true}}
	call[wire.Submitted](s, http.StatusOK, http.MethodPost, "/submit-tool-result", submit)
	s.refused(http.StatusNotFound, session.CodeNotFound, http.MethodGet, "/status?sessionId=none", nil)
	s.refused(http.StatusNotFound, wire.CodeNoRoute, http.MethodGet, "/a/path/of/somebody", nil)
	s.as("operator-token").refused(http.StatusForbidden, wire.CodeForbidden, http.MethodGet, "/metrics", nil) // an operator of one tenant
	answer := s.as("process-token").request(http.MethodGet, "/metrics", nil)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := string(raw)
	for _, line := range []string{
		`helix_http_requests_total{method="POST",route="/start",status="200"} 5`,
		`helix_http_requests_total{method="GET",route="/status",status="404"} 1`,
		`helix_http_requests_total{method="GET",route="none",status="404"} 1`,
		`helix_http_request_duration_seconds_bucket{route="/start",le="+Inf"} 5`,
		`helix_http_request_duration_seconds_count{route="/start"} 5`,
		`helix_runs_started_total 5`,
		`helix_submissions_total{outcome="accepted"} 1`,
		`# TYPE helix_http_open_streams gauge`,
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("the metrics have no line %s:\n%s", line, out)
		}
	}
	for _, id := range append(f.sessions(), "somebody", "alice") {
		if strings.Contains(out, id) {
			t.Errorf("the metrics name %s", id)
		}
	}
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "#") && len(strings.Fields(line)) != 2 {
			t.Errorf("%q is no sample", line)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	s := serve(t, inMemory(t), nil, func(cfg *server.Config) {
		cfg.Ready = func(context.Context) error {
			if down.Load() {
				return errors.New("the store is down")
			}
			return nil
		}
	}).as("")
	call[wire.Health](s, http.StatusOK, http.MethodGet, "/healthz", nil)
	call[wire.Health](s, http.StatusOK, http.MethodGet, "/readyz", nil)
	down.Store(true)
	s.refused(http.StatusServiceUnavailable, session.CodeUnavailable, http.MethodGet, "/readyz", nil)
	call[wire.Health](s, http.StatusOK, http.MethodGet, "/healthz", nil)
}
