// waits: all that waits here does so in a bubble
package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
)

// A trial is a holder of one lease, idle judges, and a store with a fault.

// ledger is a store with one lease, as far as a judgement needs one.
type ledger struct {
	mu    sync.Mutex
	lease session.Lease
	ttl   time.Duration
	ahead time.Duration // how far its clock was set

	weather func(kind call) (delay time.Duration, err error)
}

// call is what a process asks of the store.
type call string

const (
	reads  call = "read"  // its clock, and what has expired
	writes call = "write" // anything
	locks  call = "lock"  // the lease, whose row or slot may be out of reach alone
	holds  call = "hold"  // the same, by the holder
)

var (
	errAway = errors.New("the store is away")
	errSlow = errors.New("the store took too long")
)

// ask makes a call of the store, which takes at most limit.
func (l *ledger) ask(kind call, limit time.Duration, do func(now time.Time)) error {
	for began := time.Now(); ; {
		delay, err := l.weather(kind)
		if errors.Is(err, errHangs) {
			if time.Since(began)+lookAgain >= limit {
				return errSlow
			}
			time.Sleep(lookAgain)
			continue
		}
		if delay >= limit {
			time.Sleep(limit)
			return errSlow
		}
		time.Sleep(delay / 2)
		if err == nil {
			if _, err = l.weather(kind); err == nil {
				l.mu.Lock()
				do(l.now())
				l.mu.Unlock()
			}
		}
		time.Sleep(delay / 2)
		return err
	}
}

// errHangs makes calls wait until the store is back.
var errHangs = errors.New("no answer")

// lookAgain is how often a call that waits looks whether it is.
const lookAgain = 50 * time.Millisecond

func (l *ledger) now() time.Time { return time.Now().Add(l.ahead) }

// hold renews the lease as Host.renewLeases does, until the process dies.
func (l *ledger) hold(owner string, dies <-chan struct{}) {
	ticker := time.NewTicker(l.ttl / 3)
	defer ticker.Stop()
	slots := make(chan struct{}, maxRenewals)
	round := 0
	var mu sync.Mutex
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-ticker.C:
		case <-dies:
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		mu.Lock()
		round++
		mine := round
		mu.Unlock()
		working.Go(func() {
			defer func() { <-slots }()
			for {
				err := l.ask(holds, l.ttl, func(now time.Time) {
					select {
					case <-dies:
					default:
						if l.lease.Owner == owner {
							l.lease.ExpiresAt = now.Add(l.ttl)
						}
					}
				})
				mu.Lock()
				later := round != mine
				mu.Unlock()
				if err == nil || later {
					return
				}
				select {
				case <-time.After(l.ttl / renewalPause):
				case <-dies:
					return
				}
			}
		})
	}
}

// watch judges the lease until it takes it over or ends. own is the time of its own leases.
func (l *ledger) watch(name string, own time.Duration, ends <-chan struct{}, sleeps func() time.Duration) {
	j, key := newJudge(own), session.Key{ID: "s"}
	for {
		select {
		case <-ends:
			return
		case <-time.After(j.pause(time.Now()) * 9 / 10):
		}
		time.Sleep(sleeps())
		var found []session.Due
		var store time.Time
		a := answer{began: time.Now()}
		err := l.ask(reads, own/2, func(now time.Time) {
			store = now
			if left := l.lease.ExpiresAt.Sub(now); left <= lookAhead(min(own, l.ttl)) || left > l.ttl {
				found = []session.Due{{Key: key, Lease: l.lease}}
			}
		})
		if err != nil {
			j.failed()
			continue
		}
		a.ended, a.store = time.Now(), store
		j.answered(a)
		j.list(found, a.ended, store)
		time.Sleep(sleeps())
		if len(found) == 0 {
			continue
		}
		began := time.Now()
		if err = l.ask(writes, own/2, func(time.Time) {}); err != nil {
			j.refusesWrites(time.Now())
		} else { // in the row or the slot of the session
			err = l.ask(locks, own/2, func(time.Time) {})
		}
		if err != nil {
			j.notWritten(key)
			continue
		}
		j.wrote(key, began, time.Now())
		if len(j.condemned(time.Now())) == 0 {
			continue
		}
		seen := found[0].Lease
		time.Sleep(sleeps())
		taken := false
		_ = l.ask(locks, own/2, func(time.Time) {
			if taken = l.lease.Fence() == seen.Fence() && l.lease.ExpiresAt.Equal(seen.ExpiresAt); taken {
				l.lease = session.Lease{Owner: name, Epoch: seen.Epoch + 1, ExpiresAt: l.now().Add(time.Hour)}
			}
		})
		if taken {
			return
		}
	}
}

// trial is what happens to the store and the judges between two times.
type trial struct {
	holder, own time.Duration // the times of leases
	judges      int
	from, to    time.Duration // of the fault
	weather     func(kind call) (time.Duration, error)
	sets        time.Duration        // the store's clock, when the fault begins
	sleeps      func() time.Duration // of the judges, during the fault
	lag         time.Duration        // how long the holder needs, after the fault, until it comes to this lease
}

// faults are the ways in which a lease expires whose holder lives.
var faults = map[string]func(r *rand.Rand, t *trial){
	"nothing": func(*rand.Rand, *trial) {},
	"outage": func(_ *rand.Rand, t *trial) {
		t.weather = func(call) (time.Duration, error) { return 0, errAway }
	},
	"no answer": func(_ *rand.Rand, t *trial) {
		t.weather = func(call) (time.Duration, error) { return 0, errHangs }
	},
	"outage, many leases": func(r *rand.Rand, t *trial) {
		t.weather = func(call) (time.Duration, error) { return 0, errAway }
		t.lag = time.Duration(r.Int64N(int64(t.holder * 9 / 10)))
	},
	"slow": func(r *rand.Rand, t *trial) {
		t.weather = func(call) (time.Duration, error) { return time.Duration(r.IntN(int(t.holder / 2))), nil }
	},
	"slow, away": func(r *rand.Rand, t *trial) {
		until := t.from + (t.to-t.from)/2
		began := time.Now()
		t.weather = func(call) (time.Duration, error) {
			if time.Since(began) < until {
				return time.Duration(r.IntN(int(t.holder / 2))), nil
			}
			return 0, errAway
		}
	},
	"blips": func(r *rand.Rand, t *trial) {
		began, away := time.Duration(0), time.Duration(0)
		origin := time.Now()
		t.weather = func(call) (time.Duration, error) {
			at := time.Since(origin)
			if at > began+away {
				began, away = at+time.Duration(r.IntN(int(time.Second))), 50*time.Millisecond+time.Duration(r.IntN(int(350*time.Millisecond)))
			}
			if at >= began {
				return 0, errAway
			}
			return 0, nil
		}
	},
	"clock forward, much":   func(_ *rand.Rand, t *trial) { t.sets = 10 * time.Minute },
	"clock forward, little": func(r *rand.Rand, t *trial) { t.sets = time.Duration(r.Int64N(int64(2 * t.holder))) },
	"clock forward, many leases": func(r *rand.Rand, t *trial) {
		t.sets, t.to = 10*time.Minute, t.from
		t.lag = time.Duration(r.Int64N(int64(t.holder * 9 / 10)))
	},
	"clock back": func(_ *rand.Rand, t *trial) { t.sets = -10 * time.Minute },
	"judges sleep": func(r *rand.Rand, t *trial) {
		t.sleeps = func() time.Duration { return time.Duration(r.Int64N(int64(20 * time.Second))) }
	},
	"reads without writes": func(_ *rand.Rand, t *trial) {
		t.weather = func(kind call) (time.Duration, error) {
			if kind == reads {
				return 0, nil
			}
			return 0, errAway
		}
	},
	"reads without writes, many leases": func(r *rand.Rand, t *trial) {
		t.weather = func(kind call) (time.Duration, error) {
			if kind == reads {
				return 0, nil
			}
			return 0, errAway
		}
		t.to = t.from + max(t.to-t.from, t.holder)
		t.lag = time.Duration(r.Int64N(int64(t.holder * 7 / 10)))
	},
	"a row is locked, or a slot away": func(_ *rand.Rand, t *trial) {
		t.weather = func(kind call) (time.Duration, error) {
			if kind == locks || kind == holds {
				return 0, errAway
			}
			return 0, nil
		}
	},
}

// play plays a trial for a while. It returns who has the lease then.
func (t *trial) play(r *rand.Rand, dies time.Duration, end time.Duration) (owner string) {
	began := time.Now()
	during := func() bool { at := time.Since(began); return at >= t.from && at < t.to }
	holder := session.NewLeaseOwner("holder", t.holder)
	l := &ledger{ttl: t.holder, lease: session.Lease{Owner: holder, Epoch: 1, ExpiresAt: time.Now().Add(t.holder)}}
	var dice sync.Mutex
	l.weather = func(kind call) (time.Duration, error) {
		dice.Lock()
		defer dice.Unlock()
		if t.weather != nil && during() {
			return t.weather(kind)
		}
		if at := time.Since(began); kind == holds && t.lag > 0 && at >= t.from && at < t.to+t.lag {
			return 0, errAway
		}
		return time.Duration(r.IntN(int(5 * time.Millisecond))), nil
	}
	var all sync.WaitGroup
	death, over := make(chan struct{}), make(chan struct{})
	all.Go(func() { l.hold(holder, death) })
	for i := range t.judges {
		all.Go(func() {
			l.watch(fmt.Sprint("judge ", i), t.own, over, func() time.Duration {
				dice.Lock()
				defer dice.Unlock()
				if t.sleeps != nil && during() && r.IntN(4) == 0 {
					return t.sleeps()
				}
				return 0
			})
		})
	}
	set := time.AfterFunc(t.from, func() {
		l.mu.Lock()
		l.ahead += t.sets
		l.mu.Unlock()
	})
	time.Sleep(min(dies, end))
	close(death)
	time.Sleep(end - min(dies, end))
	set.Stop()
	l.mu.Lock()
	owner, _, _ = strings.Cut(l.lease.Owner, ":")
	l.mu.Unlock()
	close(over)
	all.Wait()
	return owner
}

func newTrial(r *rand.Rand, fault string) *trial {
	t := &trial{holder: 5 * time.Second, own: 5 * time.Second, judges: 1 + r.IntN(4)}
	t.from = time.Duration(r.Int64N(int64(15 * time.Second)))
	t.to = t.from + time.Duration(r.Int64N(int64(25*time.Second)))
	faults[fault](r, t)
	return t
}

// Nobody takes a lease from a process that lives and can renew it, whatever happens to the
// store.
func TestJudgeSparesTheLiving(t *testing.T) {
	t.Parallel()
	seeds := uint64(20)
	if testshare.Soak() {
		seeds = 500
	}
	for fault := range faults {
		for _, times := range [][2]time.Duration{{5 * time.Second, 5 * time.Second}, {30 * time.Second, 5 * time.Second}, {5 * time.Second, 30 * time.Second}} {
			t.Run(fmt.Sprintf("%s, %s and %s", fault, times[0], times[1]), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					wrong := 0
					for seed := range seeds {
						r := rand.New(rand.NewPCG(seed, 1))
						trial := newTrial(r, fault)
						trial.holder, trial.own = times[0], times[1]
						faults[fault](r, trial)
						if owner := trial.play(r, time.Hour, trial.to+2*trial.holder+2*trial.own+10*time.Second); owner != "holder" {
							wrong++
							if wrong == 1 {
								t.Errorf("seed %d: %s has taken the lease of a process that lives", seed, owner)
							}
						}
					}
					if wrong > 0 {
						t.Errorf("%d of %d", wrong, seeds)
					}
				})
			})
		}
	}
}

// What a judge needs: contact for 5 s, then writes for 2 s, at most 2 s apart, that begin at most 2 s before
// the lease expires, none of which fails, and a second after its end.
func TestJudgeWantsProof(t *testing.T) {
	t.Parallel()
	key := session.Key{ID: "s"}
	began := time.Now()
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	type write struct {
		at float64
		ok bool
	}
	for name, c := range map[string]struct {
		expires float64
		writes  []write
		want    bool
	}{
		"enough":               {10, []write{{11, true}, {12, true}, {13, true}}, true},
		"once":                 {10, []write{{13, true}}, false},
		"for too short a time": {10, []write{{11.2, true}, {12, true}, {13, true}}, false},
		"one fails":            {10, []write{{10.5, true}, {11, true}, {11.5, false}, {12, true}, {13, true}}, false},
		"the last fails":       {10, []write{{11, true}, {12, true}, {13, true}, {13.1, false}}, false},
		"too far apart":        {10, []write{{10.8, true}, {12.9, true}, {13, true}}, false},
		"before the end":       {12, []write{{10, true}, {11, true}, {12, true}}, true},
		"too early":            {12, []write{{9.9, true}, {10.9, true}, {11.9, true}}, false},
		"within the grace":     {12.5, []write{{10.6, true}, {11.6, true}, {12.7, true}}, false},
		"long ago":             {5, []write{{6, true}, {7, true}, {8, true}, {9, true}}, false},
		"none":                 {5, nil, false},
	} {
		j := newJudge(5 * time.Second)
		for i := range 14 {
			j.answered(answer{at(float64(i)), at(float64(i)), at(float64(i))})
		}
		due := session.Due{Key: key, Lease: session.Lease{Owner: "holder", Epoch: 1, ExpiresAt: at(c.expires)}}
		j.list([]session.Due{due}, at(c.expires-1), at(c.expires-1))
		for _, w := range c.writes {
			if w.ok {
				j.wrote(key, at(w.at), at(w.at))
			} else {
				j.notWritten(key)
			}
		}
		if got := j.condemns(key, due.Lease, at(13.2)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		j.refusesWrites(at(9))
		if j.condemns(key, due.Lease, at(13.2)) {
			t.Errorf("%s: may be taken over, though the store took no writes less than a lease's length ago", name)
		}
		j.refusesWrites(at(8))
		if got := j.condemns(key, due.Lease, at(13.2)); got != c.want {
			t.Errorf("%s: %t, after the store has taken writes again for as long as a lease lasts", name, got)
		}
		renewed := due
		renewed.Lease.ExpiresAt = at(13)
		if j.list([]session.Due{renewed}, at(13.2), at(13.2)); len(j.condemned(at(13.2))) > 0 {
			t.Errorf("%s: may be taken over, though it was renewed", name)
		}
		if j.list(nil, at(13.2), at(13.2)); len(j.condemned(at(13.2))) > 0 {
			t.Errorf("%s: may be taken over, though it has not expired", name)
		}
		due.Lease.Owner = ""
		if j.list([]session.Due{due}, at(13.2), at(13.2)); len(j.condemned(at(13.2))) == 0 {
			t.Errorf("%s: may not be taken over, though it was released", name)
		}
	}
}

// A lease of a process that has died is taken over within 10 s.
func TestJudgeFindsTheDead(t *testing.T) {
	t.Parallel()
	seeds := uint64(20)
	if testshare.Soak() {
		seeds = 500
	}
	for _, c := range []struct {
		fault string
		own   time.Duration
	}{{"nothing", 5 * time.Second}, {"nothing", 30 * time.Second}, {"clock back", 5 * time.Second}, {"clock back", 30 * time.Second}} {
		t.Run(fmt.Sprint(c.fault, ", ", c.own), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for seed := range seeds {
					r := rand.New(rand.NewPCG(seed, 2))
					trial := newTrial(r, c.fault)
					trial.own = c.own
					dies := 10*time.Second + time.Duration(r.Int64N(int64(20*time.Second)))
					after := dies
					if trial.sets != 0 { // what is set back after the death begins to count then
						after = max(dies, trial.from)
					}
					if owner := trial.play(r, dies, after+10*time.Second); owner == "holder" {
						t.Errorf("seed %d: 10 s after its death, %s has the lease", seed, owner)
					}
				}
			})
		})
	}
}
