package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// downgrade takes back what the migrations after the first have added, so that a file
// is as the first version of the program has left it.
var downgrade = []string{
	"DROP INDEX sessions_running",
	"ALTER TABLE stream_batches DROP COLUMN total_bytes",
	"ALTER TABLE streams DROP COLUMN trimmed_bytes",
	"DELETE FROM helix_migrations WHERE number > 1",
}

// oldAppend is how the first version of the program adds a batch of one chunk.
const oldAppend = `
INSERT INTO stream_batches (key, last_sequence, producer, epoch, next, run_id, last_step, at, pieces, body)
SELECT (number << 32) + ?2, ?2, 'a', ?3, ?2 + 1, 'run-1', 1, 0, NULL, ?1 FROM streams WHERE stream_id = 'a'`

// TestUpgrade opens a file of the first version whose session is running, and lets
// that version append to its stream beside this one.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "helix.db")
	before, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	started, err := before.Sessions().StartRun(ctx, &session.StartRun{
		SessionID: "a", Create: &session.State{ID: "a", Agent: "a", Status: session.Active, UserID: "ann", StreamID: "a"},
		Run: session.Run{ID: "run-1"}, Owner: "me", TTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	by := stream.Producer{Session: "a", Epoch: started.Lease.Epoch, RunID: "run-1"}
	if _, err := before.Streams().Reactivate(ctx, "a", by); err != nil {
		t.Fatal(err)
	}
	add := func(b *Backend, first int64) {
		t.Helper()
		chunk := stream.Chunk{Kind: stream.TextDelta, AgentID: "a", AgentType: "a", RunID: "run-1", Step: 1, Delta: strings.Repeat("x", 1000)}
		out, err := b.Streams().Append(ctx, "a", stream.Batch{Producer: by, First: first, Chunks: []stream.Chunk{chunk}})
		if err == nil {
			_, err = out.Wait(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	script := func(b *Backend, queries []string, args ...any) {
		t.Helper()
		err := b.write(ctx, "script", func(t *tx) error {
			for _, query := range queries {
				if _, err := t.exec(query, args...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(before, 1)
	script(before, downgrade)
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}

	b := openPath(t, path)
	page, err := b.Sessions().List(ctx, session.Query{Running: true, UserID: "ann"})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("%d running sessions are listed, %v", len(page.Items), err)
	}
	bytes := func(least, most int64) {
		t.Helper()
		info, err := b.Streams().Info(ctx, "a")
		if err != nil || info.Bytes < least || info.Bytes > most {
			t.Errorf("the stream holds %+v, %v; want %d to %d bytes", info, err, least, most)
		}
	}
	bytes(0, 0) // what was there was not counted
	add(b, 2)
	bytes(1000, 1500)
	other := openPath(t, path) // the older program
	chunk := []byte(`{"v":1,"type":"text_delta","agentId":"a","agentType":"a","stepId":1,"runId":"run-1","delta":"y"}`)
	script(other, []string{oldAppend}, chunk, 3, by.Epoch)
	bytes(0, 1500)
	add(b, 4)
	bytes(1000, 3000)
	if floor, err := b.Streams().Trim(ctx, "a", stream.TrimPolicy{Through: 3}); err != nil || floor != 3 {
		t.Errorf("the floor is %d, %v", floor, err)
	}
	bytes(0, 1500)
	add(b, 5)
	bytes(1000, 3000)
	if items, err := b.Streams().Chunks(ctx, "a", 3, 10); err != nil || len(items) != 2 {
		t.Errorf("the stream has %d chunks, %v", len(items), err)
	}
}
