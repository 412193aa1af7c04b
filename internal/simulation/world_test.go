package simulation

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

// world is a fleet, the store that it shares, the people who use it, and a service outside that counts effects.
type world struct {
	t       *testing.T
	seed    uint64
	began   time.Time
	length  time.Duration // of the time with faults
	calm    bool          // the only fault is that processes end
	steady  bool          // no process is stopped for a while: one that lives keeps its runs, whatever the store does
	backend store.Backend // without faults
	clock   atomic.Int64  // how far the store's clock is ahead
	setBack atomic.Int64  // by how much the clock was set back, in all
	ticks   atomic.Int64
	quiet   atomic.Bool // the faults are over

	mu          sync.Mutex
	processes   []*process // one for each place of the fleet; dead ones until they are replaced
	everybody   []*process // that ever lived
	log         []string
	broken      []string // what must not be
	weather     weather
	effects     map[string][]effect   // of tools, by idempotency key
	asked       map[string][]modelUse // by session
	stops       []stop
	modelFailed map[string]bool           // sessions for which the model failed when it last might have
	answers     map[string]answered       // by the call's id
	said        map[string]map[string]int // the texts of messages that were accepted, by session; 0 if that is not certain
	mayStop     map[string]bool           // sessions that somebody has asked to stop, whatever the answer was
	retried     map[string]bool           // sessions that failed and went on, without the step in which they failed
	notes       map[string]string         // the runs of tasks that were carried out, by the task's id
	crashes     []crash
	taken       []takeover
	counts      map[string]int // of what happened, for the report
}

// effect is one start of a tool.
type effect struct {
	by *process
	at time.Duration
}

// modelUse is one call of a model.
type modelUse struct {
	by         *process
	from, till time.Duration // till is 0 while it is under way
}

// stop is a stop that a person was told is requested.
type stop struct {
	session, run string
	at           time.Duration
}

// answered is an answer to a call that waited for a person.
type answered struct {
	tool    string
	approve bool
	certain bool // the person was told that it is accepted
}

// crash is the end of a process that was not asked for, while it worked on sessions.
type crash struct {
	by       *process
	at       time.Duration
	sessions []string
}

// takeover is a run that a process took over.
type takeover struct {
	session string
	at      time.Duration
}

func newWorld(t *testing.T, seed uint64, length time.Duration) *world {
	w := &world{
		t: t, seed: seed, began: time.Now(), length: length,
		effects: map[string][]effect{}, asked: map[string][]modelUse{}, modelFailed: map[string]bool{}, answers: map[string]answered{},
		said: map[string]map[string]int{}, mayStop: map[string]bool{}, retried: map[string]bool{}, notes: map[string]string{}, counts: map[string]int{},
	}
	// No two readings of the clock are the same, as with a real one: that of a bubble stands still while anybody works.
	backend := memory.New(memory.Config{Clock: func() time.Time {
		return time.Now().Add(time.Duration(w.clock.Load() + w.ticks.Add(1)))
	}})
	t.Cleanup(func() { _ = backend.Close() })
	w.backend = backend
	return w
}

// random returns the random numbers of one of those who act in the world.
func (w *world) random(actor string, number int) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, hash(actor)+uint64(number)))
}

func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// chance decides by a seed and a name, so that whoever asks gets the same answer.
func (w *world) chance(name string, percent uint64) bool {
	return (hash(fmt.Sprint(w.seed, " ", name))>>7)%100 < percent
}

// now is how long the world has existed.
func (w *world) now() time.Duration { return time.Since(w.began) } // waits: in a bubble

// fail notes that something is that must not be.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.broken) < 20 {
		w.broken = append(w.broken, fmt.Sprintf("after %s: ", w.now())+fmt.Sprintf(format, args...))
	}
}

// count counts what happened.
func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// note writes a line to the world's log.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%12s ", w.now())+fmt.Sprintf(format, args...))
}

// failed reports whether something is that must not be.
func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.broken) > 0
}

// Write implements [io.Writer]: a process writes a line of its log to the world's.
func (p *process) Write(line []byte) (int, error) {
	p.w.note("%s: %s", p, bytes.TrimSpace(line))
	return len(line), nil
}

// untimed leaves the time out of a log's lines, which the world's log has.
func untimed(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// upTo returns a random duration that is shorter than the limit.
func upTo(r *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(limit)))
}
