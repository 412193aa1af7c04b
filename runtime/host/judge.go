package host

import (
	"time"

	"github.com/helixagents/helix/session"
)

// judge decides which leases that have expired may be taken over. It reads no clock and asks
// nobody: it is told what this process has read and written, and when.
//
// That a lease has expired does not say that its holder is dead. Perhaps the store was away
// for all, or refused writes, or its clock was set, or this process has slept. In each of
// these cases the holder renews the lease soon, if it lives. So a process takes a lease over
// once
//
//   - it has been in contact with the store for as long as the lease lasts, and could have
//     renewed one in this time,
//   - it has written to the store for a part of that time, since it knows that the lease has
//     expired,
//   - and the lease was not renewed since, which the takeover itself compares.
type judge struct {
	contacts map[time.Duration]*contact // for leases that last so long
	suspects map[session.Key]*suspect
}

func newJudge(ttl time.Duration) *judge {
	return &judge{contacts: map[time.Duration]*contact{ttl: {}}, suspects: map[session.Key]*suspect{}}
}

// The rule, in parts of the time for which a lease lasts.
const (
	probesIn    = 5  // contact is probed every fifth of it
	silenceIn   = 2  // contact is broken after half of it without an answer
	jumpIn      = 50 // a clock that is ahead by this part has been set
	writesTenth = 3  // writes are at most so many tenths of it apart
	proofTenth  = 4  // and go on for so many tenths
)

// maxLeaseTimes bounds for how many different times this process keeps its contact. Leases
// that last for another time are not taken over here.
const maxLeaseTimes = 16

// answer is a read of the store's clock: when it began and ended, by the clocks of this
// process, and what it read.
type answer struct {
	began, ended time.Time
	store        time.Time
}

// contact is how long this process has been in contact with the store, without a silence
// that is too long for leases of one kind.
type contact struct {
	since time.Time // when the first read of this contact ended
	last  answer
}

// note adds a read that was answered.
func (c *contact) note(a answer, ttl time.Duration) {
	set := a.store.Sub(c.last.store)-elapsed(c.last.began, a.ended) > ttl/jumpIn
	if c.since.IsZero() || set || elapsed(c.last.began, a.ended) > ttl/silenceIn {
		c.since = a.ended
	}
	c.last = a
}

// lasts reports whether contact is unbroken for a time that is long enough for leases that
// last for ttl.
func (c *contact) lasts(ttl time.Duration, now time.Time) bool {
	return !c.since.IsZero() && elapsed(c.last.began, now) <= ttl/silenceIn && c.last.ended.Sub(c.since) >= ttl
}

// elapsed returns the time between two readings of this process's clocks: that of the one
// which has advanced more. While a machine is suspended, the monotonic clock stands still.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// suspect is a lease that may have to be taken over.
type suspect struct {
	due   session.Due
	ttl   time.Duration // for how long it was given
	since time.Time     // from when on it counts as expired, by this process's clock
	// Writes that succeeded since then, with no failure and no long pause between them: when
	// the first ended, and the last began.
	first, last time.Time
}

// proven reports whether this process has written for long enough.
func (s *suspect) proven(now time.Time) bool {
	return !s.first.IsZero() && elapsed(s.last, now) <= tenths(writesTenth, s.ttl) && s.last.Sub(s.first) >= tenths(proofTenth, s.ttl)
}

func tenths(n int, ttl time.Duration) time.Duration { return time.Duration(n) * ttl / 10 }

// answered notes that the store was read.
func (j *judge) answered(a answer) {
	for ttl, c := range j.contacts {
		c.note(a, ttl)
	}
}

// list notes which leases the store lists now: those that have expired or will soon, and those
// that expire later than their time allows, because the store's clock was set back. The time
// of these counts from now on. What is listed as it was before stays a suspect, and nothing
// else does.
func (j *judge) list(due []session.Due, ttlOf func(*session.Due) time.Duration, now, store time.Time) {
	before := j.suspects
	j.suspects = make(map[session.Key]*suspect, len(due))
	for i := range due {
		d, ttl := due[i], ttlOf(&due[i])
		if s := before[d.Key]; s != nil && s.due.Lease.Fence() == d.Lease.Fence() && s.due.Lease.ExpiresAt.Equal(d.Lease.ExpiresAt) && s.ttl == ttl {
			j.suspects[d.Key] = s
			continue
		}
		left := min(max(d.Lease.ExpiresAt.Sub(store), 0), ttl)
		j.suspects[d.Key] = &suspect{due: d, ttl: ttl, since: now.Add(left)}
		if j.contacts[ttl] == nil && len(j.contacts) < maxLeaseTimes {
			j.contacts[ttl] = &contact{}
		}
	}
}

// wrote notes that a write on account of a suspect succeeded.
func (j *judge) wrote(key session.Key, began, ended time.Time) {
	s := j.suspects[key]
	if s == nil || began.Before(s.since) {
		return
	}
	if s.first.IsZero() || elapsed(s.last, ended) > tenths(writesTenth, s.ttl) {
		s.first = ended
	}
	s.last = began
}

// notWritten notes that a write on account of a suspect failed.
func (j *judge) notWritten(key session.Key) {
	if s := j.suspects[key]; s != nil {
		s.first = time.Time{}
	}
}

// mayTakeOver reports whether the lease of a suspect may be taken over, if it is still the
// one that was listed.
func (j *judge) mayTakeOver(key session.Key, now time.Time) bool {
	s := j.suspects[key]
	if s == nil {
		return false
	}
	if s.due.Lease.Owner == "" { // it was released
		return true
	}
	c := j.contacts[s.ttl]
	return c != nil && c.lasts(s.ttl, now) && s.proven(now)
}
