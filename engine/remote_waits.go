package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// settleWaits handles a remote that waits: it forwards the answers that have arrived
// and resumes the remote. If there are none, it suspends the turn.
func (r *relay) settleWaits(ctx, away context.Context, status *helix.RemoteStatus) (machine.Result, error) {
	t := r.t
	entries, err := retry.Do(ctx, func() ([]session.Pending, error) { return t.sessions.PendingCalls(ctx, t.key.ID, true) })
	if err != nil {
		return machine.Result{}, err
	}
	now, err := retry.Do(ctx, func() (time.Time, error) { return t.sessions.Now(ctx) })
	if err != nil {
		return machine.Result{}, err
	}
	r.letTimeOut = false
	var overdue []session.Pending
	// A call that waits here but no longer on the remote was answered there.
	answered := r.resumed != status.RunID && !allWait(entries, status.Pending)
	answered = r.forwardRest(away, status, entries) || answered
	for i := range status.Pending {
		p := findPending(entries, status.Pending[i].CallID)
		switch {
		case p == nil:
		case p.State == session.PendingAnswered || (p.State == session.PendingTimedOut && p.Late != nil):
			answered = true
			if err := r.forward(away, p); err != nil {
				return machine.Result{}, err
			}
		case !p.Open() || due(p, now):
			overdue = append(overdue, *p)
		}
	}
	if len(status.Pending) > 0 && !answered && len(overdue) == 0 {
		return r.suspend(ctx, status, entries, now)
	}
	return machine.Result{}, r.resume(away, status, overdue)
}

func findPending(entries []session.Pending, callID string) *session.Pending {
	at := slices.IndexFunc(entries, func(p session.Pending) bool { return p.CallID == callID })
	if at < 0 {
		return nil
	}
	return &entries[at]
}

// forwardRest forwards the answers to calls that the remote does not wait for: it may
// have them, or they are late. It reports whether there were any that were not
// forwarded before.
func (r *relay) forwardRest(away context.Context, status *helix.RemoteStatus, entries []session.Pending) bool {
	found := false
	for i := range entries {
		p := &entries[i]
		if p.State != session.PendingAnswered || r.forwarded[p.CallID] || findPending(status.Pending, p.CallID) != nil {
			continue
		}
		found = true
		if err := r.submit(away, min(r.patience(), pollTimeout), p, *p.Response); err != nil {
			r.t.h.log.WarnContext(away, "answer.not_relayed", r.t.attrs("call", p.CallID, "error", err)...)
		}
	}
	return found
}

// forward forwards an answer. Sending it twice does no harm. An answer that the
// remote refuses is replaced by an error, so that the remote does not wait forever.
func (r *relay) forward(away context.Context, p *session.Pending) error {
	response := p.Response
	if response == nil {
		response = p.Late
	}
	err := r.submit(away, r.patience(), p, *response)
	if code := remoteErrorCode(err); code == "" || code == session.CodeRemote {
		return err
	}
	r.t.h.log.WarnContext(away, "client_tool.validation_failed", r.t.attrs("call", p.CallID, "error", err)...)
	return r.submitError(away, p, streamwriter.Truncate("the answer was refused: "+err.Error()))
}

// submitError answers a call with an error. If the tool's policy decides who may
// answer, the remote may refuse it, and waits until its own deadline.
func (r *relay) submitError(away context.Context, p *session.Pending, text string) error {
	err := r.submit(away, r.patience(), p, session.Response{Kind: session.PendingClientTool, Error: text})
	if remoteErrorCode(err) != session.CodeNotAllowed {
		return err
	}
	r.letTimeOut = true
	return nil
}

func (r *relay) submit(away context.Context, limit time.Duration, p *session.Pending, response session.Response) error {
	r.forwarded[p.CallID] = true
	_, err := reach(away, r, limit, func(ctx context.Context) (*helix.Submitted, error) {
		return r.t.remote.Submit(ctx, r.peer, answerTo(p, response))
	})
	return err
}

// answerTo is a stored answer as the remote accepts it.
func answerTo(p *session.Pending, response session.Response) helix.Submission {
	s := session.Submission{CallID: p.CallID, Fingerprint: p.Fingerprint, Response: response}
	if response.Kind == session.PendingApproval {
		s.ApprovalID = p.ApprovalID
	}
	return answerOf(s)
}

// answerOf is a submission as the remote accepts it: users are known there by their
// ids.
func answerOf(s session.Submission) helix.Submission {
	return helix.Submission{Submission: s, User: helix.User{ID: s.By}}
}

// resume resumes the remote. The remote times out overdue calls itself, unless its
// clock is behind ours.
func (r *relay) resume(away context.Context, status *helix.RemoteStatus, overdue []session.Pending) error {
	err := r.requestResume(away, status)
	if remoteErrorCode(err) == session.CodeAwaiting && len(overdue) > 0 {
		for i := range overdue {
			if err := r.submitError(away, &overdue[i], timeout(&overdue[i]).Message); err != nil {
				return err
			}
		}
		err = r.requestResume(away, status)
	}
	switch remoteErrorCode(err) {
	case session.CodeNotResumable:
		r.unresumable = status.RunID // unless its status, read again, shows that another run began or ended
		return nil
	case session.CodeAwaiting, session.CodeRunning, session.CodeStale:
		return nil // its status says what it does
	}
	return err
}

// requestResume resumes the run that was suspended, once.
func (r *relay) requestResume(away context.Context, status *helix.RemoteStatus) error {
	r.resumed = status.RunID
	_, err := reach(away, r, r.patience(), func(ctx context.Context) (*helix.RemoteRun, error) {
		return r.t.remote.Resume(ctx, r.peer, session.ChildRunID("resume", status.RunID, 0))
	})
	return err
}

// addEntries makes entries for calls of the remote that have none, and registers them
// with the sessions that route answers.
func (r *relay) addEntries(ctx context.Context, pending, entries []session.Pending, now time.Time) ([]session.Pending, error) {
	t := r.t
	if len(pending) > maxRelayedCalls {
		return nil, &remoteError{toolError(session.CodeSubAgent, "%d calls wait for people, at most %d are passed on", len(pending), maxRelayedCalls)}
	}
	var fresh []session.Pending
	var owned []session.Ownership
	calls := map[string]bool{} // a call waits for one thing at a time
	for _, p := range pending {
		if calls[p.Call()] {
			return nil, &remoteError{toolError(session.CodeSubAgent, "the waiting call %q is named twice", p.Call())}
		}
		calls[p.Call()] = true
		if findPending(entries, p.CallID) != nil {
			continue
		}
		entry := session.Pending{
			CallID: p.CallID, MessageID: p.MessageID, Tool: p.Tool, Input: p.Input, Kind: p.Kind, ApprovalID: p.ApprovalID,
			Fingerprint: session.Fingerprint(p.Tool, p.Input), Policy: p.Policy, CreatedAt: p.CreatedAt, Deadline: p.Deadline,
			For: p.For, Prompt: p.Prompt, Schema: p.Schema, URL: p.URL,
		}
		entry.Begin(t.key.ID, t.run.ID, now)
		if err := entry.Check(); err != nil {
			return nil, &remoteError{bounded(session.AsError(err))}
		}
		if entry.Schema != nil {
			if _, err := helix.ParseSchema(entry.Schema); err != nil {
				return nil, &remoteError{toolError(session.CodeSubAgent, "the question %q cannot be answered: %v", p.CallID, err)}
			}
		}
		if len(p.Input) > t.h.cfg.MaxResult {
			return nil, &remoteError{toolError(session.CodeToolInput, "the input of a call that waits has %d bytes, at most %d are allowed", len(p.Input), t.h.cfg.MaxResult)}
		}
		if entry.Call() == r.caller {
			return nil, r.notItsCall(entry.Call())
		}
		fresh = append(fresh, entry)
		owned = append(owned, session.Ownership{CallID: p.CallID, SessionID: t.key.ID})
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	if err := r.checkRoom(entries, fresh); err != nil {
		return nil, err
	}
	roots, err := t.owners(ctx)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		if err := r.refuseForeign(ctx, root, fresh); err != nil {
			return nil, err
		}
	}
	return fresh, t.own(ctx, owned)
}

// maxRelayedCalls is how many calls of a remote may wait for people here, in all.
const maxRelayedCalls = 1000

// checkRoom refuses entries that the session has no room for. A remote may name others
// with every status, so those that it named before count, too.
func (r *relay) checkRoom(entries, fresh []session.Pending) error {
	if n := len(entries) + len(fresh); n > maxRelayedCalls {
		return &remoteError{toolError(session.CodeSubAgent, "%d calls have waited for people, at most %d are passed on", n, maxRelayedCalls)}
	}
	size := r.t.size()
	for _, list := range [...][]session.Pending{entries, fresh} {
		for i := range list {
			p := &list[i]
			size += int64(len(p.CallID) + len(p.For) + len(p.MessageID) + len(p.Tool) + len(p.Input) + len(p.ApprovalID) +
				len(p.Prompt) + len(p.Schema) + len(p.URL))
		}
	}
	if err := r.t.h.cfg.checkSize(size); err != nil {
		return &remoteError{bounded(session.AsError(err))}
	}
	return nil
}

// refuseForeign refuses entries about calls that belong to another session, because a
// remote chooses the ids of its calls.
func (r *relay) refuseForeign(ctx context.Context, root string, entries []session.Pending) error {
	t := r.t
	for i := range entries {
		ids := []string{entries[i].CallID}
		if entries[i].For != "" {
			ids = append(ids, entries[i].For)
		}
		for _, id := range ids {
			has, err := retry.Do(ctx, func() (session.Ownership, error) { return t.sessions.Owner(ctx, root, id) })
			switch {
			case errors.Is(err, session.ErrNotFound):
			case err != nil:
				return err
			case has.SessionID != t.key.ID:
				return r.notItsCall(id)
			}
		}
	}
	return nil
}

func (r *relay) notItsCall(id string) error {
	return &remoteError{toolError(session.CodeSubAgent, "the waiting call %q belongs to another agent", id)}
}

// prepareEntries makes the entries of calls that wait while the remote is still busy
// with others, before watchers see the calls: they may be answered at once. A chunk that
// is shown only if its call has an entry needs the status: it is not written again.
func (r *relay) prepareEntries(ctx, away context.Context, needed bool) error {
	t := r.t
	var status *helix.RemoteStatus
	if needed {
		var err error
		if status, err = r.status(away); err != nil {
			return err
		}
	} else {
		var failure error
		status, failure = usercode.CallWithin(away, t.pool, remoteTimeout, func(ctx context.Context) (*helix.RemoteStatus, error) {
			return t.remote.Status(ctx, r.peer)
		})
		if failure != nil {
			t.h.log.WarnContext(ctx, "client_tool.ownership_retry", t.attrs("remote", r.peer, "error", failure)...)
			clear(r.candidates) // it is not known which of them wait
			return nil          // the entries are made when it is reachable
		}
	}
	r.askedAt = time.Now()
	if len(status.Pending) == 0 {
		return nil
	}
	entries, err := retry.Do(ctx, func() ([]session.Pending, error) { return t.sessions.PendingCalls(ctx, t.key.ID, true) })
	if err != nil {
		return err
	}
	now, err := retry.Do(ctx, func() (time.Time, error) { return t.sessions.Now(ctx) })
	if err != nil {
		return err
	}
	fresh, err := r.addEntries(ctx, status.Pending, entries, now)
	if err != nil {
		return err
	}
	if len(fresh) > 0 {
		_, err := t.commit(ctx, t.newCommit(r.key+"/waits/"+fresh[0].CallID, session.Change{Pending: fresh, Run: t.runChange("")}))
		if err != nil {
			return err
		}
	}
	for i := range status.Pending {
		id := status.Pending[i].CallID
		if r.waits[id] = findPending(fresh, id); r.waits[id] == nil {
			r.waits[id] = findPending(entries, id)
		}
	}
	return nil
}

// suspend ends the run until people have answered. It returns an empty result if
// somebody has answered meanwhile.
func (r *relay) suspend(ctx context.Context, status *helix.RemoteStatus, entries []session.Pending, now time.Time) (machine.Result, error) {
	t := r.t
	fresh, err := r.addEntries(ctx, status.Pending, entries, now)
	if err != nil {
		return machine.Result{}, err
	}
	outcome := &session.Outcome{Status: session.RunSuspendedClientTool, SuspendedStep: "remote/" + status.RunID}
	change := session.Change{Status: session.Active, Pending: fresh, Outcome: outcome, Writes: t.hooks.written, Run: t.runChange("")}
	waiting := map[string]bool{}
	for i := range status.Pending {
		id := status.Pending[i].CallID
		p := findPending(fresh, id)
		if p == nil {
			p = findPending(entries, id)
		}
		outcome.Pending = append(outcome.Pending, *p)
		waiting[id] = true
		if findPending(fresh, id) == nil {
			change.Waits = append(change.Waits, id)
		}
	}
	change.Resolve = resolveRest(entries, now, waiting)
	if err := r.save(ctx); err != nil { // before the next resume polls the remote
		return machine.Result{}, err
	}
	_, err = t.commit(ctx, t.newCommit(r.key+"/suspend/"+status.RunID, change))
	if errors.Is(err, session.ErrAnswered) {
		return machine.Result{}, nil
	}
	if err != nil {
		return machine.Result{}, err
	}
	t.h.log.InfoContext(ctx, "client_tool.suspended", t.attrs("status", outcome.Status, "remote", r.peer)...)
	return machine.Result{Next: machine.NextClose}, nil
}

// resolveRest ends the waits of calls that the remote no longer waits for.
func resolveRest(entries []session.Pending, now time.Time, waiting map[string]bool) []session.Resolution {
	var out []session.Resolution
	for i := range entries {
		if p := &entries[i]; p.Open() && !waiting[p.CallID] {
			out = append(out, ending(p, now))
		}
	}
	return out
}
