package client_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }

const token = "alice-secret-token"

// service is a server with what is behind it, and a client of it.
type service struct {
	*client.Client
	t       testing.TB
	db      store.Backend
	runtime *local.Runtime
	agents  []*helix.Agent
	server  *server.Server
	url     string
	http    *http.Client
	handler http.Handler
	// between stands between client and server; it may be exchanged.
	between atomic.Pointer[http.HandlerFunc]
}

// serve starts a server and a client of it, below a path.
func serve(t testing.TB, change func(*client.Config), agents ...*helix.Agent) *service {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	db := memory.New(memory.Config{})
	rt, err := local.New(local.Config{Backend: db, Agents: agents, Logger: quiet, RetryBackoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, db: db, runtime: rt, agents: agents}
	s.server = s.another()
	s.handler = http.StripPrefix("/api", s.server)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if between := s.between.Load(); between != nil {
			(*between)(w, r)
		} else {
			s.handler.ServeHTTP(w, r)
		}
	}))
	s.url, s.http = web.URL+"/api", web.Client()
	t.Cleanup(func() {
		ctx := eventually.Context(t)
		if err := s.server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Client = s.open(t, change)
	return s
}

// another is another server before the same runtime.
func (s *service) another() *server.Server {
	s.t.Helper()
	authenticate, err := server.Tokens(server.Token{Token: token, Identity: server.Identity{User: "alice"}})
	if err != nil {
		s.t.Fatal(err)
	}
	srv, err := server.New(server.Config{
		RateLimit: server.RateLimit{PerSecond: -1},
		Executor:  s.runtime, Backend: s.db, Agents: func() []*helix.Agent { return s.agents }, Authenticate: authenticate,
		Logger: slog.New(slog.DiscardHandler), KeepAlive: 20 * time.Millisecond,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return srv
}

// open is another client of the server.
func (s *service) open(t testing.TB, change func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{URL: s.url, Token: token, HTTP: s.http, Backoff: time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// through puts a handler between client and server.
func (s *service) through(h http.HandlerFunc) { s.between.Store(&h) }

// all reads a stream to its end.
func all(t testing.TB, c *client.Client, id string, from int64) []stream.Item {
	t.Helper()
	ctx := eventually.Context(t)
	var out []stream.Item
	for item, err := range c.Read(ctx, id, from) {
		if err != nil {
			t.Fatalf("after %d items: %v", len(out), err)
		}
		out = append(out, item)
	}
	if len(out) == 0 || !out[len(out)-1].Terminal() {
		t.Fatalf("the reading of %d items has no end", len(out))
	}
	return out
}

// speaker is a model whose reply is computed from what was said.
type speaker func(request *llm.Request) scripted.Step

func (s speaker) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	return scripted.New(s(request)).Generate(ctx, request, emit)
}

// echo is an agent that says what it was told, a letter at a time.
func echo() *helix.Agent {
	return &helix.Agent{Name: "echo", Model: speaker(func(request *llm.Request) scripted.Step {
		last := request.Messages[len(request.Messages)-1]
		if strings.Contains(last.Content(), "fail") {
			return scripted.Fail(session.CodeBadRequest, false, "it cannot be said")
		}
		return scripted.Text("You said: " + last.Content()).WithPieceSize(1)
	})}
}

// asker is an agent that asks its user and has something approved.
func asker() *helix.Agent {
	return &helix.Agent{
		Name: "asker", Description: "Asks.",
		Model: speaker(func(request *llm.Request) scripted.Step {
			if request.Messages[len(request.Messages)-1].Role == session.RoleTool {
				return scripted.Text("Thanks.")
			}
			return scripted.Reply(scripted.Calling("ask", map[string]string{"question": "why?"}), scripted.Calling("pay", map[string]string{}))
		}),
		Tools: []helix.Tool{
			{Name: "ask", Description: "Asks.", Execute: helix.OnClient[map[string]string]()},
			{
				Name: "pay", Description: "Pays.", Approval: helix.RequireApproval,
				Execute: helix.Func(func(context.Context, *helix.Call, map[string]string) (string, error) { return "paid", nil }),
			},
		},
	}
}
