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

// A marker behind a step belongs to the step. A snapshot that is taken after the marker was
// announced and before it is committed must leave both to the stream.
func TestSnapshotBeforeMarker(t *testing.T) {
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
	reply := session.Message{ID: "m-1", Role: session.RoleAssistant, RunID: "run-1", Step: 1, Parts: []session.Part{session.Text("x")}}
	marker, err := session.Compaction{Kind: session.CompactionSummary}.Marker("a summary")
	if err != nil {
		t.Fatal(err)
	}
	marker.ID, marker.RunID, marker.Step = "m-2", "run-1", 2
	chunk := func(kind stream.Kind, more stream.Chunk) stream.Chunk {
		more.Kind, more.AgentID, more.AgentType, more.RunID, more.Step = kind, "a", "tester", "run-1", 1
		return more
	}
	if _, err := db.Streams().Append(ctx, "a", stream.Batch{Producer: by, First: 1, Chunks: []stream.Chunk{
		chunk(stream.StepStarted, stream.Chunk{MessageID: "m-1"}), chunk(stream.TextDelta, stream.Chunk{Delta: "x"}),
		chunk(stream.InputReceived, stream.Chunk{Messages: []session.Message{marker}, MessageCount: new(1)}),
	}}); err != nil {
		t.Fatal(err)
	}
	version := started.Version
	for i, m := range []session.Message{reply, marker} {
		committed, err := db.Sessions().Commit(ctx, &session.Commit{
			SessionID: "a", RunID: "run-1", Version: version, Fence: started.Lease.Fence(), Key: m.ID,
			Change: session.Change{Messages: []session.Message{m}, Checkpoint: &session.NewCheckpoint{ID: "cp-" + m.ID, Step: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		version = committed.Version
		shot, err := store.TakeSnapshot(ctx, db.Sessions(), db.Streams(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(2 + i); shot.Sequence != want || len(shot.Messages) != 1+i {
			t.Errorf("the snapshot has %d messages and is at sequence %d, want %d", len(shot.Messages), shot.Sequence, want)
		}
	}
}
