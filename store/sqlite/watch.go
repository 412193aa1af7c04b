package sqlite

import (
	"context"
	"sync"
	"time"

	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/store/internal/lite"
)

// watch wakes readers of streams after writes: immediately for writes of this
// process, and by polling, while there are readers, for writes of others.
type watch struct {
	hub *feed.Hub[lite.StreamKey]
	// look notifies all readers if another process has written.
	look     func(context.Context) error
	interval time.Duration
	polling  sync.WaitGroup
	stop     context.CancelFunc // ends the polling; the hub's lock guards it
}

func newWatch(look func(context.Context) error, interval time.Duration) *watch {
	w := &watch{hub: feed.NewHub[lite.StreamKey](), look: look, interval: interval}
	w.hub.Added = func(lite.StreamKey, int) {
		if w.stop == nil {
			ctx, stop := context.WithCancel(context.Background())
			w.stop = stop
			w.polling.Go(func() { w.poll(ctx) })
		}
	}
	end := func() {
		if w.stop != nil {
			w.stop()
			w.stop = nil
		}
	}
	w.hub.Removed = func(_ lite.StreamKey, keys int) {
		if keys == 0 {
			end()
		}
	}
	w.hub.Closed = end
	return w
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
	w.polling.Wait()
	return true
}
