package helixtest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
)

// Answer is a person's answer to a waiting call. Make one with [Approve], [Deny], [Reply]
// or [Fail].
type Answer struct {
	tool string
	user helix.User
	make func(p *session.Pending) helix.Submission
}

// Approve approves a call that waits for approval, with the input that the call has.
func Approve(tool string) Answer {
	return Answer{tool: tool, make: func(p *session.Pending) helix.Submission {
		return helix.Approve(*p, helix.User{})
	}}
}

// Deny denies a call that waits for approval.
func Deny(tool, reason string) Answer {
	return Answer{tool: tool, make: func(p *session.Pending) helix.Submission {
		return helix.Deny(*p, helix.User{}, reason)
	}}
}

// Reply answers a call of a client tool with its result.
func Reply(tool string, result any) Answer {
	return Answer{tool: tool, make: func(p *session.Pending) helix.Submission { return helix.ToolResult(p.CallID, result) }}
}

// Fail answers a call of a client tool with an error.
func Fail(tool, message string) Answer {
	return Answer{tool: tool, make: func(p *session.Pending) helix.Submission { return helix.ToolError(p.CallID, message) }}
}

// By returns the answer with the user who gives it. Defaults to the session's user.
func (a Answer) By(user helix.User) Answer {
	a.user = user
	return a
}

// Submit submits an answer without resuming the turn. It returns the error of
// [helix.Executor.Submit], so that a test can expect a refusal. It fails the test if no
// call of the tool waits.
func Submit(t TB, waiting *Result, answer Answer) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errTooSlow)
	defer cancel()
	var refused error
	err := waiting.setup.on(ctx, func(x helix.Executor, _ *helix.Agent) error {
		at, err := waiting.find(answer.tool, nil)
		if err != nil {
			return err
		}
		refused = waiting.submit(ctx, x, at, answer)
		return nil
	})
	if err != nil {
		t.Fatalf("helixtest: %v", err)
	}
	return refused
}

// Resume submits answers to a waiting turn, each to the first unanswered call of its tool,
// and continues the turn with the rest of its script. Without answers it continues a turn
// that was interrupted, or whose answers were submitted. The result covers the whole turn.
func Resume(t TB, waiting *Result, answers ...Answer) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errTooSlow)
	defer cancel()
	var res *Result
	err := waiting.setup.on(ctx, func(x helix.Executor, agent *helix.Agent) error {
		var answered []int
		for _, answer := range answers {
			at, err := waiting.find(answer.tool, answered)
			if err == nil {
				err = waiting.submit(ctx, x, at, answer)
			}
			if err != nil {
				return err
			}
			answered = append(answered, at)
		}
		run, err := x.Resume(ctx, waiting.SessionID, helix.ResumeOptions{})
		if err == nil {
			res, err = waiting.setup.result(ctx, run, waiting)
		}
		return err
	})
	if err != nil {
		t.Fatalf("helixtest: %v", err)
		return nil
	}
	waiting.setup.checkScript(t, res.Result)
	return res
}

// find returns a waiting call of a tool that is not in answered.
func (r *Result) find(tool string, answered []int) (int, error) {
	var others []string
	for i := range r.Pending {
		if r.Pending[i].Tool == tool && !slices.Contains(answered, i) {
			return i, nil
		}
		others = append(others, r.Pending[i].Tool)
	}
	if len(others) == 0 {
		return 0, fmt.Errorf("no call waits for an answer: the run is %s", r.Status)
	}
	return 0, fmt.Errorf("no call of %s waits for an answer; these do: %s", tool, strings.Join(others, ", "))
}

func (r *Result) submit(ctx context.Context, x helix.Executor, at int, answer Answer) error {
	user := answer.user
	if user == (helix.User{}) {
		user = r.setup.input.User
	}
	done, err := x.Submit(ctx, r.SessionID, answer.make(&r.Pending[at]).By(user))
	if err == nil && done.Outcome != helix.SubmitAccepted {
		err = fmt.Errorf("the answer to %s was not accepted: %s", answer.tool, done.Outcome)
	}
	return err
}

// on calls do with a new runtime.
func (s *setup) on(ctx context.Context, do func(x helix.Executor, agent *helix.Agent) error) error {
	rt, err := local.New(local.Config{
		Backend: s.backend, Agents: []*helix.Agent{s.agent}, RetryBackoff: retryBackoff, NoRecovery: true,
		Logger: slog.New(slog.DiscardHandler), // the result has everything that matters
	})
	if err != nil {
		return err
	}
	defer rt.Shutdown(ctx)
	return do(rt.Tenant(tenant(s.input.User)), s.agent)
}
