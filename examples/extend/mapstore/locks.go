package mapstore

import (
	"context"
	"time"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
)

// locks is the backend as a lock manager. The entry of a released lock stays, because
// its token must keep growing.
type locks Backend

// TryAcquire implements [lock.Manager].
func (l *locks) TryAcquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Lock, bool, error) {
	if err := lock.Check(name, owner, ttl); err != nil {
		return lock.Lock{}, false, err
	}
	b := (*Backend)(l)
	if err := b.lock(ctx); err != nil {
		return lock.Lock{}, false, err
	}
	defer b.mu.Unlock()
	now, held := b.now(), b.locks[name]
	if held.Owner != "" && held.Owner != owner && now.Before(held.ExpiresAt) {
		return lock.Lock{}, false, nil
	}
	held = lock.Lock{Name: name, Owner: owner, Token: held.Token + 1, ExpiresAt: now.Add(ttl)}
	b.locks[name] = held
	return held, true, nil
}

// Renew implements [lock.Manager].
func (l *locks) Renew(ctx context.Context, held lock.Lock, ttl time.Duration) (lock.Lock, error) {
	if err := lock.Check(held.Name, held.Owner, ttl); err != nil {
		return lock.Lock{}, err
	}
	b := (*Backend)(l)
	if err := b.lock(ctx); err != nil {
		return lock.Lock{}, err
	}
	defer b.mu.Unlock()
	now, stands := b.now(), b.locks[held.Name]
	if !same(stands, held) || !now.Before(stands.ExpiresAt) {
		return lock.Lock{}, session.ErrStale.WithMessage("lock %s: %s no longer holds it", held.Name, held.Owner)
	}
	stands.ExpiresAt = now.Add(ttl)
	b.locks[held.Name] = stands
	return stands, nil
}

// Release implements [lock.Manager].
func (l *locks) Release(ctx context.Context, held lock.Lock) error {
	b := (*Backend)(l)
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	if stands := b.locks[held.Name]; same(stands, held) {
		b.locks[held.Name] = lock.Lock{Name: held.Name, Token: stands.Token}
	}
	return nil
}

// same reports whether both are the same acquisition.
func same(a, b lock.Lock) bool { return a.Owner == b.Owner && a.Token == b.Token }
