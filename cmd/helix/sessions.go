package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func sessionsCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals}
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List, show, follow, copy, compact and delete sessions",
		Long:  "List, show, follow, copy, compact and delete sessions.\n" + targetHelp,
		Example: `  helix sessions ls --activity waiting
  helix sessions show ID
  helix sessions tail ID --server 127.0.0.1:4170
  helix sessions checkpoints ID`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	t.flags(cmd)
	cmd.AddCommand(listCommand(&t), showCommand(&t), tailCommand(&t), checkpointsCommand(&t), branchCommand(&t), compactCommand(&t), clearCommand(&t), removeCommand(&t))
	return cmd
}

func listCommand(t *target) *cobra.Command {
	var query session.Query
	var statuses []string
	var activity string
	cmd := &cobra.Command{
		Use: "ls", Short: "List sessions with their activity, newest first", Args: noArguments,
		Long: `List sessions, newest first, with their activity:

  new      has not run yet
  running  has a run in progress
  waiting  waits for a person, or for a sub-agent that does
  stopped  was interrupted or paused; helix resume continues it
  failed   ended with an error; helix retry runs the turn again
  done     has completed its latest turn

For waiting sessions the list shows the calls; "helix waiting" shows how to answer.
` + targetHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPage(&query.PageRequest); err != nil {
				return err
			}
			query.Activity = session.Activity(activity)
			if activity != "" && !query.Activity.Valid() {
				return usageError{fmt.Errorf("--activity %q is invalid: use %s", activity, activityNames())}
			}
			for _, name := range statuses {
				status := session.Status(name)
				if !status.Valid() {
					return usageError{fmt.Errorf("--status %q is not one of %v", name, session.Statuses())}
				}
				query.Statuses = append(query.Statuses, status)
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				page, err := c.Sessions(ctx, query)
				if err != nil {
					return err
				}
				var calls map[string][]string
				if !t.json {
					if calls, err = waitingCalls(ctx, c, page); err != nil {
						return err
					}
				}
				return t.print(cmd.OutOrStdout(), page, func() { printSessions(cmd.OutOrStdout(), page, calls) })
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&activity, "activity", "", "with this activity, a `WORD`: "+activityNames())
	flags.StringVar(&query.UserID, "user", "", "that belong to this `USER`")
	flags.StringVar(&query.Agent, "agent", "", "that belong to this `AGENT`")
	flags.StringArrayVar(&query.Tags, "tag", nil, "with this `TAG`; may be repeated to require several")
	flags.StringVar(&query.ParentID, "parent", "", "called by the session with this `ID`")
	flags.BoolVar(&query.RootsOnly, "roots", false, "without sessions of sub-agents")
	flags.StringArrayVar(&statuses, "status", nil, "with one of these `STATUSES`")
	flags.Lookup("status").Hidden = true // people use --activity; --status is for scripts
	pageFlags(cmd, &query.PageRequest)
	return cmd
}

func activityNames() string {
	all := session.Activities()
	names := make([]string, len(all))
	for i, activity := range all {
		names[i] = string(activity)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// waitingCalls returns the calls that the sessions of a page wait for. It requests one page
// of waiting calls, so some sessions may be shown without theirs.
func waitingCalls(ctx context.Context, c *client.Client, page *wire.Sessions) (map[string][]string, error) {
	calls := map[string][]string{}
	if !slices.ContainsFunc(page.Items, func(s session.Summary) bool { return s.Activity == session.ActivityWaiting }) {
		return calls, nil
	}
	waiting, err := c.Waiting(ctx, session.WaitingQuery{NewestFirst: true, PageRequest: session.PageRequest{Limit: session.MaxPageSize}})
	if err != nil {
		return nil, err
	}
	for i := range waiting.Items {
		w := &waiting.Items[i]
		calls[w.SessionID] = append(calls[w.SessionID], awaited(&w.Call))
		if w.RootID != w.SessionID {
			calls[w.RootID] = append(calls[w.RootID], awaited(&w.Call))
		}
	}
	return calls, nil
}

// asked returns a question in one line, with what answers it.
func asked(p *session.Pending) string {
	text := visible(p.Prompt) // all of it: people decide by it
	if p.URL != "" {
		return text + " " + visible(p.URL)
	}
	return text + " (as JSON that fits " + visible(string(p.Schema)) + ")"
}

// awaited describes what a call waits for.
func awaited(p *session.Pending) string {
	switch p.Kind {
	case session.PendingApproval:
		return "approval of " + visible(p.Tool)
	case session.PendingQuestion:
		return "the answer to a question of " + visible(p.Tool)
	}
	return "an answer to " + visible(p.Tool)
}

func printSessions(out io.Writer, page *wire.Sessions, calls map[string][]string) {
	printPage(out, page, "No sessions found.", "SESSION\tAGENT\tACTIVITY\tTURN\tUSER\tUPDATED\tWAITS FOR", func(s *session.Summary) []any {
		return []any{
			s.ID, s.Agent, s.Activity, s.Turn, cmp.Or(visible(s.UserID), "-"), when(s.UpdatedAt),
			cmp.Or(strings.Join(calls[s.ID], ", "), "-"),
		}
	})
}

// shownSession is what show prints as JSON.
type shownSession struct {
	Session  *session.State    `json:"session"`
	Status   *wire.Status      `json:"status"`
	Messages []session.Message `json:"messages"`
}

func showCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a session: status, waiting calls, messages", Args: oneSession, ValidArgsFunction: t.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				shown := shownSession{}
				var err error
				if shown.Session, err = c.Session(ctx, args[0]); err != nil {
					return err
				}
				if shown.Status, err = c.Status(ctx, args[0]); err != nil {
					return err
				}
				if shown.Messages, err = allMessages(ctx, c, args[0]); err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return t.print(out, shown, func() { printSession(out, &shown) })
			})
		},
	}
}

func allMessages(ctx context.Context, c *client.Client, id string) ([]session.Message, error) {
	all := []session.Message{}
	request := session.PageRequest{Limit: session.MaxPageSize}
	for {
		page, err := c.Messages(ctx, id, request)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if !page.HasMore || page.Next == "" {
			return all, nil
		}
		request.Cursor = page.Next
	}
}

func printSession(out io.Writer, shown *shownSession) {
	s, status := shown.Session, shown.Status
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("session", "%s", s.ID)
	line("agent", "%s", s.Agent)
	if status.Activity == session.ActivityStopped {
		line("activity", "%s (%s)", status.Activity, s.Status) // interrupted or paused
	} else {
		line("activity", "%s", status.Activity)
	}
	if status.RunID != "" {
		line("run", "%s, turn %d, %s, step %d", status.RunID, status.Turn, status.RunStatus, status.StepCount)
	}
	if status.RunStatus == session.RunRunning {
		expired := ""
		if time.Now().After(s.Lease.ExpiresAt) {
			expired = ", which has expired"
		}
		line("lease", "%s, until %s%s", s.Lease.Owner, when(s.Lease.ExpiresAt), expired)
	}
	if s.UserID != "" {
		line("user", "%s", printable(s.UserID))
	}
	if s.ParentID != "" {
		line("called by", "%s", s.ParentID)
	}
	line("created", "%s", when(s.CreatedAt))
	line("updated", "%s", when(s.UpdatedAt))
	if !s.ExpiresAt.IsZero() {
		line("expires", "%s", when(s.ExpiresAt))
	}
	if failed := status.Error; failed != nil {
		line("failed", "%s (%s)", failed.Message, failed.Code)
		if failed.Detail != "" {
			line("cause", "%s", oneLine(printable(failed.Detail)))
		}
	}
	for i := range status.Pending {
		p := &status.Pending[i]
		what := "an answer"
		if p.Kind == session.PendingApproval {
			what = "approval " + p.ApprovalID
		}
		shown := oneLine(printable(string(p.Input)))
		switch p.Kind {
		case session.PendingApproval:
			shown = wholeInput(p.Input)
		case session.PendingQuestion:
			shown = asked(p)
		}
		first, rest, _ := strings.Cut(shown, "\n")
		line("waits for", "%s of call %s, until %s: %s %s", what, p.CallID, when(p.Deadline), visible(p.Tool), first)
		for more := range strings.Lines(rest) {
			line("", "%s", strings.TrimSuffix(more, "\n"))
		}
	}
	for i := range status.AwaitingChildren {
		line("waits for", "the agent %s in session %s", status.AwaitingChildren[i].Agent, status.AwaitingChildren[i].SessionID)
	}
	if custom := s.Custom.Public(); custom.Len() > 0 {
		raw, _ := json.Marshal(custom) // a document always encodes
		line("state", "%s", oneLine(printable(string(raw))))
	}
	_ = table.Flush() // standard output: no way to report an error
	if len(shown.Messages) > 0 {
		fmt.Fprintln(out)
		screen := newScreen()
		screen.out, screen.wrapper = out, wrapperOf(out)
		screen.transcript(shown.Messages)
	}
}

func tailCommand(t *target) *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use: "tail ID", Short: "Follow a session's stream", Args: oneSession, ValidArgsFunction: t.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return follow(ctx, cmd.OutOrStdout(), args[0], t.json, c.Read(ctx, args[0], from))
			})
		},
	}
	cmd.Flags().Int64Var(&from, "from", 0, "start after the item with the sequence `N`")
	return cmd
}

func checkpointsCommand(t *target) *cobra.Command {
	var page session.PageRequest
	cmd := &cobra.Command{
		Use: "checkpoints ID", Short: "List the checkpoints of a session, newest first", Args: oneSession, ValidArgsFunction: t.completeSession,
		Long: `List the points that a session can be branched from or rewound to, newest first.
The first column is the value for --checkpoint of "helix sessions branch" and "helix resume".
` + targetHelp,
		Example: `  helix sessions checkpoints ID
  helix sessions branch ID --checkpoint CHECKPOINT`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPage(&page); err != nil {
				return err
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				found, err := c.Checkpoints(ctx, args[0], page)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return t.print(out, found, func() { printCheckpoints(out, found) })
			})
		},
	}
	pageFlags(cmd, &page)
	return cmd
}

func printCheckpoints(out io.Writer, page *wire.CheckpointPage) {
	printPage(out, page, "The session has no checkpoints yet.", "CHECKPOINT\tTURN\tSTEP\tMESSAGES\tSTATUS\tTIME", func(c *session.Checkpoint) []any {
		status := string(c.Status)
		if c.Undone {
			status = "undone by a rewind"
		}
		return []any{c.ID, c.Turn, c.Step, c.MessageCount, status, when(c.At)}
	})
}

func branchCommand(t *target) *cobra.Command {
	var branch wire.Branch
	var messages int
	var text string
	cmd := &cobra.Command{
		Use: "branch ID", Short: "Copy a session and optionally send the copy a message", Args: oneSession, ValidArgsFunction: t.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("messages") {
				branch.MessageIndex = &messages
			}
			if text != "" {
				branch.Message = wire.Text(text)
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := c.Branch(ctx, args[0], branch)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if done.RunID == "" {
					return t.print(out, done, func() { fmt.Fprintf(out, "%s is a copy of %s\n", done.SessionID, args[0]) })
				}
				return t.followRun(ctx, out, c, done.SessionID, done.RunID, done.StartSequence)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&branch.SessionID, "id", "", "`ID` of the copy (default: a new one)")
	flags.StringVar(&branch.CheckpointID, "checkpoint", "", "copy the session at the checkpoint with this `ID` (see helix sessions checkpoints)")
	flags.IntVar(&messages, "messages", 0, "copy the first `N` messages")
	flags.StringVar(&text, "message", "", "`TEXT` of a message to the copy")
	return cmd
}

func removeCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "rm ID", Short: "Delete a session and the sessions of its sub-agents", Args: oneSession, ValidArgsFunction: t.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := c.Delete(ctx, args[0])
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return t.print(out, done, func() { fmt.Fprintf(out, "deleted %s\n", strings.Join(done.Sessions, ", ")) })
			})
		},
	}
}
