package main

import (
	"context"
	"errors"

	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store"
)

// site is where a store is measured: a backend without data, the floor beside it,
// and how much room each takes.
type site struct {
	store.Backend
	floor floor
	// name is where the backend's data is, for another process; see [kind].
	name string
	// occupied is how many bytes the backend's data takes, and the floor's; 0 where
	// that cannot be told apart.
	occupied func(ctx context.Context) (ours, floors float64, err error)
	// cleanup removes what is left once backend and floor are closed. May be nil.
	cleanup func() error
}

// Close closes the backend and the floor and removes their data.
func (s *site) Close() error {
	errs := []error{s.Backend.Close(), s.floor.Close()}
	if s.cleanup != nil {
		errs = append(errs, s.cleanup())
	}
	return errors.Join(errs...)
}

// kind is a kind of store.
type kind struct {
	name   string
	server *server // that it needs; nil if none
	// open makes a new site, on the server at a URL if it needs one.
	open func(ctx context.Context, url string) (*site, error)
	// reopen opens the data of a site, as another process would. It is nil if no other
	// process can.
	reopen func(url, name string) (store.Backend, error)
	// temporal is a Temporal beside it, on the one store where engines are measured.
	temporal *server
}

func kinds(s *servers) []kind {
	return []kind{
		{name: "memory", open: openMemory},
		{name: "sqlite", open: openSQLite, reopen: reopenSQLite},
		{name: "postgres", server: &s.postgres, open: openPostgres, reopen: reopenPostgres, temporal: &s.temporal},
		{name: "redis", server: &s.redis, open: openRedis, reopen: reopenRedis},
	}
}

// on calls do with a new site.
func (k kind) on(ctx context.Context, do func(s *site) error) error {
	url, err := k.server.get(ctx)
	if err != nil {
		return err
	}
	s, err := k.open(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// onRuntime calls do with a runtime on a new site.
func (k kind) onRuntime(ctx context.Context, do func(rt *local.Runtime, s *site) error) error {
	return k.on(ctx, func(s *site) error {
		rt, err := local.New(local.Config{Backend: s.Backend})
		if err != nil {
			return err
		}
		return errors.Join(do(rt, s), rt.Shutdown(ctx))
	})
}
