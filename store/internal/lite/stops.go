package lite

import (
	"context"

	"github.com/helixagents/helix/session"
)

const (
	upsertStop = `
INSERT INTO stops (tenant, session_id, run_id, kind, reason, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET kind = excluded.kind, reason = excluded.reason, at = excluded.at`

	selectStop = `
SELECT kind, reason, at FROM stops WHERE tenant = ? AND session_id = ? AND run_id = ?`

	deleteStop = `
DELETE FROM stops WHERE tenant = ? AND session_id = ? AND run_id = ?`
)

// RequestStop implements [session.Stops].
func (s *sessions) RequestStop(ctx context.Context, id string, stop session.Stop) (stands session.Stop, err error) {
	if err := stop.Check(); err != nil {
		return stands, err
	}
	err = s.write(ctx, id, "request stop", func(t *Tx, h *header) error {
		if h.CurrentRunID != stop.RunID || h.runStatus != session.RunRunning {
			return session.ErrStale.WithMessage("session %s: run %s is not running", id, stop.RunID).WithSaw(h.Saw())
		}
		if h.stop != nil && !h.stop.OverriddenBy(&stop) {
			stands = *h.stop
			return nil
		}
		stands = stop
		if stands.At.IsZero() {
			stands.At = s.b.Now()
		}
		t.cache.forget(s.tenant, id)
		t.signal(session.Signal{Key: session.Key{Tenant: s.tenant, ID: id}, StopOf: stop.RunID})
		_, err := t.Exec(upsertStop, s.tenant, id, stands.RunID, stands.Kind, stands.Reason, stands.At)
		return err
	})
	if err != nil {
		return session.Stop{}, err
	}
	return stands, nil
}

// StopRequest implements [session.Stops].
func (s *sessions) StopRequest(ctx context.Context, id, runID string) (stop *session.Stop, err error) {
	err = s.read(ctx, id, "read stop request", func(c Conn, h *header) error {
		if h.CurrentRunID != runID || h.runStatus != session.RunRunning {
			return nil // a request for it has been consumed
		}
		r, err := c.One(selectStop, s.tenant, id, runID)
		if err != nil || r == nil {
			return err
		}
		stop = &session.Stop{RunID: runID, Kind: session.StopKind(r.Text()), Reason: r.Text(), At: r.Time()}
		return nil
	})
	return stop, err
}
