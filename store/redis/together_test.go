package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/stream"
)

// streaming is a run whose stream is open.
func streaming(t *testing.T, b *redis.Backend, id string) *turn {
	t.Helper()
	run := newTurn(t, b.Sessions(), id)
	if _, err := b.Streams().Reactivate(context.Background(), id, run.by()); err != nil {
		t.Fatal(err)
	}
	return run
}

// with returns the next commit of a run together with chunks.
func (r *turn) with(change session.Change, first int64, deltas ...string) *store.Commit {
	batch := stream.Batch{Producer: r.by(), First: first}
	for _, delta := range deltas {
		batch.Chunks = append(batch.Chunks, stream.Chunk{Kind: stream.TextDelta, Delta: delta})
	}
	return &store.Commit{Commit: r.request(change), Stream: r.id, Batch: batch}
}

// changes has one change for each of the scripts that make commits.
func changes() map[string]session.Change {
	return map[string]session.Change{
		"step": {StepCount: new(1)},
		"any":  {Disown: []string{"c"}},
	}
}

// A commit that finds other traces than those of its own chunks is made in two
// steps.
func TestTogetherBehindItsProducer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, redis.Config{URL: single(t), Prefix: newPrefix()})
	for name, change := range changes() {
		run := streaming(t, b, name)
		for first := int64(1); first <= 2; first++ {
			batch := run.with(change, first, "x").Batch
			if _, err := b.Streams().Append(ctx, name, batch); err != nil {
				t.Fatal(err)
			}
		}
		run.commitTogether(b, run.with(change, 1, "x"))
		if info, err := b.Streams().Info(ctx, name); err != nil || info.Last != 2 {
			t.Errorf("%s: the stream is at %+v, %v", name, info, err)
		}
	}
}

func TestTogetherScriptsForgotten(t *testing.T) {
	t.Parallel()
	ctx, address := context.Background(), start(t)
	b := open(t, redis.Config{URL: urlOf(address)})
	for name, change := range changes() {
		run := streaming(t, b, name)
		if err := admin(t, address).ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		run.commitTogether(b, run.with(change, 1, "x"))
		if err := admin(t, address).ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		run.commit(change) // sent without the append
		run.commitTogether(b, run.with(change, 2, "y"))
		items, err := b.Streams().Chunks(ctx, name, 0, 10)
		if err != nil || len(items) != 2 {
			t.Errorf("%s: the stream has %v, %v", name, items, err)
		}
	}
}

// A reader that waits in another process is notified at once.
func TestTogetherWakesReaders(t *testing.T) {
	t.Parallel()
	ctx := eventually.Context(t)
	config := redis.Config{URL: single(t), Prefix: newPrefix(), PollInterval: time.Hour}
	b, other := open(t, config), open(t, config)
	run := streaming(t, b, "a")
	run.commitTogether(b, run.with(session.Change{}, 1, "x"))
	next := int64(2)
	for item, err := range other.Streams().Read(ctx, "a", 0, true) {
		if err != nil {
			t.Fatalf("chunk %d was not read: %v", next-1, err)
		}
		if item.Frame != stream.FrameChunk {
			continue
		}
		if next > 3 {
			break
		}
		run.commitTogether(b, run.with(session.Change{}, next, "y"))
		next++
	}
}

func TestTogetherReplicated(t *testing.T) {
	t.Parallel()
	ctx, primary := context.Background(), start(t)
	config := redis.Config{URL: urlOf(primary), WaitReplicas: 1, WaitTimeout: 20 * time.Millisecond}
	lone := open(t, config)
	run := newTurn(t, open(t, redis.Config{URL: urlOf(primary)}).Sessions(), "a")
	if _, err := lone.Streams().Reactivate(ctx, "a", run.by()); !errors.Is(err, session.ErrUnavailable) {
		t.Fatalf("an answer without a replica: %v", err)
	}
	for range 2 { // the second time it has already been applied
		if _, _, err := lone.Commit(ctx, run.with(session.Change{StepCount: new(1)}, 1, "x")); !errors.Is(err, session.ErrUnavailable) {
			t.Errorf("a commit without a replica: %v", err)
		}
	}
	state, err := lone.Sessions().Load(ctx, "a")
	if err != nil || state.Version != run.version+1 {
		t.Errorf("it has not been applied: %+v, %v", state, err)
	}
}
