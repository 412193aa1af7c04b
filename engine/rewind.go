package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// supersede plans what a rewind undoes of the agents below a session. An agent that
// was first called after the checkpoint is superseded, and its name is free again. An
// earlier companion that was called since is rewound itself when it is called again;
// see [agentCall.rewindTarget]. Nothing ends before the run has started, so that a
// rewind that is refused changes nothing; see [tree.endUndone].
func (o *opening) supersede(ctx context.Context) error {
	refs, err := o.sessions.Children(ctx, o.state.ID)
	if err != nil || len(refs) == 0 {
		return err
	}
	made := callsOf(o.p.history.Messages)
	undone := map[string]bool{}
	for i := range refs {
		ref := &refs[i]
		if ref.Status == session.ChildSuperseded {
			undone[ref.SessionID] = true
			continue
		}
		first, err := o.h.tree(o.sessions).firstCall(ctx, o.state.ID, ref)
		if err != nil {
			return err
		}
		if made[first] {
			if err := o.stepBack(ctx, ref, made); err != nil {
				return err
			}
			continue
		}
		undone[ref.SessionID] = true
		superseded := *ref
		superseded.Status, superseded.Awaited = session.ChildSuperseded, false
		superseded.Remote = nil // nil keeps what the store has of it
		o.p.start.Children = append(o.p.start.Children, superseded)
	}
	return o.dropNotices(ctx, undone)
}

// endUndone ends the agents below a session that its latest rewind undid, and stops
// earlier companions that work on what was undone. made is the set of calls that the
// session has made. It has to be done between the start of a run that rewinds and its
// first step. A process that recovers the run in between does it again; agents that
// have ended stay as they are.
func (r *tree) endUndone(ctx context.Context, id string, made map[string]bool) error {
	var err error
	for range openTries {
		if err = r.endUndoneOnce(ctx, id, made); !errors.Is(err, session.ErrStale) {
			return err
		}
	}
	return session.ErrUnavailable.WithCause(err, "session %s: the agents that were undone keep changing", id)
}

func (r *tree) endUndoneOnce(ctx context.Context, id string, made map[string]bool) error {
	refs, err := r.sessions.Children(ctx, id)
	if err != nil {
		return err
	}
	for i := range refs {
		switch ref := &refs[i]; {
		case ref.Status == session.ChildSuperseded:
			err = r.walk(ctx, id, ref.SessionID, 1, true, func(below *session.State) (bool, error) {
				if err := r.endOne(ctx, below, errUndone, false); err != nil {
					return false, err
				}
				return true, r.h.awaitEnd(ctx, below.CurrentRunID)
			})
		case ref.Mode == session.ChildPersistent:
			err = r.stopUndone(ctx, id, ref.SessionID, made)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// endUndone ends what the start of the turn undid, unless the turn has committed a
// step: then it was done.
func (t *turn) endUndone(ctx context.Context) error {
	if t.run.CheckpointID == "" || t.step > 0 || t.flight != nil {
		return nil
	}
	made, err := t.callsMade(ctx)
	if err != nil {
		return err
	}
	return t.h.tree(t.sessions).endUndone(ctx, t.key.ID, made)
}

// stopUndone stops a companion that works on what was undone, and withdraws messages
// that it has not consumed.
func (r *tree) stopUndone(ctx context.Context, parent, id string, made map[string]bool) error {
	child, err := loadChild(ctx, r.sessions, parent, id)
	if err != nil {
		return absent(err)
	}
	if err := r.withdraw(ctx, id, made); err != nil {
		return err
	}
	at, err := undoneAt(ctx, r.sessions, id, made)
	if err != nil || at < 0 {
		return err
	}
	if err := r.endOne(ctx, child, errUndone, true); err != nil {
		return err
	}
	return r.h.awaitEnd(ctx, child.CurrentRunID)
}

// callsOf is the set of calls that messages make.
func callsOf(messages []session.Message) map[string]bool {
	made := map[string]bool{}
	for i := range messages {
		for _, part := range messages[i].Calls() {
			made[part.CallID] = true
		}
	}
	return made
}

// firstCall returns the call for which a child's session was begun.
func (r *tree) firstCall(ctx context.Context, parent string, ref *session.ChildRef) (string, error) {
	if ref.Mode != session.ChildPersistent {
		return ref.CallID, nil
	}
	if _, err := loadChild(ctx, r.sessions, parent, ref.SessionID); err != nil {
		return ref.CallID, absent(err)
	}
	page, err := r.sessions.Runs(ctx, ref.SessionID, session.PageRequest{Limit: 1})
	if err != nil || len(page.Items) == 0 {
		return ref.CallID, absent(err)
	}
	return page.Items[0].RequestID, nil
}

// errUndone is the error with which agents end that a rewind undoes.
var errUndone = toolError(session.CodeAbandoned, "the session was rewound to an earlier checkpoint")

// awaitEnd waits for the end of a stopped run, if this process drives it.
func (h *Handler) awaitEnd(ctx context.Context, runID string) error {
	t, here := h.held(runID)
	if !here || !t.detached {
		return nil // a run that is part of another's ends with that one
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stepBack plans the reference to a companion from before the checkpoint.
func (o *opening) stepBack(ctx context.Context, ref *session.ChildRef, made map[string]bool) error {
	if ref.Mode != session.ChildPersistent {
		return nil
	}
	if _, err := loadChild(ctx, o.sessions, o.state.ID, ref.SessionID); err != nil {
		return absent(err)
	}
	at, err := undoneAt(ctx, o.sessions, ref.SessionID, made)
	if err != nil {
		return err
	}
	if at < 0 && made[ref.CallID] {
		return nil
	}
	// The reference names an undone call: a wait, or work for the companion.
	kept := *ref
	kept.Awaited, kept.Status = false, session.ChildCompleted
	run, err := o.sessions.CurrentRun(ctx, ref.SessionID)
	if err != nil {
		return absent(err)
	}
	if at < 0 && !kept.Blocking && (run.Status == session.RunRunning || run.Status.Suspended()) {
		kept.Status = session.ChildRunning // it works on an earlier message
	}
	page, err := o.sessions.Runs(ctx, ref.SessionID, session.PageRequest{Limit: 1})
	if err != nil {
		return err
	}
	kept.CallID = page.Items[0].RequestID
	o.p.start.Children = append(o.p.start.Children, kept)
	return nil
}

// withdraw withdraws the undone messages that a companion has not consumed.
func (r *tree) withdraw(ctx context.Context, id string, made map[string]bool) error {
	entries, err := r.sessions.Inbox(ctx, id)
	if err != nil {
		return absent(err)
	}
	for i := range entries {
		if entries[i].Kind != inboxMessage || made[entries[i].ID] {
			continue
		}
		err := r.sessions.Send(ctx, id, session.InboxEntry{ID: withdrawnPrefix + entries[i].ID, From: entries[i].From, Kind: inboxWithdrawn})
		if err != nil {
			return err
		}
	}
	return nil
}

// dropNotices discards notices in the inbox about agents that the rewind undoes.
func (o *opening) dropNotices(ctx context.Context, undone map[string]bool) error {
	if len(undone) == 0 {
		return nil
	}
	entries, err := o.sessions.Inbox(ctx, o.state.ID)
	if err != nil {
		return absent(err)
	}
	for i := range entries {
		if entries[i].Kind == inboxEnded && undone[entries[i].From] {
			o.p.start.Consume = append(o.p.start.Consume, entries[i].ID)
		}
	}
	return nil
}

// undoneAt returns the index of the first message of a companion that an undone call
// of its caller led to: a call that is not in made. It is -1 if there is none.
func undoneAt(ctx context.Context, sessions session.Store, id string, made map[string]bool) (int, error) {
	undone := map[string]bool{} // the runs of undone calls
	request := session.PageRequest{Limit: session.MaxPageSize}
	for {
		page, err := sessions.Runs(ctx, id, request)
		if err != nil {
			return -1, err
		}
		for i := range page.Items {
			if call := page.Items[i].RequestID; call != "" && !made[call] {
				undone[page.Items[i].ID] = true
			}
		}
		if page.Next == "" {
			break
		}
		request.Cursor = page.Next
	}
	messages, err := sessions.AllMessages(ctx, id)
	if err != nil {
		return -1, err
	}
	for i := range messages {
		sent, ok := strings.CutPrefix(messages[i].ID, inboxPrefix)
		fromCaller := ok && !strings.Contains(sent, "/") // notices have ids of several parts
		if undone[messages[i].RunID] || (fromCaller && !made[sent]) {
			return i, nil
		}
	}
	return -1, nil
}

// rewindTarget returns the checkpoint to which a companion has to be rewound before
// it is called, because its caller has undone an earlier call. It is nil if no rewind
// is needed; fresh is set if nothing of the companion would be left.
func (a *agentCall) rewindTarget(ctx context.Context, run *session.Run) (to *session.Checkpoint, fresh bool, err error) {
	if back, err := a.t.everRewound(ctx); err != nil || !back {
		return nil, false, err
	}
	made, err := a.t.callsMade(ctx)
	if err != nil {
		return nil, false, err
	}
	if a.companion.blocking && made[run.RequestID] { // the latest call that it got stands
		return nil, false, nil
	}
	at, err := undoneAt(ctx, a.t.sessions, a.Child, made)
	if err != nil || at < 0 {
		return nil, false, err
	}
	request := session.PageRequest{Limit: session.MaxPageSize} // newest first
	for {
		page, err := a.t.sessions.Checkpoints(ctx, a.Child, request)
		if err != nil {
			return nil, false, err
		}
		for i := range page.Items {
			if cp := &page.Items[i]; !cp.Undone && cp.MessageCount <= at {
				return cp, false, nil
			}
		}
		if page.Next == "" {
			return nil, true, nil
		}
		request.Cursor = page.Next
	}
}

// everRewound reports whether the session was ever rewound. If not, none of its calls
// was undone, and companions need not be searched for undone calls.
func (t *turn) everRewound(ctx context.Context) (bool, error) {
	t.mu.Lock()
	known := t.rewound
	t.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	back := t.run.CheckpointID != ""
	request := session.PageRequest{Limit: session.MaxPageSize}
	for !back {
		page, err := t.sessions.Runs(ctx, t.key.ID, request)
		if err != nil {
			return false, err
		}
		back = slices.ContainsFunc(page.Items, func(run session.Run) bool { return run.CheckpointID != "" })
		if page.Next == "" {
			break
		}
		request.Cursor = page.Next
	}
	t.mu.Lock()
	t.rewound = &back
	t.mu.Unlock()
	return back, nil
}

// callsMade is the set of calls that the session has made and that were not undone.
func (t *turn) callsMade(ctx context.Context) (map[string]bool, error) {
	made := callsOf(t.transcript.Messages())
	earlier, err := t.callsBefore(ctx)
	if err != nil {
		return nil, err
	}
	maps.Copy(made, earlier)
	if f := t.flight; f != nil {
		for _, c := range f.calls {
			made[c.ID] = true
		}
	}
	return made, nil
}

// callsBefore is the set of calls of the messages that the transcript does not hold.
func (t *turn) callsBefore(ctx context.Context) (map[string]bool, error) {
	t.mu.Lock()
	known := t.earlier
	t.mu.Unlock()
	if known != nil || t.transcript.Before() == 0 {
		return known, nil
	}
	messages, err := retry.Do(ctx, func() ([]session.Message, error) { return t.sessions.AllMessages(ctx, t.key.ID) })
	if err != nil {
		return nil, err
	}
	known = callsOf(messages)
	t.mu.Lock()
	t.earlier = known
	t.mu.Unlock()
	return known, nil
}

// validRun returns the latest run of a companion that is not for an undone call: run,
// or an earlier one, or nil.
func (a *agentCall) validRun(ctx context.Context, run *session.Run) (*session.Run, error) {
	if run == nil {
		return nil, nil
	}
	made, err := a.t.callsMade(ctx)
	if err != nil {
		return nil, err
	}
	for range maxDepth {
		first, err := a.firstRun(ctx, run)
		if err != nil {
			return nil, absent(err)
		}
		if first.RequestID == "" || made[first.RequestID] {
			return run, nil
		}
		if first.PreviousRunID == "" {
			return nil, nil
		}
		if run, err = a.t.sessions.Run(ctx, first.SessionID, first.PreviousRunID); err != nil {
			return nil, absent(err)
		}
	}
	return run, nil
}
