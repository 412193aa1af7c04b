package lite

import (
	"context"
	"time"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
)

// locks stores named locks as rows. The row of a released lock is kept, so that
// tokens only increase.
type locks struct{ b *Backend }

const (
	selectLock = `
SELECT owner, token, expires_at FROM locks WHERE name = ?`

	upsertLock = `
INSERT INTO locks (name, owner, token, expires_at) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET owner = excluded.owner, token = excluded.token, expires_at = excluded.expires_at`
)

// find reads a lock, or returns the zero lock if it was never acquired.
func (l *locks) find(t *Tx, name string) (lock.Lock, error) {
	r, err := t.One(selectLock, name)
	if err != nil || r == nil {
		return lock.Lock{Name: name}, err
	}
	return lock.Lock{Name: name, Owner: r.Text(), Token: r.Int64(), ExpiresAt: r.Time()}, nil
}

// held reports whether anybody holds the lock.
func held(l lock.Lock, now time.Time) bool {
	return l.Owner != "" && (l.ExpiresAt.IsZero() || now.Before(l.ExpiresAt))
}

func (l *locks) put(t *Tx, k lock.Lock) error {
	_, err := t.Exec(upsertLock, k.Name, k.Owner, k.Token, k.ExpiresAt)
	return err
}

// TryAcquire implements [lock.Manager].
func (l *locks) TryAcquire(ctx context.Context, name, owner string, ttl time.Duration) (got lock.Lock, ok bool, err error) {
	if err := lock.Check(name, owner, ttl); err != nil {
		return got, false, err
	}
	err = l.b.Write(ctx, "acquire lock "+name, func(t *Tx) error {
		now := l.b.Now()
		found, err := l.find(t, name)
		if err != nil {
			return err
		}
		if ok = !held(found, now) || found.Owner == owner; !ok {
			return nil
		}
		got = lock.Lock{Name: name, Owner: owner, Token: found.Token + 1, ExpiresAt: now.Add(ttl)}
		return l.put(t, got)
	})
	if err != nil || !ok {
		return lock.Lock{}, false, err
	}
	return got, true, nil
}

// Renew implements [lock.Manager].
func (l *locks) Renew(ctx context.Context, k lock.Lock, ttl time.Duration) (lock.Lock, error) {
	if err := lock.Check(k.Name, k.Owner, ttl); err != nil {
		return lock.Lock{}, err
	}
	err := l.b.Write(ctx, "renew lock "+k.Name, func(t *Tx) error {
		now := l.b.Now()
		found, err := l.find(t, k.Name)
		if err != nil {
			return err
		}
		if found.Owner != k.Owner || found.Token != k.Token || !held(found, now) {
			return session.ErrStale.WithMessage("lock %s: %s no longer holds it", k.Name, k.Owner)
		}
		k.ExpiresAt = now.Add(ttl)
		return l.put(t, k)
	})
	if err != nil {
		return lock.Lock{}, err
	}
	return k, nil
}

// Release implements [lock.Manager].
func (l *locks) Release(ctx context.Context, k lock.Lock) error {
	return l.b.Write(ctx, "release lock "+k.Name, func(t *Tx) error {
		found, err := l.find(t, k.Name)
		if err != nil || found.Owner != k.Owner || found.Token != k.Token {
			return err
		}
		return l.put(t, lock.Lock{Name: k.Name, Token: k.Token})
	})
}
