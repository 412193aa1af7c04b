package redis

import (
	"context"
	"time"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
)

// locks is the lock manager.
type locks struct{ b *Backend }

var _ lock.Manager = (*locks)(nil)

// TryAcquire implements [lock.Manager].
func (l *locks) TryAcquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Lock, bool, error) {
	if err := lock.Check(name, owner, ttl); err != nil {
		return lock.Lock{}, false, err
	}
	return l.use(ctx, "acquire", lock.Lock{Name: name, Owner: owner}, ttl)
}

// Renew implements [lock.Manager].
func (l *locks) Renew(ctx context.Context, held lock.Lock, ttl time.Duration) (lock.Lock, error) {
	if err := lock.Check(held.Name, held.Owner, ttl); err != nil {
		return lock.Lock{}, err
	}
	out, ok, err := l.use(ctx, "renew", held, ttl)
	if err == nil && !ok {
		err = session.ErrStale.WithMessage("lock %s: %s no longer holds it", held.Name, held.Owner)
	}
	return out, err
}

// Release implements [lock.Manager].
func (l *locks) Release(ctx context.Context, held lock.Lock) error {
	_, _, err := l.use(ctx, "release", held, 0)
	return err
}

// use runs the script on a lock and reports whether it was acquired.
func (l *locks) use(ctx context.Context, verb string, held lock.Lock, ttl time.Duration) (lock.Lock, bool, error) {
	name := "lock " + held.Name + ": " + verb
	if err := l.b.begin(ctx, name); err != nil {
		return lock.Lock{}, false, err
	}
	length := max(ttl.Microseconds(), 1)
	out, err := l.b.eval(ctx, useLock, []string{l.b.keys.lock(held.Name) + keyLock},
		[]any{keyLock, l.b.stamp(), verb, held.Owner, length, held.Token})
	if err != nil {
		return lock.Lock{}, false, failure(name, err)
	}
	parts := list(out)
	if len(parts) < 3 {
		return lock.Lock{}, false, nil
	}
	held.Token, held.ExpiresAt = number(text(parts[1])), moment(text(parts[2]))
	return held, true, nil
}
