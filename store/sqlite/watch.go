package sqlite

import (
	"context"
	"sync"
	"time"
)

// watch tells readers of streams that something was written: at once what this
// process wrote, and by polling, while there are readers, what others did.
type watch struct {
	// look has notifyAll called if another process has written.
	look     func(context.Context) error
	interval time.Duration
	closing  chan struct{}
	polling  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	readers map[streamKey]map[*subscription]bool
	stop    context.CancelFunc // ends the polling
}

// subscription is one reader's place to be told. A signal that was not taken yet
// stands for all that followed, so telling never waits for a reader.
type subscription struct{ signal chan struct{} }

func newWatch(look func(context.Context) error, interval time.Duration) *watch {
	return &watch{
		look: look, interval: interval, closing: make(chan struct{}),
		readers: map[streamKey]map[*subscription]bool{},
	}
}

// subscribe begins telling of a stream's changes; the caller ends it.
func (w *watch) subscribe(key streamKey) (sub *subscription, end func()) {
	sub = &subscription{make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return sub, func() {}
	}
	if w.readers[key] == nil {
		w.readers[key] = map[*subscription]bool{}
	}
	w.readers[key][sub] = true
	if w.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		w.stop = stop
		w.polling.Go(func() { w.poll(ctx) })
	}
	return sub, func() { w.unsubscribe(key, sub) }
}

func (w *watch) unsubscribe(key streamKey, sub *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.readers[key], sub)
	if len(w.readers[key]) == 0 {
		delete(w.readers, key)
	}
	if len(w.readers) == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// notify tells the readers of streams that were written to.
func (w *watch) notify(streams map[streamKey]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range streams {
		for sub := range w.readers[key] {
			sub.tell()
		}
	}
}

func (w *watch) notifyAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, subs := range w.readers {
		for sub := range subs {
			sub.tell()
		}
	}
}

func (s *subscription) tell() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

func (w *watch) poll(ctx context.Context) {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// When it cannot be told, readers look for themselves and report what they
		// find.
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.notifyAll()
		}
	}
}

// close ends the polling and has readers give up; false if it was called before.
func (w *watch) close() bool {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return false
	}
	w.closed = true
	close(w.closing)
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
	w.mu.Unlock()
	w.polling.Wait()
	return true
}
