package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/session"
)

// Hub wakes readers of a stream that may have changed. Streams are named by keys of
// the store's choice.
type Hub[K comparable] struct {
	// Added and Removed, if set, are called with the first reader of a key and after
	// its last one has left; keys is how many have readers then. Closed, if set, is
	// called when the hub is closed, and Added not after that. The hub is locked
	// meanwhile: they must not call it, and may use what nobody else does.
	Added, Removed func(key K, keys int)
	Closed         func()

	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	topics  map[K]*topic // those that have readers
}

// topic is a stream that has readers. They share one signal, so that notifying costs
// little however many they are.
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

// NewHub makes a hub without readers.
func NewHub[K comparable]() *Hub[K] {
	return &Hub[K]{closing: make(chan struct{}), topics: map[K]*topic{}}
}

// Subscription wakes one reader.
type Subscription struct {
	topic   *topic
	armed   *signal
	closing <-chan struct{}
}

// Subscribe begins to notify of a stream's changes; the caller calls end.
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

// Keys lists the streams that have readers.
func (h *Hub[K]) Keys() []K {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]K, 0, len(h.topics))
	for key := range h.topics {
		out = append(out, key)
	}
	return out
}

// Closing is closed when the hub is.
func (h *Hub[K]) Closing() <-chan struct{} { return h.closing }

// Close ends all readings with [session.ErrClosed]; false if it was called before.
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

// Arm has the reader woken by changes from here on. A feed calls it before it looks.
// A store that looks under the lock under which it notifies calls it there, too:
// then no reader is woken for what it has seen.
func (s *Subscription) Arm() { s.armed = s.topic.changed.Load() }

// wait waits for a change, the end of ctx, that of the hub, or poll if that is not
// 0.
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
