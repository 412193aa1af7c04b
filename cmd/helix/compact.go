package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func compactCommand(t *target) *cobra.Command {
	var compact wire.Compact
	cmd := &cobra.Command{
		Use: "compact ID", Short: "Shorten what the model is sent of a conversation", Args: oneSession, ValidArgsFunction: t.completeSession,
		Long: `Shorten what the model is sent of a conversation: a summary takes the place of all but
the last messages, as the agent's context settings say, or large arguments and results
of earlier calls are cut. The history stays whole. A model is asked for the summary,
which may take a minute and costs what a reply costs.

The session must not run, and no call may wait for an answer. If there is nothing to
gain, the session stays as it is, and the command says why.
` + targetHelp,
		Example: `  helix sessions compact ID
  helix sessions compact ID --force`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := c.Compact(ctx, args[0], compact)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return t.print(out, done, func() { printCompacted(out, done) })
			})
		},
	}
	cmd.Flags().BoolVar(&compact.Force, "force", false, "cut as much as possible, also within the last turn")
	return cmd
}

func clearCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "clear ID", Short: "Let the model forget a conversation", Args: oneSession, ValidArgsFunction: t.completeSession,
		Long: `Let the model forget a conversation: it is sent nothing of what was said so far. The
history stays whole, and the session can be rewound to before (see helix resume
--checkpoint). The session must not run, and no call may wait for an answer.
` + targetHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := c.Clear(ctx, args[0])
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return t.print(out, done, func() { printCompacted(out, done) })
			})
		},
	}
}

func printCompacted(out io.Writer, done *wire.Compacted) {
	if !done.Done {
		fmt.Fprintf(out, "%s stays as it is: %s\n", done.SessionID, oneLine(printable(done.Reason)))
		return
	}
	fmt.Fprintf(out, "%s is %s", done.SessionID, cut(done.Kind, done.TokensBefore, done.TokensAfter))
	if done.Kept > 0 {
		fmt.Fprintf(out, "; the last %s are sent as they were", count(done.Kept, "message"))
	}
	fmt.Fprintln(out)
}

// cutWords are what a compaction did to the conversation before it.
var cutWords = map[session.CompactionKind]string{
	session.CompactionSummary: "summarised for the model", session.CompactionTrim: "shortened for the model",
	session.CompactionClear: "cleared for the model",
}

// cut describes a compaction.
func cut(kind session.CompactionKind, before, after int64) string {
	text := cmp.Or(cutWords[kind], "compacted for the model")
	switch {
	case before > 0 && after > 0:
		text += fmt.Sprintf(", %s → %s tokens", thousands(before), thousands(after))
	case before > 0:
		text += fmt.Sprintf(", %s tokens", thousands(before))
	}
	return text
}

// thousands writes a number with separators.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// divider shows a marker, which divides the conversation.
func (s *screen) divider(what *session.Compaction) {
	s.line(dim, "── "+cut(what.Kind, what.TokensBefore, what.TokensAfter)+" ──")
}

// compaction shows that a conversation is being compacted, or how that ended.
func (v *turnView) compaction(c *stream.Chunk) {
	var what helix.Compacted
	if json.Unmarshal(c.Data, &what) != nil {
		return
	}
	switch {
	case c.Name == helix.CompactingEvent:
		v.screen.note("The conversation is being summarised for the model, which may take a minute.")
	case what.Done():
		v.screen.note("The conversation was %s.", cut(what.Kind, what.TokensBefore, what.TokensAfter))
	default:
		v.screen.note("The conversation stays as it is: %s.", strings.TrimSuffix(oneLine(what.Reason), "."))
	}
}
