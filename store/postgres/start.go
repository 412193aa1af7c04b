package postgres

import (
	"cmp"
	"context"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// StartRun implements [store.Backend]. The run and its stream are one transaction of
// two round trips: the first locks and reads both, the second writes both.
//
// The stream's row is locked before the session's, as by [Backend.Commit].
func (b *Backend) StartRun(ctx context.Context, start *store.StartRun) (*session.Started, *stream.Info, error) {
	tenant := cmp.Or(start.Tenant, session.DefaultTenant)
	o := &streamOpening{StartRun: start, streams: &streams{b, tenant}}
	var err error
	if o.chunks, err = stored.EncodeBatch(start.SessionID, &start.Batch, b.config.MaxChunk); err != nil {
		return nil, nil, err
	}
	s := &sessions{b, tenant}
	started, err := s.startRun(ctx, start.StartRun, o)
	if err != nil || started.Existing {
		return started, nil, err
	}
	if len(o.chunks) > 0 && o.added.last == nil {
		if o.info, err = start.OpenOrRelease(ctx, b, started); err != nil {
			return nil, nil, err
		}
	}
	return started, o.info, nil
}

// streamOpening opens the stream of a run in the transaction that starts the run. A
// nil one opens nothing.
type streamOpening struct {
	*store.StartRun
	streams *streams
	chunks  []stored.Chunk

	head  *streamHead // nil if there is no stream
	added addition
	info  *stream.Info // the result
}

// ask queues the read of the stream, which locks it.
func (o *streamOpening) ask(t *tx) {
	if o == nil {
		return
	}
	o.head, o.added, o.info = nil, addition{}, nil
	o.streams.askLocked(t, o.SessionID, o.SessionID, &o.head)
}

// open queues the writes.
func (o *streamOpening) open(t *tx, h *header, runID string) (err error) {
	if o == nil {
		return nil
	}
	s, by := o.streams, stream.Producer{Session: h.ID, Epoch: h.Lease.Epoch, RunID: runID}
	if o.head == nil {
		o.info = s.insert(t, h.ID, by, h.now)
	} else if o.info, err = s.reactivate(t, o.head, by); err != nil {
		return err
	}
	if len(o.chunks) == 0 {
		return nil
	}
	batch := stored.Join(o.chunks)
	from := o.Batch.Producer
	t.ask(o.added.scan(h.ID, from.Session), appendBatch, s.appendArgs(h.ID, from, o.Batch.First, len(o.chunks), &batch)...)
	t.done = append(t.done, func() {
		if o.added.last == nil {
			return
		}
		o.info.Last, o.info.Bytes = *o.added.last, o.info.Bytes+int64(len(batch.Body))
		s.added(h.ID, from, &o.added, &batch)
	})
	return nil
}
