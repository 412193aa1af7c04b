package mapstore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// log is a stream. Its rows never change and are numbered without gaps from
// info.Floor+1 to info.Last.
type log struct {
	info      stream.Info
	rows      []row
	producers map[string]producer // by session
}

// row is a stored chunk. number is the producer's number of the chunk; the pieces of a
// chunk that was split share it.
type row struct {
	sequence int64
	by       stream.Producer
	number   int64
	at       time.Time
	raw      []byte
}

// producer is what a stream knows about a session that writes to it: the latest epoch
// of its lease and, within that epoch, the number of the chunk that it writes next.
type producer struct{ epoch, next int64 }

func (r *row) item() (stream.Item, error) {
	var chunk stream.Chunk
	if err := session.Decode("chunk", r.raw, &chunk); err != nil {
		return stream.Item{}, err
	}
	return stream.NewItem(r.sequence, &chunk), nil
}

// late reports whether a producer writes under an epoch lower than its last, as a
// process does that has lost the lease.
func (l *log) late(by stream.Producer) bool { return by.Epoch < l.producers[by.Session].epoch }

func (l *log) stale(by stream.Producer) error {
	return session.ErrStale.WithMessage("stream %s: session %s writes under epoch %d, not %d",
		l.info.ID, by.Session, l.producers[by.Session].epoch, by.Epoch)
}

// enter records that a producer writes.
func (l *log) enter(by stream.Producer) {
	if p, known := l.producers[by.Session]; !known || by.Epoch > p.epoch {
		l.producers[by.Session] = producer{epoch: by.Epoch}
	}
	// Sub-agents write to the stream of their root, but its run is the root's.
	if by.RunID != "" && (l.info.RunID == "" || by.Session == l.info.ID) {
		l.info.RunID = by.RunID
	}
}

// after returns the rows after a sequence.
func (l *log) after(from int64) ([]row, error) {
	switch {
	case from < 0:
		return nil, stream.Negative(from)
	case !l.info.Holds(from):
		return nil, l.info.Truncated(from)
	}
	return l.rows[from-l.info.Floor:], nil
}

// streams is the stream manager of one tenant.
type streams struct {
	b      *Backend
	tenant string
}

var _ stream.Manager = (*streams)(nil)

// Tenant implements [stream.Manager].
func (s *streams) Tenant(tenant string) stream.Manager { return &streams{s.b, tenantOr(tenant)} }

// Limits implements [stream.Manager].
func (s *streams) Limits() stream.Limits { return stream.Limits{MaxChunk: stream.DefaultMaxChunk} }

func (s *streams) key(id string) session.Key { return session.Key{Tenant: s.tenant, ID: id} }

// with calls do with a stream that exists.
func (s *streams) with(ctx context.Context, id string, do func(l *log, now time.Time) error) error {
	if err := s.b.lock(ctx); err != nil {
		return err
	}
	defer s.b.mu.Unlock()
	l := s.b.logs[s.key(id)]
	if l == nil {
		return noStream(id)
	}
	return do(l, s.b.now())
}

func noStream(id string) error { return session.ErrNotFound.WithMessage("stream %s: not found", id) }

// appended is a batch that was written, and its last sequence.
type appended int64

// Wait implements [stream.Append]. There is nothing to wait for: a batch is as durable
// as it gets once it is in the map.
func (a appended) Wait(context.Context) (int64, error) { return int64(a), nil }

// Append implements [stream.Manager].
func (s *streams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	if batch.First < 0 {
		return nil, session.Invalid("producer sequence", "%d is negative", batch.First)
	}
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	by := batch.Producer
	var rows []row // without sequences
	for i := range batch.Chunks {
		chunk := &batch.Chunks[i]
		pieces, err := stream.Split(*chunk, stream.DefaultMaxChunk)
		if err != nil {
			return nil, err
		}
		for _, raw := range pieces {
			rows = append(rows, row{by: by, number: batch.First + int64(i), at: utc(chunk.At), raw: raw})
		}
	}
	var last int64
	err := s.with(ctx, id, func(l *log, now time.Time) (err error) {
		if last, err = l.append(by, batch.First, rows, now); err == nil {
			s.b.wakeReaders()
		}
		return err
	})
	return appended(last), err
}

// append adds the rows that the stream does not have yet: a producer repeats a batch
// if it does not know whether it was written. It returns the sequence of the last one.
func (l *log) append(by stream.Producer, first int64, rows []row, now time.Time) (int64, error) {
	if l.late(by) {
		return 0, l.stale(by)
	}
	if p, known := l.producers[by.Session]; known && p.epoch == by.Epoch {
		if p.next > 0 && first > p.next {
			return 0, stream.Gap(l.info.ID, by, p.next, first)
		}
		fresh := slices.IndexFunc(rows, func(r row) bool { return r.number >= p.next })
		if fresh < 0 && len(rows) > 0 { // this succeeds also after the stream was closed
			return l.sequenceOf(by, rows[len(rows)-1].number), nil
		}
		rows = rows[max(fresh, 0):]
	}
	if l.info.Status != stream.StatusActive {
		return 0, session.ErrStreamClosed.WithMessage("stream %s: it is %s", l.info.ID, l.info.Status)
	}
	l.enter(by)
	for _, r := range rows {
		l.info.Last++
		l.info.Bytes += int64(len(r.raw))
		r.sequence = l.info.Last
		if r.at.IsZero() {
			r.at = now
		}
		l.rows = append(l.rows, r)
		l.producers[by.Session] = producer{epoch: by.Epoch, next: r.number + 1}
	}
	l.info.UpdatedAt = now
	return l.info.Last, nil
}

// sequenceOf is the sequence of a chunk that the stream has already.
func (l *log) sequenceOf(by stream.Producer, number int64) int64 {
	for _, r := range slices.Backward(l.rows) {
		if r.by.Session == by.Session && r.by.Epoch == by.Epoch && r.number <= number {
			return r.sequence
		}
	}
	return l.info.Floor
}

// Chunks implements [stream.Manager].
func (s *streams) Chunks(ctx context.Context, id string, from int64, limit int) (out []stream.Item, err error) {
	out = []stream.Item{}
	err = s.with(ctx, id, func(l *log, _ time.Time) error {
		rows, err := l.after(from)
		if err != nil {
			return err
		}
		if limit > 0 {
			rows = rows[:min(limit, len(rows))]
		}
		for i := range rows {
			item, err := rows[i].item()
			if err != nil {
				return err
			}
			out = append(out, item)
		}
		return nil
	})
	return out, err
}

// Info implements [stream.Manager].
func (s *streams) Info(ctx context.Context, id string) (out *stream.Info, err error) {
	err = s.with(ctx, id, func(l *log, _ time.Time) error {
		out = copied(&l.info)
		return nil
	})
	return out, err
}

// End implements [stream.Manager].
func (s *streams) End(ctx context.Context, id string, by stream.Producer, end stream.End) error {
	if err := end.Check(); err != nil {
		return err
	}
	end, err := end.Fit(stream.DefaultMaxChunk)
	if err != nil {
		return err
	}
	end = copied(end)
	return s.shut(ctx, id, by, func(info *stream.Info) { info.Status, info.End, info.Error = end.Closes(), &end, nil })
}

// Fail implements [stream.Manager].
func (s *streams) Fail(ctx context.Context, id string, by stream.Producer, failure *session.Error) error {
	if failure == nil {
		failure = session.ErrInternal
	}
	failure = copied(failure)
	return s.shut(ctx, id, by, func(info *stream.Info) { info.Status, info.End, info.Error = stream.StatusFailed, nil, failure })
}

// shut closes a stream. It does nothing if a later epoch has written to the stream, or
// if the stream has ended: whoever closed it first said how.
func (s *streams) shut(ctx context.Context, id string, by stream.Producer, how func(*stream.Info)) error {
	return s.with(ctx, id, func(l *log, now time.Time) error {
		if l.info.Status == stream.StatusEnded || l.info.Status == stream.StatusFailed || l.late(by) {
			return nil
		}
		l.enter(by)
		how(&l.info)
		l.info.UpdatedAt = now
		s.b.wakeReaders()
		return nil
	})
}

// Reactivate implements [stream.Manager].
func (s *streams) Reactivate(ctx context.Context, id string, by stream.Producer) (*stream.Info, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	now, l := s.b.now(), s.b.logs[s.key(id)]
	if l == nil {
		l = &log{info: stream.Info{ID: id, CreatedAt: now}, producers: map[string]producer{}}
	}
	if l.late(by) {
		return nil, l.stale(by)
	}
	l.enter(by)
	l.info.Status, l.info.End, l.info.Error, l.info.UpdatedAt = stream.StatusActive, nil, nil, now
	s.b.logs[s.key(id)] = l
	s.b.wakeReaders()
	return copied(&l.info), nil
}

// Trim implements [stream.Manager].
func (s *streams) Trim(ctx context.Context, id string, policy stream.TrimPolicy) (floor int64, err error) {
	if policy.KeepLast < 0 {
		return 0, session.Invalid("chunks to keep", "%d is negative", policy.KeepLast)
	}
	err = s.with(ctx, id, func(l *log, _ time.Time) error {
		floor = min(max(l.info.Floor, policy.Through), l.info.Last)
		if policy.KeepLast > 0 {
			floor = max(floor, l.info.Last-policy.KeepLast)
		}
		for floor < l.info.Last && l.rows[floor-l.info.Floor].at.Before(policy.Before) {
			floor++
		}
		dropped := l.rows[:floor-l.info.Floor]
		for i := range dropped {
			l.info.Bytes -= int64(len(dropped[i].raw))
		}
		l.rows = slices.Clone(l.rows[len(dropped):]) // a reader may hold the old slice
		l.info.Floor = floor
		return nil
	})
	return floor, err
}

// Delete implements [stream.Manager].
func (s *streams) Delete(ctx context.Context, id string) error {
	return s.with(ctx, id, func(*log, time.Time) error {
		delete(s.b.logs, s.key(id))
		s.b.wakeReaders()
		return nil
	})
}

// Read implements [stream.Manager]. A reader holds nothing of the store while its
// caller works on an item, so a slow reader delays nobody.
func (s *streams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		if from < 0 {
			yield(stream.Item{}, stream.Negative(from))
			return
		}
		r := &reader{streams: s, id: id, cursor: from, wait: wait}
		for r.step(ctx, yield) {
		}
	}
}

// reader is one reading of a stream.
type reader struct {
	*streams
	id       string
	cursor   int64 // the sequence of the last chunk that was yielded
	wait     bool
	log      *log // the stream, once it was found
	caughtUp bool
}

// step looks at the stream once and yields what it found: chunks or, if there are
// none, a frame about the stream; then it waits for a change. It reports whether
// reading continues.
func (r *reader) step(ctx context.Context, yield func(stream.Item, error) bool) bool {
	rows, frame, changed, err := r.look(ctx)
	if err != nil {
		yield(stream.Item{}, err)
		return false
	}
	for i := range rows {
		item, err := rows[i].item()
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("stream %s: read: %w", r.id, ctx.Err())
		}
		if !yield(item, err) || err != nil {
			return false
		}
		r.cursor = item.Sequence
	}
	if len(rows) > 0 {
		return true // a frame must be true now, so look again
	}
	if frame.Frame != "" && (!yield(frame, nil) || frame.Terminal()) {
		return false
	}
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		yield(stream.Item{}, fmt.Errorf("stream %s: read: %w", r.id, ctx.Err()))
		return false
	}
}

// look returns the chunks after the cursor or, if there are none, the frame that is
// due, if any. changed is closed with the next change of any stream.
func (r *reader) look(ctx context.Context) (rows []row, frame stream.Item, changed <-chan struct{}, err error) {
	if err := r.b.lock(ctx); err != nil {
		return nil, frame, nil, err
	}
	defer r.b.mu.Unlock()
	changed = r.b.changed
	l := r.b.logs[r.key(r.id)]
	if l == nil && r.log == nil && r.wait {
		return nil, frame, changed, nil
	}
	if l == nil || r.log != nil && r.log != l { // deleted, perhaps made again since
		return nil, frame, nil, noStream(r.id)
	}
	r.log = l
	if !l.info.Holds(r.cursor) {
		return nil, stream.Item{Frame: stream.FrameTruncated, Floor: l.info.Floor}, changed, nil
	}
	if rows, err = l.after(r.cursor); err != nil || len(rows) > 0 {
		return rows, frame, changed, err
	}
	switch info := copied(&l.info); info.Status {
	case stream.StatusEnded, stream.StatusPaused:
		frame = stream.Item{Frame: stream.FrameEnd, Sequence: r.cursor, End: info.End}
	case stream.StatusFailed:
		frame = stream.Item{Frame: stream.FrameFail, Sequence: r.cursor, Error: info.Error}
	default:
		if !r.caughtUp {
			r.caughtUp = true
			frame = stream.Item{Frame: stream.FrameCaughtUp, Sequence: r.cursor}
		}
	}
	return nil, frame, changed, nil
}
