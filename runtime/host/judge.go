package host

import (
	"cmp"
	"maps"
	"slices"
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
//   - it has written to the store for a part of that time, in which a holder that lives would
//     have renewed the lease,
//   - and the lease was not renewed since, which the takeover itself compares.
type judge struct {
	ttl      time.Duration              // of this process's own leases
	longest  time.Duration              // of all leases that were listed
	contacts map[time.Duration]*contact // for leases that last so long
	suspects map[session.Key]*suspect
}

// newJudge returns the judge of a process whose own leases last for ttl. It is ready to judge
// leases of the default length, too.
func newJudge(ttl time.Duration) *judge {
	return &judge{ttl: ttl, longest: ttl, contacts: map[time.Duration]*contact{ttl: {}, defaultLeaseTTL: {}}, suspects: map[session.Key]*suspect{}}
}

// The rule, in parts of the time for which a lease lasts.
const (
	probesIn    = 5  // the store is read every fifth of it
	silenceIn   = 2  // contact is broken after half of it without an answer
	jumpIn      = 10 // a clock that is ahead by this part has been set
	writesTenth = 4  // writes begin at most so many tenths of it apart
	proofTenth  = 4  // and go on for so many tenths
	aheadTenth  = 4  // and begin so many tenths before the lease expires, at the earliest
	graceTenth  = 2  // a lease is not taken over before so many tenths after its end
)

// maxLeaseTimes bounds for how many different times this process keeps its contact. For another
// one it forgets that which was listed least recently. One that is not listed for leaseTimeKept is
// forgotten, too.
const (
	maxLeaseTimes = 16
	leaseTimeKept = 10 * time.Minute
)

// answer is a read of the store's clock: when it began and ended, by the clocks of this
// process, and what it read.
type answer struct {
	began, ended time.Time
	store        time.Time
}

// contact is how long this process has been in contact with the store, without a silence
// that is too long for leases of one kind.
type contact struct {
	since  time.Time // when the first read of this contact ended
	last   answer
	listed time.Time // when a lease that lasts so long was last listed
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
	due     session.Due
	ttl     time.Duration // for how long it was given
	from    time.Time     // from when on writes count, by this process's clock
	expires time.Time     // by the same clock
	// Writes that succeeded, with no failure and no long pause between them: when the first
	// ended, and the last began.
	first, last time.Time
}

// has reports whether a lease is that of the suspect and was not renewed since.
func (s *suspect) has(lease session.Lease) bool {
	return s.due.Lease.Fence() == lease.Fence() && s.due.Lease.ExpiresAt.Equal(lease.ExpiresAt)
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

// failed notes a read that was not answered.
func (j *judge) failed() {
	for key := range j.suspects {
		j.notWritten(key)
	}
}

// lookAhead is how long before its end a lease that lasts for ttl becomes a suspect: a holder
// that lives would have renewed it before.
func lookAhead(ttl time.Duration) time.Duration { return tenths(aheadTenth, ttl) }

// ttlOf returns for how long a lease was given, as far as this process can know.
func (j *judge) ttlOf(lease *session.Lease) time.Duration { return cmp.Or(lease.TTL(), j.ttl) }

// list notes which leases the store lists now: those that have expired or will soon, and those
// that expire later than their time allows, because the store's clock was set back. The time
// of these counts from now on. What is listed as it was before stays a suspect, and nothing
// else does.
func (j *judge) list(due []session.Due, now, store time.Time) {
	maps.DeleteFunc(j.contacts, func(ttl time.Duration, c *contact) bool {
		return !j.always(ttl) && now.Sub(c.listed) > leaseTimeKept
	})
	before := j.suspects
	j.suspects = make(map[session.Key]*suspect, len(due))
	for _, d := range due {
		if s := before[d.Key]; s != nil && s.has(d.Lease) {
			j.suspects[d.Key] = s
			j.know(s.ttl, now)
			continue
		}
		ttl := j.ttlOf(&d.Lease)
		j.longest = max(j.longest, ttl)
		j.know(ttl, now)
		left := max(d.Lease.ExpiresAt.Sub(store), 0)
		if left > lookAhead(ttl) && (left <= ttl || d.Lease.TTL() == 0) {
			continue // it was renewed as it should be, or may have been
		}
		expires := now.Add(min(left, ttl))
		j.suspects[d.Key] = &suspect{due: d, ttl: ttl, from: expires.Add(-lookAhead(ttl)), expires: expires}
	}
}

// always reports whether this process keeps its contact for leases that last for ttl, listed or
// not.
func (j *judge) always(ttl time.Duration) bool { return ttl == j.ttl || ttl == defaultLeaseTTL }

// know makes this process keep its contact for leases that last for ttl.
func (j *judge) know(ttl time.Duration, now time.Time) {
	if c := j.contacts[ttl]; c != nil {
		c.listed = now
		return
	}
	if len(j.contacts) >= maxLeaseTimes {
		oldest := time.Duration(-1)
		for known, c := range j.contacts {
			if !j.always(known) && (oldest < 0 || c.listed.Before(j.contacts[oldest].listed)) {
				oldest = known
			}
		}
		delete(j.contacts, oldest)
	}
	j.contacts[ttl] = &contact{listed: now}
}

// pause returns how long to wait between two reads of the store, at most.
func (j *judge) pause() time.Duration {
	shortest := j.ttl
	for ttl := range j.contacts {
		shortest = min(shortest, ttl)
	}
	return max(shortest/probesIn, min(j.ttl/probesIn, shortestPause))
}

// shortestPause is for the leases of others that are too short to be judged as they should be.
const shortestPause = 25 * time.Millisecond

// wrote notes that a write on account of a suspect succeeded.
func (j *judge) wrote(key session.Key, began, ended time.Time) {
	s := j.suspects[key]
	if s == nil || began.Before(s.from) {
		return
	}
	if s.first.IsZero() || elapsed(s.last, began) > tenths(writesTenth, s.ttl) {
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

// inContact reports whether this process has been in contact with the store for so long that
// the holder of a lease, if it lives, has renewed it since it could.
func (j *judge) inContact(lease session.Lease, now time.Time) bool {
	ttl := min(j.ttlOf(&lease), defaultLeaseTTL)
	if j.contacts[ttl] == nil {
		ttl = defaultLeaseTTL
	}
	return j.contacts[ttl].lasts(ttl, now)
}

// held returns the leases of suspects that have a holder, the longest due first. If there
// are more than limit, it returns a part of them, and some time later the next part: perhaps
// those of the first may not be taken over for other reasons.
func (j *judge) held(limit int, now time.Time) []session.Held {
	var due []session.Due
	for _, s := range j.suspects {
		if s.due.Lease.Owner != "" {
			due = append(due, s.due)
		}
	}
	if len(due) > limit {
		slices.SortFunc(due, func(a, b session.Due) int { return a.Compare(&b) })
		parts := (len(due) + limit - 1) / limit
		part := int(now.Unix()/max(int64(partTimes*j.ttl/time.Second), 1)) % parts
		due = due[part*limit : min((part+1)*limit, len(due))]
	}
	held := make([]session.Held, len(due))
	for i := range due {
		held[i] = session.Held{Key: due[i].Key, Fence: due[i].Lease.Fence()}
	}
	return held
}

// partTimes is for how many times the length of a lease the same part of many suspects is
// written on account of.
const partTimes = 2

// condemns reports whether a lease may be taken over.
func (j *judge) condemns(key session.Key, lease session.Lease, now time.Time) bool {
	s := j.suspects[key]
	return s != nil && s.has(lease) && j.mayTakeOver(s, now)
}

// overdue returns for how long a suspect has been one after its lease has ended, by the clock
// of this process, or 0 if it is none.
func (j *judge) overdue(key session.Key, lease session.Lease, now time.Time) time.Duration {
	if s := j.suspects[key]; s != nil && s.has(lease) {
		return max(now.Sub(s.expires), 0)
	}
	return 0
}

// condemned returns the suspects whose leases may be taken over, the longest due first.
func (j *judge) condemned(now time.Time) []session.Due {
	var due []session.Due
	for _, s := range j.suspects {
		if j.mayTakeOver(s, now) {
			due = append(due, s.due)
		}
	}
	slices.SortFunc(due, func(a, b session.Due) int { return a.Compare(&b) })
	return due
}

// mayTakeOver reports whether the lease of a suspect may be taken over, if it is still the
// one that was listed.
func (j *judge) mayTakeOver(s *suspect, now time.Time) bool {
	if s.due.Lease.Owner == "" { // it was released
		return true
	}
	c := j.contacts[s.ttl]
	return now.Sub(s.expires) >= tenths(graceTenth, s.ttl) && c != nil && c.lasts(s.ttl, now) && s.proven(now)
}
