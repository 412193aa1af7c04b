package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/session"
)

const (
	// maxTakeovers is how many takeovers a process has in flight at most: after the death
	// of a process with many runs, the load of taking them over must not kill the next.
	maxTakeovers = 256
	// quarantine is how long a run that was lost before waits after other runs were taken
	// over, unless those end before.
	quarantine = 2 * time.Minute
	// A takeover is no longer in flight when its run has lived for probation. That is
	// longer for one that was lost before, which should be alone, and bounded, because it may
	// wait for a slow model.
	probation           = 30 * time.Second
	lostBeforeProbation = 5 * time.Minute
	// admission is how long a workflow engine that asks for a takeover waits before it is
	// refused and asks another process.
	admission = 10 * time.Second
)

// intake decides when this process takes a run over.
//
// When a process dies, it is unknown which of its runs was the reason, if one was. So
// every run is taken over once, at once. Runs that are then lost a second time without having
// made progress are taken over one at a time, after all others: if the process dies again,
// only the one of them that was in flight counts as having failed.
type intake struct {
	mu         sync.Mutex
	inFlight   int           // takeovers whose run has not yet committed or ended
	lostBefore bool          // one of them was lost before
	others     int           // runs that were taken over, were not lost before, and are still held here
	latest     time.Time     // when the last of those was taken over
	freed      chan struct{} // closed when one of these fields changes
	refused    bool          // some run was refused since the last change
	again      chan struct{} // receives when a run that was refused may be admitted now
	closing    chan struct{} // closed when the runtime is closing
}

func newIntake() *intake {
	return &intake{freed: make(chan struct{}), again: make(chan struct{}, 1), closing: make(chan struct{})}
}

// errLater refuses a takeover until other runs have been taken over.
var errLater = errors.New("the run waits until others have been taken over")

// full reports whether no run, or none that was lost before, is admitted now. When that changes, the
// channel again receives.
func (in *intake) full(lostBefore bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.refuses(lostBefore)
}

func (in *intake) refuses(lostBefore bool) bool {
	refused := in.inFlight >= maxTakeovers || lostBefore && (in.lostBefore || in.others > 0 && time.Since(in.latest) < quarantine)
	in.refused = in.refused || refused
	return refused
}

// admit admits a run to be taken over, or returns nil if others come first.
func (in *intake) admit(lostBefore bool) *admitted {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.refuses(lostBefore) {
		return nil
	}
	in.inFlight++
	if lostBefore {
		in.lostBefore = true
	} else {
		in.others++
		in.latest = time.Now()
	}
	return &admitted{in: in, lostBefore: lostBefore}
}

// await calls admit until it admits the run, for at most the time admission.
func (in *intake) await(ctx context.Context, lostBefore bool) (*admitted, error) {
	timer := time.NewTimer(admission)
	defer timer.Stop()
	for {
		in.mu.Lock()
		freed := in.freed
		in.mu.Unlock()
		if a := in.admit(lostBefore); a != nil {
			return a, nil
		}
		select {
		case <-freed:
		case <-timer.C:
			return nil, session.ErrUnavailable.WithCause(errLater, "the run is not taken over yet")
		case <-in.closing:
			return nil, errClosing
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// change changes what is in flight, and signals that a refused run may be admitted.
func (in *intake) change(do func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	do()
	close(in.freed)
	in.freed = make(chan struct{})
	if in.refused {
		in.refused = false
		select {
		case in.again <- struct{}{}:
		default:
		}
	}
}

// admitted is a run that may be taken over.
type admitted struct {
	in         *intake
	lostBefore bool
	landed     sync.Once
	left       sync.Once
}

// land records that the run has made progress.
func (a *admitted) land() {
	a.landed.Do(func() {
		a.in.change(func() {
			a.in.inFlight--
			if a.lostBefore {
				a.in.lostBefore = false
			}
		})
	})
}

// leave records that this process no longer holds the run, or never held it.
func (a *admitted) leave() {
	a.land()
	a.left.Do(func() {
		if !a.lostBefore {
			a.in.change(func() { a.in.others-- })
		}
	})
}

// follow records the progress of a turn that was taken over. Shutdown waits for it.
func (h *Host) follow(a *admitted, opened *engine.Opened, done <-chan struct{}) {
	h.loops.Go(func() {
		defer a.leave()
		limit := probation
		if a.lostBefore {
			limit = lostBeforeProbation
		}
		alive := time.NewTimer(limit)
		defer alive.Stop()
		select {
		case <-opened.Progressed:
		case <-alive.C:
		case <-done:
			return
		}
		a.land()
		<-done
	})
}
