package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// bulkFactor is how much longer than other operations one may take that deletes all that belongs to a session or a stream.
const bulkFactor = 4

// silentError is the error of an operation that was not done within its limit, although its caller still waits. The server
// may have vanished without a word: nothing arrives on its connections, and nothing says that they are dead.
type silentError struct {
	limit  time.Duration
	queued bool // it got no connection, so it says nothing about the server
}

func (e *silentError) Error() string {
	if e.queued {
		return "no connection was free within " + e.limit.String()
	}
	return "no answer within " + e.limit.String()
}

// runWithin calls run with a context that ends after a limit. If the limit has ended it, the error is a [silentError].
func runWithin(ctx context.Context, limit time.Duration, run func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errLimit)
	defer cancel()
	err := run(limited)
	if err == nil || !errors.Is(context.Cause(limited), errLimit) || !isEnded(err) {
		return err
	}
	_, queued := errors.AsType[*queuedError](err)
	return &silentError{limit, queued}
}

var errLimit = fmt.Errorf("the operation was not done within its limit: %w", context.DeadlineExceeded)

// queuedError is the error of an operation whose context has ended before it had a connection.
type queuedError struct{ error }

func (e *queuedError) Unwrap() error { return e.error }

// acquire takes a connection from a pool. If not all are in use, it did not fail because it had to wait for one: it found
// one on which the server is silent.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil && isEnded(err) {
		if stat := pool.Stat(); stat.AcquiredConns() >= stat.MaxConns() {
			err = &queuedError{err}
		}
	}
	return conn, err
}

// isSilent reports whether an operation was not done within its limit.
func isSilent(err error) bool {
	_, silent := errors.AsType[*silentError](err)
	return silent
}
