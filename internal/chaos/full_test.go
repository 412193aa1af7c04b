package chaos

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/sqlite"
)

// TestFullSQLite fills a database file under running sessions. They are told so
// and stop where they are; once there is room the next process finishes them.
func TestFullSQLite(t *testing.T) {
	t.Parallel()
	sessions := 10
	if testshare.Soak() {
		sessions = 100
	}
	path := filepath.Join(t.TempDir(), "helix.db")
	const steps = 12
	o := openOffice(t, sessions, steps, func() (store.Backend, error) {
		return sqlite.OpenConfig(sqlite.Config{Path: path, Synchronous: "OFF", MaxSize: int64(sessions*steps) * 3000})
	})
	o.work(func(ctx context.Context, done func() float64) bool {
		return until(ctx, func() float64 { return float64(len(o.log.find("effect.", "is full"))) }, 10)
	})
	shown := o.log.find("effect.", "is full")
	if len(shown) == 0 {
		t.Fatal("no process noticed that the file is full")
	}
	_, text, _ := strings.Cut(shown[0], "error=")
	t.Logf("after %.0f %% of the work: %s", 100*float64(o.asked.Load())/float64(sessions*(steps+1)), text)
	for i, db := range o.backends {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		roomy, err := opener("sqlite:" + path)()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = roomy.Close() })
		o.backends[i] = roomy
	}
	endLeases(t, o.backends[0])
	o.work(nothing)
	t.Logf("all are done; %d payments were cut off", o.verify(o.backends[0]))
}

// TestFullRedis lets a Redis run out of memory under running sessions, and gives
// it more while they wait.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	sessions, steps := 10, 12
	if testshare.Soak() {
		sessions, steps = 50, 40
	}
	server := testserver.StartRedis(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	o := openOffice(t, sessions, steps, opener(server.URL()))
	used := func() int64 {
		info, err := client.InfoMap(t.Context(), "memory").Result()
		if err != nil {
			t.Error(err)
		}
		n, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	limit := func(bytes int64) {
		if err := client.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(bytes, 10)).Err(); err != nil {
			t.Error(err)
		}
	}
	o.work(func(ctx context.Context, done func() float64) bool {
		if until(ctx, done, 0.3) {
			limit(used())
			until(ctx, func() float64 { return float64(len(o.log.find("effect.", "maxmemory"))) }, 10)
			limit(0)
		}
		return false
	})
	said := o.log.find("effect.", "maxmemory")
	if len(said) == 0 {
		t.Fatal("no process noticed that the memory is full")
	}
	_, text, _ := strings.Cut(said[0], "error=")
	t.Logf("the log said: %s", text)
	t.Logf("all are done; %d payments were cut off", o.verify(o.backends[0]))
}
