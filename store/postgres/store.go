package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/coldsql"
)

// sessions is the session store, scoped to one tenant, without the parts that SQLite
// shares.
type sessions struct {
	b      *Backend
	tenant string
}

// tenantStore is the whole session store of a tenant.
type tenantStore struct {
	*sessions
	coldsql.Tasks
}

var _ session.Store = tenantStore{}

func (b *Backend) tenantStore(tenant string) tenantStore {
	return tenantStore{&sessions{b, tenant}, coldsql.NewTasks(b, tenant)}
}

// Tenant implements [session.Store].
func (s *sessions) Tenant(tenant string) session.Store {
	return s.b.tenantStore(cmp.Or(tenant, session.DefaultTenant))
}

// Now implements [session.Turns].
func (s *sessions) Now(ctx context.Context) (now time.Time, err error) {
	err = s.b.query(ctx, "read the clock", func(rows pgx.Rows) error { return rows.Scan(instant{&now}) },
		"SELECT coalesce($1::timestamptz, clock_timestamp())", s.b.clock())
	return now, err
}

// write performs an operation on a session that must exist and is locked: the
// transaction's later queries see the current rows.
func (s *sessions) write(ctx context.Context, id, verb string, run func(ctx context.Context, t *tx, h *header) error) error {
	return s.b.transact(ctx, what(id, verb), func(ctx context.Context, t *tx) error {
		h, err := s.lock(ctx, t, id)
		if err != nil {
			return err
		}
		if h == nil {
			return session.NotFound(id)
		}
		return run(ctx, t, h)
	})
}

// touch performs an operation on rows of a session that must exist, which may
// change during a turn.
func (s *sessions) touch(ctx context.Context, id, verb string, run func(ctx context.Context, t *tx, h *header) error) error {
	return s.write(ctx, id, verb, func(ctx context.Context, t *tx, h *header) error {
		t.exec("UPDATE helix.sessions SET touched = touched + 1 WHERE number = $1", h.number)
		return run(ctx, t, h)
	})
}

// list runs a query about a session that must exist: it returns a row of NULLs if
// there is nothing to list, and no row if there is no session.
func (s *sessions) list(ctx context.Context, id, verb string, row func(pgx.Rows) error, query string, args ...any) error {
	found := false
	err := s.b.query(ctx, what(id, verb), func(rows pgx.Rows) error {
		found = true
		return row(rows)
	}, query, append([]any{s.tenant, id}, args...)...)
	if err == nil && !found {
		err = session.NotFound(id)
	}
	return err
}

func what(id, verb string) string { return "session " + id + ": " + verb }
