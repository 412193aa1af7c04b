package memory_test

import (
	"testing"

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
	clock := storetest.NewClock()
	backend := memory.New(memory.Config{Clock: clock.Now})
	t.Cleanup(func() { backend.Close() })
	return storetest.Harness{
		Backend: backend,
		Reopen:  func(testing.TB) store.Backend { return backend },
		Advance: clock.Advance,
	}
}
