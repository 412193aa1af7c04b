package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// changed notifies readers of a stream, here and in other processes, that it has
// changed.
func (b *Backend) changed(key streamKey) {
	b.watch.hub.Notify(key)
	b.notifier.add(key)
}

// published passes a batch that was added to a stream to the readers here, and
// notifies those in other processes.
func (b *Backend) published(key streamKey, number, last int64, batch *stored.Batch) {
	first := last - int64(batch.Lines) + 1
	b.watch.hub.Publish(key, &feed.Batch{
		Incarnation: number, First: first, Last: last, Bytes: len(batch.Body),
		Items: func(after int64) ([]stream.Item, error) { return batch.Items(key.id, first, after) },
	})
	b.notifier.add(key)
}

// signal announces something to those who listen for it, here and in other processes.
func (b *Backend) signal(s session.Signal) {
	b.watch.signals.Announce(s)
	b.notifier.signal(s)
}

// Signals implements [store.Backend]. Without LISTEN, see [Config].NoListen, only what
// this process writes is announced.
func (b *Backend) Signals(notify func(session.Signal)) (stop func()) {
	return b.watch.signals.Listen(notify)
}

// The names of notification channels begin with these.
const (
	channelPrefix = "helix_streams_"
	signalPrefix  = "helix_signals_"
)

// channel is the channel for changes of streams of the configured schema.
func (b *Backend) channel() string { return channelPrefix + b.config.Schema }

// signalChannel is the channel for signals of the configured schema.
func (b *Backend) signalChannel() string { return signalPrefix + b.config.Schema }

// quiet is how long changed streams are collected before other processes are
// notified: NOTIFY takes a lock that all notifying transactions of the server
// share, so it is not part of a write and happens rarely.
const quiet = 5 * time.Millisecond

// maxPayload is the maximum size of a notification in bytes, with some margin.
const maxPayload = 7900

// notifier tells other processes which streams have changed, and passes on signals:
// immediately if it was idle, otherwise with what has been collected since. A payload
// is the name of the notifier, by which its own process recognises it, and the hashes
// of streams, or one signal in JSON.
type notifier struct {
	b      *Backend
	name   string
	wake   chan struct{}
	stop   context.CancelFunc
	worker sync.WaitGroup

	mu      sync.Mutex
	changed map[uint64]bool
	signals []session.Signal
}

func newNotifier(b *Backend) *notifier {
	ctx, stop := context.WithCancel(context.Background())
	n := &notifier{b: b, name: "!" + rand.Text(), wake: make(chan struct{}, 1), stop: stop, changed: map[uint64]bool{}}
	n.worker.Go(func() { n.work(ctx) })
	return n
}

func (n *notifier) close() {
	n.stop()
	n.worker.Wait()
}

func (n *notifier) add(key streamKey) {
	n.mu.Lock()
	n.changed[key.hash()] = true
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) signal(s session.Signal) {
	n.mu.Lock()
	if len(n.signals) < maxSignals {
		n.signals = append(n.signals, s)
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// maxSignals bounds the signals that are collected while the server does not answer.
// What they announce is in the store.
const maxSignals = 1000

// takeSignals returns what was announced, as payloads.
func (n *notifier) takeSignals() (payloads []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.signals {
		if text, err := json.Marshal(s); err == nil && len(text) < maxPayload-len(n.name) {
			payloads = append(payloads, n.name+" "+string(text))
		}
	}
	n.signals = nil
	return payloads
}

// take returns what has changed, as payloads.
func (n *notifier) take() (payloads []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	for hash := range n.changed {
		if b.Len() > maxPayload-20 {
			payloads = append(payloads, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString(n.name)
		}
		b.WriteByte(' ')
		b.WriteString(strconv.FormatUint(hash, 36))
	}
	if b.Len() > 0 {
		payloads = append(payloads, b.String())
	}
	clear(n.changed)
	return payloads
}

func (n *notifier) work(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			n.send(context.WithoutCancel(ctx))
			return
		case <-n.wake:
		}
		n.send(ctx)
		pause.Reset(quiet)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
}

// send sends what has changed. A process that misses it finds the changes by
// polling.
func (n *notifier) send(ctx context.Context) {
	payloads, signals := n.take(), n.takeSignals()
	if len(payloads)+len(signals) == 0 {
		return
	}
	channels := append(slices.Repeat([]string{n.b.channel()}, len(payloads)), slices.Repeat([]string{n.b.signalChannel()}, len(signals))...)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	const notify = "SELECT pg_notify(c, p) FROM unnest($1::text[], $2::text[]) x(c, p)"
	if err := n.b.ask(ctx, func(pgx.Rows) error { return nil }, notify, channels, append(payloads, signals...)); err != nil {
		n.b.config.Logger.DebugContext(ctx, "other processes could not be notified of changes", "error", err)
	}
}

// listen notifies readers of what other processes write, while the backend is
// open.
func (w *watch) listen(ctx context.Context) {
	const longest = 30 * time.Second
	level := slog.LevelWarn
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, longest) {
		begun := time.Now()
		listened, err := w.listenOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > longest {
			wait = time.Second
		}
		if listened {
			level = slog.LevelWarn
		}
		w.b.config.Logger.Log(ctx, level, "the connection that listens for changes of streams was lost; readers poll for changes", "error", err)
		level = slog.LevelDebug // a line for each try would fill the log
		w.hub.NotifyAll()
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// listenOnce listens until the connection is lost. It reports whether it has listened.
func (w *watch) listenOnce(ctx context.Context) (listened bool, err error) {
	conn, err := w.connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		w.listening.Store(false)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	for _, channel := range []string{w.b.channel(), w.b.signalChannel()} {
		if err := w.subscribe(ctx, conn, channel); err != nil {
			return false, err
		}
	}
	w.listening.Store(true)
	w.hub.NotifyAll() // of what was written before
	w.signals.Announce(session.Signal{})
	for {
		n, err := w.await(ctx, conn)
		if err != nil {
			return true, err
		}
		if strings.HasPrefix(n.Payload, w.b.notifier.name+" ") {
			continue // those here were told when it was written
		}
		if n.Channel == w.b.signalChannel() {
			w.announce(n.Payload)
			continue
		}
		for name := range strings.FieldsSeq(n.Payload) {
			if hash, err := strconv.ParseUint(name, 36, 64); err == nil { // else it is the name of a notifier
				w.notifyHash(hash)
			}
		}
	}
}

// connect makes a connection like those of the pool.
func (w *watch) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.b.config.CallTimeout)
	defer cancel()
	config := w.b.pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config.ConnConfig)
}

// subscribe has a connection receive the notifications of a channel.
func (w *watch) subscribe(ctx context.Context, conn *pgx.Conn, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, w.b.config.CallTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize())
	return err
}

// announce passes on the signal of another process.
func (w *watch) announce(payload string) {
	_, text, _ := strings.Cut(payload, " ")
	var signal session.Signal
	if json.Unmarshal([]byte(text), &signal) == nil && signal.ID != "" {
		w.signals.Announce(signal)
	}
}

// await waits for a notification. While none arrives it occasionally tests the
// connection, because a connection whose other end has disappeared silently stays
// silent for ever.
func (w *watch) await(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, w.silence)
		n, err := conn.WaitForNotification(waiting)
		over := waiting.Err() != nil
		cancel()
		if err == nil || !over || ctx.Err() != nil || conn.IsClosed() {
			return n, err
		}
		asking, cancel := context.WithTimeout(ctx, min(w.silence, lookLimit))
		err = conn.Ping(asking)
		cancel()
		if err != nil {
			return nil, err
		}
	}
}
