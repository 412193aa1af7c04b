// Package lock serves migrations, sweepers and applications that must do a thing
// once among many processes. Turns are not locked but leased; see package
// session.
package lock

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// Manager hands out named locks.
type Manager interface {
	// TryAcquire takes the lock for owner if it is free, expired, or owner's
	// already, and reports whether it did. The ttl must be positive.
	TryAcquire(ctx context.Context, name, owner string, ttl time.Duration) (Lock, bool, error)
	// Renew extends a lock that is still held; session.ErrStale if it is not.
	Renew(ctx context.Context, held Lock, ttl time.Duration) (Lock, error)
	// Release gives a lock back. Releasing a lock that was lost does nothing.
	Release(ctx context.Context, held Lock) error
}

// Lock is a lock that was acquired.
type Lock struct {
	Name  string
	Owner string
	// Token only grows with every acquisition, so that what the lock protects can
	// refuse an earlier holder.
	Token     int64
	ExpiresAt time.Time
}

// Check reports a lock that no manager can give.
func Check(name, owner string, ttl time.Duration) error {
	switch {
	case name == "":
		return session.Invalid("lock name", "must not be empty")
	case owner == "":
		return session.Invalid("lock owner", "must not be empty")
	case ttl <= 0:
		return session.Invalid("lock ttl", "%s is not positive", ttl)
	}
	if err := session.CheckText("lock name", name); err != nil {
		return err
	}
	return session.CheckText("lock owner", owner)
}

// NoOp grants every lock at once: for a single process that needs none.
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
