package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

// TestMix runs the suite on two backends, one for sessions and one for streams. The
// tests of store/memory run all of it on one.
func TestMix(t *testing.T) {
	t.Parallel()
	RunShare(t, 4, func(t testing.TB) Harness {
		c := &stillClock{now: time.Now()}
		sessions, streams := memory.New(memory.Config{Clock: c.Now}), memory.New(memory.Config{Clock: c.Now})
		mix := store.Mix{SessionsOf: sessions, StreamsOf: streams, LocksOf: sessions}
		t.Cleanup(func() { mix.Close() })
		return Harness{Backend: mix, Reopen: func(testing.TB) store.Backend { return mix }, Advance: c.Advance}
	}, "streams", "lifecycle", "closing", "together")
}

func BenchmarkMemory(b *testing.B) { Benchmarks(b, openMemory) }

func openMemory(t testing.TB) Harness {
	c := &stillClock{now: time.Now()}
	backend := memory.New(memory.Config{Clock: c.Now})
	t.Cleanup(func() { backend.Close() })
	return Harness{
		Backend: backend,
		Reopen:  func(testing.TB) store.Backend { return backend },
		Advance: c.Advance,
	}
}

// stillClock moves only when it is advanced.
type stillClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *stillClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stillClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
