package redis

import (
	"context"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/store/internal/feed"
)

// watch wakes readers of streams after writes: immediately for writes of this
// process, and for writes of others through one connection that is subscribed to
// the streams with readers here. Readers poll in case a notification is lost.
type watch struct {
	b      *Backend
	hub    *feed.Hub[string] // by channel
	done   sync.WaitGroup
	pubsub *goredis.PubSub // set once, with the hub locked
	wanted chan struct{}   // signals that readers were added or removed
}

func newWatch(b *Backend) *watch {
	w := &watch{b: b, hub: feed.NewHub[string](), wanted: make(chan struct{}, 1)}
	w.hub.Added = func(string, int) {
		w.want()
		if w.pubsub == nil {
			w.pubsub = w.b.client.Subscribe(context.Background()) // connects with the first channel
			w.done.Go(w.keep)
			w.done.Go(w.listen)
		}
	}
	w.hub.Removed = func(string, int) { w.want() }
	return w
}

func (w *watch) want() {
	select {
	case w.wanted <- struct{}{}:
	default:
	}
}

// keep keeps the connection subscribed to the channels with readers. It may wait
// for the network, so nobody waits for it.
func (w *watch) keep() {
	have := map[string]bool{}
	ctx := context.Background()
	for {
		select {
		case <-w.hub.Closing():
			return
		case <-w.wanted:
		}
		var come, gone []string
		read := map[string]bool{}
		for _, channel := range w.hub.Keys() {
			read[channel] = true
			if !have[channel] {
				come = append(come, channel)
			}
		}
		for channel := range have {
			if !read[channel] {
				gone = append(gone, channel)
			}
		}
		if len(come) > 0 {
			if err := w.pubsub.Subscribe(ctx, come...); err != nil {
				w.b.config.Logger.Warn("readers of streams are not notified of changes and poll instead", "error", err)
			}
		}
		if len(gone) > 0 {
			_ = w.pubsub.Unsubscribe(ctx, gone...) // a notification without a reader does no harm
		}
		for _, channel := range come {
			have[channel] = true
		}
		for _, channel := range gone {
			delete(have, channel)
		}
	}
}

// listen forwards notifications. The readers of a channel that was just subscribed
// to are woken once more, because something may have been written before.
func (w *watch) listen() {
	for message := range w.pubsub.ChannelWithSubscriptions() {
		switch m := message.(type) {
		case *goredis.Message:
			if m.Payload != w.b.tokens.process { // else readers here get the batch from its writer
				w.hub.Notify(m.Channel)
			}
		case *goredis.Subscription:
			if m.Kind == "subscribe" {
				w.hub.Notify(m.Channel)
			}
		}
	}
}

// close ends the reads and waits for the goroutines.
func (w *watch) close() {
	if !w.hub.Close() {
		return
	}
	if w.pubsub != nil { // which nobody sets any more
		_ = w.pubsub.Close() // there is nothing to lose
	}
	w.done.Wait()
}
