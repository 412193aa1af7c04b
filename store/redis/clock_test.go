package redis_test

import (
	"testing"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/storetest"
)

// The other tests use their own clock; this one uses the server's, and waits.
func TestServerClock(t *testing.T) {
	t.Parallel()
	url := single(t)
	storetest.RunShare(t, 3, func(t testing.TB) storetest.Harness {
		prefix := newPrefix()
		connect := func(t testing.TB) store.Backend { return open(t, redis.Config{URL: url, Prefix: prefix}) }
		return storetest.Harness{Backend: connect(t), Reopen: connect, Persistent: true}
	})
}
