package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
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

If PROMPT is -, or left out in a pipe, the message is read from standard input. The message
begins a new session, or is the next one of --session. Ctrl-C stops the run; what it has
done is stored.

The exit code is 0 if the run has completed, 3 if it waits for a person, 1 if it has
failed, 2 if the command line is wrong, and 143 if Ctrl-C or a signal stopped it.
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
			case len(args) == 2 && strings.TrimSpace(args[1]) == "":
				return usageError{errors.New("the prompt is empty")}
			case len(args) == 1 && isOnTerminal(cmd.InOrStdin()):
				return usageError{fmt.Errorf(`give the agent a prompt, as in %s %s "What time is it?", or - to type it here (see %[1]s --help)`, cmd.CommandPath(), shellWord(args[0]))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			turn := oneTurn{target: &t, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), aside: cmd.ErrOrStderr(), agent: args[0], id: id}
			if len(args) == 2 && args[1] != "-" {
				turn.prompt = args[1]
			}
			return t.with(cmd.Context(), turn.run)
		},
		ValidArgsFunction: t.completeAgent,
	}
	t.flags(cmd)
	cmd.Flags().StringVar(&id, "session", "", "`ID` of the session to continue or start (default: a new one)")
	return cmd
}

// readPrompt reads a prompt from standard input. Nothing ends a read of a terminal or a pipe,
// so one that is given up goes on beside the rest of the command.
func readPrompt(ctx context.Context, in io.Reader) (string, error) {
	var text []byte
	var err error
	read := make(chan struct{})
	go func() {
		defer close(read)
		text, err = io.ReadAll(io.LimitReader(in, maxPrompt+1))
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-read:
	}
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
	// prompt is read from in if it is empty.
	prompt string
	in     io.Reader
	// hasOutput is set if the agent ends with an output, not with a text.
	hasOutput bool
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

func (o *oneTurn) run(ctx context.Context, c *client.Client) error {
	if err := o.checkAgent(ctx, c); err != nil {
		return err
	}
	prompt := o.prompt
	if prompt == "" {
		if isOnTerminal(o.in) {
			fmt.Fprintln(o.aside, "Type the prompt, and end it with Ctrl-D at the beginning of a line.")
		}
		var err error
		if prompt, err = readPrompt(ctx, o.in); err != nil {
			return err
		}
	}
	started, err := c.Start(ctx, wire.Start{SessionID: o.id, AgentType: o.agent, Message: wire.Text(prompt)})
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(o.aside, "helix: stopped; if the run had begun, helix sessions ls has it")
		}
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
	if status.RunID != started.RunID {
		return fmt.Errorf("another run has begun in the session meanwhile; helix sessions show %s%s has both", shellWord(o.id), o.again())
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
			o.hasOutput = len(agents[i].OutputSchema) > 0
			return nil
		}
		names = append(names, agents[i].Name)
	}
	return noAgent(o.agent, names)
}

// replyPrinter prints the text of replies. What is read by a program gets a reply when it is
// complete, because one that fails is begun anew.
type replyPrinter struct {
	screen *screen
	live   bool // people read along
	step   strings.Builder
}

func (p *replyPrinter) add(text string) {
	if p.live {
		p.screen.text(plain, text)
		return
	}
	p.step.WriteString(text)
}

// end ends a reply: the text of the next one begins on a line of its own.
func (p *replyPrinter) end() {
	p.screen.text(plain, p.step.String())
	p.step.Reset()
	p.screen.end()
}

// discard takes a reply back as far as that is possible.
func (p *replyPrinter) discard() {
	p.step.Reset()
	p.screen.end()
}

// show prints the text of the reply, and what happens meanwhile.
func (o *oneTurn) show(items iter.Seq2[stream.Item, error]) error {
	reply := &replyPrinter{screen: &screen{out: o.out, wrapper: wrapperOf(o.out)}, live: isOnTerminal(o.out)}
	if o.json || o.hasOutput { // which is printed at the end
		reply.screen.out, reply.screen.wrapper, reply.live = o.aside, wrapperOf(o.aside), isOnTerminal(o.aside)
	}
	rest := &screen{out: o.aside, side: o.aside, wrapper: wrapperOf(o.aside), color: isOnTerminal(o.aside) && os.Getenv("NO_COLOR") == ""}
	view := turnView{screen: rest, session: o.id}
	defer rest.end()
	defer reply.end()
	for item, err := range items {
		if err != nil {
			return err
		}
		if item.Frame == stream.FrameTruncated {
			rest.note("The beginning of the run is no longer in the stream; helix sessions show %s has all of it.", shellWord(o.id))
		}
		chunk := item.Chunk
		if chunk == nil {
			continue
		}
		own := chunk.AgentID == o.id
		switch {
		case own && chunk.Kind == stream.TextDelta:
			rest.end()
			reply.add(chunk.Delta)
			continue
		case own && chunk.Kind == stream.ToolStart && chunk.Tool == session.FinishTool:
			continue // the output is printed at the end
		case own && chunk.Kind == stream.StepDiscarded:
			reply.discard()
		case chunk.Kind == stream.StepStarted, chunk.Kind == stream.ToolStart, chunk.Kind == stream.ToolEnd, chunk.Kind == stream.Custom,
			chunk.Kind == stream.SubAgentStart, chunk.Kind == stream.RunInterrupted:
			reply.end()
		}
		view.show(item)
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
	if errors.Is(err, helix.ErrStale) {
		err = nil // it has ended meanwhile
	}
	if err == nil {
		for _, err = range c.ReadRun(ctx, o.id, run.RunID, run.StartSequence) {
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintf(o.aside, "helix: the run could not be stopped and may go on: %s\n", printable(err.Error()))
		return
	}
	fmt.Fprintf(o.aside, "helix: stopped; helix resume %s%s continues\n", shellWord(o.id), o.again())
}

// conclude prints the result and returns the error that determines the exit code.
func (o *oneTurn) conclude(status *wire.Status) error {
	if status.Activity != session.ActivityDone || status.Error != nil {
		status.Output = nil // it is that of an earlier run
	}
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
		screen := screen{out: o.aside, side: o.aside}
		screen.failed(status.Error)
		return errTurnFailed
	case len(status.Pending) > 0:
		o.tellPending(o.aside, o.id, status.Pending)
		return errAwaitsPerson
	case status.Activity == session.ActivityStopped:
		return fmt.Errorf("the run was stopped; helix resume %s%s continues", shellWord(o.id), o.again())
	case status.Activity != session.ActivityDone:
		return fmt.Errorf("the session is %s; helix sessions show %s%s says more", status.Activity, shellWord(o.id), o.again())
	}
	return nil
}
