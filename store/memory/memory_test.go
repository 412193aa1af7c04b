package memory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/storetest"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	storetest.Run(t, open)
}

func BenchmarkBackend(b *testing.B) { storetest.Benchmarks(b, open) }

func open(t testing.TB) storetest.Harness {
	clock := &clock{now: time.Now()}
	backend := memory.New(memory.Config{Clock: clock.Now})
	t.Cleanup(func() { backend.Close() })
	return storetest.Harness{
		Backend: backend,
		Reopen:  func(testing.TB) store.Backend { return backend },
		Advance: clock.Advance,
	}
}

// clock stands still unless it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
