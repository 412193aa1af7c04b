package engine

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/helixagents/helix/session"
)

// errStopped is the cause with which a stop cancels what a turn does.
var errStopped = errors.New("the run was stopped")

// stopSignal is the request to stop a turn. It cancels what the turn does and reaches
// the turns of the agents below it. Any goroutine may use it.
type stopSignal struct {
	mu      sync.Mutex // guards what follows; of two signals, the upper is locked first
	stop    *session.Stop
	cancels map[int]context.CancelCauseFunc
	nextID  int           // of cancels
	below   []*stopSignal // of the turns that a call of this one waits for
}

// request stops the turn: what is in progress is cancelled, and the next commit
// records the stop. An abort replaces an interrupt.
func (s *stopSignal) request(stop *session.Stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop == nil || (s.stop.Kind == session.StopInterrupt && stop.Kind == session.StopAbort) {
		s.stop = stop
	}
	for _, cancel := range s.cancels {
		cancel(errStopped)
	}
	for _, below := range s.below {
		below.request(s.stop)
	}
}

// requested returns the request, or nil.
func (s *stopSignal) requested() *session.Stop {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop
}

// watch returns ctx, cancelled when the turn is stopped. The caller calls the function
// that it returns when it needs the context no more.
func (s *stopSignal) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancels == nil {
		s.cancels = map[int]context.CancelCauseFunc{}
	}
	s.nextID++
	id := s.nextID
	s.cancels[id] = cancel
	if s.stop != nil {
		cancel(errStopped)
	}
	return ctx, func() {
		s.mu.Lock()
		delete(s.cancels, id)
		s.mu.Unlock()
		cancel(nil)
	}
}

// attach stops another turn with this one, until it is detached.
func (s *stopSignal) attach(below *stopSignal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.below = append(s.below, below)
	if s.stop != nil {
		below.request(s.stop)
	}
}

func (s *stopSignal) detach(below *stopSignal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.below = slices.DeleteFunc(s.below, func(other *stopSignal) bool { return other == below })
}

// progressSignal says that a turn, or one below it, has committed something. Any
// goroutine may use it.
type progressSignal struct {
	mu    sync.Mutex // guards what follows
	first chan struct{}
	above *progressSignal
}

// watch returns a channel that the next report closes.
func (p *progressSignal) watch() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		p.first = make(chan struct{})
	}
	return p.first
}

// attach reports progress to the signal of the turn above, too.
func (p *progressSignal) attach(above *progressSignal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.above = above
}

// report wakes those who watch this signal and those above it.
func (p *progressSignal) report() {
	for at := p; at != nil; {
		at.mu.Lock()
		if at.first != nil {
			close(at.first)
			at.first = nil
		}
		above := at.above
		at.mu.Unlock()
		at = above
	}
}
