package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// lanes sends the commits of many sessions over a few connections. One that finds a
// lane free goes at once and by itself. Those that come while all are busy wait for
// one, and go together, as one transaction: under load, a commit costs the server
// little more than what it writes.
//
// Nothing has to run for that in between: whoever leaves a lane has the first that
// waits lead the others.
type lanes struct {
	b *Backend

	mu      sync.Mutex
	busy    int
	waiting []*load
}

const (
	maxLanes = 4  // at work: a quarter of the connections, and more than keep the server busy
	maxLoads = 16 // that go together

	// patience is for how long a lane is kept.
	patience = 100 * time.Millisecond
)

// load is what is sent for one commit.
type load struct {
	ctx   context.Context //nolint:containedctx // of whoever waits for it
	order string          // see together
	parts []part
	leads chan struct{} // closed when it is to lead those that wait
	sent  chan struct{} // closed when it was sent
	err   error         // then
}

// carry sends the statements of one commit as one transaction, in one round trip.
// Rows are locked in the order of what is said to be theirs.
func (l *lanes) carry(ctx context.Context, order string, parts ...part) error {
	l.mu.Lock()
	if l.busy < maxLanes {
		l.busy++
		l.mu.Unlock()
		defer l.leaveSoon()()
		return l.b.send(ctx, parts...)
	}
	w := &load{ctx: ctx, order: order, parts: parts, leads: make(chan struct{}), sent: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.mu.Unlock()
	select {
	case <-w.leads:
		go l.lead(w) // which may take longer than this one waits
	case <-w.sent:
	case <-ctx.Done():
		if !l.withdraw(w) {
			go l.lead(w) // somebody has to
		}
	}
	select {
	case <-w.sent:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withdraw takes back a load for which nobody waits any more. It reports false if it
// is one that is to lead.
func (l *lanes) withdraw(w *load) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	select {
	case <-w.leads:
		return false
	default:
		return true
	}
}

// leaveSoon gives what leaves a lane. It is also left when it takes long: a commit may
// wait for a row that somebody else holds, and must not hold up those behind it.
func (l *lanes) leaveSoon() (leave func()) {
	once := sync.OnceFunc(l.leave)
	timer := time.AfterFunc(patience, once)
	return func() {
		timer.Stop()
		once()
	}
}

// leave leaves a lane to those that wait.
func (l *lanes) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.busy--
		return
	}
	w := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	close(w.leads)
}

// lead sends a load, and with it those that wait.
func (l *lanes) lead(w *load) {
	defer l.leaveSoon()()
	l.mu.Lock()
	n := min(len(l.waiting), maxLoads-1)
	loads := append([]*load{w}, l.waiting[:n]...)
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.mu.Unlock()
	var err error
	if n == 0 {
		err = l.b.send(w.ctx, w.parts...)
	} else {
		err = l.together(loads)
	}
	for _, w := range loads {
		w.err = err
		close(w.sent)
	}
}

// errAlone says that a commit went together with others and that one of them failed:
// it has to go alone.
var errAlone = fmt.Errorf("%w, alone", errAgain)

// together sends several loads as one transaction. If one of them fails, all have to
// go alone, which tells them apart.
func (l *lanes) together(loads []*load) error {
	// Two that lock the same rows in another order would wait for each other.
	slices.SortFunc(loads, func(a, b *load) int { return strings.Compare(a.order, b.order) })
	parts := []part{{query: impatient}}
	for _, w := range loads {
		parts = append(parts, w.parts...)
	}
	ctx, cancel := whileAny(loads)
	defer cancel()
	err := l.b.send(ctx, parts...)
	if err != nil && !isLost(err) {
		return errAlone
	}
	return err
}

// whileAny is a context that ends when nobody waits for any of the loads.
func whileAny(loads []*load) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	var waiting atomic.Int64
	waiting.Store(int64(len(loads)))
	stops := make([]func() bool, len(loads))
	for i, w := range loads {
		stops[i] = context.AfterFunc(w.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// impatient keeps one whose row is held by somebody else from holding up all others.
const impatient = "SELECT set_config('lock_timeout', '100ms', true)"
