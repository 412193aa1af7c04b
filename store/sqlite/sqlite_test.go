package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/sqlite"
	"github.com/helixagents/helix/store/storetest"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	storetest.Run(t, open)
}

func BenchmarkBackend(b *testing.B) { storetest.Benchmarks(b, open) }

func open(t testing.TB) storetest.Harness {
	path := filepath.Join(t.TempDir(), "helix.db")
	clock := storetest.NewClock()
	connect := func(t testing.TB) store.Backend {
		b, err := sqlite.OpenConfig(sqlite.Config{Path: path, Clock: clock.Now, PollInterval: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		return b
	}
	return storetest.Harness{
		Backend:    connect(t),
		Reopen:     connect,
		Persistent: true,
		Advance:    clock.Advance,
		Corrupt:    func(t testing.TB, what, tenant, id string) { damage(t, path, damages[what], tenant, id) },
		Outdate:    func(t testing.TB) { sqlite.Outdate(t, path) },
	}
}

// damages make the row that was written last undecodable.
var damages = map[string]string{
	storetest.RowSession: `
UPDATE session_docs SET doc = x'7b'
WHERE session = (SELECT number FROM sessions WHERE tenant = ? AND id = ?)`,
	storetest.RowMessage: `
UPDATE messages SET body = x'7b'
WHERE key = (SELECT max(m.key) FROM messages m JOIN sessions s ON m.key >> 32 = s.number WHERE s.tenant = ? AND s.id = ?)`,
	storetest.RowRun: `
UPDATE runs SET doc = x'7b'
WHERE key = (SELECT max(r.key) FROM runs r JOIN sessions s ON r.key >> 32 = s.number WHERE s.tenant = ? AND s.id = ?)`,
	storetest.RowCheckpoint: `
UPDATE checkpoints SET status = '{'
WHERE (session, checkpoint_id) = (SELECT number, checkpoint_id FROM sessions WHERE tenant = ? AND id = ?)`,
	storetest.RowCall: `
UPDATE calls SET doc = x'7b'
WHERE session = (SELECT number FROM sessions WHERE tenant = ? AND id = ?)
  AND call_id = (SELECT c.call_id FROM calls c WHERE c.session = calls.session ORDER BY c.position DESC)`,
	storetest.RowPending: `
UPDATE pending SET doc = x'7b'
WHERE number = (SELECT max(number) FROM pending WHERE tenant = ? AND session_id = ?)`,
	storetest.RowChild: `
UPDATE children SET doc = x'7b'
WHERE number = (SELECT max(number) FROM children WHERE tenant = ? AND session_id = ?)`,
	storetest.RowBlob: `
UPDATE blob_pieces SET body = x'7b'
WHERE number = 1 AND blob = (SELECT r.blob FROM blob_refs r JOIN sessions s ON s.number = r.session WHERE s.tenant = ? AND s.id = ?)`,
	storetest.RowChunk: `
UPDATE stream_batches SET body = x'7b'
WHERE key = (SELECT max(b.key) FROM stream_batches b JOIN streams s ON b.key >> 32 = s.number WHERE s.tenant = ? AND s.stream_id = ?)`,
}

func damage(t testing.TB, path, query, tenant, id string) {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	result, err := db.Exec(query, tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := result.RowsAffected(); n != 1 {
		t.Fatalf("%d rows were damaged", n)
	}
}
