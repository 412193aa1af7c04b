package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/server/wire"
)

func agentsCommand(signals <-chan os.Signal) *cobra.Command {
	t := target{signals: signals}
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "List the agents of a server or a file",
		Long: `List the agents of the server in --server or HELIX_SERVER, with the token in --token
or HELIX_TOKEN. Without a server, list the agents of the file in --config,
or of helix.yaml in this directory, or of the demo.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	t.flags(cmd)
	cmd.AddCommand(&cobra.Command{
		Use: "ls", Short: "List the agents, their tools and the agents that they call", Args: noArguments,
		Example: `  helix agents ls --config helix.yaml
  helix agents ls --server 127.0.0.1:4170`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.withAgents(cmd.Context(), func(agents []wire.Agent) error {
				out := cmd.OutOrStdout()
				return t.print(out, wire.Agents{Items: agents}, func() { printAgents(out, agents) })
			})
		},
	})
	return cmd
}

// withAgents calls do with the agents of the server or the file. A file needs no store.
func (t *target) withAgents(ctx context.Context, do func([]wire.Agent) error) error {
	if t.url() == "" {
		t.store = memoryStore
	}
	t.lists = true
	return t.with(ctx, func(ctx context.Context, c *client.Client) error {
		agents, err := c.Agents(ctx)
		if err != nil {
			return err
		}
		return do(agents)
	})
}

func printAgents(out io.Writer, agents []wire.Agent) {
	if len(agents) == 0 {
		fmt.Fprintln(out, "No agents.")
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AGENT\tTOOLS\tCALLS\tDESCRIPTION")
	for i := range agents {
		a := &agents[i]
		calls := strings.Join(append(append([]string{}, a.SubAgents...), a.Companions...), ", ")
		if calls == "" {
			calls = "-"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", a.Name, len(a.Tools), calls, firstSentence(a.Description))
	}
	_ = table.Flush() // standard output: no way to report an error
}

// maxSentence is the longest description that a table shows.
const maxSentence = 80

// firstSentence returns the first sentence of a description, shortened.
func firstSentence(text string) string {
	text = visible(strings.Join(strings.Fields(text), " "))
	if before, _, found := strings.Cut(text, ". "); found {
		text = before + "."
	}
	if runes := []rune(text); len(runes) > maxSentence {
		text = string(runes[:maxSentence-1]) + "…"
	}
	return text
}
