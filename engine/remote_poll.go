package engine

import (
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/session"
)

// pollTimeout is how long a remote may take to answer while somebody waits who does
// not depend on it.
const pollTimeout = 5 * time.Second

// lookElsewhere asks the remotes that a session waits for, at any depth, whether
// they wait for what is waited for here: people may have answered there, and nobody
// tells us. It notes which have gone on, and reports whether any has.
func (l *remoteLink) poll(ctx context.Context, state *session.State) (moved bool, err error) {
	for i := range state.AwaitingChildren {
		ref := &state.AwaitingChildren[i]
		if ref.Mode == session.ChildPersistent && !ref.Blocking {
			continue // it works by itself
		}
		below, err := loadChild(ctx, l.sessions, state.ID, ref.SessionID)
		if errors.Is(err, session.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		var gone bool
		if remote := l.h.remote(below.Agent); remote != nil {
			gone, err = l.pollRemote(ctx, below, remote)
		} else {
			gone, err = l.poll(ctx, below)
		}
		if err != nil {
			return false, err
		}
		moved = moved || gone
	}
	return moved, nil
}

// askMoved asks one remote.
func (l *remoteLink) pollRemote(ctx context.Context, state *session.State, remote helix.Remote) (bool, error) {
	peer, err := l.peer(ctx, state)
	if err != nil {
		return false, err
	}
	status, err := usercode.CallOnce(ctx, pollTimeout, func(ctx context.Context) (*helix.RemoteStatus, error) {
		return remote.Status(ctx, peer)
	})
	switch {
	case errors.Is(err, session.ErrNotFound): // it was deleted
	case err != nil:
		l.h.log.WarnContext(ctx, "remote agent not asked whether it waits", "tenant", state.Tenant, "session", state.ID, "error", err)
		return false, nil
	case status.Status.Suspended() && allWait(state.Pending, status.Pending):
		return false, nil
	}
	err = l.updateProgress(ctx, state, func(at *remoteProgress, _ *session.ChildRef) { at.Moved = true })
	return err == nil, err
}

// allWait reports whether the remote waits for all that is waited for here.
func allWait(entries, there []session.Pending) bool {
	for i := range entries {
		if p := &entries[i]; p.State == session.PendingWaiting && findPending(there, p.CallID) == nil {
			return false
		}
	}
	return true
}
