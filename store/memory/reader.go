package memory

import (
	"context"
	"errors"
	"iter"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Read implements [stream.Manager]. There is no goroutine and no buffer behind
// it: the caller's loop pulls what is stored, so that a slow one holds up nobody,
// and leaving the loop leaves nothing behind.
func (s *streams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		f, err := s.attach(ctx, id, from, wait)
		if err != nil {
			yield(stream.Item{}, err)
			return
		}
		r := reader{hub: s.hub, feed: f, cursor: from}
		for {
			found, frame, changed, err := r.next(ctx)
			if err != nil {
				yield(stream.Item{}, err)
				return
			}
			if !r.deliver(ctx, found, yield) {
				return
			}
			if frame.Frame != "" && (!yield(frame, nil) || frame.Terminal()) {
				return
			}
			if changed == nil {
				continue
			}
			if err := s.hub.await(ctx, changed); err != nil {
				yield(stream.Item{}, err)
				return
			}
		}
	}
}

// attach finds the stream to read, or waits until there is one.
func (s *streams) attach(ctx context.Context, id string, from int64, wait bool) (*feed, error) {
	if from < 0 {
		return nil, stream.Negative(from)
	}
	f, done, err := s.find(ctx, id)
	for wait && errors.Is(err, session.ErrNotFound) {
		if err := s.arrival(ctx, id); err != nil {
			return nil, err
		}
		f, done, err = s.find(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	done()
	return f, nil
}

// arrival waits for a stream to be created, or returns at once if it was
// meanwhile.
func (s *streams) arrival(ctx context.Context, id string) error {
	h, key := s.hub, s.key(id)
	if err := h.lock(ctx); err != nil {
		return err
	}
	if h.feeds[key] != nil {
		h.mu.Unlock()
		return nil
	}
	a := h.arrivals[key]
	if a == nil {
		a = &arrival{}
		h.arrivals[key] = a
	}
	a.readers++
	arrived := a.wait()
	h.mu.Unlock()

	err := h.await(ctx, arrived)

	h.mu.Lock()
	defer h.mu.Unlock()
	if a.readers--; a.readers == 0 {
		delete(h.arrivals, key)
	}
	return err
}

// await waits for a broadcast, the end of ctx or that of the backend.
func (h *hub) await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.closing:
		return session.ErrClosed
	}
}

// reader is one reading of a stream.
type reader struct {
	hub      *hub
	feed     *feed
	cursor   int64
	caughtUp bool
}

// next is what there is to deliver: chunks, or a frame about the stream when the
// reader has all of them, or, when there is nothing, a channel to wait on.
func (r *reader) next(ctx context.Context) (found []*row, frame stream.Item, changed <-chan struct{}, err error) {
	if err := r.hub.lock(ctx); err != nil {
		return nil, frame, nil, err
	}
	defer r.hub.mu.Unlock()
	f := r.feed
	switch {
	case f.deleted:
		return nil, frame, nil, noStream(f.info.ID)
	case !f.info.Holds(r.cursor):
		return nil, stream.Item{Frame: stream.FrameTruncated, Floor: f.info.Floor}, nil, nil
	case r.cursor < f.info.Last:
		return f.rows[r.cursor-f.info.Floor:], frame, nil, nil
	}
	switch f.info.Status {
	case stream.StatusEnded, stream.StatusPaused:
		return nil, stream.Item{Frame: stream.FrameEnd, Sequence: r.cursor, End: cloneEnd(f.info.End)}, nil, nil
	case stream.StatusFailed:
		return nil, stream.Item{Frame: stream.FrameFail, Sequence: r.cursor, Error: cloneError(f.info.Error)}, nil, nil
	}
	if !r.caughtUp {
		r.caughtUp = true
		frame = stream.Item{Frame: stream.FrameCaughtUp, Sequence: r.cursor}
	}
	return nil, frame, f.wait(), nil
}

// deliver hands chunks to the caller and reports whether it wants more.
func (r *reader) deliver(ctx context.Context, found []*row, yield func(stream.Item, error) bool) bool {
	for _, row := range found {
		if ctx.Err() != nil {
			return true // the next look at the stream reports it
		}
		item, err := row.item()
		if !yield(item, err) || err != nil {
			return false
		}
		r.cursor = row.sequence
	}
	return true
}
