package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func tasksCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals}
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "List, retry and drop the tasks that follow runs",
		Long: `List, retry and drop the tasks that follow runs. A task that fails is tried again by
itself, after 5 seconds and then after twice as long each time, up to an hour. After
runtime.tasks.maxAttempts attempts (by default 20) it is given up, and kept for
runtime.tasks.keepGivenUp (by default 30 days).
` + targetHelp,
		Example: `  helix tasks ls --given-up
  helix tasks retry ID --session SESSION`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	t.flags(cmd)
	cmd.AddCommand(
		listTasksCommand(&t),
		changeTaskCommand(&t, "retry", "Have a task carried out at once, also one that was given up", "will be tried again", (*client.Client).RetryTask),
		changeTaskCommand(&t, "drop", "Remove a task", "is dropped", (*client.Client).DropTask),
	)
	return cmd
}

func listTasksCommand(t *target) *cobra.Command {
	var query session.TaskQuery
	var page session.PageRequest
	cmd := &cobra.Command{
		Use: "ls", Short: "List tasks by session and id, with their last errors", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPage(&page); err != nil {
				return err
			}
			query.Limit, query.Cursor = page.Limit, page.Cursor
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				found, err := c.Tasks(ctx, query)
				if err != nil {
					return err
				}
				return t.print(cmd.OutOrStdout(), found, func() { printTasks(cmd.OutOrStdout(), found) })
			})
		},
	}
	cmd.Flags().BoolVar(&query.GivenUp, "given-up", false, "only tasks that were given up")
	pageFlags(cmd, &page)
	return cmd
}

func printTasks(out io.Writer, page *wire.Tasks) {
	printPage(out, page, "There are no tasks.", "TASK\tSESSION\tKIND\tAGENT\tATTEMPTS\tSTATE\tLAST ERROR", func(task *session.Task) []any {
		return []any{
			visible(task.ID), cmp.Or(task.SessionID, "-"), visible(task.Kind), cmp.Or(visible(task.Agent), "-"), task.Attempts, taskState(task),
			oneLine(printable(task.LastError)),
		}
	})
}

// taskState says what becomes of a task, as of the server's answer.
func taskState(task *session.Task) string {
	switch {
	case !task.GivenUpAt.IsZero():
		return "given up " + when(task.GivenUpAt)
	case task.Owner != "":
		return "held until " + when(task.DueAt)
	}
	return "due " + when(task.DueAt)
}

func changeTaskCommand(t *target, verb, about, done string, change func(*client.Client, context.Context, wire.TaskName) error) *cobra.Command {
	var name wire.TaskName
	cmd := &cobra.Command{
		Use: verb + " ID", Short: about,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usageError{fmt.Errorf("name one task (see %s --help)", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name.ID = args[0]
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if err := change(c, ctx, name); err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return t.print(out, name, func() { fmt.Fprintf(out, "task %s %s\n", name, done) })
			})
		},
	}
	cmd.Flags().StringVar(&name.SessionID, "session", "", "the `ID` of the task's session, if it has one")
	return cmd
}
