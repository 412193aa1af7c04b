package memory

import (
	"context"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// hub keeps the streams of all tenants. Readers hold nothing in it but a place
// to be told of changes: they pull from what is stored, at their own pace.
type hub struct {
	now      func() time.Time
	maxChunk int
	closing  chan struct{} // closed with the backend

	mu       sync.Mutex
	closed   bool
	feeds    map[session.Key]*feed
	arrivals map[session.Key]*arrival
}

// arrival is where readers wait for a stream that does not exist yet.
type arrival struct {
	signal
	readers int
}

func newHub(now func() time.Time, maxChunk int) *hub {
	return &hub{
		now: now, maxChunk: maxChunk, closing: make(chan struct{}),
		feeds: map[session.Key]*feed{}, arrivals: map[session.Key]*arrival{},
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
}

// lock begins an operation; the caller unlocks h.mu.
func (h *hub) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return session.ErrClosed
	}
	return nil
}

// create adds a stream and tells those who wait for it.
func (h *hub) create(key session.Key, f *feed) {
	h.feeds[key] = f
	if a := h.arrivals[key]; a != nil {
		a.broadcast()
	}
}

func (h *hub) delete(key session.Key) bool {
	f := h.feeds[key]
	if f == nil {
		return false
	}
	delete(h.feeds, key)
	f.deleted = true
	f.broadcast()
	return true
}

func (h *hub) deleteAll(keys map[session.Key]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range keys {
		h.delete(key)
	}
}

// streams is the stream manager of one tenant.
type streams struct {
	hub    *hub
	tenant string
}

var _ stream.Manager = (*streams)(nil)

// Tenant implements [stream.Manager].
func (s *streams) Tenant(tenant string) stream.Manager {
	return &streams{hub: s.hub, tenant: orDefault(tenant)}
}

// Limits implements [stream.Manager].
func (s *streams) Limits() stream.Limits { return stream.Limits{MaxChunk: s.hub.maxChunk} }

func (s *streams) key(id string) session.Key { return session.Key{Tenant: s.tenant, ID: id} }

// find begins an operation on a stream that exists.
func (s *streams) find(ctx context.Context, id string) (f *feed, done func(), err error) {
	if err := s.hub.lock(ctx); err != nil {
		return nil, nil, err
	}
	f = s.hub.feeds[s.key(id)]
	if f == nil {
		s.hub.mu.Unlock()
		return nil, nil, noStream(id)
	}
	return f, s.hub.mu.Unlock, nil
}

// findOrNew begins an operation that creates the stream if there is none. The
// new stream is only kept if the operation adds it.
func (s *streams) findOrNew(ctx context.Context, id string) (f *feed, now time.Time, done func(), err error) {
	if err := session.CheckID(id); err != nil {
		return nil, now, nil, err
	}
	if err := s.hub.lock(ctx); err != nil {
		return nil, now, nil, err
	}
	now = s.hub.now()
	f = s.hub.feeds[s.key(id)]
	if f == nil {
		f = newFeed(id, now)
	}
	return f, now, s.hub.mu.Unlock, nil
}

// keep adds a stream that findOrNew has made.
func (s *streams) keep(f *feed) {
	if key := s.key(f.info.ID); s.hub.feeds[key] == nil {
		s.hub.create(key, f)
	}
}

// appended is an append that is done: in memory a batch is durable, as far as
// that goes, once it is ordered.
type appended int64

// Wait implements [stream.Append].
func (a appended) Wait(context.Context) (int64, error) { return int64(a), nil }

// Append implements [stream.Manager].
func (s *streams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	if batch.First < 0 {
		return nil, session.Invalid("producer sequence", "%d is negative", batch.First)
	}
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	pieces, err := split(batch, s.hub.maxChunk)
	if err != nil {
		return nil, err
	}
	f, done, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	by := batch.Producer
	if err := f.checkEpoch(by); err != nil {
		return nil, err
	}
	if err := f.checkGap(by, batch.First); err != nil {
		return nil, err
	}
	fresh := f.fresh(by, batch.First, pieces)
	if len(fresh) == 0 && len(pieces) > 0 {
		return appended(f.sequenceOf(by, batch.First+int64(len(pieces))-1)), nil
	}
	if f.info.Status != stream.StatusActive {
		return nil, session.ErrStreamClosed.WithMessage("stream %s: it is %s", id, f.info.Status)
	}
	f.enter(by)
	f.append(fresh, s.hub.now())
	return appended(f.info.Last), nil
}

// Chunks implements [stream.Manager].
func (s *streams) Chunks(ctx context.Context, id string, from int64, limit int) ([]stream.Item, error) {
	f, done, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	found, err := f.after(from)
	done()
	if err != nil {
		return nil, err
	}
	return items(atMost(limit, found))
}

// Info implements [stream.Manager].
func (s *streams) Info(ctx context.Context, id string) (*stream.Info, error) {
	f, done, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	return f.describe(), nil
}

// End implements [stream.Manager].
func (s *streams) End(ctx context.Context, id string, by stream.Producer, end stream.End) error {
	if err := end.Check(); err != nil {
		return err
	}
	fit, err := end.Fit(s.hub.maxChunk)
	if err != nil {
		return err
	}
	kept := cloneEnd(&fit)
	return s.shut(ctx, id, by, func(info *stream.Info) { info.Status, info.End, info.Error = kept.Closes(), kept, nil })
}

// Fail implements [stream.Manager].
func (s *streams) Fail(ctx context.Context, id string, by stream.Producer, failure *session.Error) error {
	kept := cloneError(failure)
	if kept == nil {
		kept = session.ErrInternal
	}
	return s.shut(ctx, id, by, func(info *stream.Info) { info.Status, info.End, info.Error = stream.StatusFailed, nil, kept })
}

// shut closes a stream. It does nothing to one that a later epoch has written to,
// nor to one that is closed for good already: whoever was first said how it ended.
func (s *streams) shut(ctx context.Context, id string, by stream.Producer, how func(*stream.Info)) error {
	f, done, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	if f.checkEpoch(by) != nil || f.info.Status == stream.StatusEnded || f.info.Status == stream.StatusFailed {
		return nil
	}
	f.enter(by)
	how(&f.info)
	f.info.UpdatedAt = s.hub.now()
	f.broadcast()
	return nil
}

// Reactivate implements [stream.Manager].
func (s *streams) Reactivate(ctx context.Context, id string, by stream.Producer) (*stream.Info, error) {
	f, now, done, err := s.findOrNew(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := f.checkEpoch(by); err != nil {
		return nil, err
	}
	s.keep(f)
	f.enter(by)
	f.info.Status, f.info.End, f.info.Error = stream.StatusActive, nil, nil
	f.info.UpdatedAt = now
	f.broadcast()
	return f.describe(), nil
}

// Trim implements [stream.Manager].
func (s *streams) Trim(ctx context.Context, id string, policy stream.TrimPolicy) (int64, error) {
	if policy.KeepLast < 0 {
		return 0, session.Invalid("chunks to keep", "%d is negative", policy.KeepLast)
	}
	f, done, err := s.find(ctx, id)
	if err != nil {
		return 0, err
	}
	defer done()
	f.trim(policy)
	return f.info.Floor, nil
}

// Delete implements [stream.Manager].
func (s *streams) Delete(ctx context.Context, id string) error {
	if err := s.hub.lock(ctx); err != nil {
		return err
	}
	defer s.hub.mu.Unlock()
	if !s.hub.delete(s.key(id)) {
		return noStream(id)
	}
	return nil
}

func noStream(id string) error { return session.ErrNotFound.WithMessage("stream %s: not found", id) }
