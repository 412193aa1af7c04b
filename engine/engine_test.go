package engine_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/engine/enginetest"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }

type suite func(*testing.T, enginetest.Open)

// onBackends runs a suite on every kind of backend. Memory takes all points of short
// turns and a tenth of those of long ones; the others, which are slower, share the
// points out among them, others than memory's where that goes. In a long run each
// takes all of them.
func onBackends(t *testing.T, of func(enginetest.Part) suite) {
	t.Parallel()
	kinds := testbackend.Kinds()
	for i, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			part := enginetest.Part{At: 0, Of: 10}
			if kind.Name != "memory" {
				part = enginetest.Part{At: i, Of: 40 * (len(kinds) - 1)}
			}
			of(part)(t, func(t *testing.T) store.Backend { return kind.Open(t) })
		})
	}
}

func TestCrashPoints(t *testing.T) {
	onBackends(t, func(p enginetest.Part) suite { return p.CrashPoints })
}

func TestUnavailable(t *testing.T) {
	onBackends(t, func(p enginetest.Part) suite { return p.Unavailable })
}

func TestRedelivery(t *testing.T) {
	onBackends(t, func(p enginetest.Part) suite { return p.Redelivery })
}

func TestWriteCounts(t *testing.T) {
	onBackends(t, func(enginetest.Part) suite { return enginetest.WriteCounts })
}

func TestStablePrefix(t *testing.T) {
	onBackends(t, func(enginetest.Part) suite { return enginetest.StablePrefix })
}

func TestSeveralBlobs(t *testing.T) {
	onBackends(t, func(enginetest.Part) suite { return enginetest.SeveralBlobs })
}

func TestCallOrder(t *testing.T) {
	onBackends(t, func(enginetest.Part) suite { return enginetest.CallOrder })
}

func TestInputReads(t *testing.T) {
	onBackends(t, func(enginetest.Part) suite { return enginetest.InputReads })
}
