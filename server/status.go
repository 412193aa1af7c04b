package server

import (
	"errors"
	"net/http"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func (x *exchange) status() error {
	ctx := x.r.Context()
	state, err := x.session(ctx, "sessionId", x.r.URL.Query().Get("sessionId"))
	if err != nil {
		return err
	}
	run, err := x.current(ctx, state.ID)
	if err != nil {
		return err
	}
	pending, err := x.executor.Waiting(ctx, state.ID)
	if err != nil {
		return x.hide(state.ID, err)
	}
	out := wire.Status{
		SessionID: state.ID, AgentType: state.Agent, Status: state.Status, Activity: state.Activity, Turn: state.Turn, StepCount: state.StepCount,
		StreamID: state.StreamID, AwaitingClientTool: len(pending) > 0, Pending: array(pending),
		AwaitingChildren: array(state.AwaitingChildren), Output: state.Output,
	}
	if state.Error != nil {
		out.Error = x.runFailure(state.Error)
	}
	if run != nil {
		x.runID = run.ID
		out.RunID, out.RunStatus, out.StartSequence, out.Usage = run.ID, run.Status, run.StartSequence, run.Usage
		if run.Outcome != nil {
			out.FinishReason, out.Text = run.Outcome.FinishReason, run.Outcome.Reply
		}
	}
	info, err := x.streams.Info(ctx, state.StreamID)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return err
	}
	if info != nil {
		out.Sequence = info.Last
	}
	x.json(http.StatusOK, out)
	return nil
}

// array returns a list that encodes to [] instead of null.
func array[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
