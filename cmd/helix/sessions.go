package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func sessionsCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals}
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List, show, follow, copy and delete sessions",
		Long:  "List, show, follow, copy and delete sessions.\n" + targetHelp,
		Example: `  helix sessions ls --status failed
  helix sessions show ID
  helix sessions tail ID --server http://127.0.0.1:4170`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	t.flags(cmd)
	cmd.AddCommand(listCommand(&t), showCommand(&t), tailCommand(&t), branchCommand(&t), removeCommand(&t))
	return cmd
}

func listCommand(t *target) *cobra.Command {
	var query session.Query
	var statuses []string
	cmd := &cobra.Command{
		Use: "ls", Short: "List sessions, newest first", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range statuses {
				status := session.Status(name)
				if !status.Valid() {
					return usageError{fmt.Errorf("--status %q is none of %v", name, session.Statuses())}
				}
				query.Statuses = append(query.Statuses, status)
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				page, err := c.Sessions(ctx, query)
				if err != nil {
					return err
				}
				return t.print(cmd.OutOrStdout(), page, func() { printSessions(cmd.OutOrStdout(), page) })
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&query.UserID, "user", "", "of this `user`")
	flags.StringVar(&query.Agent, "agent", "", "of this `agent`")
	flags.StringArrayVar(&statuses, "status", nil, "with one of these `statuses`")
	flags.StringArrayVar(&query.Tags, "tag", nil, "with all of these `tags`")
	flags.StringVar(&query.ParentID, "parent", "", "called by this `session`")
	flags.BoolVar(&query.RootsOnly, "roots", false, "without those of sub-agents")
	flags.IntVar(&query.Limit, "limit", session.DefaultPageSize, "at most so `many`")
	flags.StringVar(&query.Cursor, "after", "", "what comes after the `cursor` of the page before")
	return cmd
}

func printSessions(out io.Writer, page *wire.Sessions) {
	if len(page.Items) == 0 {
		fmt.Fprintln(out, "There are no such sessions.")
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SESSION\tAGENT\tSTATUS\tTURN\tUSER\tUPDATED")
	for i := range page.Items {
		s := &page.Items[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", s.ID, s.Agent, s.Status, s.Turn, printable(s.UserID), when(s.UpdatedAt))
	}
	_ = table.Flush() // standard output: nobody to tell
	if page.HasMore {
		fmt.Fprintf(out, "There are more: --after %s\n", page.Next)
	}
}

// shownSession is what show prints as JSON.
type shownSession struct {
	Session  *session.State    `json:"session"`
	Status   *wire.Status      `json:"status"`
	Messages []session.Message `json:"messages"`
}

func showCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a session: how it stands, what it waits for, what was said", Args: oneSession,
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
	line("status", "%s", s.Status)
	if status.RunID != "" {
		line("run", "%s, turn %d, %s, step %d", status.RunID, status.Turn, status.RunStatus, status.StepCount)
	}
	if status.RunStatus == session.RunRunning {
		line("lease", "%s, until %s", s.Lease.Owner, when(s.Lease.ExpiresAt))
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
	if s.Error != nil {
		line("error", "%s (%s)", oneLine(printable(s.Error.Message)), s.Error.Code)
	}
	for i := range status.Pending {
		p := &status.Pending[i]
		what := "an answer"
		if p.Kind == session.PendingApproval {
			what = "approval " + p.ApprovalID
		}
		shown := oneLine(printable(string(p.Input)))
		if p.Kind == session.PendingApproval {
			shown = wholeInput(p.Input)
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
	if s.Custom.Len() > 0 {
		raw, _ := json.Marshal(s.Custom) // a document always encodes
		line("state", "%s", oneLine(printable(string(raw))))
	}
	_ = table.Flush() // standard output: nobody to tell
	if len(shown.Messages) > 0 {
		fmt.Fprintln(out)
		screen := newScreen()
		screen.out = out
		screen.transcript(shown.Messages)
	}
}

func tailCommand(t *target) *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use: "tail ID", Short: "Follow what a session does, as it does it", Args: oneSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return follow(ctx, cmd.OutOrStdout(), t.json, c.Read(ctx, args[0], from))
			})
		},
	}
	cmd.Flags().Int64Var(&from, "from", 0, "begin after this `sequence`")
	return cmd
}

func branchCommand(t *target) *cobra.Command {
	var branch wire.Branch
	var messages int
	var text string
	cmd := &cobra.Command{
		Use: "branch ID", Short: "Copy a session, and say something to the copy if there is something to say", Args: oneSession,
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
	flags.StringVar(&branch.SessionID, "id", "", "`id` of the copy (default: a new one)")
	flags.StringVar(&branch.CheckpointID, "checkpoint", "", "copy the session as it was at this `checkpoint`")
	flags.IntVar(&messages, "messages", 0, "copy the first so `many` messages")
	flags.StringVar(&text, "message", "", "`text` to say to the copy")
	return cmd
}

func removeCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "rm ID", Short: "Delete a session and those of its sub-agents", Args: oneSession,
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
