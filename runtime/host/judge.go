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
	refused  time.Time // when the store last refused writes, on account of whatever lease
}

// newJudge returns the judge of a process whose own leases last for ttl. It is ready to judge
// leases of the default length, too.
func newJudge(ttl time.Duration) *judge {
	return &judge{ttl: ttl, longest: ttl, contacts: map[time.Duration]*contact{ttl: {}, defaultLeaseTTL: {}}, suspects: map[session.Key]*suspect{}}
}

// The rule, as parts of the time for which a lease lasts.
const (
	probePart   = 0.2 // the store is read so often
	silencePart = 0.5 // contact is broken after so long without an answer
	jumpPart    = 0.1 // a clock that is ahead by so much has been set
	pausePart   = 0.4 // writes on account of a lease begin at most so far apart
	proofPart   = 0.4 // and go on for so long
	aheadPart   = 0.4 // and begin so long before the lease expires, at the earliest
	gracePart   = 0.2 // a lease is not taken over before so long after its end
)

// part returns a part of the time for which a lease lasts.
func part(p float64, ttl time.Duration) time.Duration { return time.Duration(p * float64(ttl)) }

// maxLeaseTimes bounds for how many different times this process keeps its contact. For another
// one it forgets that which was listed least recently. One that is not listed for leaseTimeKept is
// forgotten, too.
const (
	maxLeaseTimes = 16
	leaseTimeKept = 10 * time.Minute
)

// answer is a call that the store has answered: when it began and ended, by the clocks of this
// process, and the store's clock, if that was read.
type answer struct {
	began, ended time.Time
	store        time.Time
}

// contact is how long this process has been in contact with the store, without a silence
// that is too long for leases of one kind.
type contact struct {
	since        time.Time // when the first answer of this contact came
	began, ended time.Time // the latest times of all answers
	clock        answer    // the last one with the store's clock
	listed       time.Time // when a lease that lasts so long was last listed
}

// note adds an answer.
func (c *contact) note(a answer, ttl time.Duration) {
	silent := elapsed(c.began, a.ended) > part(silencePart, ttl)
	set := !a.store.IsZero() && a.store.Sub(c.clock.store)-elapsed(c.clock.began, a.ended) > part(jumpPart, ttl)
	if c.since.IsZero() || silent || set {
		c.since = a.ended
	}
	if !a.store.IsZero() {
		c.clock = a
	}
	if a.began.After(c.began) {
		c.began = a.began
	}
	if a.ended.After(c.ended) {
		c.ended = a.ended
	}
}

// lasts reports whether contact is unbroken for a time that is long enough for leases that
// last for ttl.
func (c *contact) lasts(ttl time.Duration, now time.Time) bool {
	return !c.since.IsZero() && elapsed(c.began, now) <= part(silencePart, ttl) && c.ended.Sub(c.since) >= ttl
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
	return !s.first.IsZero() && elapsed(s.last, now) <= part(pausePart, s.ttl) && s.last.Sub(s.first) >= part(proofPart, s.ttl)
}

// answered notes that the store has answered.
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
func lookAhead(ttl time.Duration) time.Duration { return part(aheadPart, ttl) }

// ttlOf returns for how long a lease was given, as far as this process can know, and at least
// the time that can be judged.
func (j *judge) ttlOf(lease *session.Lease) time.Duration {
	return max(cmp.Or(lease.TTL(), j.ttl), min(j.ttl, shortestTTL))
}

// shortestTTL is the time of the shortest leases that processes with longer ones judge as they
// are: the shorter they are, the more often the store has to be read.
const shortestTTL = 500 * time.Millisecond

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
		if d.Lease.Owner != "" && left > lookAhead(ttl) && (left <= ttl || d.Lease.TTL() == 0) {
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
	shorter := time.Duration(0)
	for known := range j.contacts {
		if known < ttl {
			shorter = max(shorter, known)
		}
	}
	if shorter > 0 { // contact that is unbroken for shorter leases is for longer ones, too
		*j.contacts[ttl] = *j.contacts[shorter]
		j.contacts[ttl].listed = now
	}
}

// pause returns how long to wait between two reads of the store: half as long as usual while there
// are suspects that have not been ones for long.
func (j *judge) pause(now time.Time) time.Duration {
	shortest := j.ttl
	for ttl := range j.contacts {
		shortest = min(shortest, ttl)
	}
	for _, s := range j.suspects {
		if now.Sub(s.expires) < 2*s.ttl {
			return part(probePart/2, shortest)
		}
	}
	return part(probePart, shortest)
}

// isReady reports whether this process may soon take one of the suspects over. One that has just
// started leaves it to others, which may know sooner.
func (j *judge) isReady() bool {
	for _, s := range j.suspects {
		c := j.contacts[s.ttl]
		if s.due.Lease.Owner == "" || c != nil && c.ended.Sub(c.since) >= s.ttl/2 {
			return true
		}
	}
	return false
}

// wrote notes that a write on account of a suspect succeeded.
func (j *judge) wrote(key session.Key, began, ended time.Time) {
	s := j.suspects[key]
	if s == nil || began.Before(s.from) {
		return
	}
	if s.first.IsZero() || elapsed(s.last, began) > part(pausePart, s.ttl) {
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

// refusesWrites notes that the store has refused writes, and not only one on account of some
// lease. When it takes them again, holders of many leases need a while to renew them all.
func (j *judge) refusesWrites(now time.Time) { j.refused = now }

// inContact reports whether this process has been in contact with the store for so long that
// the holder of a lease, if it lives, has renewed it since it could.
func (j *judge) inContact(lease session.Lease, now time.Time) bool {
	ttl := min(j.ttlOf(&lease), defaultLeaseTTL)
	if j.contacts[ttl] == nil {
		ttl = defaultLeaseTTL
	}
	return j.contacts[ttl].lasts(ttl, now)
}

// held returns the leases of suspects that have a holder and are not left out, the longest due
// first. If there are more than limit, it returns a part of them, and some time later the next
// part: perhaps those of the first may not be taken over for other reasons.
func (j *judge) held(limit int, now time.Time, leftOut func(runID string) bool) []session.Held {
	var due []session.Due
	for _, s := range j.suspects {
		if s.due.Lease.Owner != "" && !leftOut(s.due.RunID) {
			due = append(due, s.due)
		}
	}
	if len(due) > limit {
		slices.SortFunc(due, func(a, b session.Due) int { return a.Compare(&b) })
		parts := (len(due) + limit - 1) / limit
		of := int(now.UnixNano()/int64(j.turnTime())) % parts
		due = due[of*limit : min((of+1)*limit, len(due))]
	}
	held := make([]session.Held, len(due))
	for i := range due {
		held[i] = session.Held{Key: due[i].Key, Fence: due[i].Lease.Fence()}
	}
	return held
}

// turnTime returns for how long this process looks at a part of the suspects, if there are too
// many: all of that part can be judged in this time.
func (j *judge) turnTime() time.Duration {
	longest := min(j.ttl, defaultLeaseTTL)
	for _, s := range j.suspects {
		longest = max(longest, s.ttl)
	}
	return 2 * longest
}

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

// longestOverdue returns for how long the longest due suspect that is not left out has been one
// after its lease has ended, by the clock of this process.
func (j *judge) longestOverdue(now time.Time, leftOut func(runID string) bool) (longest time.Duration) {
	for _, s := range j.suspects {
		if !leftOut(s.due.RunID) {
			longest = max(longest, now.Sub(s.expires))
		}
	}
	return longest
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
	return now.Sub(s.expires) >= part(gracePart, s.ttl) && c != nil && c.lasts(s.ttl, now) && s.proven(now) && elapsed(j.refused, now) >= s.ttl
}
