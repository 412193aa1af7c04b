package memory

import (
	"context"

	"github.com/helixagents/helix/session"
)

// Run implements [session.Runs].
func (s *sessions) Run(ctx context.Context, id, runID string) (*session.Run, error) {
	return s.readRun(ctx, id, "run "+runID, func(rec *record) *session.Run { return rec.runs.get(runID) })
}

// CurrentRun implements [session.Runs].
func (s *sessions) CurrentRun(ctx context.Context, id string) (*session.Run, error) {
	return s.readRun(ctx, id, "current run", (*record).currentRun)
}

// RunByRequest implements [session.Runs].
func (s *sessions) RunByRequest(ctx context.Context, id, requestID string) (*session.Run, error) {
	return s.readRun(ctx, id, "run of request "+requestID, func(rec *record) *session.Run { return rec.requests[requestID] })
}

func (s *sessions) readRun(ctx context.Context, id, what string, which func(*record) *session.Run) (*session.Run, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	run := which(rec)
	if run == nil {
		return nil, session.ErrNotFound.WithMessage("session %s: %s not found", id, what)
	}
	return new(cloneRun(run)), nil
}

// Runs implements [session.Runs].
func (s *sessions) Runs(ctx context.Context, id string, req session.PageRequest) (session.Page[session.Run], error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return session.Page[session.Run]{}, err
	}
	defer s.b.mu.RUnlock()
	// A run's position is its turn, and turns are numbered from 1 without gaps.
	list := rec.runs.list
	start, err := req.Start(len(list))
	if err != nil {
		return session.Page[session.Run]{}, err
	}
	end := min(start+req.Size(), len(list))
	items := make([]session.Run, 0, end-start)
	for _, run := range list[start:end] {
		items = append(items, cloneRun(run))
	}
	page := newPage(req, items, end < len(list), session.Position{N: int64(end)})
	page.Offset = start
	if req.Total {
		page.Total = new(len(list))
	}
	return page, nil
}

// RequestStop implements [session.Stops].
func (s *sessions) RequestStop(ctx context.Context, id string, stop session.Stop) (session.Stop, error) {
	if err := stop.Check(); err != nil {
		return session.Stop{}, err
	}
	rec, err := s.edit(ctx, id)
	if err != nil {
		return session.Stop{}, err
	}
	defer s.b.release(rec)
	run := rec.currentRun()
	if run == nil || run.ID != stop.RunID || run.Status != session.RunRunning {
		return session.Stop{}, session.ErrStale.WithMessage("session %s: run %s is not running", id, stop.RunID).WithSaw(rec.state.Saw())
	}
	if stands := rec.stop; stands != nil && !stands.OverriddenBy(&stop) {
		return *stands, nil
	}
	stop.At = utc(stop.At)
	if stop.At.IsZero() {
		stop.At = s.b.now()
	}
	rec.stop = &stop
	s.b.signals.Announce(session.Signal{Key: session.Key{Tenant: s.tenant, ID: id}, StopOf: stop.RunID})
	return stop, nil
}

// StopRequest implements [session.Stops].
func (s *sessions) StopRequest(ctx context.Context, id, runID string) (*session.Stop, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	if rec.stop == nil || rec.stop.RunID != runID || rec.currentRun().Status.Ended() {
		return nil, nil
	}
	return clonePointer(rec.stop), nil
}
