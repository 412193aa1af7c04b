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

// TestTurns runs the suites of turns on every server, on each with a few other turns and a
// few of their points; another commit takes others. The cluster, whose slots a turn does not
// see, takes none. In a long run each takes all of them.
func TestTurns(t *testing.T) {
	t.Parallel()
	for i, kind := range testbackend.Servers() {
		if kind.Name == "cluster" && !testshare.Soak() {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			part := enginetest.Part{At: testshare.Part(t, 4*4*160) + i, Of: 160, Acts: 4}
			part.Run(t, func(t *testing.T) store.Backend { return kind.Open(t) })
		})
	}
}
