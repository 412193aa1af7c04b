package server

import (
	"context"
	"net/http"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func (x *exchange) stop(kind session.StopKind) error {
	in, err := decode(x, readStop)
	if err != nil {
		return err
	}
	return x.stopOf("sessionId", in.SessionID, kind, in)
}

// stopOf stops the session that the given field names.
func (x *exchange) stopOf(field, sessionID string, kind session.StopKind, in *wire.Stop) error {
	ctx, cancel := x.change()
	defer cancel()
	state, err := x.session(ctx, field, sessionID)
	if err != nil {
		return err
	}
	out, err := x.stopRun(ctx, state, kind, in.RunID, in.Reason)
	if err != nil {
		return err
	}
	x.json(http.StatusAccepted, out)
	return nil
}

// stopRun requests a stop of the session's current run, which must be runID if that
// is set.
func (x *exchange) stopRun(ctx context.Context, state *session.State, kind session.StopKind, runID, reason string) (*wire.Stopping, error) {
	run, err := x.current(ctx, state.ID)
	switch {
	case err != nil:
		return nil, err
	case run == nil:
		return nil, refuse(http.StatusConflict, session.CodeStale, "Nothing has run in this session yet.")
	case runID != "" && run.ID != runID:
		return nil, refuse(http.StatusConflict, session.CodeStale, "This run is not the session's current one.").field("runId")
	}
	x.runID = run.ID
	if runID != "" && run.Status == session.RunRunning {
		err = x.stopExactly(ctx, state.ID, kind, runID, reason)
	} else if kind == session.StopAbort {
		err = x.executor.Abort(ctx, state.ID, reason)
	} else {
		err = x.executor.Interrupt(ctx, state.ID, reason)
	}
	if err != nil {
		return nil, x.hide(state.ID, err)
	}
	return &wire.Stopping{SessionID: state.ID, RunID: run.ID, Stop: kind}, nil
}

// stopExactly stops a run and none that follows it.
func (x *exchange) stopExactly(ctx context.Context, id string, kind session.StopKind, runID, reason string) error {
	run, err := x.executor.Attach(ctx, id)
	switch {
	case err != nil:
		return err
	case run.ID() != runID:
		return refuse(http.StatusConflict, session.CodeStale, "This run has ended.").field("runId")
	case kind == session.StopAbort:
		return run.Abort(ctx, reason)
	}
	return run.Interrupt(ctx, reason)
}
