package chaos

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/sqlite"
)

// TestClockJumps has two processes disagree about the time, by hours, and change
// their minds. On SQLite a process's clock is the store's: leases seem to have
// expired, or to last forever. No session changes hands because of that. (On
// Postgres and Redis leases run on the server's clock.)
func TestClockJumps(t *testing.T) {
	t.Parallel()
	sessions, jumps := 10, 6
	if testshare.Soak() {
		sessions, jumps = 50, 40
	}
	synctest.Test(t, func(t *testing.T) { testClockJumps(t, sessions, jumps) })
}

func testClockJumps(t *testing.T, sessions, jumps int) {
	path := filepath.Join(t.TempDir(), "helix.db")
	var offsets [2]atomic.Int64
	opened := 0
	o := openOffice(t, sessions, 20, func() (store.Backend, error) {
		offset := &offsets[opened]
		opened++
		return sqlite.OpenConfig(sqlite.Config{
			Path: path, Synchronous: "OFF", Clock: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) },
		})
	})
	o.sweep = 5 * time.Millisecond // so that somebody looks for orphans after every jump
	o.work(func(ctx context.Context, done func() float64) bool {
		for i := range jumps {
			if !until(ctx, done, done()+1/float64(jumps+1)) {
				return false
			}
			offsets[i%2].Store(int64((rand.N(4*time.Hour) - 2*time.Hour)))
		}
		// A lease that was taken in the future would last until then.
		offsets[0].Store(int64(3 * time.Hour))
		offsets[1].Store(int64(3 * time.Hour))
		return false
	})
	unknown := o.verify(o.backends[0])
	if lost := len(o.log.find("turn.lost")); lost > 0 || unknown > 0 {
		t.Errorf("%d sessions changed hands %d times; %d payments were cut off", sessions, lost, unknown)
	}
}
