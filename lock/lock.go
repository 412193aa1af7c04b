// Package lock provides locks for migrations, sweepers and applications that must do
// something once among many processes. Turns use leases instead; see package session.
package lock

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// Manager manages named locks.
type Manager interface {
	// TryAcquire acquires the lock for owner if it is free, expired, or already held by
	// owner, and reports whether it did. The ttl must be positive.
	TryAcquire(ctx context.Context, name, owner string, ttl time.Duration) (Lock, bool, error)
	// Renew extends a held lock. It fails with session.ErrStale if the lock was lost.
	Renew(ctx context.Context, held Lock, ttl time.Duration) (Lock, error)
	// Release releases a lock. Releasing a lost lock does nothing.
	Release(ctx context.Context, held Lock) error
}

// Lock is an acquired lock.
type Lock struct {
	Name  string
	Owner string
	// Token increases with every acquisition, so that the protected resource can refuse an
	// earlier holder.
	Token     int64
	ExpiresAt time.Time
}

// Check returns an error for an invalid name, owner or ttl.
func Check(name, owner string, ttl time.Duration) error {
	switch {
	case name == "":
		return session.Invalid("lock name", "must not be empty")
	case owner == "":
		return session.Invalid("lock owner", "must not be empty")
	case ttl <= 0:
		return session.Invalid("lock ttl", "must be positive, not %s", ttl)
	}
	if err := session.CheckText("lock name", name); err != nil {
		return err
	}
	return session.CheckText("lock owner", owner)
}

// NoOp grants every lock at once, for a single process that needs none.
type NoOp struct{}

// TryAcquire implements [Manager].
func (NoOp) TryAcquire(_ context.Context, name, owner string, ttl time.Duration) (Lock, bool, error) {
	return Lock{Name: name, Owner: owner, ExpiresAt: time.Now().Add(ttl)}, true, nil
}

// Renew implements [Manager].
func (NoOp) Renew(_ context.Context, held Lock, ttl time.Duration) (Lock, error) {
	held.ExpiresAt = time.Now().Add(ttl)
	return held, nil
}

// Release implements [Manager].
func (NoOp) Release(context.Context, Lock) error { return nil }
