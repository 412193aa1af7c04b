package server

import (
	"net/http"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/store"
)

func (x *exchange) snapshot() error {
	ctx := x.r.Context()
	named, err := x.named(ctx)
	if err != nil {
		return err
	}
	shot, err := store.TakeSnapshot(ctx, x.sessions, x.streams, named.ID)
	if err != nil {
		return x.hide(named.ID, err)
	}
	state := shot.State
	x.json(http.StatusOK, &wire.Snapshot{
		SessionID: state.ID, AgentType: state.Agent, Status: state.Status, RunID: state.CurrentRunID, StreamID: state.StreamID,
		CheckpointID: shot.CheckpointID, Sequence: shot.Sequence, Messages: array(shot.Messages), State: state.Custom,
	})
	return nil
}
