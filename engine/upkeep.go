package engine

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// The kinds of the framework's own tasks, which have no agent.
const (
	// taskTrim removes the old chunks of a session's stream.
	taskTrim = "helix.trim"
	// taskCleanCalls removes the rows of a tenant's calls that no step will use.
	taskCleanCalls = "helix.clean_calls"
)

// ownKinds lists the framework's tasks that this process is configured for.
func (h *Handler) ownKinds() (kinds []session.TaskKind) {
	if h.cfg.TrimStreams > 0 {
		kinds = append(kinds, session.TaskKind{Kind: taskTrim})
	}
	if h.cfg.CleanCalls > 0 {
		kinds = append(kinds, session.TaskKind{Kind: taskCleanCalls})
	}
	return kinds
}

// trimSlack is how much later than its chunks are old enough a stream is trimmed: the last
// ones are written after the commit that ends the run.
const trimSlack = time.Minute

// trimLater adds the task that trims the stream of a run which ends, if it is the
// session's own. A run that waits is not over: the one that resumes it adds the task.
func (t *turn) trimLater(change *session.Change) {
	keep := t.h.cfg.TrimStreams
	if keep <= 0 || change.Outcome == nil || change.Outcome.Status.Suspended() || t.streamID != t.key.ID || len(change.Tasks) >= session.MaxTasks {
		return
	}
	change.Tasks = append(change.Tasks, session.Task{
		ID: taskID(t.run.ID + "/" + taskTrim), Kind: taskTrim, SessionID: t.key.ID, RunID: t.run.ID, DueAt: time.Now().Add(keep + min(keep, trimSlack)).UTC(),
	})
}

// cleanSpread is the time over which the clean-ups of all tenants are spread.
const cleanSpread = 6 * time.Hour

// CleanCallsTask returns the task that cleans up after the calls of a tenant on the day of
// now.
func (h *Handler) CleanCallsTask(tenant string, now time.Time) session.Task {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(tenant))
	spread := max(min(cleanSpread, h.cfg.CleanCalls), 1) // sooner than rows grow old
	return session.Task{
		ID: taskCleanCalls + "/" + now.UTC().Format(time.DateOnly), Kind: taskCleanCalls,
		DueAt: now.Add(time.Duration(hash.Sum64() % uint64(spread))).UTC(),
	}
}

// ownTask carries out a task of the framework.
func (h *Handler) ownTask(ctx context.Context, task *session.Task) error {
	sessions := h.cfg.Backend.Sessions().Tenant(task.Tenant)
	now, err := sessions.Now(ctx)
	if err != nil {
		return err
	}
	switch {
	case task.Kind == taskTrim && h.cfg.TrimStreams > 0:
		return h.trim(ctx, sessions, task, now.Add(-h.cfg.TrimStreams))
	case task.Kind == taskCleanCalls && h.cfg.CleanCalls > 0:
		n, err := sessions.CleanCalls(ctx, now.Add(-h.cfg.CleanCalls))
		if n > 0 {
			h.log.InfoContext(ctx, "calls.cleaned", "tenant", task.Tenant, "rows", n)
		}
		return err
	}
	return session.ErrUnknownAgent.WithMessage("this process does not handle tasks of the kind %q", task.Kind)
}

// trim removes the chunks of a session's stream that were written before a time, if the
// session is at rest. While it runs or waits, its clients need the chunks that follow its
// latest checkpoint, however old they are; the end of the run adds another task.
func (h *Handler) trim(ctx context.Context, sessions session.Store, task *session.Task, before time.Time) error {
	state, err := sessions.Load(ctx, task.SessionID)
	if err == nil && state.CurrentRunID != "" {
		var run *session.Run
		run, err = sessions.Run(ctx, task.SessionID, state.CurrentRunID)
		if err == nil && (!run.Status.Ended() || run.Status.Suspended() || state.ClosePending) {
			return nil
		}
	}
	if err == nil {
		_, err = h.cfg.Backend.Streams().Tenant(task.Tenant).Trim(ctx, task.SessionID, stream.TrimPolicy{Before: before})
	}
	if errors.Is(err, session.ErrNotFound) { // there is nothing to trim
		return nil
	}
	return err
}
