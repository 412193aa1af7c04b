package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// follow prints a session's stream until it ends.
func follow(ctx context.Context, out io.Writer, id string, asJSON bool, items iter.Seq2[stream.Item, error]) error {
	screen := newScreen()
	screen.out, screen.wrapper = out, wrapperOf(out)
	view := turnView{screen: screen, session: id, withInput: true}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for item, err := range items {
		if err != nil {
			screen.end()
			return err
		}
		if asJSON {
			if err := encoder.Encode(item); err != nil {
				return err
			}
		} else {
			view.show(item)
		}
		switch item.Frame {
		case stream.FrameFail:
			screen.end()
			return fmt.Errorf("the run failed: %s", explain(item.Error))
		case stream.FrameTruncated:
			screen.end()
			return fmt.Errorf("the stream no longer has the requested items; the earliest is --from %d", item.Floor)
		}
	}
	screen.end()
	return ctx.Err()
}

// explain returns the meaning of an error, followed by the error itself if the server
// reports it.
func explain(err *session.Error) string {
	sentence, message := wire.Explain(err.Code), oneLine(printable(err.Message))
	if message == "" || message == sentence {
		return sentence
	}
	return sentence + " (" + message + ")"
}

// followRun prints a run, and then the calls that the session waits for.
func (t *target) followRun(ctx context.Context, out io.Writer, c *client.Client, id, runID string, from int64) error {
	if err := follow(ctx, out, id, t.json, c.ReadRun(ctx, id, runID, from)); err != nil || t.json {
		return err
	}
	pending, err := c.Pending(ctx, id)
	if err != nil {
		return err
	}
	t.tellPending(out, id, pending)
	return nil
}

// tellPending prints the calls that a session waits for, and how to answer them.
func (t *target) tellPending(out io.Writer, id string, pending []session.Pending) {
	for i := range pending {
		p := &pending[i]
		if p.Kind == session.PendingApproval {
			fmt.Fprintf(out, "%s %s\n", visible(p.Tool), wholeInput(p.Input))
		}
		fmt.Fprintf(out, "The session is waiting for %s:\n", awaited(p))
		t.hint(out, id, p)
	}
}

// hint prints the commands that answer a call.
func (t *target) hint(out io.Writer, id string, p *session.Pending) {
	answers := []string{"--result JSON"}
	switch p.Kind {
	case session.PendingApproval:
		answers = []string{"--approve", "--deny"}
	case session.PendingQuestion:
		answers = []string{"--answer JSON", "--decline"}
		if p.URL != "" {
			answers[0] = "--confirm"
		}
	}
	for _, answer := range answers {
		fmt.Fprintf(out, "  helix submit %s %s %s --resume%s\n", shellWord(id), shellWord(p.CallID), answer, t.again())
	}
}

func submitCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals}
	var approve, deny, decline, confirm, resume bool
	var reason, result, answer, failure string
	cmd := &cobra.Command{
		Use:     "submit ID CALL",
		Short:   "Answer a call that waits for a person",
		Aliases: []string{"answer"},
		Long: `Answer a call that waits for a person: approve or deny it, give the result of a tool
that runs on the client, or answer or decline its question. "helix waiting" lists the
waiting calls. With --resume the session continues with the answer.
` + targetHelp,
		Example: `  helix submit ID CALL --approve --resume
  helix submit ID CALL --deny --reason "too expensive"
  helix submit ID CALL --result '"blue"'
  helix submit ID QUESTION --answer '{"size":"L"}' --resume`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError{fmt.Errorf("name the session and the call (see %s --help)", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !exactlyOne(approve, deny, decline, confirm, result != "", answer != "", failure != "") {
				return usageError{errors.New("use one of --approve, --deny, --result, --answer, --confirm, --decline and --error (see helix submit --help)")}
			}
			t.runs = resume
			submit := wire.Submit{SessionID: args[0], ToolCallID: args[1], Error: failure, Resume: resume}
			if result != "" {
				if !json.Valid([]byte(result)) {
					return usageError{fmt.Errorf("--result %q is not JSON; write a string as '%q'", result, result)}
				}
				submit.Result = json.RawMessage(result)
			}
			if answer != "" {
				if !json.Valid([]byte(answer)) {
					return usageError{fmt.Errorf("--answer %q is not JSON; write a string as '%q'", answer, answer)}
				}
				submit.Answer = json.RawMessage(answer)
			}
			if answer != "" || decline || confirm {
				submit.Kind, submit.Declined = wire.SubmitAnswer, decline
			}
			if decline {
				submit.Reason = reason
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if approve || deny {
					id, err := approvalOf(ctx, c, args[0], args[1])
					if err != nil {
						return err
					}
					submit.Approval = &wire.Approval{ApprovalID: id, Approved: approve, Reason: reason}
				}
				return t.submit(ctx, cmd.OutOrStdout(), c, submit)
			})
		},
	}
	t.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&approve, "approve", false, "approve the call")
	flags.BoolVar(&deny, "deny", false, "deny the call")
	flags.StringVar(&reason, "reason", "", "with --approve, --deny or --decline: the reason as `TEXT`")
	flags.StringVar(&result, "result", "", "result as `JSON`")
	flags.StringVar(&answer, "answer", "", "answer to a question as `JSON`")
	flags.BoolVar(&decline, "decline", false, "decline to answer a question")
	flags.BoolVar(&confirm, "confirm", false, "confirm that what a question's address is for was done")
	flags.StringVar(&failure, "error", "", "the reason why there is no result, as `TEXT`")
	flags.BoolVar(&resume, "resume", false, "continue the session with the answer")
	return cmd
}

func exactlyOne(given ...bool) bool {
	n := 0
	for _, g := range given {
		if g {
			n++
		}
	}
	return n == 1
}

// approvalOf returns the approval id that an answer must repeat, or noApproval if the call does
// not wait.
func approvalOf(ctx context.Context, c *client.Client, id, callID string) (string, error) {
	pending, err := c.Pending(ctx, id)
	if err != nil {
		return "", err
	}
	for i := range pending {
		if pending[i].CallID == callID && pending[i].Kind == session.PendingApproval {
			return pending[i].ApprovalID, nil
		}
		if pending[i].CallID == callID {
			return "", fmt.Errorf("the call %s waits for an answer of another kind (%s), not for an approval; helix waiting shows how to give it", callID, pending[i].Kind)
		}
	}
	return noApproval, nil
}

// noApproval is the approval id of an answer to a call that does not wait for one. The server
// decides nothing by it, and tells what has become of the call.
const noApproval = "none"

func (t *target) submit(ctx context.Context, out io.Writer, c *client.Client, submit wire.Submit) error {
	done, err := c.Submit(ctx, submit)
	switch {
	case errors.Is(err, session.ErrSubmissionKind) && submit.Approval != nil && submit.Approval.ApprovalID == noApproval:
		return fmt.Errorf("the call %s does not wait any more: it has its answer already, or its time is over; helix sessions show %s%s says which",
			submit.ToolCallID, shellWord(submit.SessionID), t.again())
	case err != nil:
		return err
	}
	if err := t.print(out, done, func() { fmt.Fprintf(out, "%s\n", done.Outcome) }); err != nil {
		return err
	}
	switch {
	case done.Outcome == session.SubmitAlreadyCompleted:
		return fmt.Errorf("the call %s has its answer already; helix sessions show %s%s has it", submit.ToolCallID, shellWord(submit.SessionID), t.again())
	case done.Outcome == session.SubmitUnknownCall:
		return fmt.Errorf("session %s has no call %s that waits; helix waiting%s lists the waiting calls", submit.SessionID, submit.ToolCallID, t.again())
	case done.Outcome != session.SubmitAccepted:
		return fmt.Errorf("the answer was not accepted: %s", done.Outcome)
	case done.RunID != "":
		return t.followRun(ctx, out, c, done.RootSessionID, done.RunID, 0)
	}
	return nil
}

func resumeCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals, runs: true}
	var resume wire.Resume
	var text string
	cmd := &cobra.Command{
		Use:   "resume ID",
		Short: "Continue a stopped or answered session and follow it",
		Long: `Continue a session that was interrupted, paused or answered, and follow it.
With a store, this process runs the agent; if the file's runtime is temporal, the
workers run it. After Ctrl-C a server on the same store continues the run.
` + targetHelp,
		Example: `  helix resume ID
  helix resume ID --message "Continue, but shorter."`,
		Args: oneSession, ValidArgsFunction: t.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			resume.SessionID = args[0]
			if text != "" {
				resume.Message = wire.Text(text)
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				started, err := c.Resume(ctx, resume)
				if err != nil {
					return err
				}
				return t.followRun(ctx, cmd.OutOrStdout(), c, started.SessionID, started.RunID, started.StartSequence)
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVar(&text, "message", "", "`TEXT` of a message to continue with")
	cmd.Flags().StringVar(&resume.CheckpointID, "checkpoint", "", "first rewind to the checkpoint with this `ID` (see helix sessions checkpoints)")
	return cmd
}

func retryCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals, runs: true}
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Retry the failed turn of a session and follow it",
		Long: `Retry the failed turn of a session from its last good checkpoint, and follow it.
The user's message and finished steps are not repeated.
With a store, this process runs the agent; if the file's runtime is temporal, the
workers run it. After Ctrl-C a server on the same store continues the run.
` + targetHelp,
		Example: `  helix sessions ls --activity failed
  helix retry ID`,
		Args: oneSession, ValidArgsFunction: t.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				started, err := c.Retry(ctx, args[0], wire.Retry{})
				if err != nil {
					return err
				}
				return t.followRun(ctx, cmd.OutOrStdout(), c, started.SessionID, started.RunID, started.StartSequence)
			})
		},
	}
	t.flags(cmd)
	return cmd
}

func interruptCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals}
	var stop wire.Stop
	var abort bool
	cmd := &cobra.Command{
		Use:   "interrupt ID",
		Short: "Stop the run of a session; it can be resumed",
		Long:  "Stop the run of a session. The run can be resumed, unless --abort ends it permanently.\n" + targetHelp,
		Args:  oneSession, ValidArgsFunction: t.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			stop.SessionID = args[0]
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				ask := c.Interrupt
				if abort {
					ask = c.Abort
				}
				done, err := ask(ctx, stop)
				if errors.Is(err, session.ErrStale) {
					return fmt.Errorf("session %s has no such run to stop", args[0])
				}
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return t.print(out, done, func() { fmt.Fprintf(out, "asked run %s to stop\n", done.RunID) })
			})
		},
	}
	t.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&abort, "abort", false, "end the run permanently")
	flags.StringVar(&stop.RunID, "run", "", "stop only the run with this `ID`")
	flags.StringVar(&stop.Reason, "reason", "", "the reason as `TEXT`")
	return cmd
}

func cleanupCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Fail expired sessions and report the result",
		Long: `Fail expired sessions and report the result. A server does this by itself for the
agents that it knows; this command does it now, for every agent.
` + targetHelp,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := c.Cleanup(ctx)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				err = t.print(out, done, func() {
					fmt.Fprintf(out, "detected %d, marked %d, already terminal %d, running %d, errors %d\n",
						done.Detected, done.Marked, done.AlreadyTerminal, done.Running, len(done.Errors))
					for _, problem := range done.Errors {
						fmt.Fprintln(out, "  "+problem)
					}
				})
				if err == nil && len(done.Errors) > 0 {
					err = fmt.Errorf("%d sessions could not be cleaned up", len(done.Errors))
				}
				return err
			})
		},
	}
	t.flags(cmd)
	return cmd
}
