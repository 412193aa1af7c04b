package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/helixagents/helix/session"
)

// supersede plans what a rewind undoes of the agents below a session. An agent that was
// first called after the checkpoint is superseded, and its name is free again. A
// companion from before it that was called on since goes back itself when it is called
// on again; see [turn.goBack]. Nothing ends before the run has started, so that a rewind
// that is refused changes nothing; see [Handler.endUndone].
func (o *opening) supersede(ctx context.Context) error {
	refs, err := o.sessions.Children(ctx, o.state.ID)
	if err != nil || len(refs) == 0 {
		return err
	}
	made := callsOf(o.p.history)
	gone := map[string]bool{}
	for i := range refs {
		ref := &refs[i]
		if ref.Status == session.ChildSuperseded {
			gone[ref.SessionID] = true
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
		gone[ref.SessionID] = true
		superseded := *ref
		superseded.Status, superseded.Awaited = session.ChildSuperseded, false
		superseded.Remote = nil // what the store has of it stays
		o.p.start.Children = append(o.p.start.Children, superseded)
	}
	return o.dropNotices(ctx, gone)
}

// endUndone ends the agents below a session that its latest rewind undid, and stops
// companions from before it that work on what was undone. made is the calls that the
// session has made. It is owed from the start of a run that goes back until its first
// step, and whoever takes that run over does it again: what has ended is left as it is.
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
				return true, r.h.outlast(ctx, below.CurrentRunID)
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

// payRewind ends what the start of the turn has undone, unless the turn has made a step
// since: then that was done.
func (t *turn) payRewind(ctx context.Context) error {
	if t.run.CheckpointID == "" || t.step > 0 || t.flight != nil {
		return nil
	}
	return t.h.tree(t.sessions).endUndone(ctx, t.key.ID, t.callsMade())
}

// stopUndone stops a companion that works on what was undone. A message that it has not
// taken in yet is withdrawn.
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
	return r.h.outlast(ctx, child.CurrentRunID)
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

// firstCall is the call for which a child's session was begun.
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

// errUndone is why what a rewind undoes ends.
var errUndone = toolError(session.CodeAbandoned, "the session went back to an earlier checkpoint")

// outlast waits for the end of a run that was stopped, if it is here.
func (h *Handler) outlast(ctx context.Context, runID string) error {
	t, here := h.held(runID)
	if !here || !t.detached {
		return nil // a run that is part of another's ends with that
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stepBack plans what becomes of the reference to a companion from before the
// checkpoint.
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
	// The reference is that of an undone call: a wait, or something that was asked of
	// the companion.
	kept := *ref
	kept.Awaited, kept.Status = false, session.ChildCompleted
	run, err := o.sessions.CurrentRun(ctx, ref.SessionID)
	if err != nil {
		return absent(err)
	}
	if at < 0 && !kept.Blocking && (run.Status == session.RunRunning || run.Status.Suspended()) {
		kept.Status = session.ChildRunning // with what it was asked before
	}
	page, err := o.sessions.Runs(ctx, ref.SessionID, session.PageRequest{Limit: 1})
	if err != nil {
		return err
	}
	kept.CallID = page.Items[0].RequestID
	o.p.start.Children = append(o.p.start.Children, kept)
	return nil
}

// withdraw takes back the undone messages that a companion has not taken in.
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

// dropNotices has the start take back what the session was told of agents that never
// were, now that it goes back.
func (o *opening) dropNotices(ctx context.Context, gone map[string]bool) error {
	if len(gone) == 0 {
		return nil
	}
	entries, err := o.sessions.Inbox(ctx, o.state.ID)
	if err != nil {
		return absent(err)
	}
	for i := range entries {
		if entries[i].Kind == inboxEnded && gone[entries[i].From] {
			o.p.start.Consume = append(o.p.start.Consume, entries[i].ID)
		}
	}
	return nil
}

// undoneAt finds the first message of a companion that an undone call of its caller
// led to: a call that is none of made. It is -1 if there is none.
func undoneAt(ctx context.Context, sessions session.Store, id string, made map[string]bool) (int, error) {
	undone := map[string]bool{} // runs
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

// goBack finds the checkpoint that a companion has to go back to before it is called
// on: its caller has undone something that it was asked since. It is nil if there is
// nothing to go back over, and anew is set if nothing would be left.
func (a *agentCall) rewindTarget(ctx context.Context, run *session.Run) (to *session.Checkpoint, anew bool, err error) {
	if back, err := a.t.everBack(ctx); err != nil || !back {
		return nil, false, err
	}
	made := a.t.callsMade()
	if a.companion.blocking && made[run.RequestID] { // the latest thing that it was asked stands
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

// everBack reports whether the session has ever gone back to a checkpoint: else none of
// its calls was undone, and there is no need to read all that a companion was asked.
func (t *turn) everBack(ctx context.Context) (bool, error) {
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

// callsMade is the set of calls that the session has made and not undone.
func (t *turn) callsMade() map[string]bool {
	made := callsOf(t.transcript.Messages())
	if f := t.flight; f != nil {
		for _, c := range f.calls {
			made[c.ID] = true
		}
	}
	return made
}

// standing is the latest run of a companion that is not for an undone call: run, or one
// before it, or nil.
func (a *agentCall) validRun(ctx context.Context, run *session.Run) (*session.Run, error) {
	if run == nil {
		return nil, nil
	}
	made := a.t.callsMade()
	at := run // the run that began what run goes on with
	for range maxDepth {
		for range maxDepth {
			if at.RequestID != "" || at.PreviousRunID == "" {
				break
			}
			before, err := a.t.sessions.Run(ctx, at.SessionID, at.PreviousRunID)
			if err != nil {
				return nil, absent(err)
			}
			at = before
		}
		if at.RequestID == "" || made[at.RequestID] {
			return run, nil
		}
		if at.PreviousRunID == "" {
			return nil, nil
		}
		before, err := a.t.sessions.Run(ctx, at.SessionID, at.PreviousRunID)
		if err != nil {
			return nil, absent(err)
		}
		run, at = before, before
	}
	return run, nil
}
