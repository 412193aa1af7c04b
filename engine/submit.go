package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
)

// submission is an answer that is being submitted. It belongs to the goroutine that
// submits it.
type submission struct {
	h        *Handler
	sessions session.Store // of the session's tenant
	answer   *helix.Submission
	owner    *session.State   // the session that made the call
	pending  *session.Pending // the call's entry in it
}

// Submit answers a call that waits for a person. The decision is made atomically in
// the call's row, in the session that made the call. A caller that does not know
// whether Submit succeeded can repeat it.
func (h *Handler) Submit(ctx context.Context, key session.Key, answer helix.Submission) (*helix.Submitted, error) {
	if err := session.CheckID(key.ID); err != nil {
		return nil, err
	}
	answer.Response.By = answer.User.ID // the authenticated user, not the one that the answer names
	if err := access.CheckSubmission(&answer); err != nil {
		h.log.WarnContext(ctx, "client_tool.validation_failed", "tenant", key.Tenant, "session", key.ID, "error", err)
		return nil, err
	}
	if answer.User.Tenant != "" && answer.User.Tenant != key.Tenant {
		return nil, session.ErrNotFound.WithMessage("session %s: not found", key.ID) // another tenant's session does not exist
	}
	s := &submission{h: h, sessions: h.cfg.Backend.Sessions().Tenant(key.Tenant), answer: &answer}
	if err := s.route(ctx, key.ID); err != nil {
		return nil, err
	}
	if s.pending == nil {
		return &helix.Submitted{Outcome: session.SubmitUnknownCall}, nil
	}
	if err := h.checkSupport(s.owner); err != nil {
		s.logRefusal(ctx, err)
		return nil, err
	}
	remote, err := s.mayAnswer(ctx)
	if err != nil {
		s.logRefusal(ctx, err)
		return nil, err
	}
	if remote != nil && remote.Outcome != session.SubmitAccepted && s.pending.State == session.PendingWaiting {
		// The remote holds another answer. The entry here is resolved when the run resumes.
		return s.decidedRemotely(ctx, remote.Outcome)
	}
	if err := s.putWake(ctx); err != nil {
		return nil, err
	}
	outcome, err := s.sessions.Submit(ctx, s.owner.ID, answer.Submission)
	if err != nil {
		s.logRefusal(ctx, err)
		return nil, err
	}
	h.log.InfoContext(ctx, "client_tool.submitted", "tenant", key.Tenant, "session", s.owner.ID, "call", answer.CallID,
		"tool", s.pending.Tool, "by", answer.Response.By, "outcome", outcome)
	return s.deliver(ctx, outcome)
}

func (s *submission) logRefusal(ctx context.Context, err error) {
	s.h.log.WarnContext(ctx, "client_tool.validation_failed",
		"tenant", s.owner.Tenant, "session", s.owner.ID, "agent", s.owner.Agent, "call", s.answer.CallID, "by", s.answer.Response.By, "error", err)
}

// route finds the session that made the call, and the call's entry, starting at the
// session that the answer was submitted to. The entry is nil if the call is unknown.
func (s *submission) route(ctx context.Context, id string) (err error) {
	s.owner, s.pending, err = s.find(ctx, id)
	if err != nil || s.pending != nil {
		return err
	}
	owned, err := s.sessions.Owner(ctx, id, s.answer.CallID)
	if err != nil {
		return absent(err)
	}
	s.owner, s.pending, err = s.find(ctx, owned.SessionID)
	return absent(err) // not found: its commit was never made, or it was deleted
}

// find looks for the call's entry in a session.
func (s *submission) find(ctx context.Context, id string) (*session.State, *session.Pending, error) {
	state, err := s.sessions.Load(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	for _, all := range []bool{false, true} {
		list := state.Pending
		if all {
			if list, err = s.sessions.PendingCalls(ctx, id, true); err != nil {
				return nil, nil, err
			}
		}
		if at := slices.IndexFunc(list, func(p session.Pending) bool { return p.CallID == s.answer.CallID }); at >= 0 {
			return state, &list[at], nil
		}
	}
	return state, nil, nil
}

// mayAnswer checks that the answer fits the call and asks the tool's policy whether
// the submitter may give it. If the policy is a remote agent's, the remote gets the
// answer, and mayAnswer returns what the remote decided.
func (s *submission) mayAnswer(ctx context.Context) (*helix.Submitted, error) {
	if err := s.pending.Fits(&s.answer.Submission); err != nil {
		return nil, err
	}
	if s.pending.State != session.PendingWaiting && s.pending.State != session.PendingTimedOut {
		return nil, nil // the answer will not be stored
	}
	if err := checkAnswer(s.pending, &s.answer.Submission); err != nil {
		return nil, err
	}
	if remote := s.h.remote(s.owner.Agent); remote != nil {
		if !s.pending.Policy { // a policy that the remote got since decides when the answer is forwarded
			return nil, nil
		}
		return s.h.remoteLink(s.sessions).submit(ctx, remoteTimeout, remote, s.owner, answerOf(s.answer.Submission))
	}
	approver, err := s.approver(ctx)
	if err != nil || approver == nil {
		return nil, err
	}
	l, err := lineageOf(ctx, s.sessions, s.owner)
	if err != nil {
		return nil, err
	}
	answer := &helix.Answer{
		By: s.answer.User, Owner: s.owner.UserID, SessionID: s.owner.ID, RootID: l.root, CallID: s.pending.Call(),
		Tool: s.pending.Tool, Input: s.pending.Input, Prompt: s.pending.Prompt, Response: s.answer.Response,
	}
	if answer.By.Tenant == "" {
		answer.By.Tenant = s.owner.Tenant
	}
	_, err = callLimitedOnce(ctx, s.h.hookLimit, s.owner.Agent, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, approver(ctx, answer)
	})
	if err != nil {
		return nil, session.ErrNotAllowed.WithCause(err, "call %s: %q may not answer", s.pending.CallID, s.answer.Response.By)
	}
	return nil, nil
}

// approver returns the policy that decides who may answer the call, or nil. The
// tool's current policy decides, also for a call that was made before the tool had
// one. A call that was made under a policy is never answered without one.
func (s *submission) approver(ctx context.Context) (func(context.Context, *helix.Answer) error, error) {
	agent, err := s.h.Agent(ctx, s.owner)
	if err != nil {
		if unknown := session.AsError(err); unknown.Code != session.CodeUnknownAgent || unknown.Cause != nil {
			return nil, session.ErrUnavailable.WithCause(err, "agent %s, whose policy decides on %s, could not be created", s.owner.Agent, s.pending.Tool)
		}
		if !s.pending.Policy {
			return nil, nil
		}
		return nil, session.ErrUnknownAgent.WithMessage("agent %s decides who may answer %s, and is not registered here", s.owner.Agent, s.pending.Tool)
	}
	return approverOf(ctx, agent, s.pending)
}

// putWake has the sweep resume a companion that works by itself, before an answer to
// it is stored: nothing else would resume it if this process died then.
func (s *submission) putWake(ctx context.Context) error {
	if s.owner.ParentID == "" {
		return nil
	}
	l, err := lineageOf(ctx, s.sessions, s.owner)
	if err != nil || !l.detached {
		return err
	}
	return putWake(ctx, s.sessions, s.owner.Tenant, l.head, s.answer.CallID)
}

// putWake puts a wake of a session for itself, because of a call.
func putWake(ctx context.Context, sessions session.Store, tenant, id, callID string) error {
	now, err := sessions.Now(ctx)
	if err != nil {
		return err
	}
	return sessions.PutWake(ctx, session.Wake{Tenant: tenant, SessionID: id, ChildID: id, RunID: callID, At: now})
}

// deliver passes an answer that was decided on to those who need it: the sessions
// above, the remote agent that asked, or, if the answer is late, the inbox.
func (s *submission) deliver(ctx context.Context, outcome session.SubmitOutcome) (*helix.Submitted, error) {
	l, err := lineageOf(ctx, s.sessions, s.owner)
	if err != nil {
		return nil, err
	}
	out := &helix.Submitted{Outcome: outcome, SessionID: s.owner.ID, RootID: l.root}
	remote := s.h.remote(s.owner.Agent)
	if outcome != session.SubmitAccepted || remote != nil { // the stored answer may be another one
		if err := s.reload(ctx); err != nil {
			return nil, err
		}
	}
	p := s.pending
	if remote != nil && outcome == session.SubmitLate && p.Late != nil {
		_, err := s.h.remoteLink(s.sessions).submit(ctx, remoteTimeout, remote, s.owner, answerTo(p, *p.Late))
		return out, err
	}
	if outcome == session.SubmitLate && p.Late != nil {
		err := s.sessions.Send(ctx, s.owner.ID, session.InboxEntry{
			ID: "late/" + p.CallID, Kind: inboxLate, Body: encoded(lateAnswer{Tool: p.Tool, CallID: p.CallID, Response: p.Late}),
		})
		return out, err
	}
	if outcome != session.SubmitAccepted && p.State != session.PendingAnswered {
		return out, nil
	}
	// A run that is about to suspend because the call has no answer sees this mark. A
	// repeated answer sets it again: the first attempt may have failed before this.
	for _, head := range l.others() {
		if err := s.sessions.Disown(ctx, head, []string{p.CallID}); err != nil && !errors.Is(err, session.ErrNotFound) {
			s.h.log.ErrorContext(ctx, "client_tool.ownership_clear_failed", "tenant", s.owner.Tenant, "session", head, "call", p.CallID, "error", err)
			return nil, err
		}
	}
	if remote != nil && p.State == session.PendingAnswered {
		s.forward(ctx, remote)
	}
	out.Continuation, err = s.continuation(ctx, l)
	return out, err
}

// forward passes a stored answer on to a remote agent, so that the remote has it
// before its deadline. If that fails, the run that resumes forwards it.
func (s *submission) forward(ctx context.Context, remote helix.Remote) {
	if s.pending.Policy {
		return // the remote had the answer first
	}
	_, err := s.h.remoteLink(s.sessions).submit(ctx, pollTimeout, remote, s.owner, answerTo(s.pending, *s.pending.Response))
	if err != nil {
		s.h.log.WarnContext(ctx, "answer.not_relayed", "tenant", s.owner.Tenant, "session", s.owner.ID, "call", s.pending.CallID, "error", err)
	}
}

// continuation says who resumes the work now that the call has an answer. It wakes a
// companion that works by itself.
func (s *submission) continuation(ctx context.Context, l lineage) (helix.Continuation, error) {
	run, err := s.sessions.CurrentRun(ctx, l.head)
	switch {
	case err != nil:
		return "", err
	case !run.Status.Suspended(): // it runs, or has used the answer and ended
		return helix.ContinuesRunning, nil
	case l.detached: // no caller resumes it
		return helix.ContinuesRunning, putWake(ctx, s.sessions, s.owner.Tenant, l.head, s.pending.CallID)
	}
	return helix.CallerResumes, nil
}

// decidedRemotely is the result of an answer that a remote did not accept, because it
// holds another.
func (s *submission) decidedRemotely(ctx context.Context, outcome session.SubmitOutcome) (*helix.Submitted, error) {
	s.h.log.InfoContext(ctx, "client_tool.submitted", "tenant", s.owner.Tenant, "session", s.owner.ID, "call", s.pending.CallID,
		"tool", s.pending.Tool, "outcome", outcome)
	l, err := lineageOf(ctx, s.sessions, s.owner)
	if err != nil {
		return nil, err
	}
	next, err := s.continuation(ctx, l)
	if err != nil {
		return nil, err
	}
	return &helix.Submitted{Outcome: outcome, Continuation: next, SessionID: s.owner.ID, RootID: l.root}, nil
}

// reload reads the entry of the call again.
func (s *submission) reload(ctx context.Context) error {
	list, err := s.sessions.PendingCalls(ctx, s.owner.ID, true)
	if err != nil {
		return err
	}
	if p := findPending(list, s.pending.CallID); p != nil {
		s.pending = p
	}
	return nil
}
