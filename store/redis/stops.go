package redis

import (
	"context"
	"errors"

	"github.com/helixagents/helix/session"
)

// RequestStop implements [session.Stops].
func (s *sessions) RequestStop(ctx context.Context, id string, stop session.Stop) (session.Stop, error) {
	if err := stop.Check(); err != nil {
		return session.Stop{}, err
	}
	w := &batch{}
	w.do("stop", "", stop.RunID, string(stop.Kind), stop.Reason, orNow(stop.At))
	out, err := s.apply(ctx, id, "request stop", "", w)
	if r, refused := errors.AsType[*refusal](err); refused {
		if r.why == "notrunning" {
			return session.Stop{}, session.ErrStale.WithMessage("session %s: run %s is not running", id, stop.RunID).WithSaw(r.header.Saw())
		}
		return session.Stop{}, r.domain(id)
	}
	if err != nil {
		return session.Stop{}, err
	}
	stands := *out.Stop
	stands.RunID = stop.RunID
	s.b.signal(session.Signal{Key: session.Key{Tenant: s.tenant, ID: id}, StopOf: stop.RunID})
	return stands, nil
}

// StopRequest implements [session.Stops].
func (s *sessions) StopRequest(ctx context.Context, id, runID string) (*session.Stop, error) {
	v, err := s.read(ctx, id, "read stop request", query())
	if err != nil || v.header.stop == nil || v.header.stop.RunID != runID {
		return nil, err
	}
	return v.header.stop, nil
}
