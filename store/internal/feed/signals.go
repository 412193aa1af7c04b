package feed

import (
	"sync"

	"github.com/helixagents/helix/session"
)

// Signals passes signals to those in this process who listen for them.
type Signals struct {
	// First, if set, is called once, with the first listener. It must not call the signals.
	First func()

	mu        sync.Mutex
	begun     bool
	closed    bool
	listeners map[*listener]bool
}

type listener struct{ notify func(session.Signal) }

// NewSignals returns signals that nobody listens for.
func NewSignals() *Signals { return &Signals{listeners: map[*listener]bool{}} }

// Listen has notify called for each signal until stop is called or the signals are
// closed.
func (s *Signals) Listen(notify func(session.Signal)) (stop func()) {
	l := &listener{notify}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return func() {}
	}
	s.listeners[l] = true
	if !s.begun && s.First != nil {
		s.First()
	}
	s.begun = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
	}
}

// Announce passes a signal to all listeners.
func (s *Signals) Announce(signal session.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		l.notify(signal)
	}
}

// Close ends all listening.
func (s *Signals) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	clear(s.listeners)
}
