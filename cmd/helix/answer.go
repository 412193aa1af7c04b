package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// errLater postpones a question.
var errLater = errors.New("later")

var errNothingWaits = errors.New("the session is not waiting for an answer")

// answerAgain repeats the open questions.
func (c *chat) answerAgain(ctx context.Context) error {
	if c.id == "" {
		return errNothingWaits
	}
	status, err := c.client.Status(ctx, c.id)
	if errors.Is(err, helix.ErrNotFound) || (err == nil && status.Activity != session.ActivityWaiting) {
		return errNothingWaits
	}
	if err != nil {
		return err
	}
	return c.answer(ctx)
}

// answer asks the user the questions that the session waits for, and then resumes it.
// /answer, or the next start, repeats questions without an answer.
func (c *chat) answer(ctx context.Context) error {
	waiting, err := c.client.Pending(ctx, c.id)
	if err != nil {
		return err
	}
	for i := range waiting {
		err := c.ask(ctx, &waiting[i])
		if errors.Is(err, errLater) {
			c.waits = true
			c.screen.note("The session is waiting for your answer. /answer asks again, /abandon continues without it.")
			break
		}
		if err != nil {
			return err
		}
	}
	started, err := c.client.Resume(ctx, wire.Resume{SessionID: c.id})
	switch {
	case err == nil:
		return c.follow(ctx, started.RunID, started.StartSequence, false)
	case errors.Is(err, helix.ErrAlreadyRunning): // another process has taken the answers up
		_, err = c.finishEarlier(ctx)
		return err
	case errors.Is(err, helix.ErrAwaitingInput), errors.Is(err, helix.ErrNotResumable):
		return nil // the user gave no answer, or nothing is left to answer
	}
	return err
}

// ask asks the user to answer one call.
func (c *chat) ask(ctx context.Context, p *session.Pending) error {
	c.screen.question(p)
	for {
		line, err := c.readAnswer()
		if err != nil {
			return err
		}
		submit, problem := reply(p, line)
		if problem != "" {
			c.screen.note("%s", problem)
			continue
		}
		submit.SessionID, submit.ToolCallID = c.id, p.CallID
		out, err := c.client.Submit(ctx, submit)
		if p.Kind == session.PendingQuestion && errors.Is(err, helix.ErrInvalid) {
			c.screen.note("This does not fit the question: %v", err)
			continue
		}
		if err != nil {
			return err
		}
		switch out.Outcome {
		case session.SubmitAlreadyCompleted:
			c.screen.note("Somebody else has answered this in the meantime.")
		case session.SubmitUnknownCall:
			c.screen.note("This question is no longer open.")
		case session.SubmitLate:
			c.screen.note("Too late: the question has timed out. The agent will see the answer with its next turn.")
		}
		return nil
	}
}

// readAnswer reads an answer from the user.
func (c *chat) readAnswer() (string, error) {
	line, err := c.read("? ", false)
	switch {
	case errors.Is(err, errQuit), errors.Is(err, errInterrupted), line == "/later":
		return "", errLater
	case line == "/quit", line == "/exit":
		return "", errQuit
	}
	return line, err
}

// reply converts the user's line to an answer, or returns what is wrong with it.
func reply(p *session.Pending, line string) (answer wire.Submit, problem string) {
	if p.Kind == session.PendingQuestion {
		return questionReply(p, line)
	}
	if p.Kind == session.PendingClientTool {
		if line == "" {
			return answer, "Please enter something."
		}
		var in choice
		if json.Unmarshal(p.Input, &in) == nil && len(in.Options) > 0 {
			return chosen(&in, line)
		}
		return wire.Submit{Result: text(line)}, ""
	}
	word, reason, _ := strings.Cut(line, " ")
	word, reason = strings.ToLower(strings.TrimRight(word, ",;.:!")), strings.TrimSpace(reason)
	switch word {
	case "y", "yes":
		if reason != "" { // "yes, but" is not a yes
			return answer, "Please enter only y to approve the call as it is. To have it changed, enter n and what should be different."
		}
		return wire.Submit{
			Approval: &wire.Approval{ApprovalID: p.ApprovalID, Approved: true}, Seen: &wire.Seen{ToolName: p.Tool, Input: p.Input},
		}, ""
	case "n", "no":
		return wire.Submit{Approval: &wire.Approval{ApprovalID: p.ApprovalID, Reason: reason}}, ""
	}
	return answer, "Please enter y or n; after n you may give a reason. /later postpones the question."
}

// chosen returns the option with the given number or text.
func chosen(in *choice, line string) (answer wire.Submit, problem string) {
	for i, option := range in.Options {
		if line == fmt.Sprint(i+1) || strings.EqualFold(line, option) {
			return wire.Submit{Result: text(option)}, ""
		}
	}
	return answer, "Please enter one of the options, or its number."
}

// text encodes a string as JSON.
func text(line string) json.RawMessage {
	raw, _ := json.Marshal(line) // a string always encodes
	return raw
}
