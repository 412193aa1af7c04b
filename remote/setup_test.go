package remote_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/remote"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/stream"
)

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		os.Exit(serveProcess())
	}
	goleak.VerifyTestMain(testserver.Main(m))
}

const token = "clerk-secret-token"

// runtime is an executor on a backend of its own.
type runtime struct {
	*local.Runtime
	db    store.Backend
	ahead *atomic.Int64 // how far the backend's clock is ahead, as a duration
}

func newRuntime(t testing.TB, agents ...*helix.Agent) *runtime {
	t.Helper()
	ahead := &atomic.Int64{}
	db := memory.New(memory.Config{Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	rt, err := local.New(local.Config{Backend: db, Agents: agents, Sweep: 50 * time.Millisecond, RetryBackoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &runtime{rt, db, ahead}
}

// serve offers agents over HTTP.
func serve(t testing.TB, agents ...*helix.Agent) (rt *runtime, url string) {
	t.Helper()
	rt = newRuntime(t, agents...)
	authenticate, err := server.Tokens(server.Token{Token: token, Identity: server.Identity{User: "boss"}})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(server.Config{
		RateLimit: server.RateLimit{PerSecond: -1},
		Executor:  rt, Backend: rt.db, Agents: func() []*helix.Agent { return agents }, Authenticate: authenticate,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(srv)
	t.Cleanup(func() {
		ctx := eventually.Context(t)
		if err := srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
	})
	return rt, web.URL
}

// number is the input of the tools.
type number struct {
	N int `json:"n"`
}

// clerk is an agent that needs a signature and a colour.
func clerk() *helix.Agent {
	sign := helix.Tool{
		Name: "sign", Description: "sign", Approval: helix.RequireApproval,
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in number) (int, error) { return 2 * in.N, nil }),
	}
	pick := helix.Tool{Name: "pick", Description: "pick", Execute: helix.OnClient[number]()}
	return &helix.Agent{Name: "clerk", Tools: []helix.Tool{sign, pick}, Model: scripted.New(
		scripted.Call("sign", number{3}), scripted.Call("pick", number{1}), scripted.Text("Signed, in blue.")).ByPosition()}
}

// bossOf is an agent that hands one task to another.
func bossOf(sub helix.SubAgent) *helix.Agent {
	return &helix.Agent{Name: "boss", SubAgents: []helix.SubAgent{sub}, Model: scripted.New(
		scripted.Call(helix.SubAgentPrefix+sub.AgentName(), map[string]string{"task": "do it"}), scripted.Text("Thanks.")).ByPosition()}
}

// call has the boss call an agent at an address, and gives what that came to.
func call(t *testing.T, a *remote.Agent) *session.Part {
	t.Helper()
	boss := bossOf(a.SubAgent())
	rt := newRuntime(t, boss)
	run, err := rt.Execute(t.Context(), boss, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := run.Result(t.Context()); err != nil || res.Status != helix.Completed {
		t.Fatalf("the boss's run is %+v, %v", res, err)
	}
	messages, err := rt.db.Sessions().AllMessages(t.Context(), "s-1")
	if err != nil {
		t.Fatal(err)
	}
	return &messages[2].Parts[0]
}

// chunks are all chunks of a stream.
func chunks(t testing.TB, db store.Backend, id string) []stream.Chunk {
	t.Helper()
	items, err := db.Streams().Chunks(t.Context(), id, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]stream.Chunk, len(items))
	for i := range items {
		out[i] = *items[i].Chunk
	}
	return out
}
