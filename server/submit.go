package server

import (
	"cmp"
	"context"
	"net/http"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/internal/request"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func (x *exchange) submit() error {
	in, err := decode(x, readSubmit)
	if err != nil {
		return err
	}
	return x.submitTo("sessionId", in.SessionID, in)
}

// submitTo submits an answer to a session that the given field names.
func (x *exchange) submitTo(field, sessionID string, in *wire.Submit) error {
	submission, err := submissionOf(in)
	if err == nil {
		err = x.server.checkAnswer(&submission)
	}
	if err != nil {
		return err
	}
	ctx, cancel := x.change()
	defer cancel()
	state, err := x.session(ctx, field, sessionID)
	if err != nil {
		return err
	}
	done, err := x.answer(ctx, state, submission, in.Resume)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if done.Outcome == helix.SubmitUnknownCall {
		status = http.StatusNotFound
		done.Message, done.Code = "There is no such call in this conversation.", wire.CodeUnknownCall
	}
	x.json(status, done)
	return nil
}

// submissionOf returns the answer in a request.
func submissionOf(in *wire.Submit) (helix.Submission, error) {
	if in.Kind == wire.SubmitAnswer || in.Answer != nil || in.Declined {
		return questionAnswerOf(in)
	}
	approval, err := approvalOf(in)
	if err != nil {
		return helix.Submission{}, err
	}
	var s helix.Submission
	given := 0
	if in.Result != nil {
		given++
		s = helix.ToolResult(in.ToolCallID, in.Result)
	}
	if in.Error != "" {
		given++
		s = helix.ToolError(in.ToolCallID, in.Error)
	}
	if approval != nil {
		given++
		s.Submission = session.Decide(in.ToolCallID, approval.ApprovalID, approval.Approved, approval.Reason)
	}
	switch {
	case in.ToolCallID == "":
		return s, session.Invalid("toolCallId", "must not be empty")
	case given != 1 && in.Kind == wire.SubmitResult:
		return s, session.Invalid("result", "or error is required, but not both, with the kind %s", in.Kind)
	case given != 1:
		return s, session.Invalid("result", "or error or approval is required, exactly one of them")
	}
	if in.Seen != nil {
		s.Fingerprint = session.Fingerprint(in.Seen.ToolName, in.Seen.Input)
	}
	return s, nil
}

// questionAnswerOf returns the answer to a question in a request. It refuses fields of
// another kind.
func questionAnswerOf(in *wire.Submit) (helix.Submission, error) {
	err := refuseGiven("does not belong to the answer to a question", []givenField{
		{"kind", in.Kind != "" && in.Kind != wire.SubmitAnswer},
		{"result", in.Result != nil},
		{"error", in.Error != ""},
		{"approval", in.Approval != nil},
		{"approvalId", in.ApprovalID != ""},
		{"approved", in.Approved != nil},
		{"reason", in.Reason != "" && !in.Declined},
	})
	s := helix.Submission{Submission: session.Reply(in.ToolCallID, in.Answer)}
	switch {
	case err != nil:
		return s, err
	case in.ToolCallID == "":
		return s, session.Invalid("toolCallId", "must not be empty")
	case in.Declined && in.Answer != nil:
		return s, session.Invalid("answer", "must be missing where declined is true")
	case in.Declined:
		s.Submission = session.Decline(in.ToolCallID, in.Reason)
	}
	if in.Seen != nil {
		s.Fingerprint = session.Fingerprint(in.Seen.ToolName, in.Seen.Input)
	}
	return s, nil
}

// approvalOf returns the decision in a request, in either of its forms, or nil. It refuses
// fields of another kind.
func approvalOf(in *wire.Submit) (*wire.Approval, error) {
	flat := []givenField{{"approvalId", in.ApprovalID != ""}, {"approved", in.Approved != nil}, {"reason", in.Reason != ""}}
	switch in.Kind {
	case wire.SubmitResult:
		return nil, refuseGiven("does not belong to the kind "+string(in.Kind), append(flat, givenField{"approval", in.Approval != nil}))
	case wire.SubmitApproval:
		err := refuseGiven("does not belong to the kind "+string(in.Kind), []givenField{
			{"result", in.Result != nil}, {"error", in.Error != ""}, {"approval", in.Approval != nil},
		})
		switch {
		case err != nil:
			return nil, err
		case in.ApprovalID == "":
			return nil, session.Invalid("approvalId", "must not be empty with the kind %s", in.Kind)
		case in.Approved == nil:
			return nil, session.Invalid("approved", "must be true or false with the kind %s", in.Kind)
		}
		return &wire.Approval{ApprovalID: in.ApprovalID, Approved: *in.Approved, Reason: in.Reason}, nil
	}
	if err := refuseGiven("needs the kind "+string(wire.SubmitApproval), flat); err != nil {
		return nil, err
	}
	if in.Approval != nil && in.Approval.ApprovalID == "" {
		return nil, session.Invalid("approval.approvalId", "must not be empty")
	}
	return in.Approval, nil
}

// checkAnswer validates an answer with [Config.SubmitSchema].
func (s *Server) checkAnswer(answer *helix.Submission) error {
	schema := s.cfg.SubmitSchema
	if schema == nil {
		return nil
	}
	form := wire.ChatSubmit{ToolCallID: answer.CallID, Kind: wire.SubmitResult, Result: answer.Response.Result, Error: answer.Response.Error}
	field := "result"
	switch {
	case answer.Response.Kind == session.PendingApproval:
		field = "approved"
		form.Kind, form.ApprovalID, form.Approved, form.Reason = wire.SubmitApproval, answer.ApprovalID, &answer.Response.Approved, answer.Response.Reason
	case answer.Response.Kind == session.PendingQuestion:
		field = "answer"
		form.Kind, form.Answer, form.Declined, form.Reason = wire.SubmitAnswer, answer.Response.Answer, answer.Response.Declined, answer.Response.Reason
	case answer.Response.Error != "":
		field = "error"
	}
	raw, err := session.Encode(&form)
	if err != nil {
		return session.Invalid(field, "cannot be encoded")
	}
	if _, err := request.NewScanner(raw).Bounded(len(raw), maxAnswerValues); err != nil {
		return session.Invalid(field, "has more than %d values", maxAnswerValues)
	}
	if err := schema.Validate(raw); err != nil {
		return session.Invalid(field, "is not an answer that this server accepts").WithCause(err, "%s is not an answer that this server accepts", field)
	}
	return nil
}

// givenField is a field of a request, and whether it is present.
type givenField struct {
	name  string
	given bool
}

// refuseGiven refuses the first field that is present.
func refuseGiven(why string, fields []givenField) error {
	for _, f := range fields {
		if f.given {
			return session.Invalid(f.name, "%s", why)
		}
	}
	return nil
}

// answer submits an answer for the identity and, if requested, continues with it.
func (x *exchange) answer(ctx context.Context, state *session.State, s helix.Submission, resume bool) (*wire.Submitted, error) {
	if resume && state.ParentID == "" {
		if _, err := x.agentFor("sessionId", state); err != nil {
			return nil, err
		}
		run, err := x.current(ctx, state.ID)
		if err != nil {
			return nil, err
		}
		opened, err := x.mayContinue(ctx, state.ID, run)
		if err != nil {
			return nil, err
		}
		defer opened()
	}
	done, err := x.executor.Submit(ctx, state.ID, s.By(x.who.user()))
	if err != nil {
		return nil, x.hide(state.ID, err)
	}
	x.server.metrics.submitted(done.Outcome)
	out := &wire.Submitted{
		Outcome: done.Outcome, Continuation: string(done.Continuation), SessionID: done.SessionID, RootSessionID: done.RootID,
	}
	out.SessionID = cmp.Or(out.SessionID, state.ID)
	out.RootSessionID = cmp.Or(out.RootSessionID, state.ID)
	if resume && done.Continuation == helix.CallerResumes {
		out.RunID = x.resumeAfterAnswer(ctx, out.RootSessionID)
	}
	return out, nil
}

// mayContinue is [exchange.mayRun] for answers to a session whose latest run is given: they
// are refused before they are stored if no run could use them. A run that has not ended
// uses them itself.
func (x *exchange) mayContinue(ctx context.Context, id string, run *session.Run) (done func(), err error) {
	if run != nil && run.Status == session.RunRunning {
		return func() {}, nil
	}
	return x.mayRun(ctx, id, "")
}

// resumeAfterAnswer resumes a conversation. The answer is stored even if that fails: somebody else may
// have resumed it, or other answers may be missing.
func (x *exchange) resumeAfterAnswer(ctx context.Context, id string) (runID string) {
	state, err := x.session(ctx, "sessionId", id)
	if err != nil {
		return x.notResumed(ctx, id, err)
	}
	agent, err := x.agentFor("sessionId", state)
	if err != nil {
		return x.notResumed(ctx, id, err)
	}
	run, err := x.executor.Resume(ctx, id, helix.ResumeOptions{Agent: agent})
	if err != nil {
		return x.notResumed(ctx, id, err)
	}
	x.runID = run.ID()
	x.server.metrics.started()
	return run.ID()
}

func (x *exchange) notResumed(ctx context.Context, id string, err error) string {
	x.server.cfg.Logger.InfoContext(ctx, "session.not_resumed", x.attrs("root", id, "error", err)...)
	return ""
}
