package feed

import (
	"context"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
)

// Hub tells readers that a stream may have changed. Streams are named by keys of
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
	readers map[K]map[*Subscription]bool
}

// NewHub makes a hub without readers.
func NewHub[K comparable]() *Hub[K] {
	return &Hub[K]{closing: make(chan struct{}), readers: map[K]map[*Subscription]bool{}}
}

// Subscription is one reader's place to be told. A signal that was not taken yet
// stands for all that followed, so telling never waits for a reader.
type Subscription struct {
	signal  chan struct{}
	closing <-chan struct{}
}

// Subscribe begins telling of a stream's changes; the caller ends it.
func (h *Hub[K]) Subscribe(key K) (sub *Subscription, end func()) {
	sub = &Subscription{make(chan struct{}, 1), h.closing}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return sub, func() {}
	}
	first := h.readers[key] == nil
	if first {
		h.readers[key] = map[*Subscription]bool{}
	}
	h.readers[key][sub] = true
	if first && h.Added != nil {
		h.Added(key, len(h.readers))
	}
	return sub, func() { h.unsubscribe(key, sub) }
}

func (h *Hub[K]) unsubscribe(key K, sub *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers[key], sub)
	if len(h.readers[key]) > 0 {
		return
	}
	delete(h.readers, key)
	if h.Removed != nil {
		h.Removed(key, len(h.readers))
	}
}

// Notify tells the readers of a stream.
func (h *Hub[K]) Notify(key K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell(key)
}

// NotifyAll tells all readers.
func (h *Hub[K]) NotifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.readers {
		h.tell(key)
	}
}

func (h *Hub[K]) tell(key K) {
	for sub := range h.readers[key] {
		select {
		case sub.signal <- struct{}{}:
		default:
		}
	}
}

// Keys lists the streams that have readers.
func (h *Hub[K]) Keys() []K {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]K, 0, len(h.readers))
	for key := range h.readers {
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

// wait waits for a change, the end of ctx, that of the hub, or poll if that is not
// 0.
func (s *Subscription) wait(ctx context.Context, poll time.Duration) error {
	var look <-chan time.Time
	if poll > 0 {
		timer := time.NewTimer(poll)
		defer timer.Stop()
		look = timer.C
	}
	select {
	case <-s.signal:
		return nil
	case <-look:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return session.ErrClosed
	}
}
