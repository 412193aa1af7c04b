package storetest

import (
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

func lockCases() []testCase {
	return []testCase{
		{"acquire", "a free lock can be acquired, and is then refused to others", dated, acquireLock},
		{"again", "its owner may acquire it again, with a token that does not decrease", 0, acquireAgain},
		{"expire", "an expired lock can be acquired by another owner, with a higher token", clock, lockExpires},
		{"renew", "a lock that is held can be extended", clock, renewLock},
		{"renew-lost", "a lock that was lost or released cannot be extended", clock, renewLostLock},
		{"release", "a released lock is free, and its tokens keep increasing", 0, releaseLock},
		{"release-lost", "releasing a lost lock does not affect its new holder", clock, releaseLostLock},
		{"names", "locks with different names are independent", 0, lockNames},
		{"second-handle", "a lock acquired on one handle is held on another", second, lockSecondHandle},
		{"invalid", "a lock without a name, an owner or a time to live is refused", 0, lockInvalid},
		{"race", "of many concurrent callers exactly one acquires the lock", second, lockRace},
	}
}

func lockInvalid(t *bed) {
	locks := t.Backend.Locks()
	for _, c := range []struct {
		name, owner string
		ttl         time.Duration
	}{{"", "me", time.Second}, {t.lockName("l"), "", time.Second}, {t.lockName("l"), "me", 0}, {t.lockName("l"), "me", -1}} {
		_, ok, err := locks.TryAcquire(t.Context(), c.name, c.owner, c.ttl)
		t.refused(err, session.ErrInvalid, "TryAcquire")
		equal(t, "acquired", ok, false)
	}
	held := t.mustAcquire("l", "me", time.Minute)
	_, err := locks.Renew(t.Context(), held, 0)
	t.refused(err, session.ErrInvalid, "Renew")
}

// lockName returns a name that is unique to the case, because locks have no
// tenants.
func (t *bed) lockName(name string) string { return t.tenant + "/" + name }

func (t *bed) acquire(name, owner string, ttl time.Duration) (lock.Lock, bool) {
	t.Helper()
	held, ok, err := t.Backend.Locks().TryAcquire(t.Context(), t.lockName(name), owner, ttl)
	t.ok(err, "TryAcquire")
	return held, ok
}

func (t *bed) mustAcquire(name, owner string, ttl time.Duration) lock.Lock {
	t.Helper()
	held, ok := t.acquire(name, owner, ttl)
	if !ok {
		t.Fatalf("%s did not get the free lock %s", owner, name)
	}
	return held
}

func acquireLock(t *bed) {
	held := t.mustAcquire("l", "me", time.Hour)
	equal(t, "name", held.Name, t.lockName("l"))
	equal(t, "owner", held.Owner, "me")
	if left := held.ExpiresAt.Sub(t.now()); left < 50*time.Minute || left > 61*time.Minute {
		t.Fatalf("a lock of an hour has %v left", left)
	}
	_, ok := t.acquire("l", "you", time.Hour)
	equal(t, "another gets it", ok, false)
}

func acquireAgain(t *bed) {
	first := t.mustAcquire("l", "me", time.Minute)
	second := t.mustAcquire("l", "me", time.Hour)
	if second.Token < first.Token {
		t.Fatalf("the token went back from %d to %d", first.Token, second.Token)
	}
	if !second.ExpiresAt.After(first.ExpiresAt) {
		t.Fatalf("taking it again for longer does not extend it")
	}
	_, ok := t.acquire("l", "you", time.Hour)
	equal(t, "another gets it", ok, false)
}

func lockExpires(t *bed) {
	mine := t.mustAcquire("l", "me", t.ttl())
	t.pass(2 * t.ttl())
	yours := t.mustAcquire("l", "you", time.Hour)
	if yours.Token <= mine.Token {
		t.Fatalf("the new holder's token %d is not above %d", yours.Token, mine.Token)
	}
	_, ok := t.acquire("l", "me", time.Hour)
	equal(t, "the old holder gets it back", ok, false)
}

func renewLock(t *bed) {
	held := t.mustAcquire("l", "me", time.Minute)
	renewed, err := t.Backend.Locks().Renew(t.Context(), held, time.Hour)
	t.ok(err, "Renew")
	equal(t, "token", renewed.Token, held.Token)
	if more := renewed.ExpiresAt.Sub(held.ExpiresAt); more < 59*time.Minute {
		t.Fatalf("a lock of a minute that is renewed for an hour expires %v later", more)
	}
	t.pass(2 * t.ttl())
	_, ok := t.acquire("l", "you", time.Hour)
	equal(t, "another gets it", ok, false)
}

func renewLostLock(t *bed) {
	held := t.mustAcquire("l", "me", t.ttl())
	t.pass(2 * t.ttl())
	yours := t.mustAcquire("l", "you", time.Hour)
	_, err := t.Backend.Locks().Renew(t.Context(), held, time.Hour)
	t.refused(err, session.ErrStale, "Renew of a lock that was lost")
	t.ok(t.Backend.Locks().Release(t.Context(), yours), "Release")
	_, err = t.Backend.Locks().Renew(t.Context(), yours, time.Hour)
	t.refused(err, session.ErrStale, "Renew of a lock that was released")
	t.mustAcquire("l", "they", time.Hour)
}

func releaseLock(t *bed) {
	last := int64(-1)
	for range 3 {
		held := t.mustAcquire("l", "me", time.Hour)
		if held.Token <= last {
			t.Fatalf("token %d is not above %d", held.Token, last)
		}
		last = held.Token
		t.ok(t.Backend.Locks().Release(t.Context(), held), "Release")
		t.ok(t.Backend.Locks().Release(t.Context(), held), "Release again")
	}
	held := t.mustAcquire("l", "you", time.Hour)
	if held.Token <= last {
		t.Fatalf("token %d is not above %d", held.Token, last)
	}
}

func releaseLostLock(t *bed) {
	mine := t.mustAcquire("l", "me", t.ttl())
	t.pass(2 * t.ttl())
	t.mustAcquire("l", "you", time.Hour)
	t.ok(t.Backend.Locks().Release(t.Context(), mine), "Release of a lock that was lost")
	_, ok := t.acquire("l", "they", time.Hour)
	equal(t, "another gets it", ok, false)
}

func lockNames(t *bed) {
	t.mustAcquire("l", "me", time.Hour)
	t.mustAcquire("L", "you", time.Hour)
	t.mustAcquire("l/2", "they", time.Hour)
}

func lockSecondHandle(t *bed) {
	held := t.mustAcquire("l", "me", time.Hour)
	other := t.second().Locks()
	_, ok, err := other.TryAcquire(t.Context(), t.lockName("l"), "you", time.Hour)
	t.ok(err, "TryAcquire")
	equal(t, "another gets it", ok, false)
	t.ok(other.Release(t.Context(), held), "Release on the other handle")
	t.mustAcquire("l", "you", time.Hour)
}

func lockRace(t *bed) {
	handles := []store.Backend{t.Backend, t.second()}
	var winners atomic.Int32
	errs := make([]error, 16)
	together(len(errs), func(i int) {
		_, ok, err := handles[i%2].Locks().TryAcquire(t.Context(), t.lockName("l"), string(rune('a'+i)), time.Hour)
		if ok {
			winners.Add(1)
		}
		errs[i] = err
	})
	for _, err := range errs {
		t.ok(err, "TryAcquire")
	}
	equal(t, "winners", winners.Load(), 1)
}
