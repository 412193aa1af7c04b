package lite

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/coldsql"
)

// sessions is the session store, scoped to one tenant, without the parts that
// Postgres shares.
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
func (s *sessions) Now(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, fmt.Errorf("now: %w", err)
	}
	return s.b.Now(), nil
}

// write runs an operation on a session that must exist.
func (s *sessions) write(ctx context.Context, id, verb string, run func(*Tx, *header) error) error {
	return s.b.Write(ctx, what(id, verb), func(t *Tx) error {
		h, err := s.find(t, id)
		if err == nil && h == nil {
			err = session.NotFound(id)
		}
		if err != nil {
			return err
		}
		return run(t, h)
	})
}

// find returns a session's row as the writer knows it, or nil. The caller may
// change it.
func (s *sessions) find(t *Tx, id string) (*header, error) {
	if h := t.cache.header(s.tenant, id); h != nil {
		return h, nil
	}
	return s.header(t.Conn, id)
}

// read runs queries about a session that must exist.
func (s *sessions) read(ctx context.Context, id, verb string, run func(Conn, *header) error) error {
	return s.b.Read(ctx, what(id, verb), func(c Conn) error {
		h, err := s.mustHeader(c, id)
		if err != nil {
			return err
		}
		return run(c, h)
	})
}

func what(id, verb string) string { return fmt.Sprintf("session %s: %s", id, verb) }
