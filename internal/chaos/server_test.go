package chaos

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/faultproxy"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/sqlite"
)

// kind is a kind of server that a test may do to what it likes.
type kind struct {
	name  string
	start func(tb testing.TB, settings ...string) *testserver.Server
	// whole reports whether a reply has come completely; nil if only the silence after
	// it tells.
	whole func(reply []byte) bool
}

func kinds() []kind {
	return []kind{
		{"postgres", testserver.StartPostgres, readyForQuery},
		{"redis", testserver.StartRedis, nil},
	}
}

// readyForQuery reports whether Postgres has said that it waits for the next query.
func readyForQuery(reply []byte) bool {
	return len(reply) >= 6 && bytes.Equal(reply[len(reply)-6:len(reply)-1], []byte{'Z', 0, 0, 0, 5})
}

// onServers runs a test for one of the two kinds of server, and in a long run for both.
func onServers(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	t.Parallel()
	for i, k := range kinds() {
		if !takesPart(t, i) {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// through is the address of a server behind a proxy.
func through(t *testing.T, s *testserver.Server, p *faultproxy.Proxy) string {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Addr()
	return u.String()
}

// opener opens the backend at an address, for processes that keep their leases. A SQLite file does
// not wait for the disk, because no test simulates a loss of power.
func opener(address string) func() (store.Backend, error) {
	return func() (db store.Backend, err error) {
		if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
			db, err = sqlite.OpenConfig(sqlite.Config{Path: path, Synchronous: "OFF"})
		} else {
			db, err = backend.OpenWithin(eventually.Patience, address, nil)
		}
		if err != nil {
			return nil, err
		}
		return runtimetest.KeepLeases(db), nil
	}
}

// commitKey is the key of an effect that commits, as it goes over the wire.
var commitKey = regexp.MustCompile(`run_[0-9a-z]+/[0-9]+/(commit|model)`)

// TestLostReplies loses the answers of commits that were applied. The key of a
// commit tells that it was: no step is lost, none is done twice, and no call is
// told that its outcome is unknown.
func TestLostReplies(t *testing.T) { onServers(t, testLostReplies) }

func testLostReplies(t *testing.T, k kind) {
	sessions, steps, enough := 5, 6, int64(30)
	if testshare.Soak() {
		sessions, steps, enough = 50, 20, 500
	}
	server := k.start(t)
	proxy := faultproxy.New(t, server.Addr())
	o := openOffice(t, sessions, steps, opener(through(t, server, proxy)))
	commits := 0
	match := func(request []byte) bool {
		if !commitKey.Match(request) {
			return false
		}
		commits++
		return commits%3 == 0
	}
	if k.whole != nil {
		proxy.DropReplyWhen(match, k.whole)
	} else {
		proxy.DropReply(match)
	}
	dropped := func() int64 { return proxy.Counters().Dropped }
	o.work(func(ctx context.Context, _ func() float64) bool {
		until(ctx, func() float64 { return float64(dropped()) }, float64(enough))
		return false
	})
	proxy.Pass()
	if unknown := o.verify(o.backends[0]); unknown > 0 {
		t.Errorf("%d payments were answered as unknown", unknown)
	}
	if dropped() < enough {
		t.Errorf("only %d replies were lost, want %d", dropped(), enough)
	}
	t.Logf("%d replies of commits were lost over %d steps", dropped(), o.asked.Load())
}

// nothing disturbs nobody.
func nothing(context.Context, func() float64) bool { return false }

// TestBadNetwork delays, stalls and cuts connections under running sessions.
func TestBadNetwork(t *testing.T) { onServers(t, testBadNetwork) }

func testBadNetwork(t *testing.T, k kind) {
	sessions, steps, troubles := 8, 12, 8
	if testshare.Soak() {
		sessions, steps, troubles = 60, 60, 200
	}
	server := k.start(t)
	proxy := faultproxy.New(t, server.Addr())
	o := openOffice(t, sessions, steps, opener(through(t, server, proxy)))
	o.work(func(ctx context.Context, _ func() float64) bool {
		for i := range troubles {
			switch i % 4 {
			case 0:
				proxy.Delay(rand.N(20 * time.Millisecond))
			case 1:
				proxy.Reset()
			case 2:
				proxy.Stall()
			case 3:
				proxy.Refuse()
				proxy.Reset()
			}
			wait(ctx, 50*time.Millisecond+rand.N(200*time.Millisecond))
			proxy.Pass()
			if !o.progress(ctx) {
				return false
			}
		}
		return false
	})
	proxy.Pass()
	unknown := o.verify(o.backends[0])
	t.Logf("%d troubles over %d steps; %d payments were cut off", troubles, o.asked.Load(), unknown)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d): // waits: how long a trouble lasts, or the time between two
	}
}

// TestServerKilled kills the server under running sessions and starts it again.
func TestServerKilled(t *testing.T) { onServers(t, testServerKilled) }

func testServerKilled(t *testing.T, k kind) {
	sessions, steps, kills := 20, 6, 1
	if testshare.Soak() {
		sessions, steps, kills = 200, 20, 3
	}
	server := k.start(t)
	o := openOffice(t, sessions, steps, opener(server.URL()))
	o.work(func(ctx context.Context, done func() float64) bool {
		for i := range kills {
			if !until(ctx, done, float64(i+1)/float64(kills+2)) {
				break
			}
			noticed := len(o.log.find("effect.")) // retried or failed
			server.Kill()
			until(ctx, func() float64 { return float64(len(o.log.find("effect.")) - noticed) }, 1)
			wait(ctx, 1500*time.Millisecond) // longer than anybody tries a single write
			server.Start()
		}
		return false
	})
	unknown := o.verify(o.backends[0])
	t.Logf("%d sessions of %d steps; %d payments were cut off", sessions, steps, unknown)
	said := o.log.find("effect.")
	if len(said) == 0 {
		t.Fatal("no process noticed that the server was away")
	}
	_, text, _ := strings.Cut(said[0], "error=")
	t.Logf("the log said: %s", text)
}
