package redis

import (
	"context"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// watch tells readers of streams that something was written: at once what this
// process wrote, and through one connection, subscribed to the streams that have
// readers here, what others did. A notification that is lost is made up for by
// the readers' own looking.
type watch struct {
	b       *Backend
	closing chan struct{}
	done    sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	readers map[string]map[*subscription]bool // by channel
	pubsub  *goredis.PubSub
	wanted  chan struct{} // that readers have come or gone
}

// subscription is one reader's place to be told. A signal that was not taken yet
// stands for all that followed, so telling never waits for a reader.
type subscription struct{ signal chan struct{} }

func newWatch(b *Backend) *watch {
	return &watch{
		b: b, closing: make(chan struct{}), readers: map[string]map[*subscription]bool{}, wanted: make(chan struct{}, 1),
	}
}

// subscribe begins telling of a stream's changes; the caller ends it.
func (w *watch) subscribe(channel string) (sub *subscription, end func()) {
	sub = &subscription{make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return sub, func() {}
	}
	if w.readers[channel] == nil {
		w.readers[channel] = map[*subscription]bool{}
		w.want()
	}
	w.readers[channel][sub] = true
	if w.pubsub == nil {
		w.pubsub = w.b.client.Subscribe(context.Background()) // connects with the first channel
		w.done.Go(w.keep)
		w.done.Go(w.listen)
	}
	return sub, func() { w.unsubscribe(channel, sub) }
}

func (w *watch) unsubscribe(channel string, sub *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.readers[channel], sub)
	if len(w.readers[channel]) == 0 {
		delete(w.readers, channel)
		w.want()
	}
}

func (w *watch) want() {
	select {
	case w.wanted <- struct{}{}:
	default:
	}
}

// keep keeps the connection subscribed to the channels that have readers. It may
// wait for the network, so nobody waits for it.
func (w *watch) keep() {
	have := map[string]bool{}
	ctx := context.Background()
	for {
		select {
		case <-w.closing:
			return
		case <-w.wanted:
		}
		var come, gone []string
		w.mu.Lock()
		for channel := range w.readers {
			if !have[channel] {
				come = append(come, channel)
			}
		}
		for channel := range have {
			if w.readers[channel] == nil {
				gone = append(gone, channel)
			}
		}
		w.mu.Unlock()
		if len(come) > 0 {
			if err := w.pubsub.Subscribe(ctx, come...); err != nil {
				w.b.config.Logger.Warn("readers of streams are not told of changes, they look by themselves", "error", err)
			}
		}
		if len(gone) > 0 {
			_ = w.pubsub.Unsubscribe(ctx, gone...) // what is told in vain does no harm
		}
		for _, channel := range come {
			have[channel] = true
		}
		for _, channel := range gone {
			delete(have, channel)
		}
	}
}

// listen passes notifications on. A channel that was just subscribed to is told
// once more: something may have been written before.
func (w *watch) listen() {
	for message := range w.pubsub.ChannelWithSubscriptions() {
		switch m := message.(type) {
		case *goredis.Message:
			w.notify(m.Channel)
		case *goredis.Subscription:
			if m.Kind == "subscribe" {
				w.notify(m.Channel)
			}
		}
	}
}

// notify tells the readers of a stream.
func (w *watch) notify(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for sub := range w.readers[channel] {
		sub.tell()
	}
}

func (s *subscription) tell() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// close has readers give up and waits for what runs.
func (w *watch) close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	close(w.closing)
	pubsub := w.pubsub
	w.mu.Unlock()
	if pubsub != nil {
		_ = pubsub.Close() // there is nothing to be lost
	}
	w.done.Wait()
}
