package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// maxAttempts is how often a run is recovered without progress before it fails as one
// that kills the processes that run it.
const maxAttempts = 3

// Recover takes over a run whose owner died and continues it from its last commit, if
// need be in the middle of a step. It fails with [session.ErrStale] if another
// process was faster.
func (h *Handler) Recover(ctx context.Context, due session.Due) (*Opened, error) {
	return h.recoverRun(ctx, due, false)
}

// TakeOver is [Handler.Recover] for a process that a workflow engine has chosen: the
// previous owner died or is to stop, although its lease has not expired.
func (h *Handler) TakeOver(ctx context.Context, due session.Due) (*Opened, error) {
	return h.recoverRun(ctx, due, true)
}

// recoverRun takes a run over. With force, the lease need not have expired; the
// holder of a root's lease forces those of its children.
func (h *Handler) recoverRun(ctx context.Context, due session.Due, force bool) (*Opened, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(due.Tenant)
	agent, err := h.makeAgent(ctx, sessions, due) // before the lease is taken, because a factory may fail for a while
	if err != nil {
		return nil, err
	}
	taken, err := sessions.TakeOver(ctx, &session.TakeOver{
		SessionID: due.ID, RunID: due.RunID, Owner: h.owner, TTL: h.cfg.LeaseTTL, Epoch: due.Lease.Epoch,
		Force: force,
	})
	if err != nil {
		return nil, fmt.Errorf("take over session %s: %w", due.ID, err)
	}
	t, err := h.load(ctx, due.Key, due.RunID, agent)
	if err != nil && force && session.IsRetryable(err) {
		// A workflow engine tries again soon, whatever the lease says. That is no
		// crash.
		if err := sessions.CloseRun(ctx, due.ID, taken.Lease.Fence(), false); err != nil {
			h.log.WarnContext(ctx, "lease not released", "session", due.ID, "run", due.RunID, "error", err)
		}
		return nil, fmt.Errorf("load session %s: %w", due.ID, err)
	}
	if err != nil {
		// The lease is kept until it expires: a run that cannot be loaded now would
		// be taken over again at once.
		if taken.Attempts > maxAttempts {
			failure := session.ErrCrashLoop.WithMessage("the run cannot be continued: %v", err)
			if err := h.closer(sessions).failRun(ctx, due, taken, failure, nil); err != nil {
				h.log.ErrorContext(ctx, "run not written off", "session", due.ID, "run", due.RunID, "error", err)
			}
		}
		return nil, fmt.Errorf("load session %s: %w", due.ID, err)
	}
	h.log.InfoContext(ctx, "run taken over", t.attrs("attempt", taken.Attempts)...)
	if err := t.endUndone(ctx); err != nil {
		h.release(ctx, t)
		h.drop(t)
		return nil, fmt.Errorf("end what session %s has undone: %w", due.ID, err)
	}
	if err := t.openStream(ctx); err != nil {
		h.release(ctx, t)
		h.drop(t)
		return nil, fmt.Errorf("reopen stream %s: %w", t.streamID, err)
	}
	progressed := t.progress.watch()
	t.discardShown()
	loops := t.ended == nil && taken.Attempts > maxAttempts
	if loops {
		lives, err := h.tree(sessions).progressesBelow(ctx, due.ID, due.Lease.Owner, 0)
		if err != nil {
			h.release(ctx, t)
			h.drop(t)
			return nil, fmt.Errorf("look for progress below session %s: %w", due.ID, err)
		}
		loops = !lives
	}
	if loops {
		err := session.ErrCrashLoop.WithMessage("the run was recovered %d times without making progress", taken.Attempts-1)
		if _, err := t.endFailed(ctx, t.run.ID+"/recover", err, true); err != nil {
			h.release(ctx, t)
			h.drop(t)
			return nil, err
		}
	}
	opened := t.opened()
	opened.Progressed = progressed
	return opened, nil
}

// makeAgent calls the factory that makes the agent of a run. It returns nil if the
// agent is registered with its definition.
func (h *Handler) makeAgent(ctx context.Context, sessions session.Store, due session.Due) (*helix.Agent, error) {
	if h.registered(due.Agent) {
		return nil, nil
	}
	state, err := sessions.Load(ctx, due.ID)
	if err != nil {
		return nil, err
	}
	return h.Agent(ctx, state)
}

// Loss is how a run lost the process that drove it.
type Loss struct {
	// HandedOver is set if the process released the run and did not die.
	HandedOver bool
	// Before is how often the run was lost before, since it last made progress. A run
	// that was lost before is a suspect: it may be what kills the processes that
	// drive it.
	Before int
}

// Lost returns how a run was lost that is about to be recovered.
func (h *Handler) Lost(ctx context.Context, due session.Due) (Loss, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(due.Tenant)
	state, err := sessions.Load(ctx, due.ID)
	if err != nil {
		return Loss{}, err
	}
	run, err := sessions.Run(ctx, due.ID, due.RunID)
	if err != nil {
		return Loss{}, err
	}
	return LossOf(state, run), nil
}

// LossOf returns how a run was lost, from the session's document and the run's
// record.
func LossOf(state *session.State, run *session.Run) Loss {
	out := Loss{HandedOver: state.Lease.Owner == ""}
	if run.ProgressVersion == state.Version {
		out.Before = run.Attempts
	}
	if out.HandedOver { // its last takeover was counted, and has not failed
		out.Before = max(0, out.Before-1)
	}
	return out
}

// progressesBelow reports whether an agent below a session makes progress that the
// lost owner drove. Then the session has only waited for it.
func (r *tree) progressesBelow(ctx context.Context, id, owner string, depth int) (bool, error) {
	if depth > maxDepth {
		return false, session.ErrCorrupt.WithMessage("session %s: the agents below it are nested too deeply", id)
	}
	refs, err := r.sessions.Children(ctx, id)
	if err != nil {
		return false, err
	}
	for i := range refs {
		if refs[i].Status != session.ChildRunning {
			continue
		}
		state, err := loadChild(ctx, r.sessions, id, refs[i].SessionID)
		if errors.Is(err, session.ErrNotFound) {
			continue // it was never started
		}
		if err != nil {
			return false, err
		}
		run, err := r.sessions.CurrentRun(ctx, state.ID)
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return false, err
		}
		if err != nil || run.Status != session.RunRunning || state.RootID == "" || state.Lease.Owner != owner {
			continue
		}
		if run.ProgressVersion != state.Version || run.Attempts < maxAttempts {
			return true, nil
		}
		if lives, err := r.progressesBelow(ctx, state.ID, owner, depth+1); err != nil || lives {
			return lives, err
		}
	}
	return false, nil
}

// failRun fails a run that cannot be continued, so that sweeps do not find it again.
// The agents in below end with it: the process that closes the run ends them; see
// [tree.endAwaited].
func (c *closer) failRun(ctx context.Context, due session.Due, taken *session.TakenOver, failure *session.Error, below []session.ChildRef) error {
	fence := taken.Lease.Fence()
	change := session.Change{
		Status: session.Failed, Children: below, Outcome: &session.Outcome{Status: session.RunFailed, Error: failure, Children: below},
	}
	state, err := c.sessions.Load(ctx, due.ID)
	if err != nil {
		return err
	}
	for i := range state.Pending {
		change.Resolve = append(change.Resolve, session.Resolution{CallID: state.Pending[i].CallID, State: session.PendingAbandoned})
	}
	if err := c.h.remoteLink(c.sessions).requestStop(ctx, state, session.Stop{Kind: session.StopAbort, Reason: failure.Message}); err != nil {
		return err
	}
	if detached(state) {
		change.Wake = &session.Wake{Tenant: due.Tenant, SessionID: state.ParentID, ChildID: due.ID, RunID: due.RunID}
	}
	_, err = c.sessions.Commit(ctx, &session.Commit{
		SessionID: due.ID, RunID: due.RunID, Key: due.RunID + "/abandon", Version: taken.Version, Fence: fence, Change: change,
	})
	if err != nil {
		return err
	}
	c.h.logEnd(ctx, state, due.RunID, change.Outcome)
	return c.sessions.CloseRun(ctx, due.ID, fence, false)
}

// discardShown tells watchers to discard what they saw of the step in flight.
func (t *turn) discardShown() {
	if t.ended != nil || t.remote != nil {
		return
	}
	const reason = "taken over"
	if t.flight != nil {
		t.discardResults(t.flight, reason)
		return
	}
	// Messages from the inbox may have been shown before they were committed, too.
	count := t.transcript.Len()
	t.emit(stream.Chunk{
		Kind: stream.StepDiscarded, Scope: stream.ScopeReply, Reason: reason,
		MessageID: session.ReplyID(t.run.ID, t.current()), MessageCount: &count,
	})
}

// discardResults tells watchers to discard the results that they saw of the step, and
// shows the waits again. Results that stand are shown again later.
func (t *turn) discardResults(f *flight, reason string) {
	t.emit(stream.Chunk{Kind: stream.StepDiscarded, Scope: stream.ScopeResults, Reason: reason, MessageID: f.reply.ID})
	for _, c := range f.calls {
		c.unseen = c.settled != nil
	}
	f.announced = false
	t.waits(f).announce()
}

// load reads a turn from the store. This handler must hold its lease.
func (h *Handler) load(ctx context.Context, key session.Key, runID string, agent *helix.Agent) (*turn, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return nil, err
	}
	if state.CurrentRunID != runID || state.Lease.Owner != h.owner {
		return nil, session.ErrStale.WithMessage("run %s is not held here", runID).WithSaw(state.Saw())
	}
	run, err := sessions.Run(ctx, key.ID, runID)
	if err != nil {
		return nil, err
	}
	if agent == nil {
		if agent, err = h.Agent(ctx, state); err != nil {
			return nil, err
		}
	}
	messages, err := sessions.AllMessages(ctx, key.ID)
	if err != nil {
		return nil, err
	}
	t := h.newTurn(agent, nil, state, *run, state.Lease.Fence(), new(atomic.Int64))
	if t.transcript, err = session.NewTranscript(messages); err != nil {
		return nil, err
	}
	if run.Kind == session.RunResume && run.CheckpointID == "" && run.PreviousRunID != "" {
		before, err := sessions.Run(ctx, key.ID, run.PreviousRunID)
		if err != nil {
			return nil, err
		}
		t.resumes = before.Status.Suspended()
	}
	t.step, t.inbox = state.StepCount, true // the next model call reads the inbox
	if run.Status.Ended() {
		t.ended = run.Outcome
	} else if len(t.transcript.Open()) > 0 {
		if err := t.stepLoader().load(ctx, messages); err != nil {
			return nil, err
		}
	}
	if info, err := t.streams.Info(ctx, t.streamID); err == nil {
		t.out.Restore(info.Last, info.Bytes)
	} else if !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	h.hold(t) // before reading the stop request, so that none is missed
	stop, err := sessions.StopRequest(ctx, key.ID, runID)
	if err != nil {
		h.drop(t)
		return nil, err
	}
	if stop != nil {
		t.stops.request(stop)
	}
	return t, nil
}

// stepLoader reads a step in flight from the store, for a turn that resumes or
// recovers in the middle of it.
type stepLoader struct{ t *turn }

func (t *turn) stepLoader() *stepLoader { return &stepLoader{t} }

// load restores a step whose reply is committed and whose calls are not all answered.
func (l *stepLoader) load(ctx context.Context, messages []session.Message) error {
	reply := messages[len(messages)-1]
	rows, err := l.t.sessions.Calls(ctx, l.t.key.ID, reply.ID)
	if err != nil {
		return err
	}
	parts := reply.Calls()
	if len(rows) != len(parts) {
		return session.ErrCorrupt.WithMessage("message %s makes %d calls, of which the store knows %d", reply.ID, len(parts), len(rows))
	}
	if reply.RunID != l.t.run.ID {
		l.t.step = -1 // an earlier run suspended in it
	}
	f := &flight{step: l.t.current(), reply: reply, committed: true}
	byCall, err := l.pendingByCall(ctx, rows)
	if err != nil {
		return err
	}
	reached := true // whether the calls so far leave it possible that later ones began
	for i := range rows {
		c := &call{Call: rows[i], part: parts[i]}
		if c.Status == session.CallSettled && c.Result != nil {
			c.settled, c.unseen = settledRow(&c.Call), true
		}
		if p := byCall[c.ID]; p != nil {
			c.pending = p
		}
		if err := l.readShown(ctx, c); err != nil {
			return err
		}
		f.calls = append(f.calls, c)
		if !rows[i].FinishWith && !rows[i].ReadOnly && rows[i].Rejected == nil &&
			rows[i].Kind != session.CallFinish && c.settled == nil {
			reached = false
		}
	}
	for _, c := range f.calls {
		if !c.FinishWith || c.Rejected != nil {
			continue
		}
		// Phase 2 begins when phase 1 is settled and goes call by call. A call that
		// it did not reach cannot have started, although the reply commit claimed it,
		// as it does where no call waits.
		if !reached && c.Status == session.CallBegun && !f.waits() {
			c.claimed = true
		}
		reached = reached && c.Status == session.CallSettled
	}
	if err := l.readCompanions(ctx, f); err != nil {
		return err
	}
	l.t.flight = f
	return nil
}

// readShown finds out whether watchers saw the agent of a settled call begin. Then
// they have to see its end.
func (l *stepLoader) readShown(ctx context.Context, c *call) error {
	if !c.unseen || !machine.WaitsForAgent(c.Kind) || c.Child == "" {
		return nil
	}
	child, err := loadChild(ctx, l.t.sessions, l.t.key.ID, c.Child)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return err
	}
	c.child = &calledAgent{shown: err == nil && child.StreamID == l.t.state.StreamID && c.consults()}
	return nil
}

// pendingByCall reads the entries of calls that wait, or waited, for people.
func (l *stepLoader) pendingByCall(ctx context.Context, rows []session.Call) (map[string]*session.Pending, error) {
	if !slices.ContainsFunc(rows, func(c session.Call) bool { return machine.WaitsForPerson(c.Kind) }) {
		return nil, nil
	}
	list, err := l.t.sessions.PendingCalls(ctx, l.t.key.ID, true)
	if err != nil {
		return nil, err
	}
	found := map[string]*session.Pending{}
	for i := range list {
		found[list[i].CallID] = &list[i]
	}
	return found, nil
}

// closer ends runs and closes streams on behalf of processes that could not. Its
// fields never change.
type closer struct {
	h        *Handler
	sessions session.Store // of the session's tenant
}

func (h *Handler) closer(sessions session.Store) *closer { return &closer{h: h, sessions: sessions} }

// SettleClose closes the stream of a run that ended in a process that could not close
// it, and tells the hooks. It does nothing while that process still holds the lease.
func (h *Handler) SettleClose(ctx context.Context, due session.Due) error {
	sessions := h.cfg.Backend.Sessions().Tenant(due.Tenant)
	state, err := sessions.Load(ctx, due.ID)
	if err != nil {
		return err
	}
	now, err := sessions.Now(ctx)
	if err != nil {
		return err
	}
	if !state.CloseOwed || state.Lease.Live(now) {
		return nil
	}
	return h.closer(sessions).settle(ctx, state, true)
}

// closeStream closes the stream of a run.
func (c *closer) closeStream(ctx context.Context, state *session.State, run *session.Run) error {
	streams := c.h.cfg.Backend.Streams().Tenant(state.Tenant)
	info, err := streams.Info(ctx, state.StreamID)
	if err != nil {
		return err
	}
	// A run that failed as it started may not have opened it.
	if run.Status == session.RunFailed && state.StreamID == state.ID && info.RunID != run.ID {
		messages, err := c.sessions.AllMessages(ctx, state.ID)
		if err != nil {
			return err
		}
		t := c.h.newTurn(c.h.agentOr(ctx, state), nil, state, *run, state.Lease.Fence(), new(atomic.Int64))
		defer t.finish()
		if t.transcript, err = session.NewTranscript(messages); err != nil {
			return err
		}
		if err := t.openStream(ctx); err != nil {
			return err
		}
	}
	return closeStream(ctx, streams, state.StreamID, state, run, run.Outcome, run.StepCount, c.h.cfg.Now().UTC())
}

// settle closes the stream of an ended run and, with tell, calls the hooks.
func (c *closer) settle(ctx context.Context, state *session.State, tell bool) error {
	run, err := c.sessions.Run(ctx, state.ID, state.CurrentRunID)
	if err != nil {
		return err
	}
	if !run.Status.Ended() || run.Outcome == nil {
		return nil
	}
	if agent, err := c.h.Agent(ctx, state); err == nil && tell {
		t := c.h.newTurn(agent, nil, state, *run, state.Lease.Fence(), new(atomic.Int64))
		t.transcript, t.ended, t.step = &session.Transcript{}, run.Outcome, run.StepCount
		t.hooks.runEnded(ctx, &t.run, t.ended, t.step, t.h.cfg.Now().Sub(t.run.StartedAt))
		t.finish()
	}
	if run.CheckpointID != "" && run.StepCount == 0 { // it may have ended before it ended what the rewind undid
		messages, err := c.sessions.AllMessages(ctx, state.ID)
		if err != nil {
			return err
		}
		if err := c.h.tree(c.sessions).endUndone(ctx, state.ID, callsOf(messages)); err != nil {
			return err
		}
	}
	if err := c.h.tree(c.sessions).endAwaited(ctx, state.ID, run.Outcome); err != nil {
		return err
	}
	if c.h.remote(state.Agent) == nil {
		err = c.closeStream(ctx, state, run)
	}
	if err != nil && !errors.Is(err, session.ErrStreamClosed) && !errors.Is(err, session.ErrNotFound) && !errors.Is(err, session.ErrStale) {
		return err
	}
	if _, err := c.wakeAfter(ctx, state, run.Outcome); err != nil {
		return err
	}
	return c.sessions.SettleClose(ctx, state.ID, run.ID)
}
