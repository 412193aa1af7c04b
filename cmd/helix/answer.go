package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// errLater leaves a question open.
var errLater = errors.New("later")

// answerAgain asks what was left open.
func (c *chat) answerAgain(ctx context.Context) error {
	waiting, err := c.rt.Waiting(ctx, c.id)
	if errors.Is(err, helix.ErrNotFound) || (err == nil && len(waiting) == 0) {
		return errors.New("the session waits for nothing")
	}
	if err != nil {
		return err
	}
	return c.answer(ctx)
}

// answer asks the user what the session waits for, and goes on with it. What is not
// answered is asked again by /answer, or by the next start.
func (c *chat) answer(ctx context.Context) error {
	waiting, err := c.rt.Waiting(ctx, c.id)
	if err != nil {
		return err
	}
	for i := range waiting {
		err := c.ask(ctx, &waiting[i])
		if errors.Is(err, errLater) {
			c.waits = true
			c.screen.note("It waits for your answer. /answer asks again, /abandon goes on without.")
			break
		}
		if err != nil {
			return err
		}
	}
	run, err := c.rt.Resume(ctx, c.agent, c.id, helix.ResumeOptions{})
	switch {
	case err == nil:
		return c.follow(ctx, run, false)
	case errors.Is(err, helix.ErrAlreadyRunning): // another process has taken the answers up
		_, err = c.finishEarlier(ctx)
		return err
	case errors.Is(err, helix.ErrAwaitingInput), errors.Is(err, helix.ErrNotResumable):
		return nil // no answer was given, or there is nothing left to answer
	}
	return err
}

// ask has the user answer one call.
func (c *chat) ask(ctx context.Context, p *session.Pending) error {
	c.screen.question(p)
	for {
		line, err := c.readAnswer()
		if err != nil {
			return err
		}
		submission, problem := reply(p, line)
		if problem != "" {
			c.screen.note("%s", problem)
			continue
		}
		out, err := c.rt.Submit(ctx, c.id, submission.By(helix.User{ID: "terminal"}))
		if err != nil {
			return err
		}
		switch out.Outcome {
		case helix.SubmitAlreadyCompleted:
			c.screen.note("Somebody else has answered this meanwhile.")
		case helix.SubmitLate:
			c.screen.note("Too late: the time for this answer is up. It will be mentioned.")
		}
		return nil
	}
}

// readAnswer reads a line that is an answer.
func (c *chat) readAnswer() (string, error) {
	c.screen.ask()
	select {
	case line, ok := <-c.lines:
		line = strings.TrimSpace(line)
		if !ok || line == "/later" {
			return "", errLater
		}
		if line == "/quit" || line == "/exit" {
			return "", errQuit
		}
		return line, nil
	case s := <-c.signals:
		c.screen.leave()
		if s != os.Interrupt {
			return "", errTerminated
		}
		return "", errLater
	}
}

// reply makes an answer of what the user entered, or tells what is wrong with it.
func reply(p *session.Pending, line string) (answer helix.Submission, problem string) {
	if p.Kind == session.PendingClientTool {
		if line == "" {
			return answer, "Please enter something."
		}
		var in choice
		if json.Unmarshal(p.Input, &in) == nil && len(in.Options) > 0 {
			return chosen(p, &in, line)
		}
		return helix.ToolResult(p.CallID, line), ""
	}
	word, reason, _ := strings.Cut(line, " ")
	switch strings.ToLower(word) {
	case "y", "yes":
		return helix.Approve(p.CallID, p.ApprovalID).Seen(p.Tool, p.Input), ""
	case "n", "no":
		return helix.Deny(p.CallID, p.ApprovalID, strings.TrimSpace(reason)), ""
	}
	return answer, "Please enter y or n; after n you may say why. /later leaves it open."
}

// chosen finds an option by its number or its words.
func chosen(p *session.Pending, in *choice, line string) (answer helix.Submission, problem string) {
	for i, option := range in.Options {
		if line == fmt.Sprint(i+1) || strings.EqualFold(line, option) {
			return helix.ToolResult(p.CallID, option), ""
		}
	}
	return answer, "Please enter one of the options, or its number."
}
