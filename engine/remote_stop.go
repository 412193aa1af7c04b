package engine

import (
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// undeliveredStop is a stop that a remote has not confirmed.
type undeliveredStop struct {
	Kind   session.StopKind `json:"kind"`
	Reason string           `json:"reason,omitempty"`
	// Since is when it was recorded.
	Since time.Time `json:"since,omitzero"`
	// Tries counts the attempts to deliver it, At is the time of the last.
	Tries int       `json:"tries,omitempty"`
	At    time.Time `json:"at,omitzero"`
}

// ErrStopUndelivered is returned by [Handler.Deliver] for a wake about a remote agent whose
// stop is not delivered yet; see [Handler.DeliverStop].
var ErrStopUndelivered = &session.Error{Code: session.CodeRemote, Message: "the stop of a remote agent is not delivered yet"}

// The pauses between attempts to deliver a stop, and the limit of one attempt.
const (
	stopPause     = 250 * time.Millisecond
	stopLongPause = 5 * time.Minute
	stopTimeout   = 10 * time.Second
)

// due reports whether the next attempt to deliver the stop is due.
func (s *undeliveredStop) due(now time.Time) bool {
	return s.Tries == 0 || !now.Before(s.At.Add(min(stopPause<<min(s.Tries, 20), stopLongPause)))
}

// requestStop records that the remote of a stand-in has to stop, before the stand-in
// ends. It does nothing for any other session.
func (l *remoteLink) requestStop(ctx context.Context, state *session.State, stop session.Stop) error {
	ref, err := remoteRef(ctx, l.sessions, state)
	if err != nil || ref == nil {
		return err
	}
	at, err := readProgress(ref)
	if err != nil || !at.Started {
		return err
	}
	_, err = retry.Do(ctx, func() (*session.ChildRef, error) {
		return l.sessions.UpdateChild(ctx, state.ParentID, state.ID, func(ref *session.ChildRef) error {
			at, err := readProgress(ref)
			if err != nil {
				return err
			}
			if at.Stop == nil || at.Stop.Kind == session.StopInterrupt {
				at.Stop = &undeliveredStop{Kind: stop.Kind, Reason: streamwriter.Truncate(stop.Reason), Since: time.Now().UTC()}
			}
			ref.StopPending, ref.Remote = true, encoded(at)
			return nil
		})
	})
	if err != nil {
		return err
	}
	_, err = retry.Do(ctx, func() (struct{}, error) {
		return struct{}{}, putWake(ctx, l.sessions, state.Tenant, state.ID, state.CurrentRunID)
	})
	return err
}

// DeliverStop delivers the stop that a wake is about, if the next attempt is due. It
// reports whether nothing is left to be done.
func (h *Handler) DeliverStop(ctx context.Context, wake session.Wake) (done bool, err error) {
	sessions := h.cfg.Backend.Sessions().Tenant(wake.Tenant)
	state, err := sessions.Load(ctx, wake.SessionID)
	if errors.Is(err, session.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	ref, err := remoteRef(ctx, sessions, state)
	if err != nil || ref == nil {
		return err == nil, err
	}
	at, err := readProgress(ref)
	if err != nil {
		return false, err
	}
	remote := h.remote(state.Agent)
	switch stop := at.Stop; {
	case stop == nil:
	case remote == nil: // another process knows the remote
		return false, nil
	case !stop.due(time.Now()):
		return false, nil
	default:
		if err := h.remoteLink(sessions).updateProgress(ctx, state, func(at *remoteProgress, _ *session.ChildRef) {
			if at.Stop != nil {
				at.Stop.Tries, at.Stop.At = at.Stop.Tries+1, time.Now().UTC()
			}
		}); err != nil {
			return false, err
		}
		err := deliverStop(ctx, remote, peerOf(state.ID, &at), stop)
		if errors.Is(err, session.ErrNotFound) && (at.RunID != "" || !time.Now().Before(stop.Since.Add(h.requestLimit(remote)))) {
			err = nil // else the request that starts it may still be in transit
		}
		if err != nil {
			h.log.WarnContext(ctx, "remote.not_stopped", "tenant", state.Tenant, "session", state.ID, "try", stop.Tries+1, "error", err)
			return false, nil
		}
	}
	other := false // the stop has changed since: an interrupt may have become an abort
	err = h.remoteLink(sessions).updateProgress(ctx, state, func(now *remoteProgress, ref *session.ChildRef) {
		if other = now.Stop != nil && (at.Stop == nil || now.Stop.Kind != at.Stop.Kind); !other {
			now.Stop, ref.StopPending = nil, false
		}
	})
	if err != nil || other {
		return false, err
	}
	if ref.Status != session.ChildRunning && ref.Status != session.ChildWaiting {
		return true, nil
	}
	// Until the caller has committed, it may record the stop again. A caller that was
	// ended from outside, for example because it expired, makes no commit.
	caller, err := sessions.Load(ctx, state.ParentID)
	if errors.Is(err, session.ErrNotFound) {
		return true, nil
	}
	if err != nil || (caller.Status != session.Failed && caller.Status != session.Completed) {
		return false, err
	}
	run, err := sessions.CurrentRun(ctx, caller.ID)
	if err != nil || !run.Status.Ended() {
		return false, err
	}
	ref, err = remoteRef(ctx, sessions, state) // its last commit may have recorded the stop after it was removed
	return err == nil && (ref == nil || !ref.StopPending), err
}

// updateProgress changes what is known of a remote that no process follows.
func (l *remoteLink) updateProgress(ctx context.Context, state *session.State, change func(*remoteProgress, *session.ChildRef)) error {
	_, err := l.sessions.UpdateChild(ctx, state.ParentID, state.ID, func(ref *session.ChildRef) error {
		at, err := readProgress(ref)
		if err != nil {
			return err
		}
		change(&at, ref)
		ref.Remote = encoded(at)
		return nil
	})
	return err
}

// deliverStop tells a remote to stop, unless it has ended. A remote that waits is
// aborted, because nobody will resume it.
func deliverStop(ctx context.Context, remote helix.Remote, peer string, stop *undeliveredStop) error {
	_, err := usercode.CallOnce(ctx, stopTimeout, func(ctx context.Context) (none struct{}, err error) {
		status, err := remote.Status(ctx, peer)
		if err != nil {
			return none, err
		}
		kind := stop.Kind
		switch {
		case status.Status.Suspended():
			kind = session.StopAbort
		case status.Status.Ended():
			return none, nil
		}
		err = remote.Stop(ctx, peer, status.RunID, kind, stop.Reason)
		if status.Status.Suspended() && errors.Is(err, session.ErrNotResumable) {
			return none, nil // its session was ended from outside, and only its run's record was not
		}
		return none, err
	})
	return late(err, stopTimeout)
}

// readStop reads whether a stop for the call's remote is not delivered yet.
func (a *agentCall) readStop(ctx context.Context) error {
	if a.Kind != session.CallRemote {
		return nil
	}
	refs, err := a.t.sessions.Children(ctx, a.t.key.ID)
	if err != nil {
		return err
	}
	for i := range refs {
		if refs[i].SessionID == a.Child {
			a.child.stopUndelivered = refs[i].StopPending
			if a.child.stopUndelivered {
				a.t.stopUndelivered.Store(true)
			}
		}
	}
	return nil
}

// refreshStop updates a reference that was read earlier: whether a stop has yet to be
// delivered.
func (l *remoteLink) refreshStop(ctx context.Context, parent string, ref *session.ChildRef) error {
	refs, err := l.sessions.Children(ctx, parent)
	if err != nil {
		return err
	}
	for i := range refs {
		if refs[i].SessionID == ref.SessionID {
			ref.StopPending = refs[i].StopPending
		}
	}
	ref.Remote = nil // nil keeps what the store has of it
	return nil
}
