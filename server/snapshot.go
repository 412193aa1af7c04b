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
	shot, err := store.TakeRecent(ctx, x.sessions, x.streams, named.ID, x.server.cfg.Limits.PageBytes)
	if err != nil {
		return x.hide(named.ID, err)
	}
	state := shot.State
	x.json(http.StatusOK, &wire.Snapshot{
		SessionID: state.ID, AgentType: state.Agent, Status: state.Status, RunID: state.CurrentRunID, StreamID: state.StreamID,
		CheckpointID: shot.CheckpointID, Sequence: shot.Sequence, Messages: array(shot.Messages), Earlier: shot.Skipped, State: state.Custom,
	})
	return nil
}
