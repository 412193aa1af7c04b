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

// lanes sends the commits of many sessions over a few connections, and likewise the
// appends to streams and the changes of calls. A commit that finds a lane free is
// sent immediately and alone. Commits that arrive while all lanes are busy wait, and
// are then sent together as one transaction: under load, a commit costs the server
// little more than what it writes.
//
// This needs no goroutine in between: whoever leaves a lane makes the first
// waiting commit the leader of the others.
type lanes struct {
	b *Backend

	mu      sync.Mutex
	busy    int
	waiting []*load
}

const (
	maxLanes = 4  // in use: a quarter of the connections, and enough to keep the server busy
	maxLoads = 16 // sent together

	// patience is how long a lane is held.
	patience = 100 * time.Millisecond
)

// load is the data that is sent for one commit.
type load struct {
	ctx   context.Context //nolint:containedctx // of whoever waits for it
	order string          // see together
	parts []part
	leads chan struct{} // closed when this load must lead the waiting ones
	sent  chan struct{} // closed when it was sent
	err   error         // the result, once it was sent
}

// carry sends the statements of one commit as one transaction, in one round trip.
// Rows are locked in the order that order defines.
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
		go l.lead(w) // the transaction may outlast this caller
	case <-w.sent:
	case <-ctx.Done():
		switch l.withdraw(w) {
		case loadWithdrawn:
			return &queuedError{ctx.Err()}
		case loadLeads:
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

// What has become of a load whose caller has stopped waiting.
type withdrawal int

const (
	loadTaken     withdrawal = iota // somebody sends it
	loadWithdrawn                   // it is never sent
	loadLeads                       // it has become the leader
)

// withdraw removes a load whose caller has stopped waiting, unless somebody sends it.
func (l *lanes) withdraw(w *load) withdrawal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return loadWithdrawn
	}
	select {
	case <-w.leads:
		return loadLeads
	default:
		return loadTaken
	}
}

// leaveSoon returns the function that leaves a lane. The lane is also left after a
// timeout: a commit may wait for a locked row and must not block those behind it.
func (l *lanes) leaveSoon() (leave func()) {
	once := sync.OnceFunc(l.leave)
	timer := time.AfterFunc(patience, once)
	return func() {
		timer.Stop()
		once()
	}
}

// leave passes a lane to the waiting loads.
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

// lead sends a load together with those that wait.
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

// errAlone reports that a commit was sent with others and one of them failed: it
// has to be sent alone.
var errAlone = fmt.Errorf("%w, alone", errAgain)

// together sends several loads as one transaction. If one of them fails, each has
// to be sent alone, which shows the cause.
func (l *lanes) together(loads []*load) error {
	// Transactions that lock the same rows in different orders would deadlock.
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

// whileAny returns a context that ends when no caller waits for any of the loads.
func whileAny(loads []*load) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	var waiting atomic.Int64
	waiting.Store(int64(len(loads)))
	stops := make([]func() bool, len(loads))
	for i, w := range loads {
		stops[i] = context.AfterFunc(w.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel(context.Cause(w.ctx))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// impatient bounds the wait for a locked row, so that it does not block the other
// commits.
const impatient = "SELECT set_config('lock_timeout', '100ms', true)"
