package sqlite

import (
	"context"
	"sync"
	"time"

	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/store/internal/lite"
)

// watch wakes readers of streams, and those who listen for signals, after writes:
// immediately for writes of this process, and by polling, while there are any, for
// writes of others.
type watch struct {
	hub     *feed.Hub[lite.StreamKey]
	signals *feed.Signals
	// look notifies all readers if another process has written, and announces its
	// signals.
	look     func(context.Context) error
	interval time.Duration
	polling  sync.WaitGroup

	mu       sync.Mutex
	stop     context.CancelFunc // ends the polling
	signaled bool               // somebody listens for signals, so the polling continues
	closed   bool
}

func newWatch(look func(context.Context) error, interval time.Duration) *watch {
	w := &watch{hub: feed.NewHub[lite.StreamKey](), signals: feed.NewSignals(), look: look, interval: interval}
	w.hub.Added = func(lite.StreamKey, int) { w.begin(false) }
	w.hub.Removed = func(_ lite.StreamKey, keys int) {
		if keys == 0 {
			w.end(false)
		}
	}
	w.hub.Closed = func() { w.end(true) }
	w.signals.First = func() { w.begin(true) }
	return w
}

// begin starts the polling.
func (w *watch) begin(signaled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signaled = w.signaled || signaled
	if w.stop == nil && !w.closed {
		ctx, stop := context.WithCancel(context.Background())
		w.stop = stop
		w.polling.Go(func() { w.poll(ctx) })
	}
}

// end ends the polling, unless somebody needs it.
func (w *watch) end(closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = w.closed || closed
	if w.stop != nil && (w.closed || !w.signaled) {
		w.stop()
		w.stop = nil
	}
}

// notify wakes the readers of streams that were written to. They read what was
// written if some of it may have been undone.
func (w *watch) notify(streams map[lite.StreamKey]*lite.Change, undone bool) {
	for key, change := range streams {
		if undone || len(change.Batches) == 0 {
			w.hub.Notify(key)
			continue
		}
		for _, batch := range change.Batches {
			w.hub.Publish(key, batch)
		}
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
		// If this fails, readers query the stream themselves and report the error.
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.hub.NotifyAll()
		}
	}
}

// close ends the polling and the reads; it returns false if it was called before.
func (w *watch) close() bool {
	if !w.hub.Close() {
		return false
	}
	w.signals.Close()
	w.polling.Wait()
	return true
}
