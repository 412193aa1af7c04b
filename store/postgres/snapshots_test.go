package postgres

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
)

// TestSnapshots lets a session write much more than the size of its state: what
// has to be read to rebuild the state stays within a few times its size, at every
// checkpoint.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	r := newRunner(t, b, "a")
	value := json.RawMessage(`"` + strings.Repeat("x", 500) + `"`)
	for n := range 300 {
		r.step++
		out, err := r.s.Commit(t.Context(), &session.Commit{
			SessionID: "a", RunID: "run", Key: fmt.Sprint(n), Version: r.version, Fence: r.fence,
			Change: session.Change{
				Writes:     session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: fmt.Sprint("k", n%4), Value: value}}},
				Checkpoint: &session.NewCheckpoint{ID: fmt.Sprint("cp", n), Step: n, Source: session.FromStep},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.version = out.Version
		if n%50 == 49 {
			waitSnapshot(t, b)
		}
	}
	state, err := r.s.Load(t.Context(), "a")
	if err != nil || state.Custom.Len() != 4 {
		t.Fatalf("%d keys, %v", state.Custom.Len(), err)
	}
	for n := 0; n < 300; n += 37 {
		point, err := r.s.Checkpoint(t.Context(), "a", fmt.Sprint("cp", n))
		if err != nil || point.State.Len() != min(n+1, 4) {
			t.Errorf("checkpoint %d: %d keys, %v", n, point.State.Len(), err)
		}
	}
}

// waitSnapshot waits until the writes since the last snapshot do not outweigh it.
func waitSnapshot(t *testing.T, b *Backend) {
	t.Helper()
	eventually.Poll(t, "a snapshot is taken", func() bool {
		var delta, snapshots int64
		err := b.query(t.Context(), "look", func(rows pgx.Rows) error { return rows.Scan(&delta, &snapshots) },
			"SELECT delta_bytes, (SELECT count(*) FROM helix.state_snapshots) FROM helix.sessions WHERE id = 'a'")
		if err != nil {
			t.Fatal(err)
		}
		return delta <= minSnapshot && snapshots > 0
	})
}
