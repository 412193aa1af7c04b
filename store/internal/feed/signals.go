package feed

import (
	"context"
	"sync"

	"github.com/helixagents/helix/session"
)

// Signals passes signals to those in this process who listen for them.
type Signals struct {
	// First, if set, is called before the first listener is added. It is called once.
	First func()

	mu        sync.Mutex
	begun     bool
	listeners map[*listener]bool
	closing   chan struct{}
	closed    bool
}

type listener struct{ notify func(session.Signal) }

// NewSignals returns signals that nobody listens for.
func NewSignals() *Signals {
	return &Signals{listeners: map[*listener]bool{}, closing: make(chan struct{})}
}

// Listen calls notify for each signal until ctx ends or the signals are closed.
func (s *Signals) Listen(ctx context.Context, notify func(session.Signal)) {
	l := &listener{notify}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	if !s.begun && s.First != nil {
		s.First()
	}
	s.begun = true
	s.listeners[l] = true
	s.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-s.closing:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// Announce passes a signal to all listeners.
func (s *Signals) Announce(signal session.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		l.notify(signal)
	}
}

// Close ends all calls of Listen.
func (s *Signals) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
}
