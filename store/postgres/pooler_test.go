package postgres_test

import (
	"testing"

	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/store/postgres"
	"github.com/helixagents/helix/store/storetest"
)

// TestPooler runs the store suite behind a real PgBouncer in transaction mode,
// with fewer server connections than clients: what needs the state of a connection or
// waits for one, and a share of the rest, whose statements TestBackend runs.
func TestPooler(t *testing.T) {
	t.Parallel()
	pooler := testserver.StartPgBouncer(t, postgres.DatabaseForTest(t), "pool_mode=transaction", "default_pool_size=4")
	storetest.RunShare(t, 8, func(t testing.TB) storetest.Harness {
		return openConfig(t, postgres.Config{URL: pooler.URL(), Pooler: true})
	}, "together", "opening", "closing", "ready", "locks", "leases", "signals")
}
