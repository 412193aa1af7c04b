package engine_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/engine/enginetest"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }

type suite func(*testing.T, enginetest.Open)

// onServers runs a suite on every server, on each with a few other turns and a few of their
// points; another commit takes others. The cluster, whose slots a turn does not see, takes
// none. In a long run each takes all of them.
func onServers(t *testing.T, of func(enginetest.Part) suite) {
	t.Parallel()
	for i, kind := range testbackend.Servers() {
		if kind.Name == "cluster" && !testshare.Soak() {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			part := enginetest.Part{At: testshare.Part(t, 4*4*80) + i, Of: 80, Acts: 4}
			of(part)(t, func(t *testing.T) store.Backend { return kind.Open(t) })
		})
	}
}

func TestCrashPoints(t *testing.T) {
	onServers(t, func(p enginetest.Part) suite { return p.CrashPoints })
}

func TestUnavailable(t *testing.T) {
	onServers(t, func(p enginetest.Part) suite { return p.Unavailable })
}

func TestRedelivery(t *testing.T) {
	onServers(t, func(p enginetest.Part) suite { return p.Redelivery })
}

func TestWriteCounts(t *testing.T) {
	onServers(t, func(enginetest.Part) suite { return enginetest.WriteCounts })
}

func TestStablePrefix(t *testing.T) {
	onServers(t, func(enginetest.Part) suite { return enginetest.StablePrefix })
}

func TestSeveralBlobs(t *testing.T) {
	onServers(t, func(enginetest.Part) suite { return enginetest.SeveralBlobs })
}

func TestCallOrder(t *testing.T) {
	onServers(t, func(enginetest.Part) suite { return enginetest.CallOrder })
}

func TestInputReads(t *testing.T) {
	onServers(t, func(enginetest.Part) suite { return enginetest.InputReads })
}
