package engine

import (
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/session"
)

// pollTimeout is how long a remote may take to answer a request whose caller does not
// depend on it.
const pollTimeout = 5 * time.Second

// poll asks the remotes that a session waits for, at any depth, whether they still
// wait for the same calls: people may have answered there. It marks the remotes that
// do not, and reports whether there are any.
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
		var changed bool
		if remote := l.h.remote(below.Agent); remote != nil {
			changed, err = l.pollRemote(ctx, below, remote)
		} else {
			changed, err = l.poll(ctx, below)
		}
		if err != nil {
			return false, err
		}
		moved = moved || changed
	}
	return moved, nil
}

// pollRemote asks one remote.
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
		l.h.log.WarnContext(ctx, "remote.not_polled", "tenant", state.Tenant, "session", state.ID, "error", err)
		return false, nil
	case status.Status.Suspended() && allWait(state.Pending, status.Pending):
		return false, nil
	}
	err = l.updateProgress(ctx, state, func(at *remoteProgress, _ *session.ChildRef) { at.Moved = true })
	return err == nil, err
}

// allWait reports whether the remote waits for all calls that this session waits for.
func allWait(entries, there []session.Pending) bool {
	for i := range entries {
		if p := &entries[i]; p.State == session.PendingWaiting && findPending(there, p.CallID) == nil {
			return false
		}
	}
	return true
}
