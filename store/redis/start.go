package redis

import (
	"context"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// StartRun implements [store.Backend]. A session shares its slot with its stream: the
// script that opens the stream is sent with the one that starts the run, and does
// nothing unless it finds the run.
func (b *Backend) StartRun(ctx context.Context, start *store.StartRun) (*session.Started, *stream.Info, error) {
	s, m := &sessions{b, orDefault(start.Tenant)}, &streams{b, orDefault(start.Tenant)}
	if _, err := m.appending(start.SessionID, &start.Batch); err != nil {
		return nil, nil, err
	}
	var opens *run
	started, err := s.startRun(ctx, start.StartRun, func() *run {
		opens, _ = m.opening(start) // it was checked above
		return opens
	})
	if err != nil || started.Existing {
		return started, nil, err
	}
	if info := m.opened(start.SessionID, opens); info != nil {
		return started, info, nil
	}
	// The stream refuses, or the scripts have reached different servers.
	info, err := start.OpenOrRelease(ctx, b, started)
	if err != nil {
		return nil, nil, err
	}
	return started, info, nil
}

// opening returns the script that opens the stream of a run which was started.
func (s *streams) opening(start *store.StartRun) (*run, error) {
	id := start.SessionID
	appends, err := s.appending(id, &start.Batch)
	if err != nil {
		return nil, err
	}
	by := stream.Producer{Session: id, RunID: start.Run.ID}
	r := s.writing(id, "open", append(producer(id, by), s.b.tokens.next(), start.Owner)...)
	r.args = append(r.args, appends.args[4:]...) // what comes before is the same
	r.keys = append(r.keys, s.b.keys.session(s.tenant, id)+keyHeader)
	r.args[0] = keyStream + keyChunks + keyHeader
	return r, nil
}

// opened reads that script's answer; nil if the script has not opened the stream.
func (s *streams) opened(id string, r *run) *stream.Info {
	parts := list(r.out)
	if r.err != nil || text(parts[0]) != "ok" {
		return nil
	}
	s.b.watch.hub.Notify(s.b.keys.channel(s.tenant, id))
	head := list(parts[2])
	return &stream.Info{
		ID: id, Status: stream.StatusActive, Last: number(text(parts[1])), Floor: number(text(parts[3])), RunID: text(head[0]),
		CreatedAt: moment(text(head[1])), UpdatedAt: moment(text(head[2])), Bytes: number(text(head[3])),
	}
}
