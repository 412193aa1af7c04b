package redis

import (
	"context"
	"errors"

	goredis "github.com/redis/go-redis/v9"
)

// format is the number of what this program can read. It grows when keys change in a
// way that programs of before cannot use; whoever makes such a change first notes its
// number where all look.
const format = 1

// Ready implements [store.Backend]. Every node that has a part of the data is asked
// whether it takes writes, which costs it nothing; what is written now and then goes
// to where the indexes are.
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

// accepts asks a server whether it takes writes.
func accepts(ctx context.Context, node goredis.UniversalClient) error {
	err := node.EvalSha(ctx, tryWrite.sha, nil).Err()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		err = node.Eval(ctx, tryWrite.source, nil).Err()
	}
	return err
}

// eachPrimary calls a function for the server, or for each node of a cluster that is
// written to.
func (b *Backend) eachPrimary(ctx context.Context, do func(context.Context, goredis.UniversalClient) error) error {
	if b.cluster == nil {
		return do(ctx, b.client)
	}
	return b.cluster.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error { return do(ctx, node) })
}

// askFormat refuses a store that this program cannot use any more.
func (b *Backend) askFormat(ctx context.Context) error {
	found := b.client.Get(ctx, b.keys.format())
	if err := found.Err(); err != nil && !errors.Is(err, goredis.Nil) {
		return err
	}
	return b.noteFormat(found)
}

// noteFormat takes in which programs can use the store. Where the answer is missing,
// the next one tells.
func (b *Backend) noteFormat(found *goredis.StringCmd) error {
	if from, err := found.Int(); err == nil {
		return b.guard.Note(from)
	}
	return b.guard.Err()
}
