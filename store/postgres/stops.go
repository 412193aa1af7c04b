package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

// RequestStop implements [session.Stops]. Only the current run can be stopped, so
// its session's row contains the request, where a commit finds it.
func (s *sessions) RequestStop(ctx context.Context, id string, stop session.Stop) (stands session.Stop, err error) {
	if err := stop.Check(); err != nil {
		return stands, err
	}
	err = s.write(ctx, id, "request stop", func(_ context.Context, t *tx, h *header) error {
		if h.CurrentRunID != stop.RunID || h.runStatus != session.RunRunning {
			return session.ErrStale.WithMessage("session %s: run %s is not running", id, stop.RunID).WithSaw(h.Saw())
		}
		if h.stop != nil && !h.stop.OverriddenBy(&stop) {
			stands = *h.stop
			return nil
		}
		stands = stop
		if stands.At.IsZero() {
			stands.At = h.now
		}
		t.exec("UPDATE helix.sessions SET stop_kind = $2, stop_reason = $3, stop_at = $4 WHERE number = $1",
			h.number, stands.Kind, stands.Reason, when(stands.At))
		return nil
	})
	if err != nil {
		return session.Stop{}, err
	}
	s.b.signal(session.Signal{Key: session.Key{Tenant: s.tenant, ID: id}, StopOf: stop.RunID})
	return stands, nil
}

const selectStop = `
SELECT CASE WHEN run_status = 'running' THEN current_run ELSE '' END, stop_kind, stop_reason, stop_at
FROM helix.sessions
WHERE tenant = $1 AND id = $2`

// StopRequest implements [session.Stops].
func (s *sessions) StopRequest(ctx context.Context, id, runID string) (stop *session.Stop, err error) {
	err = s.list(ctx, id, "read stop request", func(rows pgx.Rows) error {
		var (
			run, kind, reason string
			at                time.Time
		)
		err := rows.Scan(&run, &kind, &reason, instant{&at})
		if err == nil && kind != "" && run == runID {
			stop = &session.Stop{RunID: runID, Kind: session.StopKind(kind), Reason: reason, At: at}
		}
		return err
	}, selectStop)
	return stop, err
}
