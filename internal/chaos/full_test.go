package chaos

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/sqlite"
)

// TestFullSQLite fills a database file under running sessions. They are told so
// and stop where they are; once there is room the next process finishes them.
func TestFullSQLite(t *testing.T) {
	sessions := 10
	if soak() {
		sessions = 100
	}
	path := filepath.Join(t.TempDir(), "helix.db")
	const steps = 20
	o := openOffice(t, sessions, steps, func() (store.Backend, error) {
		return sqlite.OpenConfig(sqlite.Config{Path: path, MaxSize: int64(sessions*steps) * 3000})
	})
	o.work(func(ctx context.Context, done func() float64) bool {
		return until(ctx, func() float64 { return float64(len(o.log.find("is full"))) }, 10)
	})
	if shown := o.log.find("is full"); len(shown) > 0 {
		_, text, _ := strings.Cut(shown[0], "error=")
		t.Logf("after %.0f %% of the work: %s", 100*float64(o.asked.Load())/float64(sessions*(steps+1)), text)
	} else {
		t.Fatal("the file did not fill up: the test proves nothing")
	}
	for i, db := range o.backends {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		roomy, err := sqlite.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = roomy.Close() })
		o.backends[i] = roomy
	}
	o.work(func(context.Context, func() float64) bool { return false })
	t.Logf("all are done; %d payments were cut off", o.verify(o.backends[0]))
}
