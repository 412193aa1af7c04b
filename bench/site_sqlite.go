package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/sqlite"
)

func openSQLite(ctx context.Context, _ string) (_ *site, err error) {
	dir, err := os.MkdirTemp("", "helix-bench-")
	if err != nil {
		return nil, err
	}
	cleanup := func() error { return os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			err = errors.Join(err, cleanup())
		}
	}()
	ours, floors := filepath.Join(dir, "helix.db"), filepath.Join(dir, "floor.db")
	floor, err := newSQLiteFloor(ctx, floors)
	if err != nil {
		return nil, err
	}
	db, err := reopenSQLite("", ours)
	if err != nil {
		return nil, errors.Join(err, floor.Close())
	}
	occupied := func(ctx context.Context) (a, b float64, err error) {
		if a, err = pagesOf(ctx, ours); err != nil {
			return 0, 0, err
		}
		b, err = pagesOf(ctx, floors)
		return a, b, err
	}
	return &site{Backend: db, floor: floor, name: ours, occupied: occupied, cleanup: cleanup}, nil
}

// pagesOf is what the used pages of a database take.
func pagesOf(ctx context.Context, file string) (float64, error) {
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var pages, free, size float64
	err = db.QueryRowContext(ctx, "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size").
		Scan(&pages, &free, &size)
	return (pages - free) * size, err
}

func reopenSQLite(_, path string) (store.Backend, error) { return sqlite.Open(path) }
