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

// TestTurns runs the suites of turns in memory and on SQLite, each with another share of the
// points, which is a different one for each commit. Memory, which is fast, takes an eighth of the
// points of short turns; SQLite takes a few turns and a few of their points. In a long run
// each takes all of them. Servers are in internal/onservers.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, kind := range testbackend.Embedded() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			part := enginetest.Part{At: testshare.Part(t, 4*64), Of: 64}
			if kind.Name != "memory" {
				part = enginetest.Part{At: testshare.Part(t, 4*8*160), Of: 160, Acts: 8}
			}
			part.Run(t, func(t *testing.T) store.Backend { return kind.Open(t) })
		})
	}
}
