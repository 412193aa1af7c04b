package store_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/postgres"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }

// TestMix runs what uses both stores, and a share of the rest of the store suite, on
// sessions in Postgres with streams in Redis. The tests of the two backends cover
// damaged rows and a store that is too new.
func TestMix(t *testing.T) {
	t.Parallel()
	storetest.RunShare(t, 8, func(t testing.TB) storetest.Harness {
		clock := storetest.NewClock()
		const patience = eventually.Patience // the servers answer sooner or later
		name := session.NewID()[4:]          // without its prefix, which is not valid in a schema's name
		connect := func(t testing.TB) store.Backend {
			sessions, err := postgres.OpenConfig(postgres.Config{
				URL: testserver.Postgres(t), Schema: "mix_" + name, MaxConns: 8, Clock: clock.Now, ConnectTimeout: patience,
			})
			if err != nil {
				t.Fatal(err)
			}
			streams, err := redis.OpenConfig(redis.Config{URL: testserver.Redis(t), Prefix: "mix-" + name, Clock: clock.Now, ConnectTimeout: patience})
			if err != nil {
				t.Fatal(err)
			}
			mix := store.Mix{SessionsOf: sessions, StreamsOf: streams, LocksOf: sessions}
			t.Cleanup(func() {
				if err := mix.Close(); err != nil {
					t.Error(err)
				}
			})
			return mix
		}
		return storetest.Harness{Backend: connect(t), Reopen: connect, Persistent: true, Advance: clock.Advance}
	}, "streams", "closing", "together")
}
