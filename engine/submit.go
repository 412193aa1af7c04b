package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/session"
)

// approverLimit is how long an Approver may take.
const approverLimit = 30 * time.Second

// Submit answers a call that waits for a person. It is decided in the row of the
// session that made the call; what follows is safe to repeat, so that whoever does
// not know whether it succeeded can.
func (h *Handler) Submit(ctx context.Context, key session.Key, s helix.Submission) (*helix.Submitted, error) {
	if err := session.CheckID(key.ID); err != nil {
		return nil, err
	}
	s.Response.By = s.User.ID // who answers is who was seen to, not what the answer says
	if err := s.Check(); err != nil {
		h.log.WarnContext(ctx, "client_tool.validation_failed", "tenant", key.Tenant, "session", key.ID, "error", err)
		return nil, err
	}
	if s.User.Tenant != "" && s.User.Tenant != key.Tenant {
		return nil, session.ErrNotFound.WithMessage("session %s: not found", key.ID) // what is someone else's does not exist
	}
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	owner, pending, err := h.route(ctx, sessions, key.ID, s.CallID)
	if err != nil {
		return nil, err
	}
	if pending == nil {
		return &helix.Submitted{Outcome: session.SubmitUnknownCall}, nil
	}
	away, err := h.mayAnswer(ctx, sessions, owner, pending, &s)
	if err != nil {
		h.log.WarnContext(ctx, "client_tool.validation_failed",
			"tenant", key.Tenant, "session", owner.ID, "call", s.CallID, "by", s.Response.By, "error", err)
		return nil, err
	}
	if away != nil && away.Outcome != session.SubmitAccepted && pending.State == session.PendingWaiting {
		// Another answer stands there. The entry here is resolved when the run goes on.
		return h.decidedAway(ctx, sessions, owner, pending, away.Outcome)
	}
	if err := h.remind(ctx, sessions, owner, s.CallID); err != nil {
		return nil, err
	}
	outcome, err := sessions.Submit(ctx, owner.ID, s.Submission)
	if err != nil {
		h.log.WarnContext(ctx, "client_tool.validation_failed",
			"tenant", key.Tenant, "session", owner.ID, "call", s.CallID, "by", s.Response.By, "error", err)
		return nil, err
	}
	h.log.InfoContext(ctx, "client_tool.submitted", "tenant", key.Tenant, "session", owner.ID, "call", s.CallID,
		"tool", pending.Tool, "by", s.Response.By, "outcome", outcome)
	return h.follow(ctx, sessions, owner, pending, outcome)
}

// route finds the session that made a call, and the call's entry; nil if nobody
// knows of the call.
func (h *Handler) route(ctx context.Context, sessions session.Store, id, callID string) (*session.State, *session.Pending, error) {
	find := func(id string) (*session.State, *session.Pending, error) {
		state, err := sessions.Load(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		for _, all := range []bool{false, true} {
			list := state.Pending
			if all {
				if list, err = sessions.PendingCalls(ctx, id, true); err != nil {
					return nil, nil, err
				}
			}
			if at := slices.IndexFunc(list, func(p session.Pending) bool { return p.CallID == callID }); at >= 0 {
				return state, &list[at], nil
			}
		}
		return state, nil, nil
	}
	state, pending, err := find(id)
	if err != nil || pending != nil {
		return state, pending, err
	}
	owned, err := sessions.Owner(ctx, id, callID)
	if errors.Is(err, session.ErrNotFound) {
		return state, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	state, pending, err = find(owned.SessionID)
	if errors.Is(err, session.ErrNotFound) { // its commit was never made, or it is gone
		return nil, nil, nil
	}
	return state, pending, err
}

// mayAnswer checks that an answer is one to the call, and asks the tool's policy
// whether the submitter may give it. Where a remote has the policy, the remote gets
// the answer and says what became of it.
func (h *Handler) mayAnswer(
	ctx context.Context, sessions session.Store, owner *session.State, p *session.Pending, s *helix.Submission,
) (away *helix.Submitted, err error) {
	if err := p.Fits(&s.Submission); err != nil {
		return nil, err
	}
	if p.State != session.PendingWaiting && p.State != session.PendingTimedOut {
		return nil, nil // nothing of the answer will be kept
	}
	if remote := h.remote(owner.Agent); remote != nil {
		if !p.Policy { // a policy that it has since is asked when the answer is handed on
			return nil, nil
		}
		return h.submitAway(ctx, remoteTimeout, remote, owner, answerOf(s.Submission))
	}
	// The tool's policy of today decides, also for a call that was made before there
	// was one. A call that was made under a policy is never answered without one.
	agent, err := h.Agent(ctx, owner)
	if err != nil {
		if unknown := session.AsError(err); unknown.Code != session.CodeUnknownAgent || unknown.Cause != nil {
			return nil, session.ErrUnavailable.WithCause(err, "agent %s, which decides who may answer %s, cannot be made now", owner.Agent, p.Tool)
		}
		if !p.Policy {
			return nil, nil
		}
		return nil, session.ErrUnknownAgent.WithMessage("agent %s decides who may answer %s, and is not registered here", owner.Agent, p.Tool)
	}
	tool, ok := agent.Tool(p.Tool)
	switch {
	case ok && tool.Approver != nil:
	case !p.Policy:
		return nil, nil
	default:
		return nil, session.ErrNotAllowed.WithMessage("call %s: the tool %s, which decides who may answer, has no Approver any more", p.CallID, p.Tool)
	}
	l, err := lineageOf(ctx, sessions, owner)
	if err != nil {
		return nil, err
	}
	answer := &helix.Answer{
		By: s.User, Owner: owner.UserID, SessionID: owner.ID, RootID: l.root, CallID: p.CallID, Tool: p.Tool, Input: p.Input,
		Response: s.Response,
	}
	if answer.By.Tenant == "" {
		answer.By.Tenant = owner.Tenant
	}
	_, err = usercode.CallOnce(ctx, approverLimit, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, tool.Approver(ctx, answer)
	})
	if err != nil {
		return nil, session.ErrNotAllowed.WithCause(err, "call %s: %q may not answer", p.CallID, s.Response.By)
	}
	return nil, nil
}

// submitAway hands an answer on to the remote that a session stands in for, at
// once.
func (h *Handler) submitAway(
	ctx context.Context, limit time.Duration, remote helix.Remote, owner *session.State, s helix.Submission,
) (*helix.Submitted, error) {
	peer, err := h.remoteLink(h.cfg.Backend.Sessions().Tenant(owner.Tenant)).peer(ctx, owner)
	if err != nil {
		return nil, err
	}
	return usercode.CallOnce(ctx, limit, func(ctx context.Context) (*helix.Submitted, error) {
		return remote.Submit(ctx, peer, s)
	})
}

// remind has the sweepers look at a companion that works by itself, before an answer
// to it is taken: nobody else would resume it, should this process die then.
func (h *Handler) remind(ctx context.Context, sessions session.Store, owner *session.State, callID string) error {
	if owner.ParentID == "" {
		return nil
	}
	l, err := lineageOf(ctx, sessions, owner)
	if err != nil || !l.detached {
		return err
	}
	return h.wakeHead(ctx, sessions, owner.Tenant, l.head, callID)
}

// wakeHead puts a wake of a session for itself, on account of a call.
func (h *Handler) wakeHead(ctx context.Context, sessions session.Store, tenant, id, callID string) error {
	now, err := sessions.Now(ctx)
	if err != nil {
		return err
	}
	return sessions.PutWake(ctx, session.Wake{Tenant: tenant, SessionID: id, ChildID: id, RunID: callID, At: now})
}

// follow sees to what an answer leads to.
func (h *Handler) follow(
	ctx context.Context, sessions session.Store, owner *session.State, p *session.Pending, outcome session.SubmitOutcome,
) (*helix.Submitted, error) {
	l, err := lineageOf(ctx, sessions, owner)
	if err != nil {
		return nil, err
	}
	out := &helix.Submitted{Outcome: outcome, SessionID: owner.ID, RootID: l.root}
	remote := h.remote(owner.Agent)
	if outcome != session.SubmitAccepted || remote != nil { // what stands may be another's answer
		if p, err = h.entry(ctx, sessions, owner.ID, p); err != nil {
			return nil, err
		}
	}
	if remote != nil && outcome == session.SubmitLate && p.Late != nil {
		_, err := h.submitAway(ctx, remoteTimeout, remote, owner, answerTo(p, *p.Late))
		return out, err
	}
	if outcome == session.SubmitLate && p.Late != nil {
		err := sessions.Send(ctx, owner.ID, session.InboxEntry{
			ID: "late/" + p.CallID, Kind: inboxLate, Body: encoded(lateAnswer{Tool: p.Tool, CallID: p.CallID, Response: p.Late}),
		})
		return out, err
	}
	if outcome != session.SubmitAccepted && p.State != session.PendingAnswered {
		return out, nil
	}
	// A run that is about to suspend because nobody has answered sees this mark. It is
	// also set for one who repeats an answer: the first may not have come this far.
	for _, head := range l.others() {
		if err := sessions.Disown(ctx, head, []string{p.CallID}); err != nil && !errors.Is(err, session.ErrNotFound) {
			h.log.ErrorContext(ctx, "client_tool.ownership_clear_failed", "tenant", owner.Tenant, "session", head, "call", p.CallID, "error", err)
			return nil, err
		}
	}
	if remote != nil && p.State == session.PendingAnswered {
		h.handOn(ctx, remote, owner, p)
	}
	out.Continuation, err = h.goesOn(ctx, sessions, owner.Tenant, l, p.CallID)
	return out, err
}

// handOn tells a remote of an answer that was taken here, so that it has it before
// its deadline. If that fails, the run that goes on tells it.
func (h *Handler) handOn(ctx context.Context, remote helix.Remote, owner *session.State, p *session.Pending) {
	if p.Policy {
		return // it had the answer first
	}
	if _, err := h.submitAway(ctx, askTimeout, remote, owner, answerTo(p, *p.Response)); err != nil {
		h.log.WarnContext(ctx, "answer not handed on yet", "tenant", owner.Tenant, "session", owner.ID, "call", p.CallID, "error", err)
	}
}

// goesOn tells how the work goes on now that a call has an answer, and has a
// companion go on that works by itself.
func (h *Handler) goesOn(ctx context.Context, sessions session.Store, tenant string, l lineage, callID string) (helix.Continuation, error) {
	run, err := sessions.CurrentRun(ctx, l.head)
	switch {
	case err != nil:
		return "", err
	case !run.Status.Suspended(): // it runs, or has taken the answer up and come to its end
		return helix.ContinuesRunning, nil
	case l.detached: // nobody resumes it but us
		return helix.ContinuesRunning, h.wakeHead(ctx, sessions, tenant, l.head, callID)
	}
	return helix.CallerResumes, nil
}

// decidedAway is what became of an answer that a remote has not taken, as another
// was there.
func (h *Handler) decidedAway(
	ctx context.Context, sessions session.Store, owner *session.State, p *session.Pending, outcome session.SubmitOutcome,
) (*helix.Submitted, error) {
	h.log.InfoContext(ctx, "client_tool.submitted", "tenant", owner.Tenant, "session", owner.ID, "call", p.CallID, "tool", p.Tool, "outcome", outcome)
	l, err := lineageOf(ctx, sessions, owner)
	if err != nil {
		return nil, err
	}
	next, err := h.goesOn(ctx, sessions, owner.Tenant, l, p.CallID)
	if err != nil {
		return nil, err
	}
	return &helix.Submitted{Outcome: outcome, Continuation: next, SessionID: owner.ID, RootID: l.root}, nil
}

// entry reads the entry of a call anew.
func (h *Handler) entry(ctx context.Context, sessions session.Store, id string, p *session.Pending) (*session.Pending, error) {
	list, err := sessions.PendingCalls(ctx, id, true)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].CallID == p.CallID {
			return &list[i], nil
		}
	}
	return p, nil
}
