// Package feed reads streams for stores. A store provides what a stream has after
// a sequence and says when a stream may have changed; this package implements the
// order of chunks and frames, the waiting and its end, once for all stores.
package feed

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// View is the state of a stream at one read.
type View struct {
	// Found is set if the stream exists.
	Found bool
	Info  stream.Info
	// Incarnation distinguishes the stream from an earlier or later one with the same
	// id.
	Incarnation any
	// Items are chunks after the requested sequence, in order: as many as the store
	// returns at a time. It is empty only if there are none.
	Items []stream.Item
	// Damage is why the chunk after Items cannot be read.
	Damage error
}

// Feed is a stream to read.
type Feed struct {
	ID string
	// From is the sequence after which reading begins.
	From int64
	// Wait makes Read wait for a stream that does not exist yet.
	Wait bool
	// After reads the stream and, if it exists, sets all fields of the view, in which
	// Found, Items and Damage are empty. It may omit Items if the stream does not have
	// every chunk after the sequence.
	After func(ctx context.Context, from int64, view *View) error
	// Poll is the maximum time that a reader waits before it reads again, for a store
	// whose notifications may be lost. 0 means no limit.
	Poll time.Duration
}

// Read yields the stream's chunks, then new ones as they are written, as specified
// by [stream.Manager]. A reader pulls: it holds no resources of the store while
// its caller processes an item, so a slow reader blocks nobody, and leaving the
// loop releases everything. sub wakes the reader; Read does not end the
// subscription.
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

// reader is one read of a stream.
type reader struct {
	Feed
	cursor      int64
	incarnation any // of the stream once it was found; another stream with its id is a different one
	caughtUp    bool
	sub         *Subscription
	view        View // the latest; its memory is reused
}

// step reads the stream once, yields what it found and, if there is nothing more,
// waits for a change. It reports whether reading continues.
func (r *reader) step(ctx context.Context, yield func(stream.Item, error) bool) bool {
	if err := r.look(ctx); err != nil {
		yield(stream.Item{}, err)
		return false
	}
	view := &r.view
	if !r.pass(ctx, view.Items, yield) {
		return false
	}
	if view.Damage != nil {
		yield(stream.Item{}, view.Damage)
		return false
	}
	if info := &view.Info; view.Found {
		// The caller may have spent a long time on the items, so the state of the stream
		// must be read again before it is reported. A reader that has caught up is woken
		// by changes anyway.
		if len(view.Items) > 0 && (!r.caughtUp || r.cursor < info.Last || info.Status != stream.StatusActive) {
			return true
		}
		if frame := r.frame(info); frame.Frame != "" && (!yield(frame, nil) || frame.Terminal()) {
			return false
		}
	}
	return r.follow(ctx, yield)
}

// follow waits for changes and yields the batches that this process has written
// meanwhile. It returns true if the stream has to be read.
func (r *reader) follow(ctx context.Context, yield func(stream.Item, error) bool) bool {
	for {
		if err := r.sub.wait(ctx, r.Poll); err != nil {
			yield(stream.Item{}, r.ended(err))
			return false
		}
		batches, ok := r.sub.published(r.cursor, r.incarnation)
		if !ok || (len(batches) == 0 && r.Poll > 0) {
			return true
		}
		for i := range batches {
			items, err := batches[i].Items(r.cursor)
			if !r.pass(ctx, items, yield) {
				return false
			}
			if err != nil {
				return true // the store's own copy shows what is wrong
			}
		}
	}
}

// pass yields items. It returns false if reading ends.
func (r *reader) pass(ctx context.Context, items []stream.Item, yield func(stream.Item, error) bool) bool {
	for i := range items {
		if err := ctx.Err(); err != nil {
			yield(stream.Item{}, r.ended(err))
			return false
		}
		if !yield(items[i], nil) {
			return false
		}
		r.cursor = items[i].Sequence
	}
	return true
}

// look reads what follows the cursor. The view is empty while the reader waits for
// the stream.
func (r *reader) look(ctx context.Context) error {
	view := &r.view
	view.Found, view.Items, view.Damage = false, view.Items[:0], nil
	r.sub.Arm()
	err := r.After(ctx, r.cursor, view)
	switch {
	case err != nil:
		return err
	case !view.Found && r.Wait && r.incarnation == nil:
		return nil
	case !view.Found, r.incarnation != nil && r.incarnation != view.Incarnation: // deleted, and perhaps created again
		return session.ErrNotFound.WithMessage("stream %s: not found", r.ID)
	}
	r.incarnation = view.Incarnation
	if !view.Info.Holds(r.cursor) {
		view.Items, view.Damage = view.Items[:0], nil
	}
	return nil
}

// frame returns the frame that follows the stream's chunks.
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

// ended adds the stream to an error that ended the read.
func (r *reader) ended(err error) error { return fmt.Errorf("stream %s: read: %w", r.ID, err) }
