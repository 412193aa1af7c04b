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

// watch wakes readers of streams when something was written: at once what this
// process wrote, and while there are readers, what others did, by notifications
// of the server on a connection of its own, and by polling.
type watch struct {
	b       *Backend
	hub     *feed.Hub[streamKey]
	working sync.WaitGroup
	// listening is set while notifications arrive: polling is then only for those
	// that are lost with the process that was to send them.
	listening atomic.Bool
	// silence is how long nothing may be heard before the connection that listens is
	// asked for a sign of life.
	silence time.Duration

	// Both are guarded by the hub's lock.
	stop     context.CancelFunc // ends the polling
	unlisten context.CancelFunc // ends the listening, which continues without readers

	mu     sync.Mutex
	byHash map[uint64]map[streamKey]bool // streams that have readers, as notifications name them
}

func newWatch(b *Backend) *watch {
	w := &watch{
		b: b, hub: feed.NewHub[streamKey](), silence: 30 * time.Second, byHash: map[uint64]map[streamKey]bool{},
	}
	w.hub.Added, w.hub.Removed, w.hub.Closed = w.added, w.removed, w.end
	return w
}

// added begins to watch a stream. The polling ends with the last reader, the
// listening with the backend.
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
	if w.unlisten == nil && !w.b.config.NoListen {
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
	for _, stop := range []context.CancelFunc{w.stop, w.unlisten} {
		if stop != nil {
			stop()
		}
	}
	w.stop, w.unlisten = nil, nil
}

// hash names a stream in a notification.
func (k streamKey) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(k.tenant))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(k.id))
	return h.Sum64()
}

// notifyHash wakes the readers of streams that a notification names.
func (w *watch) notifyHash(hash uint64) {
	w.mu.Lock()
	keys := slices.Collect(maps.Keys(w.byHash[hash]))
	w.mu.Unlock()
	for _, key := range keys {
		w.hub.Notify(key)
	}
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
		// If this fails, readers look for themselves and report what they find.
		if err := w.look(ctx, seen); err != nil && ctx.Err() == nil {
			w.hub.NotifyAll()
		}
	}
}

const selectRevisions = `
SELECT s.tenant, s.stream_id, s.number, s.revision
FROM unnest($1::text[], $2::text[]) x(tenant, id)
JOIN helix.streams s ON s.tenant = x.tenant AND s.stream_id = x.id`

// lookLimit is how long one question about changes may take.
const lookLimit = 5 * time.Second

// look wakes the readers of streams that have changed since the last look, in one
// query for all of them.
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
		found[key] = number<<20 + revision // which distinguishes a stream from another of its id
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

// close ends the watching and has readers give up; false if it was called before.
func (w *watch) close() bool {
	if !w.hub.Close() {
		return false
	}
	w.working.Wait()
	return true
}
