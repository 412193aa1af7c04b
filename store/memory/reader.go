package memory

import (
	"context"
	"iter"

	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/stream"
)

// maxReadRows is how many chunks a reader takes at once.
const maxReadRows = 256

// Read implements [stream.Manager].
func (s *streams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		sub, end := s.hub.readers.Subscribe(s.key(id))
		defer end()
		after := func(ctx context.Context, from int64) (*feed.View, error) { return s.after(ctx, id, from) }
		feed.Feed{ID: id, From: from, Wait: wait, After: after}.Read(ctx, sub)(yield)
	}
}

// after is what a stream holds after a sequence; nil if there is no stream.
func (s *streams) after(ctx context.Context, id string, from int64) (*feed.View, error) {
	if err := s.hub.lock(ctx); err != nil {
		return nil, err
	}
	l := s.hub.logs[s.key(id)]
	if l == nil {
		s.hub.mu.Unlock()
		return nil, nil
	}
	info := l.info
	var rows []*row
	if info.Holds(from) {
		rows = atMost(maxReadRows, l.rows[from-info.Floor:])
	}
	s.hub.mu.Unlock()

	info.End, info.Error = cloneEnd(info.End), cloneError(info.Error)
	view := &feed.View{Info: &info, Born: l}
	for _, r := range rows {
		item, err := r.item()
		if err != nil {
			view.Damage = err
			break
		}
		view.Items = append(view.Items, item)
	}
	return view, nil
}
