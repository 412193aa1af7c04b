package engine

import (
	"context"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// conclude makes the remote's outcome that of the turn.
func (r *relay) conclude(ctx, away context.Context, status *helix.RemoteStatus) (machine.Result, error) {
	t := r.t
	entries, err := retry.Do(ctx, func() ([]session.Pending, error) { return t.sessions.PendingCalls(ctx, t.key.ID, false) })
	if err != nil {
		return machine.Result{}, err
	}
	r.forwardRest(away, status, entries)
	change := session.Change{Writes: t.hooks.written}
	switch limit := t.h.cfg.MaxResult; {
	case status.Status == session.RunCompleted && max(len(status.Output), len(status.Text)) > limit:
		t.fail(&change, toolError(session.CodeToolOutput, "the result has %d bytes, at most %d are allowed",
			max(len(status.Output), len(status.Text)), limit))
	case status.Status == session.RunCompleted:
		step := t.current()
		change.StepCount = &step
		if status.Text != "" {
			reply := session.Message{
				ID: session.ReplyID(t.run.ID, step), Role: session.RoleAssistant, Parts: []session.Part{session.Text(status.Text)},
				RunID: t.run.ID, Step: step, At: time.Now().UTC(),
			}
			change.Messages = []session.Message{reply}
		}
		t.complete(&change, session.ReasonReply, cleanJSON(status.Output), status.Text)
	case status.Status == session.RunInterrupted:
		t.stopped(&change, &session.Stop{Kind: session.StopInterrupt, Reason: "it was interrupted where it ran"}, "")
	default:
		failure := toolError(session.CodeSubAgent, "it failed without saying why")
		if status.Error != nil {
			failure = bounded(status.Error)
		}
		t.fail(&change, failure)
	}
	return r.end(ctx, change)
}

// endStopped ends a turn that was stopped. The stop is recorded, to be delivered to
// the remote.
func (r *relay) endStopped(ctx context.Context, stop *session.Stop) (machine.Result, error) {
	if err := r.recordStop(ctx, *stop); err != nil {
		return machine.Result{}, err
	}
	change := session.Change{Writes: r.t.hooks.written}
	r.t.stopped(&change, stop, "")
	return r.end(ctx, change)
}

// endFailed ends a turn whose remote could not be reached or understood. The remote
// may still run, so a stop is recorded for it.
func (r *relay) endFailed(ctx context.Context, failure *session.Error) (machine.Result, error) {
	if err := r.recordStop(ctx, session.Stop{Kind: session.StopAbort, Reason: "its caller abandoned it"}); err != nil {
		return machine.Result{}, err
	}
	change := session.Change{Writes: r.t.hooks.written}
	r.t.fail(&change, failure)
	return r.end(ctx, change)
}

func (r *relay) recordStop(ctx context.Context, stop session.Stop) error {
	if !r.position.Started {
		return nil
	}
	r.t.stopUndelivered.Store(true)
	return r.t.h.remoteLink(r.t.sessions).requestStop(ctx, &r.t.state, stop)
}

// end makes a change the turn's last commit.
func (r *relay) end(ctx context.Context, change session.Change) (machine.Result, error) {
	t := r.t
	entries, err := retry.Do(ctx, func() ([]session.Pending, error) { return t.sessions.PendingCalls(ctx, t.key.ID, false) })
	if err != nil {
		return machine.Result{}, err
	}
	now, err := retry.Do(ctx, func() (time.Time, error) { return t.sessions.Now(ctx) })
	if err != nil {
		return machine.Result{}, err
	}
	change.Resolve = resolveRest(entries, now, nil)
	t.emitPatches(change.Writes)
	t.final = &finalCommit{key: r.key + "/end", change: change}
	return t.sendFinal(ctx)
}
