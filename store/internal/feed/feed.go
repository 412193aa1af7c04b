// Package feed reads streams for stores. A store says what a stream holds after a
// sequence and when a stream may have changed; the order of chunks and frames, the
// waiting and what ends it are here, the same for all.
package feed

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// View is what a store found when it looked at a stream.
type View struct {
	// Found is set if there is a stream.
	Found bool
	Info  stream.Info
	// Born distinguishes the stream from an earlier or later one of the same id.
	Born any
	// Items are chunks after the sequence that was asked for, in order: as many as the
	// store hands out at once, and none only if there are none.
	Items []stream.Item
	// Damage is why the chunk after Items cannot be read.
	Damage error
}

// Feed is a stream to be read.
type Feed struct {
	ID string
	// From is the sequence after which reading begins.
	From int64
	// Wait is set to wait for a stream that does not exist yet.
	Wait bool
	// After looks at the stream and, if there is one, sets all of the view, in which
	// Found, Items and Damage are empty. It may leave Items out if the stream does not
	// hold everything after the sequence.
	After func(ctx context.Context, from int64, view *View) error
	// Poll is how long a reader waits at most before it looks again, for a store whose
	// notifications may be lost. 0 is for ever.
	Poll time.Duration
}

// Read yields what the stream holds, then what is written while it reads, as
// [stream.Manager] promises. A reader pulls: it holds nothing of the store while its
// caller works on what it got, so a slow one holds up nobody, and leaving the loop
// leaves nothing behind. sub wakes the reader; Read does not end it.
func (f Feed) Read(ctx context.Context, sub *Subscription) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		if f.From < 0 {
			yield(stream.Item{}, stream.Negative(f.From))
			return
		}
		r := &reader{Feed: f, cursor: f.From, sub: sub}
		for r.step(ctx, yield) {
		}
	}
}

// reader is one reading of a stream.
type reader struct {
	Feed
	cursor   int64
	born     any // of the stream, once it was seen: another of its id is not it
	caughtUp bool
	sub      *Subscription
	view     View // the latest; its memory is used again
}

// step looks at the stream once, yields what it found and, if there is nothing
// more, waits for a change. It reports whether reading continues.
func (r *reader) step(ctx context.Context, yield func(stream.Item, error) bool) bool {
	if err := r.look(ctx); err != nil {
		yield(stream.Item{}, err)
		return false
	}
	view := &r.view
	for i := range view.Items {
		if err := ctx.Err(); err != nil {
			yield(stream.Item{}, r.ended(err))
			return false
		}
		if !yield(view.Items[i], nil) {
			return false
		}
		r.cursor = view.Items[i].Sequence
	}
	if view.Damage != nil {
		yield(stream.Item{}, view.Damage)
		return false
	}
	if info := &view.Info; view.Found {
		// The caller may have taken long over the items: what is then said about the
		// stream must be true now. A reader that has caught up is woken by changes anyway.
		if len(view.Items) > 0 && (!r.caughtUp || r.cursor < info.Last || info.Status != stream.StatusActive) {
			return true
		}
		if frame := r.frame(info); frame.Frame != "" && (!yield(frame, nil) || frame.Terminal()) {
			return false
		}
	}
	if err := r.sub.wait(ctx, r.Poll); err != nil {
		yield(stream.Item{}, r.ended(err))
		return false
	}
	return true
}

// look reads what comes after the cursor. Nothing is found while the stream is
// waited for.
func (r *reader) look(ctx context.Context) error {
	view := &r.view
	view.Found, view.Items, view.Damage = false, view.Items[:0], nil
	r.sub.Arm()
	err := r.After(ctx, r.cursor, view)
	switch {
	case err != nil:
		return err
	case !view.Found && r.Wait && r.born == nil:
		return nil
	case !view.Found, r.born != nil && r.born != view.Born: // deleted, perhaps made anew
		return session.ErrNotFound.WithMessage("stream %s: not found", r.ID)
	}
	r.born = view.Born
	if !view.Info.Holds(r.cursor) {
		view.Items, view.Damage = view.Items[:0], nil
	}
	return nil
}

// frame is what there is to say about the stream once its chunks were yielded.
func (r *reader) frame(info *stream.Info) stream.Item {
	if !info.Holds(r.cursor) {
		return stream.Item{Frame: stream.FrameTruncated, Floor: info.Floor}
	}
	switch info.Status {
	case stream.StatusEnded, stream.StatusPaused:
		return stream.Item{Frame: stream.FrameEnd, Sequence: r.cursor, End: info.End}
	case stream.StatusFailed:
		return stream.Item{Frame: stream.FrameFail, Sequence: r.cursor, Error: info.Error}
	}
	if r.caughtUp {
		return stream.Item{}
	}
	r.caughtUp = true
	return stream.Item{Frame: stream.FrameCaughtUp, Sequence: r.cursor}
}

// ended names the reading in an error that ended it.
func (r *reader) ended(err error) error { return fmt.Errorf("stream %s: read: %w", r.ID, err) }
