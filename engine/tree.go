package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// lineage is where a session stands among the sessions above it.
type lineage struct {
	// self is the session; head is the session whose lease and stream it shares; root
	// is the first session of the conversation. A companion that works by itself is
	// its own head.
	self, head, root string
	detached         bool // the head is a companion that works by itself
}

// maxDepth bounds how far up a session's callers are followed.
const maxDepth = 1000

func headOf(state *session.State) string {
	if state.RootID == "" {
		return state.ID
	}
	return state.RootID
}

// Head returns the session whose run a session's work is part of: its root, or
// itself.
func (h *Handler) Head(ctx context.Context, key session.Key) (*session.Key, error) {
	state, err := h.cfg.Backend.Sessions().Tenant(key.Tenant).Load(ctx, key.ID)
	if err != nil {
		return nil, err
	}
	return &session.Key{Tenant: key.Tenant, ID: headOf(state)}, nil
}

// lineageOf follows a session's callers to the root of the conversation.
func lineageOf(ctx context.Context, sessions session.Store, state *session.State) (lineage, error) {
	l := lineage{self: state.ID, head: headOf(state)}
	at := state
	for range maxDepth {
		next := at.ParentID
		if at.RootID != "" {
			next = at.RootID
		}
		if next == "" {
			l.root = at.ID
			l.detached = l.head != l.root
			return l, nil
		}
		above, err := sessions.Load(ctx, next)
		if errors.Is(err, session.ErrNotFound) { // the caller was deleted
			l.root = at.ID
			l.detached = l.head != l.root
			return l, nil
		}
		if err != nil {
			return l, err
		}
		at = above
	}
	return l, session.ErrCorrupt.WithMessage("session %s: its callers are nested too deeply", state.ID)
}

// others lists the other sessions at which a call of the session may be answered.
func (l lineage) others() []string {
	heads := slices.Compact([]string{l.head, l.root})
	return slices.DeleteFunc(heads, func(id string) bool { return id == l.self })
}

// childOf refuses a session that is not a child of parent. Somebody else created it
// under the child's id, so nothing in it may be trusted or changed.
func childOf(parent string, state *session.State) error {
	if state.ParentID != parent {
		return session.ErrExists.WithMessage("session %s is not a child of %s", state.ID, parent)
	}
	return nil
}

// loadChild loads a child of a session. A session with the child's id that is not a
// child of parent is not found.
func loadChild(ctx context.Context, sessions session.Store, parent, id string) (*session.State, error) {
	state, err := retry.Do(ctx, func() (*session.State, error) { return sessions.Load(ctx, id) })
	if err == nil && childOf(parent, state) != nil {
		return nil, session.ErrNotFound.WithMessage("session %s is not a child of %s", id, parent)
	}
	return state, err
}

// childRun returns the latest run of a child, or nil if there is none. A session that
// is not a child of parent has no run: somebody else created it under the child's id.
func childRun(ctx context.Context, sessions session.Store, parent, id string) (*session.Run, error) {
	if _, err := loadChild(ctx, sessions, parent, id); err != nil {
		return nil, absent(err)
	}
	return latestRun(ctx, sessions, id)
}

// latestRun returns the latest run of a session, or nil if there is none.
func latestRun(ctx context.Context, sessions session.Store, id string) (*session.Run, error) {
	run, err := retry.Do(ctx, func() (*session.Run, error) { return sessions.CurrentRun(ctx, id) })
	return run, absent(err)
}

// absent returns err, or nil if err says that something was not found.
func absent(err error) error {
	if errors.Is(err, session.ErrNotFound) {
		return nil
	}
	return err
}

// tree reads and ends the sessions of the agents below a session. Its fields never
// change.
type tree struct {
	h        *Handler
	sessions session.Store // of the session's tenant
}

func (h *Handler) tree(sessions session.Store) *tree { return &tree{h: h, sessions: sessions} }

// waitingTree is what a session waits for, together with the agents below it.
type waitingTree struct {
	// ready is set when the session can make progress: there is an answer, a deadline
	// has passed, or an agent has ended or can be resumed.
	ready   bool
	pending []session.Pending // calls without an answer
}

// readiness reads what a child of a session waits for.
func (r *tree) readiness(ctx context.Context, parent, id string, now time.Time) (waitingTree, error) {
	var w waitingTree
	state, err := loadChild(ctx, r.sessions, parent, id)
	if errors.Is(err, session.ErrNotFound) {
		return waitingTree{ready: true}, nil
	}
	if err != nil {
		return w, err
	}
	run, err := latestRun(ctx, r.sessions, id)
	if err != nil {
		return w, err
	}
	if run == nil {
		return waitingTree{ready: true}, nil
	}
	if state.Status == session.Paused { // an operator paused it
		w.pending = state.Suspension().Pending
		return w, nil
	}
	if !run.Status.Suspended() || state.Status != session.Active {
		w.ready = true
	}
	err = r.addWaits(ctx, state, now, &w)
	return w, err
}

// addWaits adds what a session's document says about its waits.
func (r *tree) addWaits(ctx context.Context, state *session.State, now time.Time, w *waitingTree) error {
	for i := range state.Pending {
		p := &state.Pending[i]
		if p.State == session.PendingAnswered || due(p, now) {
			w.ready = true
		}
		if p.State == session.PendingWaiting {
			w.pending = append(w.pending, *p)
		}
	}
	for i := range state.AwaitingChildren {
		below, err := r.awaited(ctx, state.ID, &state.AwaitingChildren[i], now)
		if err != nil {
			return err
		}
		w.ready = w.ready || below.ready
		w.pending = append(w.pending, below.pending...)
	}
	if !w.ready && r.h.remote(state.Agent) != nil {
		ref, err := remoteRef(ctx, r.sessions, state)
		if err != nil || ref == nil {
			return err
		}
		at, err := readProgress(ref)
		w.ready = at.Moved
		return err
	}
	return nil
}

// awaited reads what the agent of a call waits for. A companion that works by itself
// is ready only when it has ended; the calls that it waits for are listed all the
// same.
func (r *tree) awaited(ctx context.Context, parent string, ref *session.ChildRef, now time.Time) (waitingTree, error) {
	if ref.Mode != session.ChildPersistent || ref.Blocking {
		return r.readiness(ctx, parent, ref.SessionID, now)
	}
	state, err := loadChild(ctx, r.sessions, parent, ref.SessionID)
	if err != nil {
		return waitingTree{ready: errors.Is(err, session.ErrNotFound)}, absent(err)
	}
	run, err := latestRun(ctx, r.sessions, ref.SessionID)
	if err != nil {
		return waitingTree{}, err
	}
	if run == nil || (run.Status.Ended() && !run.Status.Suspended()) {
		return waitingTree{ready: true}, nil
	}
	below := waitingTree{}
	if err := r.addWaits(ctx, state, now, &below); err != nil {
		return waitingTree{}, err
	}
	return waitingTree{pending: below.pending}, nil
}

// companionEnded reports whether one of the agents waits, at any depth, for a
// companion that works by itself and has ended.
func (r *tree) companionEnded(ctx context.Context, parent string, refs []session.ChildRef) (bool, error) {
	for i := range refs {
		ref := &refs[i]
		if ref.Mode == session.ChildPersistent && !ref.Blocking {
			if tree, err := r.awaited(ctx, parent, ref, time.Time{}); err != nil || tree.ready {
				return tree.ready, err
			}
			continue
		}
		state, err := loadChild(ctx, r.sessions, parent, ref.SessionID)
		if errors.Is(err, session.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		if ended, err := r.companionEnded(ctx, state.ID, state.AwaitingChildren); err != nil || ended {
			return ended, err
		}
	}
	return false, nil
}

// Waiting lists the calls of a session and of the agents below it that wait for
// people.
func (h *Handler) Waiting(ctx context.Context, key session.Key) ([]session.Pending, error) {
	var found []session.Pending
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	err := h.tree(sessions).walk(ctx, "", key.ID, 0, true, func(state *session.State) (bool, error) {
		found = append(found, state.Suspension().Pending...)
		return true, nil
	})
	return found, err
}

// walk visits a session and then, if the visit returns true, the sessions of the
// agents below it. Agents that have ended are visited only if all is set: they may
// have left companions that still run.
func (r *tree) walk(ctx context.Context, parent, id string, depth int, all bool, visit func(*session.State) (down bool, err error)) error {
	state, err := r.sessions.Load(ctx, id)
	if depth > 0 && errors.Is(err, session.ErrNotFound) {
		return nil // it was never started
	}
	if err != nil {
		return err
	}
	if depth > 0 && state.ParentID != parent {
		return nil // another session has this id
	}
	if depth > maxDepth {
		return session.ErrCorrupt.WithMessage("session %s: the agents below it are nested too deeply", id)
	}
	if down, err := visit(state); err != nil || !down {
		return err
	}
	refs, err := r.sessions.Children(ctx, id)
	if err != nil {
		return err
	}
	for i := range refs {
		if all || refs[i].Status == session.ChildRunning || refs[i].Status == session.ChildWaiting {
			if err := r.walk(ctx, id, refs[i].SessionID, depth+1, all, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// abandon ends a child of parent whose result nobody needs any more, and the agents
// below it: calls that wait are answered with why, runs are stopped, and suspended
// sessions fail. Companions that work by themselves continue, unless the child is
// one. With keep, a companion that waits is interrupted instead of failed, and
// continues its transcript when it is called again.
func (r *tree) abandon(ctx context.Context, parent, id string, why *session.Error, keep bool) error {
	return r.walk(ctx, parent, id, 1, false, func(state *session.State) (bool, error) {
		if state.ID != id && state.RootID == "" {
			return false, nil
		}
		companion := false
		if keep {
			refs, err := r.sessions.Children(ctx, state.ParentID)
			if err != nil {
				return false, err
			}
			companion = findRef(refs, func(ref *session.ChildRef) bool { return ref.SessionID == state.ID }) != nil
		}
		return true, r.endOne(ctx, state, why, companion)
	})
}

// AbortWaiting ends an agent that works for another and waits for people, and the
// agents below it. It puts a wake for the head, whose run can make progress then.
func (h *Handler) AbortWaiting(ctx context.Context, key, head session.Key, reason string) error {
	if len(reason) > maxReason {
		return session.ErrTooLarge.WithMessage("reason has %d bytes, at most %d are allowed", len(reason), maxReason)
	}
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return err
	}
	if err := h.checkSupport(state); err != nil {
		return err
	}
	run, err := sessions.CurrentRun(ctx, key.ID)
	if err != nil {
		return err
	}
	switch {
	case run.Status == session.RunRunning:
		return session.ErrStale.WithMessage("run %s has just begun", run.ID)
	case state.Status != session.Active || !run.Status.Suspended():
		return session.ErrNotResumable.WithMessage("the session no longer waits")
	}
	if err := putWake(ctx, sessions, head.Tenant, head.ID, run.ID); err != nil { // first, because this process may die
		return err
	}
	why := session.ErrCancelled.WithMessage("%s", cmp.Or(reason, "the agent was aborted"))
	return h.tree(sessions).abandon(ctx, state.ParentID, key.ID, why, false)
}

// endOne ends what a session does. With keep, the session is interrupted and can be
// continued.
func (r *tree) endOne(ctx context.Context, state *session.State, why *session.Error, keep bool) error {
	for _, p := range state.Suspension().Pending {
		// If an answer came first, it stands, but nobody uses it.
		_, err := r.sessions.Submit(ctx, state.ID, session.Submission{
			CallID: p.CallID, Response: session.Response{Kind: session.PendingClientTool, Error: string(why.Code) + ": " + why.Message},
		})
		if err != nil {
			return err
		}
		r.h.log.InfoContext(ctx, "client_tool.aborted", "tenant", state.Tenant, "session", state.ID, "call", p.CallID, "reason", why.Code)
	}
	run, err := r.sessions.CurrentRun(ctx, state.ID)
	if errors.Is(err, session.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if run.Status == session.RunRunning {
		if _, here := r.h.held(run.ID); !here && state.RootID != "" {
			return r.endOrphan(ctx, state, run, why)
		}
		key := session.Key{Tenant: state.Tenant, ID: state.ID}
		stop := session.Stop{RunID: run.ID, Kind: session.StopAbort, Reason: why.Message}
		if keep && detached(state) {
			stop.Kind = session.StopInterrupt
		}
		err := r.h.StopRun(ctx, key, stop)
		if errors.Is(err, session.ErrStale) { // it has just ended
			return nil
		}
		return err
	}
	if !run.Status.Suspended() || state.Status != session.Active {
		return nil
	}
	if err := r.h.remoteLink(r.sessions).requestStop(ctx, state, session.Stop{Kind: session.StopAbort, Reason: why.Message}); err != nil {
		return err
	}
	change := session.StatusChange{
		Expect: []session.Status{session.Active}, To: session.Failed, Error: why, FailureReason: session.FailureAbandoned,
	}
	if keep {
		change = session.StatusChange{
			Expect: []session.Status{session.Active}, To: session.Interrupted,
			Interrupt: &session.InterruptContext{RunID: run.ID, Reason: why.Message, At: time.Now().UTC()},
		}
	}
	_, err = r.sessions.SetStatus(ctx, state.ID, change)
	if errors.Is(err, session.ErrAlreadyRunning) {
		return session.ErrUnavailable.WithCause(err, "session %s is about to be closed", state.ID)
	}
	return err
}

// endOrphan ends the run of a child that no process drives: its process died, or lost
// the root's lease, which is the child's lease, too. Calls that have begun get a result, and
// watchers are told to discard what they saw of an unfinished step, if the agent is known here.
func (r *tree) endOrphan(ctx context.Context, state *session.State, run *session.Run, why *session.Error) error {
	due := session.Due{
		Key: session.Key{Tenant: state.Tenant, ID: state.ID}, Agent: state.Agent, RunID: run.ID, Runtime: run.Runtime, Requires: run.Requires,
		Lease: state.Lease,
	}
	if _, err := r.h.Agent(ctx, state); err == nil {
		return r.endRecovered(ctx, due, why)
	}
	taken, err := r.sessions.TakeOver(ctx, &session.TakeOver{
		SessionID: due.ID, RunID: due.RunID, Owner: r.h.owner, TTL: r.h.cfg.LeaseTTL, Epoch: state.Lease.Epoch, Force: true,
	})
	if err != nil {
		return err
	}
	if err := r.h.closer(r.sessions).failRun(ctx, due, taken, why, nil); err != nil {
		return err
	}
	if state, err = r.sessions.Load(ctx, state.ID); err != nil {
		return err
	}
	return r.h.closer(r.sessions).settle(ctx, state, false)
}

// endRecovered takes a child's run over to end it.
func (r *tree) endRecovered(ctx context.Context, due session.Due, why *session.Error) error {
	if _, err := r.h.recoverRun(ctx, due, byForce); err != nil {
		return err
	}
	t, held := r.h.held(due.RunID)
	if !held {
		return session.ErrStale.WithMessage("run %s is not held here any more", due.RunID)
	}
	defer r.h.drop(t)
	if t.ended == nil {
		if _, err := t.endFailed(ctx, due.RunID+"/abandon", why, true); err != nil {
			r.h.release(ctx, t)
			return err
		}
	}
	_, err := t.closeTurn(ctx)
	return err
}
