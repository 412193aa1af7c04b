package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/helixagents/helix/session"
)

// Expire fails a session that has expired, and reports whether it did. It does nothing if
// the session was used, or paused, since it was found to be due. An answer that no run has
// used yet is a use: Expire moves the expiry then.
func (h *Handler) Expire(ctx context.Context, due session.Due) (bool, error) {
	return h.fail(ctx, due.Key, session.ErrExpired, session.FailureExpired, func(sessions session.Store, state *session.State) (bool, error) {
		// The clock is read before the answers, so that one from before the expiry is seen.
		now, err := sessions.Now(ctx)
		if err != nil || state.Status == session.Paused || state.ExpiresAt.IsZero() || now.Before(state.ExpiresAt) {
			return false, err
		}
		use, err := h.lastAnswer(ctx, sessions, state)
		if err != nil || use.IsZero() {
			return err == nil, err
		}
		return h.moveExpiry(ctx, sessions, state, use, now)
	})
}

// lastAnswer returns when the last answer was accepted that no run has used yet, to a call
// of a session or of the agents below it that it waits for. It is zero if there is none.
func (h *Handler) lastAnswer(ctx context.Context, sessions session.Store, state *session.State) (last time.Time, err error) {
	err = h.tree(sessions).walk(ctx, "", state.ID, 0, false, func(at *session.State) (bool, error) {
		if at.ID != state.ID && at.RootID == "" {
			return false, nil // a companion that works by itself
		}
		for i := range at.Pending {
			if p := &at.Pending[i]; p.State == session.PendingAnswered && p.SubmittedAt.After(last) {
				last = p.SubmittedAt
			}
		}
		return true, nil
	})
	return last, err
}

// keyExpiry is the key of custom state under which a session whose expiry was moved keeps
// the first one.
const keyExpiry = session.ReservedPrefix + "expiry"

// movedExpiry is the value under keyExpiry.
type movedExpiry struct {
	RunID string    `json:"runId"` // after which the session waits
	First time.Time `json:"first"`
}

// moveExpiry moves the expiry of a session so that it may wait for as long after its last use
// as after its last run, and reports whether it has expired even so.
func (h *Handler) moveExpiry(ctx context.Context, sessions session.Store, state *session.State, use, now time.Time) (expired bool, err error) {
	run, err := sessions.CurrentRun(ctx, state.ID)
	switch {
	case errors.Is(err, session.ErrNotFound), err == nil && run.EndedAt.IsZero():
		return true, nil // whoever fails the session looks at the run
	case err != nil:
		return false, err
	}
	moved := movedExpiry{RunID: run.ID, First: state.ExpiresAt}
	var before movedExpiry
	if raw := state.Custom.Get(keyExpiry); raw != nil && json.Unmarshal(raw, &before) == nil && before.RunID == run.ID {
		moved = before
	}
	later := use.Add(max(moved.First.Sub(run.EndedAt), 0)).UTC()
	if !now.Before(later) {
		return true, nil
	}
	writes := session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: keyExpiry, Value: encoded(moved)}}}
	_, err = sessions.Edit(ctx, &session.Edit{
		SessionID: state.ID, Version: state.Version, Read: state, Change: session.Change{ExpiresAt: &later, Writes: writes},
	})
	if errors.Is(err, session.ErrStale) || errors.Is(err, session.ErrAlreadyRunning) {
		err = nil // it was used
	}
	return false, err
}
