package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// snapshotTries bounds how often a session is read again because it went on
// meanwhile.
const snapshotTries = 8

func (x *exchange) snapshot() error {
	ctx := x.r.Context()
	state, err := x.named(ctx)
	if err != nil {
		return err
	}
	out, err := x.snapshotOf(ctx, state.ID)
	if err != nil {
		return x.hide(state.ID, err)
	}
	x.json(http.StatusOK, out)
	return nil
}

// snapshotOf reads a session as it was at a checkpoint. What a checkpoint counts
// never changes; only a rewind takes it back, and that makes another the latest.
// So if it is still the latest after the rest was read, all of it belongs together.
func (x *exchange) snapshotOf(ctx context.Context, id string) (*wire.Snapshot, error) {
	for range snapshotTries {
		at, err := x.sessions.LatestCheckpoint(ctx, id)
		if errors.Is(err, session.ErrNotFound) {
			at, err = &session.Checkpoint{}, nil // nothing was ever committed
		}
		if err != nil {
			return nil, err
		}
		messages, err := x.sessions.AllMessages(ctx, id)
		if err != nil {
			return nil, err
		}
		state, err := x.sessions.Load(ctx, id)
		if err != nil {
			return nil, err
		}
		if state.CheckpointID != at.ID || len(messages) < at.MessageCount {
			continue
		}
		out := &wire.Snapshot{
			SessionID: id, AgentType: state.Agent, Status: state.Status, RunID: state.CurrentRunID, StreamID: state.StreamID,
			CheckpointID: at.ID, Sequence: at.StreamSequence, Messages: array(messages[:at.MessageCount]),
		}
		if at.State != nil {
			out.State = *at.State
		}
		return out, nil
	}
	return nil, session.ErrUnavailable.WithMessage("session %s changes too fast to be read", id)
}
