package redis_test

import (
	"testing"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/storetest"
)

// TestServerClock runs the cases of the store suite that look at the clock with the
// server's, for which they have to wait.
func TestServerClock(t *testing.T) {
	t.Parallel()
	url := single(t)
	storetest.RunClock(t, func(t testing.TB) storetest.Harness {
		prefix := newPrefix()
		connect := func(t testing.TB) store.Backend { return open(t, redis.Config{URL: url, Prefix: prefix}) }
		return storetest.Harness{Backend: connect(t), Reopen: connect, Persistent: true}
	})
}
