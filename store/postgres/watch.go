package postgres

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/store/internal/feed"
)

// watch wakes readers of streams, and those who listen for signals, after writes:
// immediately for writes of this process; for writes of others, by notifications of
// the server on a separate connection, and by polling while there are readers.
type watch struct {
	b       *Backend
	hub     *feed.Hub[streamKey]
	signals *feed.Signals
	working sync.WaitGroup
	// listening is set while notifications arrive: polling then only finds changes
	// whose notification was lost with the process that should have sent it.
	listening atomic.Bool
	// silence is how long the connection that listens may be silent before it is
	// tested.
	silence time.Duration

	stop context.CancelFunc // ends the polling; the hub's lock guards it

	mu       sync.Mutex
	byHash   map[uint64]map[streamKey]bool // streams with readers, by their hash in notifications
	unlisten context.CancelFunc            // ends the listening, which continues without readers
	closed   bool
}

func newWatch(b *Backend) *watch {
	w := &watch{
		b: b, hub: feed.NewHub[streamKey](), signals: feed.NewSignals(), silence: 30 * time.Second, byHash: map[uint64]map[streamKey]bool{},
	}
	w.hub.Added, w.hub.Removed, w.hub.Closed = w.added, w.removed, w.end
	w.signals.First = w.startListening
	return w
}

// added starts to watch a stream. Polling ends with the last reader, listening
// with the backend.
func (w *watch) added(key streamKey, _ int) {
	w.mu.Lock()
	hash := key.hash()
	if w.byHash[hash] == nil {
		w.byHash[hash] = map[streamKey]bool{}
	}
	w.byHash[hash][key] = true
	w.mu.Unlock()
	if w.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		w.stop = stop
		w.working.Go(func() { w.poll(ctx) })
	}
	w.startListening()
}

// startListening starts to listen for notifications, unless that was done.
func (w *watch) startListening() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unlisten == nil && !w.closed && !w.b.config.NoListen {
		ctx, stop := context.WithCancel(context.Background())
		w.unlisten = stop
		w.working.Go(func() { w.listen(ctx) })
	}
}

func (w *watch) removed(key streamKey, keys int) {
	w.mu.Lock()
	hash := key.hash()
	if delete(w.byHash[hash], key); len(w.byHash[hash]) == 0 {
		delete(w.byHash, hash)
	}
	w.mu.Unlock()
	if keys == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, stop := range []context.CancelFunc{w.stop, w.unlisten} {
		if stop != nil {
			stop()
		}
	}
	w.stop, w.unlisten = nil, nil
}

// hash identifies a stream in a notification.
func (k streamKey) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(k.tenant))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(k.id))
	return h.Sum64()
}

// notifyHash wakes the readers of the streams with a hash.
func (w *watch) notifyHash(hash uint64) {
	w.mu.Lock()
	keys := slices.Collect(maps.Keys(w.byHash[hash]))
	w.mu.Unlock()
	for _, key := range keys {
		w.hub.Notify(key)
	}
}

// slowPolls is the factor by which polling is less frequent while notifications
// arrive.
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
		// If this fails, readers query the stream themselves and report the error.
		if err := w.look(ctx, seen); err != nil && ctx.Err() == nil {
			w.hub.NotifyAll()
		}
	}
}

const selectRevisions = `
SELECT s.tenant, s.stream_id, s.number, s.revision
FROM unnest($1::text[], $2::text[]) x(tenant, id)
JOIN helix.streams s ON s.tenant = x.tenant AND s.stream_id = x.id`

// lookLimit is how long one query for changes may take.
const lookLimit = 5 * time.Second

// look wakes the readers of streams that have changed since the last call, with
// one query for all of them.
func (w *watch) look(ctx context.Context, seen map[streamKey]int64) error {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	keys := w.hub.Keys()
	tenants, ids := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		tenants[i], ids[i] = key.tenant, key.id
	}
	found := make(map[streamKey]int64, len(keys))
	err := w.b.query(ctx, "look for changes", func(rows pgx.Rows) error {
		var (
			key              streamKey
			number, revision int64
		)
		err := rows.Scan(&key.tenant, &key.id, &number, &revision)
		found[key] = number<<20 + revision // the number distinguishes a stream from another with the same id
		return err
	}, selectRevisions, tenants, ids)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if was, known := seen[key]; !known || was != found[key] {
			w.hub.Notify(key)
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

// close ends the watching and the reads; it returns false if it was called before.
func (w *watch) close() bool {
	if !w.hub.Close() {
		return false
	}
	w.signals.Close()
	w.working.Wait()
	return true
}
