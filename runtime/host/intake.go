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
	// maxTakeovers is how many takeovers a process has in flight: a fleet that lost a
	// large member does not lose the next one to the load of taking its runs over.
	maxTakeovers = 256
	// quarantine is how long a suspect is kept back after other runs were taken over,
	// unless those are done before.
	quarantine = 2 * time.Minute
	// A takeover is no longer in flight when its run has lived for so long. That is long
	// for a suspect, for it is to be alone, and bounded, for it may wait for a slow model.
	probation        = 30 * time.Second
	suspectProbation = 5 * time.Minute
	// admission is how long an engine that asks for a takeover is kept waiting before it
	// is sent to another process.
	admission = 10 * time.Second
)

// intake decides when this process takes a run over.
//
// When a process dies, nobody knows which of its runs was the reason, if one was. So
// every run is taken over once without further ado. A run that is then lost a second
// time without having made progress is a suspect. Suspects are taken over one at a
// time, after everything else: whichever ends the process again was alone among them,
// and no other is counted as having failed.
type intake struct {
	mu       sync.Mutex
	inFlight int           // takeovers whose run has not yet committed or ended
	suspect  bool          // one of them is a suspect
	others   int           // runs that were taken over, are not suspects, and have not ended here
	latest   time.Time     // when the last of those was
	freed    chan struct{} // closed when something of this changes
	turned   bool          // some run was turned away
	again    chan struct{} // receives when a run that was turned away may be admitted now
	closing  chan struct{} // closed when the runtime closes
}

func newIntake() *intake {
	return &intake{freed: make(chan struct{}), again: make(chan struct{}, 1), closing: make(chan struct{})}
}

// errLater refuses a takeover for now.
var errLater = errors.New("the run waits until others have been taken over")

// full reports whether no run, or no suspect, is admitted now. Whoever asks is told
// when that changes.
func (in *intake) full(suspect bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.refuses(suspect)
}

func (in *intake) refuses(suspect bool) bool {
	refused := in.inFlight >= maxTakeovers || suspect && (in.suspect || in.others > 0 && time.Since(in.latest) < quarantine)
	in.turned = in.turned || refused
	return refused
}

// admit lets a run be taken over, or gives nil if others come first.
func (in *intake) admit(suspect bool) *admitted {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.refuses(suspect) {
		return nil
	}
	in.inFlight++
	if suspect {
		in.suspect = true
	} else {
		in.others++
		in.latest = time.Now()
	}
	return &admitted{in: in, suspect: suspect}
}

// await retries admit for as long as admission says.
func (in *intake) await(ctx context.Context, suspect bool) (*admitted, error) {
	timer := time.NewTimer(admission)
	defer timer.Stop()
	for {
		in.mu.Lock()
		freed := in.freed
		in.mu.Unlock()
		if a := in.admit(suspect); a != nil {
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

// change changes what is in flight, and has those look again who were turned away.
func (in *intake) change(do func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	do()
	close(in.freed)
	in.freed = make(chan struct{})
	if in.turned {
		in.turned = false
		select {
		case in.again <- struct{}{}:
		default:
		}
	}
}

// admitted is a run that may be taken over.
type admitted struct {
	in      *intake
	suspect bool
	landed  sync.Once
	left    sync.Once
}

// land notes that the run has made progress.
func (a *admitted) land() {
	a.landed.Do(func() {
		a.in.change(func() {
			a.in.inFlight--
			if a.suspect {
				a.in.suspect = false
			}
		})
	})
}

// leave notes that this process has done with the run, or never had it.
func (a *admitted) leave() {
	a.land()
	a.left.Do(func() {
		if !a.suspect {
			a.in.change(func() { a.in.others-- })
		}
	})
}

// follow notes how a turn that was taken over gets on. Close waits for it.
func (h *Host) follow(a *admitted, opened *engine.Opened, done <-chan struct{}) {
	h.loops.Go(func() {
		defer a.leave()
		limit := probation
		if a.suspect {
			limit = suspectProbation
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
