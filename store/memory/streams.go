package memory

import (
	"context"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/stream"
)

// hub has the streams of all tenants. Readers only register for notifications in
// it: they pull the stored chunks at their own pace.
type hub struct {
	now      func() time.Time
	maxChunk int
	readers  *feed.Hub[session.Key]

	mu     sync.Mutex
	closed bool
	logs   map[session.Key]*log
}

func newHub(now func() time.Time, maxChunk int) *hub {
	return &hub{now: now, maxChunk: maxChunk, readers: feed.NewHub[session.Key](), logs: map[session.Key]*log{}}
}

func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.readers.Close()
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

// delete removes a stream and wakes its readers.
func (h *hub) delete(key session.Key) bool {
	l := h.logs[key]
	if l == nil {
		return false
	}
	delete(h.logs, key)
	l.deleted = true
	h.readers.Notify(key)
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

// find begins an operation on an existing stream; the caller unlocks s.hub.mu.
func (s *streams) find(ctx context.Context, id string) (*log, error) {
	if err := s.hub.lock(ctx); err != nil {
		return nil, err
	}
	l := s.hub.logs[s.key(id)]
	if l == nil {
		s.hub.mu.Unlock()
		return nil, noStream(id)
	}
	return l, nil
}

// findOrNew begins an operation that creates the stream if there is none; the caller
// unlocks s.hub.mu. The new stream is stored only if the operation calls keep.
func (s *streams) findOrNew(ctx context.Context, id string) (l *log, now time.Time, err error) {
	if err := session.CheckID(id); err != nil {
		return nil, now, err
	}
	if err := s.hub.lock(ctx); err != nil {
		return nil, now, err
	}
	now = s.hub.now()
	l = s.hub.logs[s.key(id)]
	if l == nil {
		l = newLog(id, now)
	}
	return l, now, nil
}

// keep stores a stream that findOrNew has created.
func (s *streams) keep(l *log) {
	if key := s.key(l.info.ID); s.hub.logs[key] == nil {
		s.hub.logs[key] = l
	}
}

// appended is a completed append: in memory a batch is final once it is ordered.
type appended int64

// Wait implements [stream.Append].
func (a appended) Wait(context.Context) (int64, error) { return int64(a), nil }

// Append implements [stream.Manager].
func (s *streams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	last, err := s.append(ctx, id, batch)
	if err != nil {
		return nil, err
	}
	return appended(last), nil
}

// append returns the sequence of the batch's last chunk.
func (s *streams) append(ctx context.Context, id string, batch stream.Batch) (last int64, err error) {
	if batch.First < 0 {
		return 0, session.Invalid("producer sequence", "%d is negative", batch.First)
	}
	if err := session.CheckID(id); err != nil {
		return 0, err
	}
	rows, err := newRows(batch, s.hub.maxChunk)
	if err != nil {
		return 0, err
	}
	l, err := s.find(ctx, id)
	if err != nil {
		return 0, err
	}
	defer s.hub.mu.Unlock()
	by := batch.Producer
	if err := l.checkEpoch(by); err != nil {
		return 0, err
	}
	if err := l.checkGap(by, batch.First); err != nil {
		return 0, err
	}
	fresh := l.fresh(by, rows)
	if len(fresh) == 0 && len(rows) > 0 {
		return l.sequenceOf(by, rows[len(rows)-1].number), nil
	}
	if l.info.Status != stream.StatusActive {
		return 0, session.ErrStreamClosed.WithMessage("stream %s is %s", id, l.info.Status)
	}
	l.enter(by)
	l.append(fresh, s.hub.now())
	s.hub.readers.Notify(s.key(id))
	return l.info.Last, nil
}

// Chunks implements [stream.Manager].
func (s *streams) Chunks(ctx context.Context, id string, from int64, limit int) ([]stream.Item, error) {
	l, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	found, err := l.after(from)
	s.hub.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return items(atMost(limit, found))
}

// Info implements [stream.Manager].
func (s *streams) Info(ctx context.Context, id string) (*stream.Info, error) {
	l, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.hub.mu.Unlock()
	return l.describe(), nil
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

// shut closes a stream. It does nothing if a later epoch has written to the
// stream, or if the stream is already closed for good: the first call decides how
// it ended.
func (s *streams) shut(ctx context.Context, id string, by stream.Producer, how func(*stream.Info)) error {
	l, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	defer s.hub.mu.Unlock()
	if l.checkEpoch(by) != nil || l.info.Status == stream.StatusEnded || l.info.Status == stream.StatusFailed {
		return nil
	}
	l.enter(by)
	how(&l.info)
	l.info.UpdatedAt = s.hub.now()
	s.hub.readers.Notify(s.key(id))
	return nil
}

// Reactivate implements [stream.Manager].
func (s *streams) Reactivate(ctx context.Context, id string, by stream.Producer) (*stream.Info, error) {
	l, now, err := s.findOrNew(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.hub.mu.Unlock()
	if err := l.checkEpoch(by); err != nil {
		return nil, err
	}
	s.keep(l)
	l.enter(by)
	l.info.Status, l.info.End, l.info.Error = stream.StatusActive, nil, nil
	l.info.UpdatedAt = now
	s.hub.readers.Notify(s.key(id))
	return l.describe(), nil
}

// Trim implements [stream.Manager].
func (s *streams) Trim(ctx context.Context, id string, policy stream.TrimPolicy) (int64, error) {
	if policy.KeepLast < 0 {
		return 0, session.Invalid("chunks to keep", "%d is negative", policy.KeepLast)
	}
	l, err := s.find(ctx, id)
	if err != nil {
		return 0, err
	}
	defer s.hub.mu.Unlock()
	l.trim(policy)
	return l.info.Floor, nil
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
