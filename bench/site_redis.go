package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/redis"
)

// openRedis opens a site on a server, with a prefix for the backend's keys and
// another for the floor's.
func openRedis(ctx context.Context, url string) (*site, error) {
	name := fmt.Sprintf("bench-%016x", rand.Uint64())
	ours, floors := name, name+"-floor"
	floor, err := newRedisFloor(ctx, url, floors)
	if err != nil {
		return nil, err
	}
	db, err := reopenRedis(url, ours)
	if err != nil {
		return nil, errors.Join(err, floor.Close())
	}
	occupied := func(ctx context.Context) (a, b float64, err error) {
		if a, err = floor.bytesOf(ctx, ours); err != nil {
			return 0, 0, err
		}
		b, err = floor.bytesOf(ctx, floors)
		return a, b, err
	}
	// The floor removes the keys of both: its client is closed last.
	floor.leave = func() error { return floor.remove(ctx, ours, floors) }
	return &site{Backend: db, floor: floor, name: ours, occupied: occupied}, nil
}

// remove deletes keys, even when the benchmarks were interrupted.
func (f *redisFloor) remove(ctx context.Context, prefixes ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for _, prefix := range prefixes {
		err := f.keys(ctx, prefix, func(keys []string) error { return f.client.Unlink(ctx, keys...).Err() })
		if err != nil {
			return err
		}
	}
	return nil
}

// bytesOf is what the keys under a prefix take.
func (f *redisFloor) bytesOf(ctx context.Context, prefix string) (size float64, err error) {
	err = f.keys(ctx, prefix, func(keys []string) error {
		for _, key := range keys {
			n, err := f.client.MemoryUsage(ctx, key).Result()
			if err != nil {
				return err
			}
			size += float64(n)
		}
		return nil
	})
	return size, err
}

// keys hands out the keys under a prefix, some at a time.
func (f *redisFloor) keys(ctx context.Context, prefix string, each func(keys []string) error) error {
	for cursor := uint64(0); ; {
		keys, next, err := f.client.Scan(ctx, cursor, prefix+":*", 1000).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if err := each(keys); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func reopenRedis(url, prefix string) (store.Backend, error) {
	return redis.OpenConfig(redis.Config{URL: url, Prefix: prefix})
}
