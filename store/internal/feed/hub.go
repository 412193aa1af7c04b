package feed

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
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

	mu      sync.Mutex // guards what follows
	changed *signal
	unread  int64   // how often the stream has changed in a way that requires a read
	batches []Batch // those since then that are not too old
	bytes   int     // of batches
}

// signal is closed at the next change.
type signal struct{ ch chan struct{} }

// Batch is a sequence of chunks that this process has written to a stream.
type Batch struct {
	Incarnation any // of the stream; see [View]
	First, Last int64
	Bytes       int
	// Items decodes the chunks after a sequence.
	Items func(after int64) ([]stream.Item, error)
}

// The limits of the batches that are kept for the readers of a stream. A reader that
// needs an older one reads it from the store.
const (
	maxBatches    = 16
	maxBatchBytes = 8 << 10
)

func newTopic() *topic { return &topic{changed: &signal{make(chan struct{})}} }

// notify wakes the readers: with a batch, or to read the stream.
func (t *topic) notify(batch *Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if batch == nil || batch.Bytes > maxBatchBytes {
		t.unread++
		t.batches, t.bytes = nil, 0
	} else {
		t.batches, t.bytes = append(t.batches, *batch), t.bytes+batch.Bytes
		for len(t.batches) > maxBatches || t.bytes > maxBatchBytes {
			t.bytes -= t.batches[0].Bytes
			t.batches = slices.Delete(t.batches, 0, 1)
		}
	}
	close(t.changed.ch)
	t.changed = &signal{make(chan struct{})}
}

// NewHub returns a hub without readers.
func NewHub[K comparable]() *Hub[K] {
	return &Hub[K]{closing: make(chan struct{}), topics: map[K]*topic{}}
}

// Subscription wakes one reader.
type Subscription struct {
	topic   *topic
	armed   *signal
	unread  int64 // of the topic when the reader last read the stream
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

// Notify wakes the readers of a stream, which then read it.
func (h *Hub[K]) Notify(key K) { h.notify(key, nil) }

// Publish wakes the readers of a stream to which this process has added a batch.
// Those that have seen everything before it need not read the stream.
func (h *Hub[K]) Publish(key K, batch *Batch) { h.notify(key, batch) }

func (h *Hub[K]) notify(key K, batch *Batch) {
	h.mu.Lock()
	t := h.topics[key]
	h.mu.Unlock()
	if t != nil {
		t.notify(batch)
	}
}

// NotifyAll wakes all readers.
func (h *Hub[K]) NotifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		t.notify(nil)
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
func (s *Subscription) Arm() {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.armed, s.unread = s.topic.changed, s.topic.unread
}

// published returns the batches that follow a sequence, of which there may be none.
// It returns false if the stream has changed otherwise since the reader read it, so
// that the reader has to read again. Further changes wake the reader.
func (s *Subscription) published(after int64, incarnation any) (out []Batch, ok bool) {
	t := s.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.unread != t.unread {
		return nil, false
	}
	next := after + 1
	for _, b := range t.batches {
		switch {
		case b.Last < next: // it was seen
		case b.First <= next && b.Incarnation == incarnation:
			out, next = append(out, b), b.Last+1
		default:
			return nil, false // others have written in between
		}
	}
	s.armed = t.changed
	return out, true
}

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
