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

func onBackends(t *testing.T, test func(*testing.T, enginetest.Open)) {
	t.Parallel()
	for _, kind := range testbackend.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			test(t, func(t *testing.T) store.Backend { return kind.Open(t) })
		})
	}
}

func TestCrashPoints(t *testing.T) { onBackends(t, enginetest.CrashPoints) }
func TestRedelivery(t *testing.T)  { onBackends(t, enginetest.Redelivery) }
func TestWriteCounts(t *testing.T) { onBackends(t, enginetest.WriteCounts) }
func TestUnavailable(t *testing.T) { onBackends(t, enginetest.Unavailable) }
