package engine

import (
	"bytes"
	"context"

	"github.com/helixagents/helix/session"
)

// branchTries bounds how often a session is copied again because it changed
// meanwhile. Each attempt copies everything.
const branchTries = 3

// Branch copies a session into a new one, as [session.Lifecycle.Clone] does. A clone
// without a checkpoint or message count may end in a step whose calls are not all
// done. In the copy, finished calls keep their results and what they wrote to custom
// state; the others fail with an error that says why.
func Branch(ctx context.Context, sessions session.Store, clone *session.Clone) (*session.State, error) {
	from, err := sessions.Load(ctx, clone.From)
	if err != nil {
		return nil, err
	}
	if clone.CheckpointID != "" || clone.MessageCount != nil {
		return sessions.Clone(ctx, clone)
	}
	for range branchTries {
		history, err := sessions.AllMessages(ctx, from.ID)
		if err != nil {
			return nil, err
		}
		rest, err := tailOf(ctx, sessions, from.ID, history, nil)
		if err != nil {
			return nil, err
		}
		state, err := sessions.Clone(ctx, clone)
		if err != nil {
			return nil, err
		}
		again, err := sessions.Load(ctx, clone.From)
		if err != nil {
			return nil, err
		}
		if again.Version == from.Version {
			return rest.add(ctx, sessions, state)
		}
		// The source has changed meanwhile: the calls that were read may not be those
		// with which the copy ends.
		from = again
		if err := discardCopy(ctx, sessions, state); err != nil {
			return nil, err
		}
	}
	return nil, session.ErrUnavailable.WithMessage("session %s changed during every attempt to copy it", clone.From)
}

// discardCopy deletes a copy that was just made, unless somebody has used it.
func discardCopy(ctx context.Context, sessions session.Store, made *session.State) error {
	now, err := sessions.Load(ctx, made.ID)
	if err != nil {
		return absent(err)
	}
	if now.Version != made.Version || now.Turn > 0 {
		return session.ErrStale.WithMessage("session %s is in use already", made.ID).WithSaw(now.Saw())
	}
	_, err = sessions.Delete(ctx, made.ID)
	return absent(err)
}

// tail is what a copy of a session lacks.
type tail struct {
	messages []session.Message
	writes   session.Writes
}

// tailOf answers the calls at the end of a transcript that was copied from a session.
// after is what the session's own transcript has had since.
func tailOf(ctx context.Context, sessions session.Store, from string, history, after []session.Message) (*tail, error) {
	out := &tail{}
	open := session.OpenCalls(history)
	if len(open) == 0 {
		return out, nil
	}
	last := len(history) - 1
	for history[last].Role != session.RoleAssistant {
		last--
	}
	rows, err := sessions.Calls(ctx, from, history[last].ID)
	if err != nil {
		return nil, err
	}
	pending, err := sessions.PendingCalls(ctx, from, true)
	if err != nil {
		return nil, err
	}
	now, err := sessions.Now(ctx)
	if err != nil {
		return nil, err
	}
	byID, waits, later := map[string]*session.Call{}, map[string]*session.Pending{}, map[string]*session.Message{}
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	for i := range pending {
		waits[pending[i].CallID] = &pending[i]
	}
	for i := range after {
		if after[i].Role == session.RoleTool {
			later[after[i].Parts[0].CallID] = &after[i]
		}
	}
	var written []session.Writes
	for _, part := range open {
		row := byID[part.CallID]
		switch {
		case part.Tool == session.FinishTool:
			out.messages = append(out.messages, session.ToolResult(part, session.FinishAcknowledged))
		case row != nil && row.Status == session.CallSettled && row.Result != nil:
			out.messages = append(out.messages, *row.Result)
			written = append(written, row.Writes)
		case later[part.CallID] != nil:
			out.messages = append(out.messages, *later[part.CallID])
		default: // an answer stands, although the session has not consumed it yet
			wait := waits[part.CallID]
			if row != nil {
				wait = waits[row.WaitID()]
			}
			out.messages = append(out.messages, unansweredResult(part, wait, now, whyUnfinished(row, wait)))
		}
	}
	out.writes = session.Compose(written...)
	return out, nil
}

// whyUnfinished says why a copied call has no result. The call's row and the entry of
// its wait may be nil.
func whyUnfinished(row *session.Call, wait *session.Pending) *session.Error {
	answered := wait != nil && wait.State == session.PendingAnswered
	switch {
	case answered && row != nil && row.Kind == session.CallQuestion && row.Status == session.CallOpen:
		return toolError(session.CodeToolNotRun, "%s had its answer but had not continued when the session was copied", row.Tool)
	case row != nil && row.Kind == session.CallQuestion && row.Status == session.CallOpen:
		return toolError(session.CodeAbandoned, "the session continued without an answer")
	case answered && row != nil && row.Status == session.CallOpen:
		return toolError(session.CodeToolNotRun, "%s was approved but had not run when the session was copied", row.Tool)
	case row != nil && (row.Kind == session.CallClient || row.Kind == session.CallApproval && row.Status == session.CallOpen):
		return toolError(session.CodeAbandoned, "the session continued without an answer")
	case row != nil && row.Status == session.CallBegun && !row.ReadOnly && row.Rejected == nil:
		return toolError(session.CodeToolOutcome, "the session was copied while %s was carried out; its outcome is not known here", row.Tool)
	}
	return toolError(session.CodeToolNotRun, "the call was not carried out")
}

// add completes a copy and returns its document.
func (r *tail) add(ctx context.Context, sessions session.Store, state *session.State) (*session.State, error) {
	if len(r.messages) == 0 {
		return state, nil
	}
	if !r.writes.Empty() {
		if _, err := session.Merge(ctx, sessions, state.ID, r.writes); err != nil {
			return nil, err
		}
	}
	// Last, because a copy that has them counts as complete.
	if _, err := session.AppendMessages(ctx, sessions, state.ID, r.messages); err != nil {
		return nil, err
	}
	return sessions.Load(ctx, state.ID)
}

// branch copies the session on which a turn begins.
func (o *opening) branch(ctx context.Context, to *session.State) (*session.State, error) {
	branch := o.req.Input.Branch
	if err := gateSource(ctx, o.sessions, o.req); err != nil {
		return nil, err
	}
	return Branch(ctx, o.sessions, &session.Clone{
		From: branch.From, CheckpointID: branch.Checkpoint, MessageCount: branch.MessageIndex, To: *to,
	})
}

// gateSource refuses a branch of a session that belongs to another user or another
// agent.
func gateSource(ctx context.Context, sessions session.Store, req *OpenRequest) error {
	from, err := sessions.Load(ctx, req.Input.Branch.From)
	if err != nil {
		return err
	}
	if user := req.Input.User.ID; user != "" && from.UserID != "" && user != from.UserID {
		return session.ErrNotFound.WithMessage("session %s: user %s has no such session", from.ID, user)
	}
	if from.Agent != req.Agent.Name {
		return session.Invalid("agent", "%q is not the agent of session %q, which is %q", req.Agent.Name, from.ID, from.Agent)
	}
	return nil
}

// rebranch refuses a branch onto a session that exists, unless it is the copy that
// this branch made and no turn has begun on it: an earlier attempt could not begin
// the turn. It returns what such a copy lacks.
func (o *opening) rebranch(ctx context.Context) (*tail, error) {
	exists := session.ErrExists.WithMessage("a branch needs a new session id")
	if o.state.Turn > 0 {
		return nil, exists
	}
	if err := gateSource(ctx, o.sessions, o.req); err != nil {
		return nil, err
	}
	source, err := o.sessions.AllMessages(ctx, o.req.Input.Branch.From)
	if err != nil {
		return nil, err
	}
	copied, err := o.sessions.AllMessages(ctx, o.state.ID)
	if err != nil {
		return nil, err
	}
	var place int
	whole := false
	switch branch := o.req.Input.Branch; {
	case branch.MessageIndex != nil:
		place = *branch.MessageIndex
	case branch.Checkpoint != "":
		checkpoint, err := o.sessions.Checkpoint(ctx, branch.From, branch.Checkpoint)
		if err != nil {
			return nil, err
		}
		place = checkpoint.MessageCount
	case len(copied) > len(source):
		rest, err := tailOf(ctx, o.sessions, branch.From, source, nil)
		if err != nil {
			return nil, err
		}
		source = append(source, rest.messages...)
		place = len(source)
	case len(copied) == 0:
		place = len(source)
	default: // the source may have changed since
		place, whole = len(copied), true
	}
	if place < 0 || place > len(source) || place != len(copied) {
		return nil, exists
	}
	for i := range copied {
		if !sameMessage(&copied[i], &source[i]) {
			return nil, exists
		}
	}
	if !whole {
		return nil, nil
	}
	rest, err := tailOf(ctx, o.sessions, o.req.Input.Branch.From, copied, source[len(copied):])
	if err != nil {
		return nil, err
	}
	if o.state.Version > 1 { // the copy has what the calls wrote to custom state, which is written first
		rest.writes = session.Writes{}
	}
	return rest, nil
}

// sameMessage reports whether one message is a copy of the other. Results that were
// made for a copy may differ for the same call.
func sameMessage(a, b *session.Message) bool {
	if a.Role == session.RoleTool && b.Role == session.RoleTool {
		return a.Parts[0].CallID == b.Parts[0].CallID
	}
	x, errX := session.Encode(a)
	y, errY := session.Encode(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
