package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/postgres"
)

// openPostgres opens a site on a database, with a schema for the backend and
// another for the floor.
func openPostgres(ctx context.Context, url string) (_ *site, err error) {
	name := fmt.Sprintf("bench_%016x", rand.Uint64())
	ours, floors := name, name+"_floor"
	drop := func() error { return dropSchemas(ctx, url, ours, floors) }
	defer func() {
		if err != nil {
			err = errors.Join(err, drop())
		}
	}()
	floor, err := newPostgresFloor(ctx, url, floors)
	if err != nil {
		return nil, err
	}
	db, err := reopenPostgres(url, ours)
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
	return &site{Backend: db, floor: floor, name: ours, occupied: occupied, cleanup: drop}, nil
}

func reopenPostgres(url, schema string) (store.Backend, error) {
	return postgres.OpenConfig(postgres.Config{URL: url, Schema: schema})
}

// dropSchemas removes the data of a site, even when the benchmarks were
// interrupted.
func dropSchemas(ctx context.Context, url string, schemas ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, schema := range schemas {
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{schema}.Sanitize()+" CASCADE"); err != nil {
			return err
		}
	}
	return nil
}
