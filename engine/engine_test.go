package engine_test

import (
	"path/filepath"
	"testing"

	"github.com/helixagents/helix/engine/enginetest"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/sqlite"
)

// backends are those that this repository's turns are cut off on.
var backends = map[string]enginetest.Open{
	"memory": func(*testing.T) store.Backend { return memory.New(memory.Config{}) },
	"sqlite": func(t *testing.T) store.Backend {
		db, err := sqlite.Open(filepath.Join(t.TempDir(), "helix.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return db
	},
}

func onBackends(t *testing.T, test func(*testing.T, enginetest.Open)) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
}

func TestCrashPoints(t *testing.T) { onBackends(t, enginetest.CrashPoints) }
func TestRedelivery(t *testing.T)  { onBackends(t, enginetest.Redelivery) }
func TestWriteCounts(t *testing.T) { onBackends(t, enginetest.WriteCounts) }
func TestUnavailable(t *testing.T) { onBackends(t, enginetest.Unavailable) }
