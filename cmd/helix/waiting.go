package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func waitingCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals}
	var query session.WaitingQuery
	cmd := &cobra.Command{
		Use:   "waiting",
		Short: "List the calls of all sessions that wait for a person",
		Long: `List the calls of all sessions that wait for a person, and how to answer them. The
longest waiting call comes first. For an approval the whole input is shown, because
all of it is approved.
` + targetHelp,
		Example: `  helix waiting
  helix waiting --user alice --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPage(&query.PageRequest); err != nil {
				return err
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				page, err := c.Waiting(ctx, query)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return t.print(out, page, func() { t.printWaiting(out, page) })
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVar(&query.UserID, "user", "", "only in conversations of this `USER`")
	cmd.Flags().BoolVar(&query.NewestFirst, "newest", false, "newest calls first")
	pageFlags(cmd, &query.PageRequest)
	return cmd
}

func (t *target) printWaiting(out io.Writer, page *wire.Waiting) {
	if len(page.Items) == 0 {
		fmt.Fprintln(out, "No call is waiting for a person.")
		return
	}
	for i := range page.Items {
		w := &page.Items[i]
		input := oneLine(visible(string(w.Call.Input)))
		switch w.Call.Kind {
		case session.PendingApproval:
			input = wholeInput(w.Call.Input)
		case session.PendingQuestion:
			input = asked(&w.Call)
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "Session %s is waiting for %s: %s\n", w.RootID, awaited(&w.Call), input)
		whose := ""
		if w.UserID != "" {
			whose = " for " + visible(w.UserID)
		}
		fmt.Fprintf(out, "  asked by %s%s since %s; times out at %s\n", w.Agent, whose, when(w.Call.CreatedAt), when(w.Call.Deadline))
		t.hint(out, w.RootID, &w.Call)
	}
	if page.HasMore {
		fmt.Fprintf(out, "\nThere are more: --after %s\n", page.Next)
	}
}
