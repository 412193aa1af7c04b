package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/pipe"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) == "" {
		goleak.VerifyTestMain(testserver.Main(m))
		return
	}
	if err := serveAlone(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// onBackends runs a test on the backends that need no server, on one of them for each commit.
func onBackends(t *testing.T, test func(t *testing.T, db store.Backend)) {
	t.Helper()
	for i, kind := range testbackend.Embedded() {
		if !testshare.HasTurn(t, i, 2) {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			test(t, kind.Open(t))
		})
	}
}

func inMemory(t testing.TB) store.Backend { return testbackend.Embedded()[0].Open(t) }

// speaker is a model whose reply is computed from what was said.
type speaker func(request *llm.Request) scripted.Step

func (s speaker) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	return scripted.New(s(request)).Generate(ctx, request, emit)
}

// lastText is what the transcript ends with.
func lastText(request *llm.Request) string {
	last := request.Messages[len(request.Messages)-1]
	if last.Role == session.RoleTool {
		return "result " + string(last.Parts[0].ResultJSON())
	}
	return last.Content()
}

// service is a server with what is behind it.
type service struct {
	t       testing.TB
	db      store.Backend
	runtime *local.Runtime
	server  *server.Server
	url     string
	token   string
	client  *http.Client
}

// the tokens of tests: two users in each of two tenants, an operator of one, and
// one of the default tenant, who sees what is the whole process's.
var tokens = []server.Token{
	{Token: "alice-token", Identity: server.Identity{User: "alice", Tenant: "north"}},
	{Token: "bob-token", Identity: server.Identity{User: "bob", Tenant: "north"}},
	{Token: "alice-south-token", Identity: server.Identity{User: "alice", Tenant: "south"}},
	{Token: "bob-south-token", Identity: server.Identity{User: "bob", Tenant: "south"}},
	{Token: "operator-token", Identity: server.Identity{User: "op", Tenant: "north", Operator: true}},
	{Token: "process-token", Identity: server.Identity{Operator: true}},
}

// serve starts a server. Requests are alice's, of the tenant north, unless as says
// otherwise.
func serve(t testing.TB, db store.Backend, agents []*helix.Agent, change func(*server.Config)) *service {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, listener, db, agents, change)
}

// serveOnPipes is serve over connections in memory, for tests in a bubble.
func serveOnPipes(t testing.TB, db store.Backend, agents []*helix.Agent, change func(*server.Config)) (*service, *pipe.Listener) {
	t.Helper()
	listener := pipe.Listen()
	s := serveOn(t, listener, db, agents, change)
	transport := &http.Transport{DialContext: listener.Dial}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return s, listener
}

func serveOn(t testing.TB, listener net.Listener, db store.Backend, agents []*helix.Agent, change func(*server.Config)) *service {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	rt, err := local.New(local.Config{Backend: db, Agents: agents, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	authenticate, err := server.Tokens(tokens...)
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{
		Executor: rt, Backend: db, Agents: func() []*helix.Agent { return agents }, Authenticate: authenticate, Logger: quiet,
		Cleanup: rt.Cleanup, TaskStats: rt.TaskStats, RateLimit: server.RateLimit{PerSecond: -1}, Limits: server.Limits{RunsPerUser: -1},
	}
	if change != nil {
		change(&cfg)
	}
	srv, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	web := &httptest.Server{Listener: listener, Config: server.HTTPServer("", srv)}
	web.Start()
	s := &service{t: t, db: db, runtime: rt, server: srv, url: web.URL, token: "alice-token", client: web.Client()}
	t.Cleanup(func() {
		ctx := eventually.Context(t)
		if err := srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// as is the service for another user.
func (s *service) as(token string) *service {
	other := *s
	other.token = token
	return &other
}

// request sends a request; a body that is not a reader is sent as JSON.
func (s *service) request(method, path string, body any, headers ...string) *http.Response {
	s.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		reader = b
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := session.Encode(b)
		if err != nil {
			s.t.Fatal(err)
		}
		reader = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, reader)
	if err != nil {
		s.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", wire.ContentJSON)
	}
	r.Header.Set("Accept", wire.ContentJSON+", "+wire.ContentEvents) // as our own clients do
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer
}

// call sends a request and decodes the answer, which must have the status.
func call[T any](s *service, status int, method, path string, body any, headers ...string) T {
	s.t.Helper()
	answer := s.request(method, path, body, headers...)
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		s.t.Fatal(err)
	}
	if answer.StatusCode != status {
		s.t.Fatalf("%s %s is %d, not %d: %s", method, path, answer.StatusCode, status, raw)
	}
	if got := answer.Header.Get(wire.HeaderVersion); got != wire.ProtocolVersion {
		s.t.Errorf("%s %s has %s %q", method, path, wire.HeaderVersion, got)
	}
	var out T
	if err := json.Unmarshal(raw, &out); err != nil {
		s.t.Fatalf("%s %s: %v: %s", method, path, err, raw)
	}
	return out
}

// refused expects an error.
func (s *service) refused(status int, code session.Code, method, path string, body any, headers ...string) wire.Error {
	s.t.Helper()
	out := call[wire.Error](s, status, method, path, body, headers...)
	if out.Code != code || out.Message == "" {
		s.t.Errorf("%s %s: the error is %+v, not %s with a message", method, path, out, code)
	}
	return out
}

// start begins a turn and waits for its end.
func (s *service) start(in wire.Start) wire.Started {
	s.t.Helper()
	started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", in)
	s.settle(started.SessionID)
	return started
}

// settle reads the session's stream until its end.
func (s *service) settle(id string) []event {
	s.t.Helper()
	return s.read("/sse?sessionId=" + id)
}

// read reads a stream to the end of its body.
func (s *service) read(path string, headers ...string) []event {
	s.t.Helper()
	answer := s.request(http.MethodGet, path, nil, headers...)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s is %d: %s", path, answer.StatusCode, raw)
	}
	events, rest := parseEvents(raw)
	if len(rest) > 0 {
		s.t.Fatalf("GET %s ends in the middle of an event: %q", path, rest)
	}
	return events
}

// event is a server-sent event.
type event struct{ kind, id, data string }

// parseEvents reads the events that are complete and gives back the rest.
func parseEvents(raw []byte) (events []event, rest []byte) {
	for {
		block, after, found := bytes.Cut(raw, []byte("\n\n"))
		if !found {
			return events, raw
		}
		raw = after
		var e event
		for line := range strings.SplitSeq(string(block), "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "event":
				e.kind = value
			case "id":
				e.id = value
			case "data":
				e.data += value
			}
		}
		if e != (event{}) {
			events = append(events, e)
		}
	}
}

// echo is an agent that says what it was told.
func echo() *helix.Agent {
	return &helix.Agent{Name: "echo", Model: speaker(func(request *llm.Request) scripted.Step {
		return scripted.Text("You said: " + lastText(request))
	})}
}

func decodeAs[T any](t testing.TB, raw string) T {
	t.Helper()
	var out T
	if err := json.Unmarshal([]byte(raw), &out); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return out
}
