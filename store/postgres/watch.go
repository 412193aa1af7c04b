package postgres

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// watch tells readers of streams that something was written: at once what this
// process wrote, and while there are readers, what others did, by notifications
// of the server on a connection of its own, and by polling.
type watch struct {
	b       *Backend
	closing chan struct{}
	working sync.WaitGroup
	// listening is set while notifications arrive: polling is then only for those
	// that are lost with the process that was to send them.
	listening atomic.Bool
	// silence is how long nothing may be heard before the connection that listens is
	// asked for a sign of life.
	silence time.Duration

	mu       sync.Mutex
	closed   bool
	readers  map[streamKey]map[*subscription]bool
	byHash   map[uint64]map[streamKey]bool // as notifications name them
	stop     context.CancelFunc            // ends the polling
	unlisten context.CancelFunc            // ends the listening, which goes on without readers
}

// subscription is one reader's place to be told. A signal that was not taken yet
// stands for all that followed, so telling never waits for a reader.
type subscription struct{ signal chan struct{} }

func newWatch(b *Backend) *watch {
	return &watch{
		b: b, closing: make(chan struct{}), silence: 30 * time.Second,
		readers: map[streamKey]map[*subscription]bool{}, byHash: map[uint64]map[streamKey]bool{},
	}
}

// hash names a stream in a notification.
func (k streamKey) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(k.tenant))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(k.id))
	return h.Sum64()
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
		hash := key.hash()
		if w.byHash[hash] == nil {
			w.byHash[hash] = map[streamKey]bool{}
		}
		w.byHash[hash][key] = true
	}
	w.readers[key][sub] = true
	if w.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		w.stop = stop
		w.working.Go(func() { w.poll(ctx) })
	}
	if w.unlisten == nil && !w.b.config.NoListen {
		ctx, stop := context.WithCancel(context.Background())
		w.unlisten = stop
		w.working.Go(func() { w.listen(ctx) })
	}
	return sub, func() { w.unsubscribe(key, sub) }
}

func (w *watch) unsubscribe(key streamKey, sub *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.readers[key], sub)
	if len(w.readers[key]) == 0 {
		delete(w.readers, key)
		hash := key.hash()
		if delete(w.byHash[hash], key); len(w.byHash[hash]) == 0 {
			delete(w.byHash, hash)
		}
	}
	if len(w.readers) == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// notify tells the readers of a stream that was written to.
func (w *watch) notify(key streamKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell(key)
}

// notifyHash tells the readers of streams that a notification names.
func (w *watch) notifyHash(hash uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.byHash[hash] {
		w.tell(key)
	}
}

func (w *watch) notifyAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.readers {
		w.tell(key)
	}
}

func (w *watch) tell(key streamKey) {
	for sub := range w.readers[key] {
		select {
		case sub.signal <- struct{}{}:
		default:
		}
	}
}

// watched lists the streams that are read.
func (w *watch) watched() (tenants, ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.readers {
		tenants, ids = append(tenants, key.tenant), append(ids, key.id)
	}
	return tenants, ids
}

// slowPolls is how many times rarer polling is while notifications arrive.
const slowPolls = 10

func (w *watch) poll(ctx context.Context) {
	tick := time.NewTicker(w.b.config.PollInterval)
	defer tick.Stop()
	seen := map[streamKey]int64{}
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if w.listening.Load() && n%slowPolls != 0 {
			continue
		}
		// When it cannot be told, readers look for themselves and report what they
		// find.
		if err := w.look(ctx, seen); err != nil && ctx.Err() == nil {
			w.notifyAll()
		}
	}
}

const selectRevisions = `
SELECT s.tenant, s.stream_id, s.number, s.revision
FROM unnest($1::text[], $2::text[]) x(tenant, id)
JOIN helix.streams s ON s.tenant = x.tenant AND s.stream_id = x.id`

// lookLimit is how long one question about changes may take.
const lookLimit = 5 * time.Second

// look tells the readers of streams that have changed since the last look, in one
// query for all of them.
func (w *watch) look(ctx context.Context, seen map[streamKey]int64) error {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	tenants, ids := w.watched()
	found := make(map[streamKey]int64, len(ids))
	err := w.b.query(ctx, "look for changes", func(rows pgx.Rows) error {
		var (
			key              streamKey
			number, revision int64
		)
		err := rows.Scan(&key.tenant, &key.id, &number, &revision)
		found[key] = number<<20 + revision // which tells a stream from another of its id
		return err
	}, selectRevisions, tenants, ids)
	if err != nil {
		return err
	}
	for i := range ids {
		key := streamKey{tenants[i], ids[i]}
		if was, known := seen[key]; !known || was != found[key] {
			w.notify(key)
		}
		seen[key] = found[key]
	}
	for key := range seen {
		if _, still := found[key]; !still {
			delete(seen, key)
		}
	}
	return nil
}

// close ends the watching and has readers give up; false if it was called before.
func (w *watch) close() bool {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return false
	}
	w.closed = true
	close(w.closing)
	for _, stop := range []context.CancelFunc{w.stop, w.unlisten} {
		if stop != nil {
			stop()
		}
	}
	w.stop, w.unlisten = nil, nil
	w.mu.Unlock()
	w.working.Wait()
	return true
}
