package redis

import (
	"context"
	"errors"

	goredis "github.com/redis/go-redis/v9"
)

// format is the version of the data that this program can read. It increases when
// keys change in a way that earlier programs cannot use; the program that makes
// such a change first records the version where all programs check it.
const format = 2

// formatBlobs is the first format with blobs, which earlier programs would neither
// clone nor drop. The first blob requires it.
const formatBlobs = 2

// Ready implements [store.Backend]. It asks every node that has a part of the data
// whether it accepts writes, which costs the node nothing; the occasional test
// write goes to the slot of the indexes.
func (b *Backend) Ready(ctx context.Context) error {
	const name = "write the store"
	if err := b.begin(ctx, name); err != nil {
		return err
	}
	if err := b.askFormat(ctx); err != nil {
		return failure(name, err)
	}
	if err := failure(name, b.eachPrimary(ctx, accepts)); err != nil {
		return err
	}
	return b.writes.Check(ctx, func(ctx context.Context) error {
		runs := make([]*run, sweepShards)
		for i := range runs {
			runs[i] = &run{script: tryWrite, keys: []string{b.keys.sweep(i) + "ready"}}
		}
		b.evalSlots(ctx, runs)
		return failure(name, firstError(runs))
	})
}

// accepts asks a server whether it accepts writes.
func accepts(ctx context.Context, node goredis.UniversalClient) error {
	err := node.EvalSha(ctx, tryWrite.sha, nil).Err()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		err = node.Eval(ctx, tryWrite.source, nil).Err()
	}
	return err
}

// eachPrimary calls a function for the server, or for each primary of a cluster.
func (b *Backend) eachPrimary(ctx context.Context, do func(context.Context, goredis.UniversalClient) error) error {
	if b.cluster == nil {
		return do(ctx, b.client)
	}
	return b.cluster.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error { return do(ctx, node) })
}

// askFormat returns an error if this program can no longer use the store.
func (b *Backend) askFormat(ctx context.Context) error {
	found := b.client.Get(ctx, b.keys.format())
	if err := found.Err(); err != nil && !errors.Is(err, goredis.Nil) {
		return err
	}
	return b.noteFormat(found)
}

// requireBlobs keeps programs from the store that do not know blobs.
func (b *Backend) requireBlobs(ctx context.Context, what string) error {
	if b.blobs.Load() {
		return nil
	}
	_, err := b.eval(ctx, raiseFormat, []string{b.keys.format()}, []any{"", b.stamp(), formatBlobs})
	if err == nil {
		b.blobs.Store(true)
	}
	return failure(what, err)
}

// noteFormat records which programs can use the store. If the answer is missing,
// the next one counts.
func (b *Backend) noteFormat(found *goredis.StringCmd) error {
	if from, err := found.Int(); err == nil {
		return b.guard.Note(from)
	}
	return b.guard.Err()
}
