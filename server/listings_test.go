package server_test

import (
	"context"
	"errors"
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
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
)

// lister is an extension that lists tools.
type lister struct {
	name  string
	asked atomic.Int32
	list  func(ctx context.Context) []helix.Tool
}

func (l *lister) Name() string { return l.name }

func (*lister) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	return &helix.Attachment{}, nil
}

func (l *lister) ListTools(ctx context.Context) []helix.Tool {
	l.asked.Add(1)
	return l.list(ctx)
}

// Extensions that hang or fail neither hang nor fail the list of agents, are logged once, and
// no extension is asked for every request.
func TestListedTools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tool := func(name string) helix.Tool {
			return helix.Tool{Name: name, Description: name, Execute: helix.Func(func(context.Context, *helix.Call, note) (int, error) { return 0, nil })}
		}
		forever := make(chan struct{})
		t.Cleanup(func() { close(forever) })
		good := &lister{name: "good", list: func(context.Context) []helix.Tool { return []helix.Tool{tool("listed")} }}
		hangs := &lister{name: "hangs", list: func(context.Context) []helix.Tool { <-forever; return nil }}
		panics := &lister{name: "panics", list: func(context.Context) []helix.Tool { panic("no") }}
		twice := &lister{name: "twice", list: func(context.Context) []helix.Tool { return []helix.Tool{tool("same"), tool("same")} }}
		agent := func(name string) *helix.Agent {
			return &helix.Agent{
				Name: name, Model: scripted.New(scripted.Text("Hi.")).ByPosition(), Tools: []helix.Tool{tool("own")},
				Extensions: []helix.Extension{hangs, panics, twice, good},
			}
		}
		var log lines
		s, _ := serveOnPipes(t, inMemory(t), []*helix.Agent{agent("one"), agent("two")}, func(c *server.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		look := func() time.Duration {
			began := time.Now()
			for _, a := range call[wire.Agents](s, http.StatusOK, http.MethodGet, "/agents", nil).Items {
				var names []string
				for _, tool := range a.Tools {
					names = append(names, tool.Name)
				}
				if got := strings.Join(names, " "); got != "own listed" {
					t.Errorf("agent %s has the tools %q", a.Name, got)
				}
			}
			return time.Since(began)
		}
		if took := look(); took != 2*time.Second { // for both that hang together
			t.Errorf("the list of agents took %s", took)
		}
		asked := good.asked.Load()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if took := look(); took != 0 {
					t.Errorf("the list of agents took %s again", took)
				}
			})
		}
		wg.Wait()
		if n := good.asked.Load(); asked != 2 || n != 2 { // one per agent
			t.Errorf("the extension was asked %d times at first, and %d times in all", asked, n)
		}
		if n := hangs.asked.Load(); n != 2 {
			t.Errorf("the extension that hangs was asked %d times", n)
		}
		for _, name := range []string{"hangs", "panics", "twice"} {
			if n := strings.Count(log.String(), "extension="+name); n != 2 {
				t.Errorf("the extension %s was logged %d times", name, n)
			}
		}
	})
}

// What an extension lists is for everybody: it is not told who asks, and agents that are
// built for every request do not have it asked every time. It is told when the server closes.
func TestListedForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		told := make(chan error, 1)
		quick := &lister{name: "quick", list: func(ctx context.Context) []helix.Tool {
			if ctx.Value(key{}) != nil || ctx.Value(http.ServerContextKey) != nil {
				t.Error("the extension is told who asks")
			}
			return nil
		}}
		waits := &lister{name: "waits", list: func(ctx context.Context) []helix.Tool {
			<-ctx.Done()
			told <- ctx.Err()
			return nil
		}}
		build := func() []*helix.Agent {
			return []*helix.Agent{{Name: "one", Model: scripted.New(scripted.Text("Hi.")).ByPosition(), Extensions: []helix.Extension{quick, waits}}}
		}
		s, _ := serveOnPipes(t, inMemory(t), build(), func(c *server.Config) { c.Agents = build })
		ask := func() {
			ctx := context.WithValue(t.Context(), key{}, "alice")
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond) // it need not wait for the answer
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, s.url+"/agents", nil)
			r.Header.Set("Authorization", "Bearer "+s.token)
			s.server.ServeHTTP(httptest.NewRecorder(), r)
		}
		for range 5 {
			ask()
		}
		if q, w := quick.asked.Load(), waits.asked.Load(); w != 1 || q != 1 {
			t.Errorf("the extensions were asked %d and %d times", q, w)
		}
		if err := s.server.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-told; !errors.Is(err, context.Canceled) {
			t.Errorf("when the server closes, the extension is told %v", err)
		}
	})
}
