package redis

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/feed"
)

// watch wakes readers of streams, and those who listen for signals, after writes:
// immediately for writes of this process, and for writes of others through one
// connection that is subscribed to the streams with readers here and to the channel
// for signals. Readers poll in case a notification is lost.
type watch struct {
	b       *Backend
	hub     *feed.Hub[string] // by channel
	signals *feed.Signals
	done    sync.WaitGroup
	wanted  chan struct{} // tells keep that readers or listeners were added or removed
	publish chan session.Signal

	mu       sync.Mutex
	pubsub   *goredis.PubSub // set once
	signaled bool            // somebody listens for signals
	closed   bool
}

func newWatch(b *Backend) *watch {
	w := &watch{
		b: b, hub: feed.NewHub[string](), signals: feed.NewSignals(), wanted: make(chan struct{}, 1), publish: make(chan session.Signal, maxSignals),
	}
	w.done.Go(w.tell)
	w.hub.Added = func(string, int) { w.start(false) }
	w.hub.Removed = func(string, int) { w.want() }
	w.signals.First = func() { w.start(true) }
	return w
}

// start connects, unless that was done.
func (w *watch) start(signaled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signaled = w.signaled || signaled
	w.want()
	if w.pubsub == nil && !w.closed {
		w.pubsub = w.b.client.Subscribe(context.Background()) // connects with the first channel
		w.done.Go(func() { w.keep(w.pubsub) })
		w.done.Go(func() { w.listen(w.pubsub) })
	}
}

// channels returns what the connection has to be subscribed to.
func (w *watch) channels() []string {
	w.mu.Lock()
	signaled := w.signaled
	w.mu.Unlock()
	keys := w.hub.Keys() // not with w.mu locked: the hub calls start with its own lock
	if signaled {
		keys = append(keys, w.b.keys.signals())
	}
	return keys
}

func (w *watch) want() {
	select {
	case w.wanted <- struct{}{}:
	default:
	}
}

// keep keeps the connection subscribed to the channels with readers. It may wait
// for the network, so nobody waits for it.
func (w *watch) keep(pubsub *goredis.PubSub) {
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
		for _, channel := range w.channels() {
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
			if err := pubsub.Subscribe(ctx, come...); err != nil {
				w.b.config.Logger.Warn("readers of streams are not notified of changes and poll instead", "error", err)
			}
		}
		if len(gone) > 0 {
			_ = pubsub.Unsubscribe(ctx, gone...) // a notification without a reader does no harm
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
func (w *watch) listen(pubsub *goredis.PubSub) {
	for message := range pubsub.ChannelWithSubscriptions() {
		switch m := message.(type) {
		case *goredis.Message:
			switch {
			case m.Channel == w.b.keys.signals():
				w.announce(m.Payload)
			case m.Payload != w.b.tokens.process: // else readers here get the batch from its writer
				w.hub.Notify(m.Channel)
			}
		case *goredis.Subscription:
			switch {
			case m.Kind != "subscribe":
			case m.Channel == w.b.keys.signals():
				w.signals.Announce(session.Signal{})
			default:
				w.hub.Notify(m.Channel)
			}
		}
	}
}

// announce passes on the signal of another process.
func (w *watch) announce(payload string) {
	by, text, _ := strings.Cut(payload, " ")
	var signal session.Signal
	if by != w.b.tokens.process && json.Unmarshal([]byte(text), &signal) == nil && signal.ID != "" {
		w.signals.Announce(signal)
	}
}

// Signals implements [store.Backend].
func (b *Backend) Signals(notify func(session.Signal)) (stop func()) {
	return b.watch.signals.Listen(notify)
}

// What a signal announces is already in the store, so it may be lost.
const (
	signalTimeout = time.Second // to tell other processes of one
	maxSignals    = 256         // that wait for that
)

// signal announces something to those who listen for it, here and in other processes.
func (b *Backend) signal(s session.Signal) {
	b.watch.signals.Announce(s)
	select {
	case b.watch.publish <- s:
	default: // the server does not answer
	}
}

// tell tells other processes of signals. Nobody waits for that; when the backend is
// closed, what is left is still sent.
func (w *watch) tell() {
	for {
		select {
		case s := <-w.publish:
			w.send(s)
			continue
		default:
		}
		select {
		case s := <-w.publish:
			w.send(s)
		case <-w.hub.Closing():
			if len(w.publish) == 0 {
				return
			}
		}
	}
}

func (w *watch) send(s session.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	text, err := json.Marshal(s)
	if err == nil {
		err = w.b.client.Publish(ctx, w.b.keys.signals(), w.b.tokens.process+" "+string(text)).Err()
	}
	if err != nil {
		w.b.config.Logger.Debug("other processes could not be notified of a signal", "error", err)
	}
}

// close ends the reads and waits for the goroutines.
func (w *watch) close() {
	if !w.hub.Close() {
		return
	}
	w.signals.Close()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	if w.pubsub != nil { // which nobody sets any more
		_ = w.pubsub.Close() // there is nothing to lose
	}
	w.done.Wait()
}
