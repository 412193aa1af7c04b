package engine

import (
	"bytes"
	"context"

	"github.com/helixagents/helix/session"
)

// Branch copies a session into a new one, as [session.Lifecycle.Clone] does. A copy of
// everything, which names no place, may end in a step whose calls are not all done:
// then calls that are done keep their results, and what they did to custom state, and
// the others are answered with why they have none.
func Branch(ctx context.Context, sessions session.Store, clone *session.Clone) (*session.State, error) {
	from, err := sessions.Load(ctx, clone.From)
	if err != nil {
		return nil, err
	}
	if clone.CheckpointID != "" || clone.MessageCount != nil {
		return sessions.Clone(ctx, clone)
	}
	for range openTries {
		var rest *tail
		if rest, err = tailOf(ctx, sessions, from); err != nil {
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
		// The source has gone on meanwhile: what was read of its calls may not be what the
		// copy ends with.
		from = again
		if _, err := sessions.Delete(ctx, clone.To.ID); err != nil {
			return nil, err
		}
	}
	return nil, session.ErrUnavailable.WithMessage("session %s changes too fast to be copied", clone.From)
}

// tail is what a copy of a session needs to be complete.
type tail struct {
	messages []session.Message
	writes   session.Writes
}

// tailOf answers the calls at the end of a session's transcript.
func tailOf(ctx context.Context, sessions session.Store, from *session.State) (*tail, error) {
	out := &tail{}
	history, err := sessions.AllMessages(ctx, from.ID)
	if err != nil {
		return nil, err
	}
	open := session.OpenCalls(history)
	if len(open) == 0 {
		return out, nil
	}
	last := len(history) - 1
	for history[last].Role != session.RoleAssistant {
		last--
	}
	rows, err := sessions.Calls(ctx, from.ID, history[last].ID)
	if err != nil {
		return nil, err
	}
	byID := map[string]*session.Call{}
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
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
		default:
			out.messages = append(out.messages, session.ToolFailure(part, unfinished(row)))
		}
	}
	out.writes = session.Compose(written...)
	return out, nil
}

// unfinished says why a copied call has no result. What the store knows of the call may
// be nil.
func unfinished(row *session.Call) *session.Error {
	switch {
	case row != nil && (row.Kind == session.CallClient || row.Kind == session.CallApproval && row.Status == session.CallOpen):
		return toolError(session.CodeAbandoned, "the session went on without an answer")
	case row != nil && row.Status == session.CallBegun && !row.ReadOnly && row.Rejected == nil:
		return toolError(session.CodeToolOutcome, "the session was copied while %s was carried out; its outcome is not known here", row.Tool)
	}
	return toolError(session.CodeToolNotRun, "the call was not carried out")
}

// add completes a copy and gives its document.
func (r *tail) add(ctx context.Context, sessions session.Store, state *session.State) (*session.State, error) {
	if len(r.messages) == 0 {
		return state, nil
	}
	if !r.writes.Empty() {
		if _, err := sessions.Merge(ctx, state.ID, r.writes); err != nil {
			return nil, err
		}
	}
	// Last, so that a copy which has them is complete.
	if _, err := sessions.AppendMessages(ctx, state.ID, r.messages); err != nil {
		return nil, err
	}
	return sessions.Load(ctx, state.ID)
}

// branch copies the session that a turn is to begin with.
func (h *Handler) branch(ctx context.Context, sessions session.Store, req *OpenRequest, to *session.State) (*session.State, error) {
	branch := req.Input.Branch
	if err := gateSource(ctx, sessions, req); err != nil {
		return nil, err
	}
	return Branch(ctx, sessions, &session.Clone{
		From: branch.From, CheckpointID: branch.Checkpoint, MessageCount: branch.MessageIndex, To: *to,
	})
}

// gateSource refuses a branch of a session that is not the caller's, or not the agent's.
func gateSource(ctx context.Context, sessions session.Store, req *OpenRequest) error {
	from, err := sessions.Load(ctx, req.Input.Branch.From)
	if err != nil {
		return err
	}
	if user := req.Input.User.ID; user != "" && from.UserID != "" && user != from.UserID {
		return session.ErrNotFound.WithMessage("session %s: user %s has no such session", from.ID, user)
	}
	if from.Agent != req.Agent.Name {
		return session.Invalid("agent", "%q is not that of session %q, which is %q", req.Agent.Name, from.ID, from.Agent)
	}
	return nil
}

// rebranch refuses a branch onto a session that exists, unless it is the copy that this
// very branch makes, and no turn has begun on it: whoever asked for it could not begin
// the turn, and asks again.
func (h *Handler) rebranch(ctx context.Context, sessions session.Store, req *OpenRequest, state *session.State) error {
	exists := session.ErrExists.WithMessage("a branch needs a new session id")
	if state.Turn > 0 {
		return exists
	}
	if err := gateSource(ctx, sessions, req); err != nil {
		return err
	}
	source, err := sessions.AllMessages(ctx, req.Input.Branch.From)
	if err != nil {
		return err
	}
	copied, err := sessions.AllMessages(ctx, state.ID)
	if err != nil {
		return err
	}
	var place int
	switch branch := req.Input.Branch; {
	case branch.MessageIndex != nil:
		place = *branch.MessageIndex
	case branch.Checkpoint != "":
		checkpoint, err := sessions.Checkpoint(ctx, branch.From, branch.Checkpoint)
		if err != nil {
			return err
		}
		place = checkpoint.MessageCount
	default:
		from, err := sessions.Load(ctx, branch.From)
		if err != nil {
			return err
		}
		rest, err := tailOf(ctx, sessions, from)
		if err != nil {
			return err
		}
		source = append(source, rest.messages...)
		place = len(source)
	}
	if place < 0 || place > len(source) || place != len(copied) {
		return exists
	}
	for i := range copied {
		if !sameMessage(&copied[i], &source[i]) {
			return exists
		}
	}
	return nil
}

// sameMessage reports whether one message is a copy of the other. Answers that were
// made for a copy may say different things about the same call.
func sameMessage(a, b *session.Message) bool {
	if a.Role == session.RoleTool && b.Role == session.RoleTool {
		return a.Parts[0].CallID == b.Parts[0].CallID
	}
	x, errX := session.Encode(a)
	y, errY := session.Encode(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
