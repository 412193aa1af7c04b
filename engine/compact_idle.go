package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// This file compacts and clears sessions that nobody runs.

// Compact implements Compact of [helix.Sessions]. A compaction that led to nothing is not tried
// again while the session stays as it is.
func (h *Handler) Compact(ctx context.Context, key session.Key, force bool) (*helix.Compacted, error) {
	done, err := h.compactions.begin(key)
	if err != nil {
		return nil, err
	}
	defer done()
	x, err := h.idle(ctx, key)
	if err != nil {
		return nil, err
	}
	agent, err := h.Agent(ctx, x.state)
	if err != nil {
		return nil, err
	}
	messages := x.transcript.Messages()
	if len(messages) == 0 || !force && messages[len(messages)-1].Compaction() != nil {
		return &helix.Compacted{Reason: "nothing was said since the last compaction"}, nil
	}
	if known := h.compactions.known(x.state, force); known != nil {
		return known, nil
	}
	t := h.newTurn(agent, nil, x.state, x.run, x.state.Lease.Fence(), new(atomic.Int64))
	defer t.finish()
	defer t.out.Discard()
	t.transcript, t.step = x.transcript, x.run.StepCount
	if t.context.policy == nil {
		t.context.policy = new(agent.Context.WithDefaults())
	}
	in := &promptInput{key: session.NewOwner(key.ID), step: x.run.StepCount, transcript: t.transcript}
	if model, err := t.prompts.model(ctx, in); err == nil { // else the summary fails with it
		t.context.chose(model)
	}
	c := t.newCompaction(in)
	c.quiet = true
	made, err := c.requested(ctx, force)
	x.written = t.hooks.written
	switch {
	case err != nil && ctx.Err() != nil:
		x.write(ctx)
		return nil, context.Cause(ctx)
	case err != nil:
		x.write(ctx)
		outcome := c.failure(err)
		h.compactions.remember(x.state, force, outcome, vainFor(err))
		if outcome.Code == "" {
			return &outcome, nil
		}
		return nil, err
	case made == nil:
		return &helix.Compacted{TokensBefore: int64(c.size), Reason: "the conversation is too short to cut"}, nil
	}
	return x.mark(ctx, made)
}

// write stores what hooks wrote while a summary was made that is not used, as a run would. If
// the session has changed meanwhile, it is lost.
func (x *idleSession) write(ctx context.Context) {
	if x.written.Empty() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	edited, err := x.sessions.Edit(ctx, &session.Edit{SessionID: x.state.ID, Version: x.state.Version, Read: x.state, Change: session.Change{Writes: x.written}})
	if err != nil {
		x.h.log.WarnContext(ctx, "compaction.writes_lost", "session", x.state.ID, "tenant", x.state.Tenant, "error", err)
		return
	}
	x.state.Version = edited.Version
}

// requested makes a marker because somebody asked for it: a summary of all that may be
// replaced or, if there is none, a trim.
func (c *compaction) requested(ctx context.Context, force bool) (*Marker, error) {
	keep := c.keepFrom()
	cut := c.cutFrom(keep)
	if force {
		keep = c.boundary(len(c.view))
		cut = keep
	}
	var failed error
	if c.mayGain(cut) {
		made, err := c.summary(ctx, cut)
		if err == nil || ctx.Err() != nil {
			return made, err
		}
		failed = err
		c.t.h.log.WarnContext(ctx, "compaction.failed", c.t.attrs("error", err, "effect", "large arguments and results are cut, if there are any")...)
	}
	if gain := c.trimGain(keep); gain >= worthwhile*c.size {
		return c.trim(ctx, keep, gain), nil
	}
	return nil, failed
}

// failure is what people are told about a summary that was not made. Reason may be what the
// provider said, which is for operators.
func (c *compaction) failure(err error) helix.Compacted {
	out := helix.Compacted{Kind: session.CompactionSummary, TokensBefore: int64(c.size), Reason: err.Error()}
	if !errors.Is(err, errNotShorter) {
		known := bounded(session.AsError(err))
		out.Code, out.Reason = known.Code, known.Message
	}
	return out
}

// clearedText is the text of a clear.
const clearedText = "The conversation before this point was cleared."

// Clear implements Clear of [helix.Sessions].
func (h *Handler) Clear(ctx context.Context, key session.Key) (*helix.Compacted, error) {
	x, err := h.idle(ctx, key)
	if err != nil {
		return nil, err
	}
	view := x.transcript.View()
	if len(view) == 0 || len(view) == 1 && view[0].Compaction() != nil && view[0].Compaction().Kind == session.CompactionClear {
		return &helix.Compacted{Reason: "nothing was said since the conversation was cleared"}, nil
	}
	size := contextSize{}
	size.update(x.transcript)
	return x.mark(ctx, &Marker{Text: clearedText, Compaction: session.Compaction{Kind: session.CompactionClear, TokensBefore: int64(size.meter.Size())}})
}

// idleSession is a session that nobody runs, and that waits for nothing.
type idleSession struct {
	h          *Handler
	sessions   session.Store
	state      *session.State
	run        session.Run // the last one, if there was any
	transcript *session.Transcript
	written    session.Writes // by hooks, while a summary was made
}

// idle reads a session that may be edited: a marker between a call and its result would make
// the history invalid, and so would one under a run.
func (h *Handler) idle(ctx context.Context, key session.Key) (*idleSession, error) {
	x := &idleSession{h: h, sessions: h.cfg.Backend.Sessions().Tenant(key.Tenant)}
	var err error
	if x.state, err = x.sessions.Load(ctx, key.ID); err != nil {
		return nil, err
	}
	if err := h.checkSupport(x.state); err != nil {
		return nil, err
	}
	ref, err := remoteRef(ctx, x.sessions, x.state)
	if err != nil {
		return nil, err
	}
	if ref != nil || h.remote(x.state.Agent) != nil {
		return nil, session.ErrNotSupported.WithMessage("session %s is that of a remote agent, which keeps the conversation", key.ID)
	}
	now, err := x.sessions.Now(ctx)
	if err != nil {
		return nil, err
	}
	if x.state.CurrentRunID != "" {
		run, err := x.sessions.Run(ctx, key.ID, x.state.CurrentRunID)
		if err != nil {
			return nil, err
		}
		x.run = *run
	}
	if err := x.state.CheckIdle(&x.run, now); err != nil {
		return nil, err
	}
	if x.state.Status == session.Paused {
		return nil, session.ErrPaused.WithMessage("session %s is paused; resume it first", key.ID).WithSaw(x.state.Saw())
	}
	history, err := session.ReadView(ctx, x.sessions, x.state)
	if err != nil {
		return nil, err
	}
	if x.transcript, err = history.Transcript(); err != nil {
		return nil, err
	}
	if len(x.transcript.Open()) > 0 || x.run.Status.Suspended() && x.state.Status == session.Active {
		return nil, session.ErrAwaitingInput.WithMessage("session %s has calls that wait for answers; answer or abandon them first", key.ID).WithSaw(x.state.Saw())
	}
	return x, nil
}

// mark appends a marker, with a checkpoint, in one edit. It is refused if the session has
// changed since it was read, which may be minutes ago. What was paid for is written, also if
// the caller leaves at that moment.
func (x *idleSession) mark(ctx context.Context, made *Marker) (*helix.Compacted, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	m, err := made.message(x.transcript)
	if err != nil {
		return nil, err
	}
	m.ID = session.NewMessageID()
	change := session.Change{Messages: []session.Message{m}, Writes: x.written, Tasks: made.Tasks}
	if x.state.Status != session.Failed { // a retry goes back to before the failure
		if change.Checkpoint, err = x.checkpoint(ctx); err != nil {
			return nil, err
		}
	}
	_, err = x.sessions.Edit(ctx, &session.Edit{SessionID: x.state.ID, Version: x.state.Version, Read: x.state, Change: change})
	if err != nil {
		return nil, err
	}
	x.h.tasksAdded(made.Tasks)
	return new(made.outcome(m.ID)), nil
}

// checkpoint is one behind the marker. The stream has nothing of the marker, so it is at the
// place of the checkpoint before.
func (x *idleSession) checkpoint(ctx context.Context) (*session.NewCheckpoint, error) {
	out := &session.NewCheckpoint{Step: x.state.StepCount, Source: session.FromCompaction}
	last, err := retry.Do(ctx, func() (*session.Checkpoint, error) { return x.sessions.LatestCheckpoint(ctx, x.state.ID) })
	switch {
	case err == nil:
		out.StreamSequence = last.StreamSequence
	case !errors.Is(err, session.ErrNotFound):
		return nil, err
	}
	return out, nil
}
