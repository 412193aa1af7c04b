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
		Short: "List the calls that wait for a person, over all sessions",
		Long: `List the calls that wait for a person, over all sessions, and say how to answer each.
Those come first that have waited longest. Of an approval the whole input is shown:
it is what is approved.
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
	cmd.Flags().StringVar(&query.UserID, "user", "", "of the conversations of this `USER`")
	cmd.Flags().BoolVar(&query.NewestFirst, "newest", false, "those first that were asked last")
	pageFlags(cmd, &query.PageRequest)
	return cmd
}

func (t *target) printWaiting(out io.Writer, page *wire.Waiting) {
	if len(page.Items) == 0 {
		fmt.Fprintln(out, "Nothing waits for a person.")
		return
	}
	for i := range page.Items {
		w := &page.Items[i]
		input := oneLine(visible(string(w.Call.Input)))
		if w.Call.Kind == session.PendingApproval {
			input = wholeInput(w.Call.Input)
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "Session %s waits for %s: %s\n", w.RootID, awaited(&w.Call), input)
		whose := ""
		if w.UserID != "" {
			whose = " for " + visible(w.UserID)
		}
		fmt.Fprintf(out, "  asked by %s%s since %s; there is time until %s\n", w.Agent, whose, when(w.Call.CreatedAt), when(w.Call.Deadline))
		t.hint(out, w.RootID, &w.Call)
	}
	if page.HasMore {
		fmt.Fprintf(out, "\nThere are more: --after %s\n", page.Next)
	}
}
