package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
)

// locks stores named locks as rows.
type locks struct{ b *Backend }

const (
	acquireLock = `
INSERT INTO helix.locks AS l (name, owner, token, expires_at)
VALUES ($1, $2, 1, coalesce($4::timestamptz, clock_timestamp()) + $3)
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner, token = l.token + 1, expires_at = excluded.expires_at
WHERE l.owner IN ('', excluded.owner) OR l.expires_at <= coalesce($4::timestamptz, clock_timestamp())
RETURNING token, expires_at`

	renewLock = `
UPDATE helix.locks SET expires_at = coalesce($5::timestamptz, clock_timestamp()) + $3
WHERE name = $1 AND owner = $2 AND token = $4 AND expires_at > coalesce($5::timestamptz, clock_timestamp())
RETURNING token, expires_at`

	releaseLock = `
UPDATE helix.locks SET owner = '', expires_at = NULL WHERE name = $1 AND owner = $2 AND token = $3`
)

// take runs a statement that returns a lock, or nothing.
func (l *locks) take(ctx context.Context, what, query string, k *lock.Lock, args ...any) (ok bool, err error) {
	err = l.b.query(ctx, what, func(rows pgx.Rows) error {
		ok = true
		return rows.Scan(&k.Token, instant{&k.ExpiresAt})
	}, query, append([]any{k.Name, k.Owner}, args...)...)
	return ok, err
}

// TryAcquire implements [lock.Manager].
func (l *locks) TryAcquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Lock, bool, error) {
	if err := lock.Check(name, owner, ttl); err != nil {
		return lock.Lock{}, false, err
	}
	k := lock.Lock{Name: name, Owner: owner}
	ok, err := l.take(ctx, "acquire lock "+name, acquireLock, &k, ttl, l.b.clock())
	if err != nil || !ok {
		return lock.Lock{}, false, err
	}
	return k, true, nil
}

// Renew implements [lock.Manager].
func (l *locks) Renew(ctx context.Context, k lock.Lock, ttl time.Duration) (lock.Lock, error) {
	if err := lock.Check(k.Name, k.Owner, ttl); err != nil {
		return lock.Lock{}, err
	}
	ok, err := l.take(ctx, "renew lock "+k.Name, renewLock, &k, ttl, k.Token, l.b.clock())
	if err == nil && !ok {
		err = session.ErrStale.WithMessage("lock %s: %s no longer holds it", k.Name, k.Owner)
	}
	if err != nil {
		return lock.Lock{}, err
	}
	return k, nil
}

// Release implements [lock.Manager].
func (l *locks) Release(ctx context.Context, k lock.Lock) error {
	return l.b.query(ctx, "release lock "+k.Name, func(pgx.Rows) error { return nil }, releaseLock, k.Name, k.Owner, k.Token)
}
