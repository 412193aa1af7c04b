package memory

import (
	"context"
	"sync"
	"time"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
)

// locks is the lock manager. A released lock is kept, because its token must keep
// increasing.
type locks struct {
	now func() time.Time

	mu     sync.Mutex
	closed bool
	byName map[string]lock.Lock
}

var _ lock.Manager = (*locks)(nil)

func newLocks(now func() time.Time) *locks {
	return &locks{now: now, byName: map[string]lock.Lock{}}
}

// TryAcquire implements [lock.Manager].
func (l *locks) TryAcquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Lock, bool, error) {
	if err := lock.Check(name, owner, ttl); err != nil {
		return lock.Lock{}, false, err
	}
	if err := l.lock(ctx); err != nil {
		return lock.Lock{}, false, err
	}
	defer l.mu.Unlock()
	now, held := l.now(), l.byName[name]
	if held.Owner != "" && held.Owner != owner && now.Before(held.ExpiresAt) {
		return lock.Lock{}, false, nil
	}
	held = lock.Lock{Name: name, Owner: owner, Token: held.Token + 1, ExpiresAt: now.Add(ttl)}
	l.byName[name] = held
	return held, true, nil
}

// Renew implements [lock.Manager].
func (l *locks) Renew(ctx context.Context, held lock.Lock, ttl time.Duration) (lock.Lock, error) {
	if err := lock.Check(held.Name, held.Owner, ttl); err != nil {
		return lock.Lock{}, err
	}
	if err := l.lock(ctx); err != nil {
		return lock.Lock{}, err
	}
	defer l.mu.Unlock()
	now, stands := l.now(), l.byName[held.Name]
	if !same(stands, held) || !now.Before(stands.ExpiresAt) {
		return lock.Lock{}, session.ErrStale.WithMessage("lock %s: %s no longer holds it", held.Name, held.Owner)
	}
	stands.ExpiresAt = now.Add(ttl)
	l.byName[held.Name] = stands
	return stands, nil
}

// Release implements [lock.Manager].
func (l *locks) Release(ctx context.Context, held lock.Lock) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if stands := l.byName[held.Name]; same(stands, held) {
		l.byName[held.Name] = lock.Lock{Name: held.Name, Token: stands.Token}
	}
	return nil
}

func (l *locks) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return session.ErrClosed
	}
	return nil
}

func (l *locks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// same reports whether both locks are the same acquisition.
func same(a, b lock.Lock) bool { return a.Owner == b.Owner && a.Token == b.Token }
