package redis

import (
	"context"
	"errors"
	"slices"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/stored"
)

// CloseRun implements [store.Backend]. A session shares its slot with the stream of
// its id: chunks, end and close are sent together, as three scripts; each does
// nothing unless it finds what those before it must have left. A sub-agent's chunks
// are in another slot and are written before.
func (b *Backend) CloseRun(ctx context.Context, end *store.CloseRun) error {
	id, name := end.SessionID, what(end.SessionID, "close run")
	s, m := &sessions{b, orDefault(end.Tenant)}, &streams{b, orDefault(end.Tenant)}
	how, err := stored.CloseStream(id, end.End, end.Failure, b.config.MaxChunk)
	if err != nil {
		return err
	}
	var streaming []*run
	w := &batch{}
	if end.Stream == id && len(end.Batch.Chunks) > 0 && how != nil {
		appends, err := m.appending(id, &end.Batch)
		if err != nil {
			return err
		}
		field, value := trace(&end.Batch)
		streaming = []*run{appends, m.shutting(id, end.By, how, field, value)}
		w.do("match", keyStream, keyStream, field, value, "status", string(how.Status))
	} else if err := end.CloseStream(ctx, m); err != nil {
		return err
	}
	w.do("fence", "", end.Fence.Owner, end.Fence.Epoch)
	w.do("ended", "")
	is, err := s.placeOf(ctx, id)
	if err != nil {
		return err
	}
	if is == nil {
		return store.EndThenCloseRun(ctx, b, end)
	}
	if err := b.begin(ctx, name); err != nil {
		return err
	}
	closes := s.writing(id, "", w)
	s.evalEnding(ctx, is, end.By.RunID, append(streaming, closes)...)
	if len(streaming) > 0 {
		if _, err := m.appended(id, &end.Batch, streaming[0]); err != nil {
			return err
		}
		if _, err := m.changed(id, streamVerb(id, "close"), streaming[1]); err != nil {
			return err
		}
	}
	_, err = s.outcome(id, name, closes)
	r, refused := errors.AsType[*refusal](err)
	switch {
	case err == nil:
		s.rests(ctx, id)
		return nil
	case !refused:
		return err
	case r.why == "running":
		var h hints
		s.runningHints(&h, is, end.By.RunID, inPlace)
		if err := b.addHints(ctx, name, &h); err != nil {
			return err
		}
	case r.why != "moved":
		return r.domain(id)
	}
	// The run has not ended, a later epoch has written to the stream, the stream was
	// closed in another way, or the scripts have reached different servers.
	return store.EndThenCloseRun(ctx, b, end)
}

// evalEnding runs scripts of one slot that close a run. In the same round trip it
// removes the entries of the run, which has ended, from the indexes; should that
// fail, readers do.
func (s *sessions) evalEnding(ctx context.Context, is *session.State, runID string, runs ...*run) {
	var h hints
	s.runningHints(&h, is, runID, gone)
	entries := groupRuns(addHints, s.b.hintGroups(&h))
	if s.b.config.WaitReplicas > 0 {
		s.b.evalSlots(ctx, entries)
		s.b.evalAll(ctx, runs...)
		return
	}
	s.b.evalAll(ctx, slices.Concat(entries, runs)...)
}
