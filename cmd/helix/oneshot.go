package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// errAwaitsPerson ends a command whose run waits; what it waits for has been printed.
var errAwaitsPerson = errors.New("the run waits for a person")

// maxPrompt limits what is read from standard input.
const maxPrompt = 4 << 20

func runCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals, runs: true, creates: true}
	var id string
	cmd := &cobra.Command{
		Use:   "run AGENT PROMPT",
		Short: "Send an agent one message and print its reply",
		Long: `Send an agent one message and print its reply. Standard output gets the reply and
nothing else, or the output of an agent that has one, as JSON; everything that happens
meanwhile goes to standard error. With --json, standard output gets one object with the
reply, the output, the error and the calls that wait for a person.

Without a PROMPT, or if it is -, the message is read from standard input. The message
begins a new session, or is the next one of --session. Ctrl-C stops the run; what it has
done is stored.

The exit code is 0 if the run has completed, 3 if it waits for a person, and 1 if it has
failed or was stopped.
` + targetHelp,
		Example: `  helix run assistant "What is 6 * 7?"
  helix run ticket "The printer is on fire." | jq .priority
  git diff | helix run reviewer --session review-17`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usageError{fmt.Errorf("name the agent; helix agents ls lists them (see %s --help)", cmd.CommandPath())}
			case len(args) > 2:
				return usageError{fmt.Errorf("put the prompt in quotes: it must be one argument (see %s --help)", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			prompt, err := readPrompt(args[1:], cmd.InOrStdin())
			if err != nil {
				return err
			}
			turn := oneTurn{target: &t, out: cmd.OutOrStdout(), aside: cmd.ErrOrStderr(), agent: args[0], id: id}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return turn.run(ctx, c, prompt) })
		},
		ValidArgsFunction: t.completeAgent,
	}
	t.flags(cmd)
	cmd.Flags().StringVar(&id, "session", "", "`ID` of the session to continue or start (default: a new one)")
	return cmd
}

// readPrompt returns the prompt of the command line, or reads it.
func readPrompt(args []string, in io.Reader) (string, error) {
	if len(args) == 1 && args[0] != "-" {
		if strings.TrimSpace(args[0]) == "" {
			return "", usageError{errors.New("the prompt is empty")}
		}
		return args[0], nil
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPrompt+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the prompt from standard input: %w", err)
	case len(text) > maxPrompt:
		return "", usageError{fmt.Errorf("the prompt on standard input has more than %d bytes", maxPrompt)}
	case strings.TrimSpace(string(text)) == "":
		return "", usageError{errors.New("the prompt on standard input is empty")}
	}
	return strings.TrimRight(string(text), "\n"), nil
}

// oneTurn is a turn whose reply is printed.
type oneTurn struct {
	*target
	out   io.Writer // gets the reply
	aside io.Writer // gets what happens meanwhile
	agent string
	id    string
}

// turnResult is what a turn prints with --json.
type turnResult struct {
	SessionID string            `json:"sessionId"`
	RunID     string            `json:"runId"`
	Activity  session.Activity  `json:"activity"`
	Text      string            `json:"text"`
	Output    json.RawMessage   `json:"output,omitempty"`
	Error     *wire.Error       `json:"error,omitempty"`
	Pending   []session.Pending `json:"pending,omitempty"`
}

func (o *oneTurn) run(ctx context.Context, c *client.Client, prompt string) error {
	if err := o.checkAgent(ctx, c); err != nil {
		return err
	}
	started, err := c.Start(ctx, wire.Start{SessionID: o.id, AgentType: o.agent, Message: wire.Text(prompt)})
	if err != nil {
		return err
	}
	o.id = started.SessionID
	if err := o.show(c.ReadRun(ctx, o.id, started.RunID, started.StartSequence)); err != nil {
		if ctx.Err() != nil {
			o.stop(ctx, c, started)
		}
		return err
	}
	status, err := c.Status(ctx, o.id)
	if err != nil {
		return err
	}
	return o.conclude(status)
}

// checkAgent returns an error that lists the agents if there is none of this name.
func (o *oneTurn) checkAgent(ctx context.Context, c *client.Client) error {
	agents, err := c.Agents(ctx)
	if err != nil {
		return err
	}
	var names []string
	for i := range agents {
		if agents[i].Name == o.agent {
			return nil
		}
		names = append(names, agents[i].Name)
	}
	return usageError{fmt.Errorf("there is no agent %q; the agents are %s", o.agent, strings.Join(names, ", "))}
}

// show prints the text of the reply while it is written.
func (o *oneTurn) show(items func(yield func(stream.Item, error) bool)) error {
	reply, rest := newScreen(), newScreen()
	reply.out, reply.wrapper = o.out, wrapperOf(o.out)
	rest.out, rest.wrapper = o.aside, wrapperOf(o.aside)
	view := turnView{screen: rest, session: o.id}
	defer reply.end()
	defer rest.end()
	for item, err := range items {
		if err != nil {
			return err
		}
		chunk := item.Chunk
		switch {
		case chunk == nil:
		case chunk.Kind == stream.TextDelta && chunk.AgentID == o.id && !o.json:
			rest.end()
			reply.text(plain, chunk.Delta)
		case chunk.Kind == stream.ToolStart && chunk.AgentID == o.id && chunk.Tool == session.FinishTool: // the output is printed at the end
		case chunk.Kind == stream.StepStarted && chunk.AgentID == o.id:
			reply.end() // the text of two replies does not run together
			view.show(item)
		default:
			view.show(item)
		}
	}
	return nil
}

// stopPatience is how long the end of a run that is stopped is waited for.
const stopPatience = 5 * time.Second

// stop stops the run of a command that was interrupted: nobody waits for it any more.
func (o *oneTurn) stop(ctx context.Context, c *client.Client, run *wire.Started) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	_, err := c.Interrupt(ctx, wire.Stop{SessionID: o.id, RunID: run.RunID, Reason: "stopped by the user"})
	if err == nil {
		for _, err = range c.ReadRun(ctx, o.id, run.RunID, run.StartSequence) {
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintf(o.aside, "helix: the run could not be stopped and may go on: %v\n", err)
		return
	}
	fmt.Fprintf(o.aside, "helix: stopped; helix resume %s%s continues\n", shellWord(o.id), o.again())
}

// conclude prints the result and returns the error that determines the exit code.
func (o *oneTurn) conclude(status *wire.Status) error {
	if o.json {
		err := writeJSON(o.out, turnResult{
			SessionID: o.id, RunID: status.RunID, Activity: status.Activity, Text: status.Text, Output: status.Output,
			Error: status.Error, Pending: status.Pending,
		})
		if err != nil {
			return err
		}
	} else if len(status.Output) > 0 {
		fmt.Fprintln(o.out, visibleText(string(status.Output)))
	}
	switch {
	case status.Error != nil:
		screen := newScreen()
		screen.side, screen.interactive = o.aside, false
		screen.failed(status.Error)
		return errTurnFailed
	case len(status.Pending) > 0:
		o.tellPending(o.aside, o.id, status.Pending)
		return errAwaitsPerson
	case status.Activity == session.ActivityStopped:
		return fmt.Errorf("the run was stopped; helix resume %s%s continues", shellWord(o.id), o.again())
	}
	return nil
}
