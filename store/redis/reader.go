package redis

import (
	"context"
	"iter"

	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/stream"
)

// maxReadBytes is roughly how many bytes of a stream are fetched at a time.
const maxReadBytes = 256 << 10

// Read implements [stream.Manager]. A notification may be lost, so a reader also
// polls occasionally.
func (s *streams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		sub, end := s.b.watch.hub.Subscribe(s.b.keys.channel(s.tenant, id))
		defer end()
		after := func(ctx context.Context, from int64, view *feed.View) error { return s.after(ctx, id, from, view) }
		feed.Feed{ID: id, From: from, Wait: wait, After: after, Poll: s.b.config.PollInterval}.Read(ctx, sub)(yield)
	}
}

// after fills view with what a stream has after a sequence.
func (s *streams) after(ctx context.Context, id string, from int64, view *feed.View) error {
	h, flat, err := s.look(ctx, id, "read", from, everything, maxReadBytes)
	if err != nil || h == nil {
		return err
	}
	view.Found, view.Info, view.Incarnation = true, h.Info, h.incarnation
	if h.Holds(from) {
		view.Items, view.Damage = decodeChunks(id, flat)
	}
	return nil
}
