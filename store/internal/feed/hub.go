package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/session"
)

// Hub wakes the readers of a stream that may have changed. The store chooses the
// keys of streams.
type Hub[K comparable] struct {
	// Added and Removed, if set, are called with the first reader of a key and after
	// its last one has left; keys is the number of keys with readers. Closed, if set,
	// is called when the hub is closed; Added is not called after that. The hub is
	// locked during these calls: they must not call the hub, and may use state that
	// the hub's lock guards.
	Added, Removed func(key K, keys int)
	Closed         func()

	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	topics  map[K]*topic // those that have readers
}

// topic is a stream with readers. They share one signal, so that the cost of a
// notification does not depend on their number.
type topic struct {
	readers int // guarded by the hub's lock
	changed atomic.Pointer[signal]
}

// signal is closed at the next change.
type signal struct{ ch chan struct{} }

func newTopic() *topic {
	t := &topic{}
	t.changed.Store(&signal{make(chan struct{})})
	return t
}

func (t *topic) notify() { close(t.changed.Swap(&signal{make(chan struct{})}).ch) }

// NewHub returns a hub without readers.
func NewHub[K comparable]() *Hub[K] {
	return &Hub[K]{closing: make(chan struct{}), topics: map[K]*topic{}}
}

// Subscription wakes one reader.
type Subscription struct {
	topic   *topic
	armed   *signal
	closing <-chan struct{}
}

// Subscribe starts notifications of a stream's changes; the caller must call end.
func (h *Hub[K]) Subscribe(key K) (sub *Subscription, end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return &Subscription{topic: newTopic(), closing: h.closing}, func() {}
	}
	t := h.topics[key]
	first := t == nil
	if first {
		t = newTopic()
		h.topics[key] = t
	}
	t.readers++
	if first && h.Added != nil {
		h.Added(key, len(h.topics))
	}
	return &Subscription{topic: t, closing: h.closing}, func() { h.unsubscribe(key, t) }
}

func (h *Hub[K]) unsubscribe(key K, t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.readers--; t.readers > 0 {
		return
	}
	delete(h.topics, key)
	if h.Removed != nil {
		h.Removed(key, len(h.topics))
	}
}

// Notify wakes the readers of a stream.
func (h *Hub[K]) Notify(key K) {
	h.mu.Lock()
	t := h.topics[key]
	h.mu.Unlock()
	if t != nil {
		t.notify()
	}
}

// NotifyAll wakes all readers.
func (h *Hub[K]) NotifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		t.notify()
	}
}

// Keys returns the streams that have readers.
func (h *Hub[K]) Keys() []K {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]K, 0, len(h.topics))
	for key := range h.topics {
		out = append(out, key)
	}
	return out
}

// Closing returns a channel that is closed when the hub is closed.
func (h *Hub[K]) Closing() <-chan struct{} { return h.closing }

// Close ends all reads with [session.ErrClosed]; it returns false if it was called
// before.
func (h *Hub[K]) Close() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.closed = true
	close(h.closing)
	if h.Closed != nil {
		h.Closed()
	}
	return true
}

// Arm makes all changes from now on wake the reader. A feed calls it before it
// reads. A store that reads under the same lock that guards its notifications
// calls it there, too: then no reader is woken for what it has already seen.
func (s *Subscription) Arm() { s.armed = s.topic.changed.Load() }

// wait waits for a change, the end of ctx or of the hub, or for poll if that is
// not 0.
func (s *Subscription) wait(ctx context.Context, poll time.Duration) error {
	if poll > 0 {
		return s.waitFor(ctx, poll)
	}
	select {
	case <-s.armed.ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return session.ErrClosed
	}
}

func (s *Subscription) waitFor(ctx context.Context, poll time.Duration) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-s.armed.ch:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return session.ErrClosed
	}
}
