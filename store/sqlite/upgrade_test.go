package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/lite"
	"github.com/helixagents/helix/store/internal/migrate"
	"github.com/helixagents/helix/stream"
)

// oldAppend is the statement of the first version that adds a batch of one chunk.
const oldAppend = `
INSERT INTO stream_batches (key, last_sequence, producer, epoch, next, run_id, last_step, at, pieces, body)
SELECT (number << 32) + ?2, ?2, 'a', ?3, ?2 + 1, 'run-1', 1, 0, NULL, ?1 FROM streams WHERE stream_id = 'a'`

// oldPending is the statement of the first version that adds a call that waits.
const oldPending = `
INSERT INTO pending (state, deadline, message_id, doc, input, result, late, tenant, session_id, call_id)
SELECT state, deadline, message_id, doc, input, result, late, tenant, session_id, 'p2' FROM pending WHERE call_id = 'p1'`

// TestUpgrade opens a file of the first version whose session is running, and lets
// that version append to its stream at the same time as this one.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	ctx, current := t.Context(), filepath.Join(t.TempDir(), "current.db")
	before, err := Open(current)
	if err != nil {
		t.Fatal(err)
	}
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
		err := b.write(ctx, "script", func(t *lite.Tx) error {
			for _, query := range queries {
				if _, err := t.Exec(query, args...); err != nil {
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
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	path := downgrade(t, current)

	b := openPath(t, path)
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
	waits := func(when string, want ...string) {
		t.Helper()
		for _, userID := range []string{"ann", ""} {
			page, err := b.Sessions().Waiting(ctx, session.WaitingQuery{UserID: userID})
			var got []string
			for _, item := range page.Items {
				got = append(got, item.Call.CallID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: the calls that wait for %q are %q, %v", when, userID, got, err)
			}
		}
	}
	waits("existing rows", "p1")
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
	other := openPath(t, path) // the older program
	chunk := []byte(`{"v":1,"type":"text_delta","agentId":"a","agentType":"a","stepId":1,"runId":"run-1","delta":"y"}`)
	script(other, []string{"UPDATE sessions SET run_status = 'suspended_client_tool' WHERE id = 'a'"})
	is("what an older program wrote", session.ActivityWaiting)
	script(other, []string{oldPending})
	waits("what an older program wrote", "p1", "p1") // a copy, except for its key
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

// downgrade returns the path of a file as the first version of the program would have written it, with the rows of the file
// at current: it has the first migration only, and of each row what has a column there.
func downgrade(t *testing.T, current string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "helix.db")
	steps, err := lite.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	c, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}()
	err = lite.Migrate(c, steps[:1], true, func(step migrate.Step) error { return apply(c, step, time.Now()) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec("ATTACH ? AS current", current); err != nil {
		t.Fatal(err)
	}
	const columns = `
SELECT t.name, group_concat(c.name, ', ') FROM main.sqlite_schema t, pragma_table_info(t.name, 'main') c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite!_%' ESCAPE '!' AND t.name <> 'helix_migrations' GROUP BY t.name`
	copies := map[string]string{}
	for r, err := range c.Query(columns) {
		if err != nil {
			t.Fatal(err)
		}
		name, list := r.Text(), r.Text()
		copies[name] = fmt.Sprintf("INSERT INTO main.%s (%s) SELECT %s FROM current.%s", name, list, list, name)
	}
	for name, query := range copies {
		if _, err := c.Exec(query); err != nil {
			t.Fatalf("a program of the first version cannot use the table %s any more, because a migration has removed a part of it; migrations only add: %v", name, err)
		}
	}
	return path
}

// TestFirstBlob requires that programs from before blobs may use a file until the first
// blob is put, and no longer, whether they have it open or open it.
func TestFirstBlob(t *testing.T) {
	t.Parallel()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "helix.db")
	b, old := openPath(t, path), openPath(t, path)
	steps, err := lite.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	first := 1 + slices.IndexFunc(steps, func(step migrate.Step) bool { return strings.HasSuffix(step.Name, "_blobs") })
	old.guard = migrate.NewGuard(first - 1)
	old.writer.guard, old.readers.guard = old.guard, old.guard
	create := func(b *Backend, id string) error {
		return session.Create(ctx, b.Sessions(), &session.State{ID: id, Agent: "a", Status: session.Active, StreamID: id})
	}
	readable := func(want int) {
		t.Helper()
		err := b.write(ctx, "read", func(tx *lite.Tx) error {
			r, err := tx.One("SELECT max(readable_from) FROM helix_migrations")
			if got := r.Int(); got != want {
				t.Errorf("the file is readable from %d, want %d", got, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := create(b, "a"); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Blobs().Sweep(ctx, 0, 10); n != 0 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if _, err := b.Blobs().Put(ctx, &blob.Put{SessionID: "none", Data: []byte("x")}); err == nil {
		t.Error("a session that does not exist has got a blob")
	}
	readable(1)
	if err := create(old, "b"); err != nil {
		t.Errorf("an old program before the first blob: %v", err)
	}
	for i, data := range []string{"one", "two"} {
		if _, err := b.Blobs().Put(ctx, &blob.Put{SessionID: "a", Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
		readable(first)
		if err := create(old, fmt.Sprint("c", i)); err == nil || !strings.Contains(err.Error(), "must be updated") {
			t.Errorf("an old program after the first blob: %v", err)
		}
		if err := create(b, fmt.Sprint("d", i)); err != nil {
			t.Errorf("this program after the first blob: %v", err)
		}
	}
}
