package postgres

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/migrate"
	"github.com/helixagents/helix/stream"
)

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
	old := downgrade(t, before)

	b := openTest(t, func(c *Config) { c.Schema = old })
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

// downgrade returns the name of a schema as the first version of the program would have left it, with the rows of another:
// it has the first migration only, and of each row what has a column there.
func downgrade(t *testing.T, current *Backend) (schema string) {
	t.Helper()
	schema = SchemaForTest(t)
	steps, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), current.config.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := (&Backend{config: Config{Schema: schema}}).apply(t.Context(), conn, steps[:1]); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), `
SELECT table_name, format('INSERT INTO %1$I.%2$I (%3$s) OVERRIDING SYSTEM VALUE SELECT %3$s FROM %4$I.%2$I',
       table_schema, table_name, string_agg(quote_ident(column_name), ', '), $2::text)
FROM information_schema.columns WHERE table_schema = $1 AND table_name <> 'migrations' GROUP BY table_schema, table_name`, schema, current.config.Schema)
	if err != nil {
		t.Fatal(err)
	}
	copies, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Table, Query string }])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range copies {
		if _, err := conn.Exec(t.Context(), c.Query); err != nil {
			t.Fatalf("a program of the first version cannot use the table %s any more, because a migration has removed a part of it; migrations only add: %v", c.Table, err)
		}
	}
	// The next rows have numbers of their own.
	_, err = conn.Exec(t.Context(), `
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, 1000) FROM pg_sequences WHERE schemaname = $1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	return schema
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
