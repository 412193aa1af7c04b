package store_test

import (
	"testing"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/stream"
)

// TestSnapshotOfStreamThatLostItsEnd requires that the snapshot of a running
// session names a sequence from which its stream can be read, even if streams are
// stored separately and were restored to an earlier state.
func TestSnapshotOfStreamThatLostItsEnd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := memory.New(memory.Config{})
	defer func() { _ = db.Close() }()
	started, err := db.Sessions().StartRun(ctx, &session.StartRun{
		SessionID: "a", Create: &session.State{ID: "a", Agent: "tester", Status: session.Active, StreamID: "a"},
		Run: session.Run{ID: "run-1", Kind: session.RunExecute}, Owner: "me", TTL: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	by := stream.Producer{Session: "a", Epoch: started.Lease.Epoch, RunID: "run-1"}
	if _, err := db.Streams().Reactivate(ctx, "a", by); err != nil {
		t.Fatal(err)
	}
	chunk := stream.Chunk{Kind: stream.TextDelta, AgentID: "a", AgentType: "tester", RunID: "run-1", Step: 1, Delta: "x"}
	if _, err := db.Streams().Append(ctx, "a", stream.Batch{Producer: by, First: 1, Chunks: []stream.Chunk{chunk, chunk}}); err != nil {
		t.Fatal(err)
	}
	_, err = db.Sessions().Commit(ctx, &session.Commit{
		SessionID: "a", RunID: "run-1", Version: started.Version, Fence: started.Lease.Fence(), Key: "run-1/1",
		Change: session.Change{Checkpoint: &session.NewCheckpoint{ID: "cp-1", Step: 1, StreamSequence: 10}},
	})
	if err != nil {
		t.Fatal(err)
	}
	shot, err := store.TakeSnapshot(ctx, db.Sessions(), db.Streams(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if shot.Sequence != 2 {
		t.Errorf("the snapshot is at sequence %d of a stream that ends at 2", shot.Sequence)
	}
}
