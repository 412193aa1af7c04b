package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

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
			out.FinishReason = run.Outcome.FinishReason
		}
		if out.Text, err = x.lastText(ctx, state, run); err != nil {
			return x.hide(state.ID, err)
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

// lastText is the last reply of a run. That of a run that was stopped is in the transcript
// alone, as far as it had come.
func (x *exchange) lastText(ctx context.Context, state *session.State, run *session.Run) (string, error) {
	switch end := run.Outcome; {
	case end == nil:
		return "", nil
	case end.Status != session.RunInterrupted && (end.Error == nil || end.Error.Code != session.CodeCancelled):
		return end.Reply, nil
	}
	page, err := x.messages(ctx, state.ID, session.PageRequest{
		Offset: max(0, state.MessageCount-session.MaxPageSize), Limit: session.MaxPageSize,
	})
	if err != nil {
		return "", err
	}
	for _, m := range slices.Backward(page.Items) {
		if m.RunID == run.ID && m.Metadata[session.MetaInterrupted] != nil {
			return m.Content(), nil
		}
	}
	return run.Outcome.Reply, nil
}

// array is never null in JSON.
func array[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
