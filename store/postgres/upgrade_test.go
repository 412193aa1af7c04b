package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// downgrade takes back what the migrations after the first have added, so that the
// schema is as the first version of the program has left it.
var downgrade = []string{
	`DROP INDEX helix.sessions_running`,
	`ALTER TABLE helix.streams DROP COLUMN bytes`,
	`DELETE FROM helix.migrations WHERE number > 1`,
}

// oldAppend is what the first version of the program does to add a batch of one chunk.
var oldAppend = []string{
	`UPDATE helix.streams SET revision = revision + 1, last_sequence = last_sequence + 1, writer_next = writer_next + 1 WHERE stream_id = 'a'`,
	`INSERT INTO helix.stream_batches (stream, last_sequence, first_sequence, producer, epoch, next, run_id, last_step, at, pieces, body)
SELECT number, last_sequence, last_sequence, 'a', writer_epoch, writer_next, 'run-1', 1, now(), NULL,
       '{"v":1,"type":"text_delta","agentId":"a","agentType":"a","stepId":1,"runId":"run-1","delta":"y"}' FROM helix.streams WHERE stream_id = 'a'`,
}

// TestUpgrade opens a schema of the first version whose session is running, and lets
// that version append to its stream beside this one.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	before := openTest(t)
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
		if _, err := b.Streams().Append(ctx, "a", stream.Batch{Producer: by, First: first, Chunks: []stream.Chunk{chunk}}); err != nil {
			t.Fatal(err)
		}
	}
	add(before, 1)
	for _, query := range downgrade {
		ExecForTest(t, before.sql(query))
	}

	b := openTest(t, func(c *Config) { c.Schema = before.config.Schema })
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
	for _, query := range oldAppend {
		ExecForTest(t, b.sql(query))
	}
	bytes(1000, 1500)
	add(b, 4)
	bytes(2000, 3000)
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
