package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
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
	return h.recoverRun(ctx, due, ifLost)
}

// TakeOver is [Handler.Recover] for a process that a workflow engine has chosen. With
// force, the previous owner is to stop, although it renews its lease.
func (h *Handler) TakeOver(ctx context.Context, due session.Due, force bool) (*Opened, error) {
	if force {
		return h.recoverRun(ctx, due, byForce)
	}
	return h.recoverRun(ctx, due, ifChosen)
}

// taking is how a run is taken over.
type taking int

const (
	ifLost   taking = iota // if its lease was not renewed since it was read
	ifChosen               // the same, for a workflow engine, which tries again soon if that fails
	byForce                // whatever its lease says; the holder of a root's lease so takes its children
)

// recoverRun takes a run over.
func (h *Handler) recoverRun(ctx context.Context, due session.Due, how taking) (_ *Opened, err error) {
	if err := session.CheckFeatures(due.ID, due.Requires, h.cfg.Features); err != nil {
		return nil, err
	}
	sessions := h.cfg.Backend.Sessions().Tenant(due.Tenant)
	agent, err := h.makeAgent(ctx, sessions, due) // before the lease is taken, because a factory may fail for a while
	if err != nil {
		return nil, err
	}
	began := time.Now().UTC()
	taken, err := sessions.TakeOver(ctx, &session.TakeOver{
		SessionID: due.ID, RunID: due.RunID, Owner: h.owner, TTL: h.cfg.LeaseTTL, Epoch: due.Lease.Epoch, Expires: due.Lease.ExpiresAt,
		Force: how == byForce,
	})
	if err != nil {
		return nil, fmt.Errorf("take over session %s: %w", due.ID, err)
	}
	if len(h.observers.list) > 0 {
		_, seen := h.observers.begin(ctx, takeover(due, taken, began))
		defer func() { seen.end(endingOf(err)) }()
	}
	t, err := h.load(ctx, due.Key, due.RunID, taken.Lease.Epoch, agent)
	if err != nil && how != ifLost && session.IsRetryable(err) {
		// A workflow engine tries again soon, whatever the lease says. That is no
		// crash.
		if err := sessions.CloseRun(ctx, due.ID, taken.Lease.Fence(), false); err != nil {
			h.log.WarnContext(ctx, "lease.not_released", "session", due.ID, "run", due.RunID, "error", err)
		}
		return nil, fmt.Errorf("load session %s: %w", due.ID, err)
	}
	if err != nil {
		// The lease is kept until it expires: a run that cannot be loaded now would
		// be taken over again at once.
		if taken.Attempts > maxAttempts {
			failure := session.ErrCrashLoop.WithMessage("the run cannot be continued: %v", err)
			if err := h.closer(sessions).failRun(ctx, due, taken, failure, nil); err != nil {
				h.log.ErrorContext(ctx, "run.not_failed", "session", due.ID, "run", due.RunID, "error", err)
			}
		}
		return nil, fmt.Errorf("load session %s: %w", due.ID, err)
	}
	h.log.InfoContext(ctx, "run.taken_over", t.attrs("attempt", taken.Attempts)...)
	progressed := t.progress.watch()
	if err := t.recovered(ctx, due, taken.Attempts); err != nil {
		h.release(ctx, t)
		h.drop(t)
		return nil, err
	}
	opened := t.opened()
	opened.Progressed = progressed
	return opened, nil
}

// takeover is the activity of taking a run over.
func takeover(due session.Due, taken *session.TakenOver, began time.Time) *helix.Activity {
	key := due.RunID + "/takeover"
	return &helix.Activity{
		Kind: helix.ActivityTakeover, ID: key + "@" + strconv.FormatInt(taken.Lease.Epoch, 10), Name: due.Agent,
		Scope:   helix.Scope{Tenant: due.Tenant, SessionID: due.ID, RunID: due.RunID, Agent: due.Agent, Key: key},
		Attempt: taken.Attempts, Epoch: taken.Lease.Epoch, Began: began,
	}
}

// recovered prepares a turn that was recovered to be driven. A run that was recovered
// too often without progress fails here.
func (t *turn) recovered(ctx context.Context, due session.Due, attempts int) error {
	if err := t.endUndone(ctx); err != nil {
		return fmt.Errorf("end the agents that session %s has undone: %w", due.ID, err)
	}
	if err := t.openStream(ctx); err != nil {
		return fmt.Errorf("reopen stream %s: %w", t.streamID, err)
	}
	t.discardShown()
	if t.ended != nil || attempts <= maxAttempts {
		return nil
	}
	progresses, err := t.h.tree(t.sessions).progressesBelow(ctx, due.ID, due.Lease.Owner, 0)
	if err != nil {
		return fmt.Errorf("look for progress below session %s: %w", due.ID, err)
	}
	if progresses {
		return nil
	}
	loop := session.ErrCrashLoop.WithMessage("the run was recovered %d times without making progress", attempts-1)
	_, err = t.endFailed(ctx, t.run.ID+"/recover", loop, true)
	return err
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
	// Before is how often the run was lost before, since it last made progress. Such a
	// run may be what kills the processes that drive it.
	Before int
}

// Lost returns how a run that is about to be recovered was lost.
func (h *Handler) Lost(ctx context.Context, due session.Due) (Loss, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(due.Tenant)
	state, err := sessions.Load(ctx, due.ID)
	if err == nil {
		err = h.checkSupport(state)
	}
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
	t.mu.Lock()
	for _, c := range f.calls {
		c.unseen = c.settled != nil
	}
	t.mu.Unlock()
	f.announced = false
	t.waits(f).announce()
}

// load reads a turn from the store. This handler must hold its lease, under an epoch unless
// that is 0.
func (h *Handler) load(ctx context.Context, key session.Key, runID string, epoch int64, agent *helix.Agent) (*turn, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return nil, err
	}
	if state.CurrentRunID != runID || state.Lease.Owner != h.owner {
		return nil, session.ErrStale.WithMessage("run %s is not held here", runID).WithSaw(state.Saw())
	}
	if err := checkEpoch(runID, state.Lease.Epoch, epoch); err != nil {
		return nil, err
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
	history, err := session.ReadView(ctx, sessions, state)
	if err != nil {
		return nil, err
	}
	t := h.newTurn(agent, nil, state, *run, state.Lease.Fence(), new(atomic.Int64))
	if t.transcript, err = history.Transcript(); err != nil {
		return nil, err
	}
	if t.resumes, err = resumesStep(ctx, sessions, key.ID, run); err != nil {
		return nil, err
	}
	if err := t.readInput(ctx); err != nil {
		return nil, err
	}
	t.step, t.inbox = state.StepCount, true // the next model call reads the inbox
	if run.Status.Ended() {
		t.ended = run.Outcome
	} else if len(t.transcript.Open()) > 0 {
		if err := t.stepLoader().load(ctx, history.Messages); err != nil {
			return nil, err
		}
	}
	if info, err := t.streams.Info(ctx, t.streamID); err == nil {
		t.out.Restore(info.Last, info.Bytes)
	} else if !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	h.hold(ctx, t) // before reading the stop request, so that none is missed
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
