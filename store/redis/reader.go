package redis

import (
	"context"
	"iter"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// maxReadBytes is about how much of a stream is fetched at once.
const maxReadBytes = 256 << 10

// Read implements [stream.Manager]. A reader pulls: it holds no connection while
// its caller works on what it got, so a slow one holds up nobody, and leaving the
// loop leaves nothing behind.
func (s *streams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		if from < 0 {
			yield(stream.Item{}, stream.Negative(from))
			return
		}
		sub, end := s.b.watch.subscribe(s.b.keys.channel(s.tenant, id))
		defer end()
		r := &reader{streams: s, id: id, cursor: from, wait: wait, sub: sub}
		for r.step(ctx, yield) {
		}
	}
}

// reader is one reading of a stream.
type reader struct {
	*streams
	id       string
	cursor   int64
	wait     bool   // for a stream that does not exist yet
	born     string // of the stream, once it was seen: another of its id is not it
	caughtUp bool
	sub      *subscription
}

// step looks at the stream once, hands on what there is and, when there is
// nothing more, waits for a change. It reports whether the reading goes on.
func (r *reader) step(ctx context.Context, yield func(stream.Item, error) bool) bool {
	h, items, err := r.next(ctx)
	for i := range items {
		if ctx.Err() != nil {
			err = failure(streamVerb(r.id, "read"), ctx.Err())
			break
		}
		if !yield(items[i], nil) {
			return false
		}
		r.cursor = items[i].Sequence
	}
	if err != nil {
		yield(stream.Item{}, err)
		return false
	}
	if h != nil {
		// Handing items on may have taken long: what is then said about the stream must
		// be true now. A reader that follows live is told of changes anyway.
		if len(items) > 0 && (!r.caughtUp || r.cursor < h.Last || h.Status != stream.StatusActive) {
			return true
		}
		if frame := r.frame(h); frame.Frame != "" && (!yield(frame, nil) || frame.Terminal()) {
			return false
		}
	}
	if err := r.await(ctx); err != nil {
		yield(stream.Item{}, err)
		return false
	}
	return true
}

// next reads what comes after the cursor: nothing while the stream is waited for.
// What comes before a chunk that cannot be decoded is given beside the error.
func (r *reader) next(ctx context.Context) (*streamHead, []stream.Item, error) {
	h, flat, err := r.look(ctx, r.id, "read", r.cursor, everything, maxReadBytes)
	switch {
	case err != nil:
		return nil, nil, err
	case h == nil && r.wait && r.born == "":
		return nil, nil, nil
	case h == nil, r.born != "" && r.born != h.born: // deleted, perhaps made anew
		return nil, nil, noStream(r.id)
	}
	r.born = h.born
	if !h.Holds(r.cursor) {
		return h, nil, nil
	}
	items, err := decodeChunks(r.id, flat)
	return h, items, err
}

// frame is what there is to say about the stream once its chunks were handed on.
func (r *reader) frame(h *streamHead) stream.Item {
	if !h.Holds(r.cursor) {
		return stream.Item{Frame: stream.FrameTruncated, Floor: h.Floor}
	}
	switch h.Status {
	case stream.StatusEnded, stream.StatusPaused:
		return stream.Item{Frame: stream.FrameEnd, Sequence: r.cursor, End: h.End}
	case stream.StatusFailed:
		return stream.Item{Frame: stream.FrameFail, Sequence: r.cursor, Error: h.Error}
	}
	if r.caughtUp {
		return stream.Item{}
	}
	r.caughtUp = true
	return stream.Item{Frame: stream.FrameCaughtUp, Sequence: r.cursor}
}

// await waits for a change, the end of ctx or that of the backend. It does not
// wait for ever: a notification may have been lost.
func (r *reader) await(ctx context.Context) error {
	look := time.NewTimer(r.b.config.PollInterval)
	defer look.Stop()
	select {
	case <-r.sub.signal:
		return nil
	case <-look.C:
		return nil
	case <-ctx.Done():
		return failure(streamVerb(r.id, "read"), ctx.Err())
	case <-r.b.watch.closing:
		return session.ErrClosed.WithMessage("%s: the store is closed", streamVerb(r.id, "read"))
	}
}
