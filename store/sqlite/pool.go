package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/lite"
	"github.com/helixagents/helix/store/internal/migrate"
)

// pool is the set of connections for reading.
type pool struct {
	conns  chan *conn
	guard  *migrate.Guard
	closed chan struct{}
	once   sync.Once
}

func newPool(config Config, guard *migrate.Guard) (*pool, error) {
	p := &pool{conns: make(chan *conn, config.Readers), guard: guard, closed: make(chan struct{})}
	for range config.Readers {
		c, err := open(config.Path,
			"busy_timeout("+fmt.Sprint(config.BusyTimeout.Milliseconds())+")",
			"query_only(1)",
		)
		if err != nil {
			for len(p.conns) > 0 {
				err = errors.Join(err, (<-p.conns).close())
			}
			return nil, err
		}
		p.conns <- c
	}
	return p, nil
}

// snapshot lends a connection that sees the current state of the database,
// regardless of later writes.
func (p *pool) snapshot(ctx context.Context, what string, run func(lite.Conn) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-p.closed:
		return session.ErrClosed.WithMessage("%s: the database is closed", what)
	default:
	}
	if err := p.guard.Err(); err != nil {
		return err
	}
	var c *conn
	select {
	case c = <-p.conns:
	case <-p.closed:
		return session.ErrClosed.WithMessage("%s: the database is closed", what)
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { p.conns <- c }()
	if _, err := c.Exec("BEGIN"); err != nil {
		return err
	}
	defer func() {
		if _, end := c.Exec("ROLLBACK"); err == nil {
			err = end
		}
	}()
	return run(c)
}

// close waits for reads in progress.
func (p *pool) close() error {
	var err error
	p.once.Do(func() {
		close(p.closed)
		for range cap(p.conns) {
			err = errors.Join(err, (<-p.conns).close())
		}
	})
	return err
}
