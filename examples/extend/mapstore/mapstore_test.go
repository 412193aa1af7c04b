package mapstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"example.com/extend/mapstore"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBackend(t *testing.T) {
	t.Parallel()
	storetest.Run(t, open)
}

// open declares what the backend can do. Its data does not outlive it (Persistent),
// and it has no rows that could be damaged (Corrupt) or become too new (Outdate), so
// the suite skips the cases about these.
func open(t testing.TB) storetest.Harness {
	clock := storetest.NewClock()
	backend := mapstore.New(mapstore.Config{Clock: clock.Now})
	t.Cleanup(func() { backend.Close() })
	return storetest.Harness{
		Backend: backend,
		Reopen:  func(testing.TB) store.Backend { return backend },
		Advance: clock.Advance,
	}
}
