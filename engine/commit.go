package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// newCommit makes the commit of an effect.
func (t *turn) newCommit(key string, change session.Change) *session.Commit {
	// The process that recovers the turn commits the same effects with other content.
	return &session.Commit{
		SessionID: t.key.ID, RunID: t.run.ID, Key: t.underLease(key), Version: t.state.Version, Fence: t.fence, Change: change,
	}
}

// underLease adds the lease's epoch to an id. What the process that takes the turn over does
// again has another id then.
func (t *turn) underLease(id string) string {
	unique := append(append(make([]byte, 0, 128), id...), '@')
	return string(strconv.AppendInt(unique, t.fence.Epoch, 10))
}

// keyOf returns the key of the effect that commits; see newCommit.
func keyOf(commit *session.Commit) string {
	at := strings.LastIndexByte(commit.Key, '@')
	return commit.Key[:max(at, 0)]
}

// commit writes the chunks emitted so far and makes a commit, in that order, and
// mirrors it. A commit that may have been applied is sent again: its key says whether
// it was.
func (t *turn) commit(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	if commit.Outcome != nil {
		last := *commit // a store may still read the one that was sent before
		commit = &last
		if !commit.Outcome.Status.Suspended() && t.detached && !t.terminated(ctx) {
			commit.Wake = &session.Wake{Tenant: t.key.Tenant, SessionID: t.state.ParentID, ChildID: t.key.ID, RunID: t.run.ID}
		}
		commit.ExpiresAt = t.expiry()
	}
	inner, seen := t.observe(ctx, helix.ActivityCommit, keyOf(commit), "commit", "", 0)
	done, err := t.write(inner, commit)
	seen.end(endingOf(err))
	if err != nil {
		return nil, err
	}
	change := &commit.Change
	t.mirror(change, done)
	t.progress.report()
	if t.agent.State == nil && !change.Writes.Public().Empty() {
		if _, logged := t.h.undeclared.LoadOrStore(t.agent.Name, true); !logged {
			t.h.log.WarnContext(ctx, "state.undeclared", t.attrs("hint", "set Agent.State")...)
		}
	}
	t.capStream(ctx, change.Checkpoint)
	if change.Outcome != nil {
		t.h.logEnd(ctx, &t.state, t.run.ID, change.Outcome)
	}
	for _, warning := range slices.Concat(change.Writes.Warnings, done.Warnings) {
		t.h.log.WarnContext(ctx, "state.warning", t.attrs("warning", warning)...)
	}
	for _, r := range change.Resolve {
		if r.State == session.PendingAbandoned {
			t.logAborted(ctx, r.CallID)
		}
	}
	switch {
	case done.Stop == nil:
	case change.Outcome == nil:
		t.stops.request(done.Stop)
	case change.Outcome.Status.Suspended() && done.Stop.Kind == session.StopAbort:
		t.abort = done.Stop
	}
	return done, nil
}

// expiry is when the session expires if nobody uses it after the run. It is nil if
// the run does not change that: sessions of the agent do not expire, or the caller
// set the expiry.
func (t *turn) expiry() *time.Time {
	if t.agent.SessionExpiry <= 0 || t.state.ParentID != "" || !t.state.ExpiresAt.IsZero() {
		return nil
	}
	return new(time.Now().UTC().Add(t.agent.SessionExpiry))
}

// write makes a commit together with the chunks that precede it.
func (t *turn) write(ctx context.Context, commit *session.Commit) (done *session.Committed, err error) {
	alone := func() (*session.Committed, error) { return t.sessions.Commit(ctx, commit) }
	carried, err := t.out.Carry(ctx, func(batch stream.Batch) (last int64, err error) {
		if len(batch.Chunks) == 0 {
			done, err = retry.Do(ctx, alone)
			return 0, err
		}
		return retry.Do(ctx, func() (int64, error) {
			var err error
			done, last, err = t.h.cfg.Backend.Commit(ctx, &store.Commit{
				Tenant: t.key.Tenant, Commit: commit, Stream: t.streamID, Batch: batch,
			})
			return last, err
		})
	})
	if carried && streamwriter.Refused(err) {
		// The stream may have refused the chunks. The commit must not fail for that:
		// it is made again without them, and returns its own error if it has one.
		if err := t.out.Wait(ctx); err != nil {
			return nil, err
		}
		return retry.Do(ctx, alone)
	}
	return done, err
}

// mirror applies what was committed to the turn.
func (t *turn) mirror(change *session.Change, done *session.Committed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Version, t.state.MessageCount = done.Version, done.MessageCount
	t.inbox = done.Inbox
	if done.CheckpointID != "" {
		t.state.CheckpointID = done.CheckpointID
	}
	if len(t.prepared) > 0 && len(change.Messages) > 0 && change.Messages[0].ID == t.prepared[0].ID {
		t.prepared = nil
	}
	for i := range change.Messages {
		t.extend(change.Messages[i])
	}
	if change.Promote != nil {
		for _, promoted := range change.Promote.Results {
			if promoted.Message != nil {
				t.extend(*promoted.Message)
			} else if c := t.flight.call(promoted.CallID); c != nil {
				t.extend(c.settled.message)
			}
		}
	}
	// The store has applied the same operations, so this cannot fail.
	if err := t.doc.Apply(change.Writes); err != nil {
		t.h.log.Error("state.mirror_failed", t.attrs("error", err)...)
	}
	if change.StepCount != nil {
		t.step = *change.StepCount
		t.usage.nextStep()
	}
	if change.Run != nil {
		t.run.Usage = t.run.Usage.Add(change.Run.Usage)
	}
	if change.Status != "" {
		t.state.Status = change.Status
	}
	if change.ExpiresAt != nil {
		t.state.ExpiresAt = *change.ExpiresAt
	}
	if change.Outcome != nil {
		t.ended = change.Outcome
		t.state.Finish(change.Outcome)
	}
	t.used, t.hooks.written = session.Usage{}, session.Writes{}
	t.h.tasksAdded(change.Tasks)
}

// extend adds a committed message to the transcript.
func (t *turn) extend(m session.Message) {
	if err := t.transcript.Append(m); err != nil {
		t.h.log.Error("transcript.mirror_failed", t.attrs("error", err)...)
	}
}

// capStream trims the session's own stream to the chunks that it may keep, once a
// checkpoint is committed: the history holds what was shown up to it. It does not
// trim after every step, because a trim is a write.
func (t *turn) capStream(ctx context.Context, committed *session.NewCheckpoint) {
	most := t.h.cfg.MaxChunks
	if most <= 0 || committed == nil || t.streamID != t.key.ID {
		return
	}
	through := committed.StreamSequence - most
	if through <= t.trimmed+most/10 {
		return
	}
	floor, err := t.streams.Trim(ctx, t.streamID, stream.TrimPolicy{Through: through})
	if err != nil {
		t.h.log.WarnContext(ctx, "stream.trim_failed", t.attrs("error", err)...)
		return
	}
	t.trimmed = floor
}

// checkpoint is the checkpoint that a commit of a step writes.
func (t *turn) checkpoint(step int, key string) *session.NewCheckpoint {
	return &session.NewCheckpoint{
		ID:     session.CheckpointID(t.key.ID, step, time.Now(), key),
		Step:   step,
		Source: session.FromStep, StreamSequence: t.out.Sequence(),
	}
}

// runChange carries the usage that was not committed yet.
func (t *turn) runChange(reason session.CompletionReason) *session.RunChange {
	return &session.RunChange{CompletionReason: reason, Usage: t.used}
}
