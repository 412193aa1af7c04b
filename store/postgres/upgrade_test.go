package postgres

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/migrate"
	"github.com/helixagents/helix/stream"
)

// downgrade reverts all migrations after the first, so that the schema is as the
// first version of the program would have left it.
var downgrade = []string{
	`DROP TABLE helix.blob_totals, helix.blob_refs, helix.blob_pieces, helix.blobs`,
	`DROP FUNCTION helix.note_blob()`,
	`DROP TABLE helix.tasks`,
	`ALTER TABLE helix.sessions DROP COLUMN run_requires`,
	`DROP INDEX helix.pending_waiting_by_user`,
	`DROP INDEX helix.pending_waiting`,
	`DROP TRIGGER sessions_user ON helix.sessions`,
	`DROP TRIGGER pending_user ON helix.pending`,
	`DROP FUNCTION helix.note_session_user`,
	`DROP FUNCTION helix.note_pending_user`,
	`ALTER TABLE helix.pending DROP COLUMN user_id`,
	`DROP INDEX helix.sessions_by_user_activity`,
	`DROP INDEX helix.sessions_by_activity`,
	`DROP INDEX helix.sessions_running`,
	`ALTER TABLE helix.streams DROP COLUMN bytes`,
	`DELETE FROM helix.migrations WHERE number > 1`,
}

// oldAppend is what the first version of the program does to add a batch of one
// chunk.
var oldAppend = []string{
	`UPDATE helix.streams SET revision = revision + 1, last_sequence = last_sequence + 1, writer_next = writer_next + 1 WHERE stream_id = 'a'`,
	`INSERT INTO helix.stream_batches (stream, last_sequence, first_sequence, producer, epoch, next, run_id, last_step, at, pieces, body)
SELECT number, last_sequence, last_sequence, 'a', writer_epoch, writer_next, 'run-1', 1, now(), NULL,
       '{"v":1,"type":"text_delta","agentId":"a","agentType":"a","stepId":1,"runId":"run-1","delta":"y"}' FROM helix.streams WHERE stream_id = 'a'`,
}

// oldPending is the statement of the first version that adds a call that waits.
const oldPending = `
INSERT INTO helix.pending (session, tenant, session_id, call_id, state, late_noticed, deadline, message_id, created_at, doc, input, result, late)
SELECT session, tenant, session_id, 'p2', state, late_noticed, deadline, message_id, created_at, doc, input, result, late FROM helix.pending`

// TestUpgrade opens a schema of the first version whose session is running, and
// lets that version append to its stream at the same time as this one.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	before := openTest(t)
	started, err := before.Sessions().StartRun(ctx, &session.StartRun{
		SessionID: "a", Create: &session.State{ID: "a", Agent: "a", Status: session.Active, UserID: "ann", StreamID: "a"},
		Run: session.Run{ID: "run-1"}, Owner: "me", TTL: time.Hour,
		Change: session.Change{Pending: []session.Pending{{CallID: "p1", Tool: "ask", Kind: session.PendingClientTool}}},
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
	is := func(when string, activity session.Activity) {
		t.Helper()
		for _, userID := range []string{"ann", ""} {
			page, err := b.Sessions().List(ctx, session.Query{Activity: activity, UserID: userID})
			if err != nil || len(page.Items) != 1 || page.Items[0].Activity != activity {
				t.Errorf("%s: the %s sessions of %q are %+v, %v", when, activity, userID, page.Items, err)
			}
		}
	}
	is("existing rows", session.ActivityRunning)
	waits := func(when string, want int) {
		t.Helper()
		for _, userID := range []string{"ann", ""} {
			page, err := b.Sessions().Waiting(ctx, session.WaitingQuery{UserID: userID})
			if err != nil || len(page.Items) != want {
				t.Errorf("%s: the calls that wait for %q are %+v, %v", when, userID, page.Items, err)
			}
		}
	}
	waits("existing rows", 1)
	bytes := func(least, most int64) {
		t.Helper()
		info, err := b.Streams().Info(ctx, "a")
		if err != nil || info.Bytes < least || info.Bytes > most {
			t.Errorf("the stream is %+v, %v; want %d to %d bytes", info, err, least, most)
		}
	}
	bytes(0, 0) // existing chunks were not counted
	add(b, 2)
	bytes(1000, 1500)
	ExecForTest(t, b.sql(`UPDATE helix.sessions SET run_status = 'suspended_client_tool' WHERE id = 'a'`))
	is("what an older program wrote", session.ActivityWaiting)
	ExecForTest(t, b.sql(oldPending))
	waits("what an older program wrote", 2)
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

// TestFirstBlob requires that programs from before blobs may use a schema until the first
// blob is put, and no longer.
func TestFirstBlob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := openTest(t)
	if err := session.Create(ctx, b.Sessions(), &session.State{ID: "a", Agent: "a", Status: session.Active, StreamID: "a"}); err != nil {
		t.Fatal(err)
	}
	readable := func(want int) {
		t.Helper()
		var got int
		if err := b.pool.QueryRow(ctx, b.sql("SELECT max(readable_from) FROM helix.migrations")).Scan(&got); err != nil || got != want {
			t.Errorf("the schema is readable from %d, want %d: %v", got, want, err)
		}
	}
	readable(1)
	steps, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	first := 1 + slices.IndexFunc(steps, func(step migrate.Step) bool { return strings.HasSuffix(step.Name, "_blobs") })
	for _, data := range []string{"one", "two"} {
		if _, err := b.Blobs().Put(ctx, &blob.Put{SessionID: "a", Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
		readable(first)
	}
}
