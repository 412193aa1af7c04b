package memory

import (
	"context"
	"iter"

	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/stream"
)

// maxReadRows is how many chunks a reader fetches at a time.
const maxReadRows = 256

// Read implements [stream.Manager].
func (s *streams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		sub, end := s.hub.readers.Subscribe(s.key(id))
		defer end()
		r := &reader{streams: s, id: id, sub: sub}
		feed.Feed{ID: id, From: from, Wait: wait, After: r.after}.Read(ctx, sub)(yield)
	}
}

// reader is one read of a stream.
type reader struct {
	*streams
	id  string
	log *log // the stream, once it was found
	sub *feed.Subscription
}

// after fills view with what the stream has after a sequence.
func (r *reader) after(ctx context.Context, from int64, view *feed.View) error {
	if err := r.hub.lock(ctx); err != nil {
		return err
	}
	if r.log == nil || r.log.deleted {
		r.log = r.hub.logs[r.key(r.id)]
	}
	l := r.log
	r.sub.Arm()
	if l == nil {
		r.hub.mu.Unlock()
		return nil
	}
	view.Found, view.Info, view.Incarnation = true, l.info, l
	var rows []*row
	if l.info.Holds(from) {
		rows = atMost(maxReadRows, l.rows[from-l.info.Floor:])
	}
	r.hub.mu.Unlock()

	view.Info.End, view.Info.Error = cloneEnd(view.Info.End), cloneError(view.Info.Error)
	for _, row := range rows {
		item, err := row.item()
		if err != nil {
			view.Damage = err
			break
		}
		view.Items = append(view.Items, item)
	}
	return nil
}
