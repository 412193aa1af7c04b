package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// planSuspendedStep plans what happens to the step in which an earlier run suspended:
// a resume continues it, anything else abandons it.
func (o *opening) planSuspendedStep(ctx context.Context) error {
	if o.p.start.KeepMessages != nil { // the rewind undoes the step, and its waits with it
		return o.supersede(ctx)
	}
	if o.state.SuspendedStep == "" {
		return nil
	}
	if o.req.Kind == session.RunResume {
		o.p.resumes = len(session.OpenCalls(o.p.history.Messages)) > 0
		return nil
	}
	return o.answerOpenCalls(ctx, errStepAbandoned)
}

// errStepAbandoned is the error of calls whose step a new message abandons.
var errStepAbandoned = toolError(session.CodeAbandoned, "the user continued without an answer")

// abandonChildren ends the agents that a session waits for, if the start abandons the
// step. Companions keep their transcripts.
func (o *opening) abandonChildren(ctx context.Context) error {
	if o.p.start.KeepMessages != nil || o.state.SuspendedStep == "" || o.req.Kind == session.RunResume {
		return nil
	}
	for _, ref := range o.state.AwaitingChildren {
		if ref.Mode == session.ChildEphemeral || ref.Blocking {
			if err := o.h.tree(o.sessions).abandon(ctx, o.state.ID, ref.SessionID, errStepAbandoned, true); err != nil {
				return err
			}
			ref.Status = session.ChildFailed
			if ref.Remote != nil {
				if err := o.h.remoteLink(o.sessions).refreshStop(ctx, o.state.ID, &ref); err != nil {
					return err
				}
			}
		} else {
			ref.Status = session.ChildRunning
		}
		ref.Awaited = false
		o.p.start.Children = append(o.p.start.Children, ref)
	}
	return nil
}

// answerOpenCalls answers every call of a step that is abandoned: finished results
// and answers stand, the other calls fail with why.
func (o *opening) answerOpenCalls(ctx context.Context, why *session.Error) error {
	open := session.OpenCalls(o.p.history.Messages)
	if len(open) == 0 {
		return nil
	}
	now, err := o.sessions.Now(ctx)
	if err != nil {
		return err
	}
	rows, err := o.sessions.Calls(ctx, o.state.ID, o.state.SuspendedStep)
	if err != nil {
		return err
	}
	pending, err := o.sessions.PendingCalls(ctx, o.state.ID, true)
	if err != nil {
		return err
	}
	settledRows, waitIDs := map[string]*session.Call{}, map[string]string{}
	for i := range rows {
		waitIDs[rows[i].ID] = rows[i].WaitID()
		if rows[i].Status == session.CallSettled && rows[i].Result != nil {
			settledRows[rows[i].ID] = &rows[i]
		}
	}
	waits := map[string]*session.Pending{}
	for i := range pending {
		waits[pending[i].CallID] = &pending[i]
	}
	var written []session.Writes
	for _, part := range open {
		wait := waits[cmp.Or(waitIDs[part.CallID], part.CallID)]
		if wait != nil && wait.Open() {
			end := ending(wait, now)
			o.p.start.Resolve = append(o.p.start.Resolve, end)
			o.p.endedWaits = append(o.p.endedWaits, endedWait{wait, end.State})
			if wait.State == session.PendingWaiting {
				o.p.start.Waits = append(o.p.start.Waits, wait.CallID)
			}
		}
		if row := settledRows[part.CallID]; row != nil {
			o.p.answers = append(o.p.answers, *row.Result)
			written = append(written, row.Writes)
			continue
		}
		o.p.answers = append(o.p.answers, unansweredResult(part, wait, now, why))
	}
	o.p.start.Writes = session.Compose(written...)
	doc := o.p.doc.Clone()
	if err := doc.Apply(o.p.start.Writes); err != nil {
		return err
	}
	o.p.doc = doc
	// A watcher that reads the state before the stream shows the start has these
	// changes already.
	o.p.patches = session.ResultPatches(&doc, o.p.start.Writes)
	return nil
}

// endedWait is a wait for a person that the start of a turn ends.
type endedWait struct {
	*session.Pending
	as session.PendingState
}

// reportEndedWaits reports how the waits ended that the start of the turn ended.
func (t *turn) reportEndedWaits(ctx context.Context, waits []endedWait) {
	for _, wait := range waits {
		switch wait.as {
		case session.PendingConsumed:
			t.reportWait(ctx, wait.Pending, wait.SubmittedAt, true)
		case session.PendingTimedOut:
			t.reportWait(ctx, wait.Pending, wait.Deadline, false)
		default:
			t.logAborted(ctx, wait.CallID)
		}
	}
}

func (t *turn) logAborted(ctx context.Context, callID string) {
	t.h.log.InfoContext(ctx, "client_tool.aborted", t.attrs("call", callID)...)
}

// ending is how the wait for a call of an abandoned step ends.
func ending(p *session.Pending, now time.Time) session.Resolution {
	r := session.Resolution{CallID: p.CallID, State: session.PendingAbandoned}
	switch {
	case p.State == session.PendingAnswered:
		r.State = session.PendingConsumed
	case due(p, now):
		r.State = session.PendingTimedOut
	}
	return r
}

// unansweredResult is the result of a call of an abandoned step. If there is an
// answer, it stands; else the call fails with why.
func unansweredResult(part session.Part, p *session.Pending, now time.Time, why *session.Error) session.Message {
	switch {
	case part.Tool == session.FinishTool:
		return session.ToolResult(part, session.FinishAcknowledged)
	case p == nil:
	case p.State == session.PendingTimedOut || due(p, now):
		return session.ToolFailure(part, timeout(p))
	case p.State == session.PendingAnswered && p.Response.Kind == session.PendingApproval && !p.Response.Approved:
		return session.ToolFailure(part, notApproved(p.Response.Reason))
	case p.State == session.PendingAnswered && p.Response.Error != "" && p.Kind == session.PendingApproval:
		return session.ToolFailure(part, toolError(session.CodeToolNotRun, "%s", p.Response.Error))
	case p.State == session.PendingAnswered && p.Response.Error != "":
		return session.ToolFailure(part, toolError(session.CodeToolFailed, "%s", p.Response.Error))
	case p.State == session.PendingAnswered && p.Response.Kind == session.PendingClientTool && p.Response.Result != nil:
		return session.ToolResult(part, p.Response.Result)
	}
	return session.ToolFailure(part, why)
}

// answeredCalls are the calls of an earlier step that the start of the turn answered.
func (t *turn) answeredCalls(ctx context.Context) ([]*call, error) {
	first, messages, _ := t.initialMessages()
	if len(messages) == 0 || messages[0].Role != session.RoleTool {
		return nil, nil
	}
	all := t.transcript.Messages()
	for first -= t.transcript.Before() + 1; first >= 0 && all[first].Role != session.RoleAssistant; first-- {
	}
	if first < 0 {
		return nil, nil
	}
	reply := &all[first]
	rows, err := retry.Do(ctx, func() ([]session.Call, error) { return t.sessions.Calls(ctx, t.key.ID, reply.ID) })
	if err != nil {
		return nil, err
	}
	known := map[string]session.Call{}
	for i := range rows {
		known[rows[i].ID] = rows[i]
	}
	parts := map[string]session.Part{}
	for _, part := range reply.Calls() {
		parts[part.CallID] = part
	}
	var answered []*call
	for i := range messages {
		m := &messages[i]
		if m.Role != session.RoleTool {
			break
		}
		part, ok := parts[m.Parts[0].CallID]
		if !ok {
			continue
		}
		row, ok := known[part.CallID]
		if !ok {
			row = session.Call{ID: part.CallID, Tool: part.Tool, Kind: session.CallServer, Status: session.CallOpen}
			if part.Tool == session.FinishTool {
				row.Kind = session.CallFinish
			}
		}
		row.MessageID = reply.ID
		answered = append(answered, &call{Call: row, part: part, settled: &settled{message: *m, err: m.Parts[0].Error}})
	}
	return answered, nil
}

// announceAnswers tells the hooks the results of calls that the start of the turn
// answered.
func (t *turn) announceAnswers(ctx context.Context) {
	if t.hooks.none() {
		return
	}
	answered, err := t.answeredCalls(ctx)
	if err != nil {
		t.h.log.WarnContext(ctx, "hooks.not_called", t.attrs("error", err)...)
		return
	}
	for _, c := range answered {
		t.hooks.keep(t.hooks.afterCall(ctx, t.run.ID+"/open", c, []session.Writes{t.hooks.written}))
	}
}
