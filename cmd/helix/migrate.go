package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/store"
)

func migrateCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Look at a store's tables, or bring them up to date",
		Long: `Look at a store's tables, or bring them up to date.

A program brings the tables of its store up to date when it opens it, unless it was
told not to (NoMigrate); then this command does, before the program is deployed.
Steps only add, so programs of the version before go on meanwhile. Any number of
processes may do it at once: one does the work.`,
		Example: `  helix migrate status --data postgres://helix@db/agents
  helix migrate up --data ./demo/helix.db`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&data, "data", "", "directory, file or server (`place`) that sessions are kept in (default: $"+storeVariable+")")
	cmd.AddCommand(
		&cobra.Command{
			Use:   "status",
			Short: "List the steps that the store has and lacks; change nothing",
			Args:  noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				address, err := dataAddress(cmp.Or(data, os.Getenv(storeVariable)), false)
				if err != nil {
					return err
				}
				steps, err := backend.Migrations(address)
				if err != nil {
					return err
				}
				return printMigrations(cmd.OutOrStdout(), address, steps)
			},
		},
		&cobra.Command{
			Use:   "up",
			Short: "Bring the tables up to date",
			Args:  noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				address, err := dataAddress(cmp.Or(data, os.Getenv(storeVariable)), true)
				if err != nil {
					return err
				}
				return migrateUp(cmd.OutOrStdout(), address)
			},
		},
	)
	return cmd
}

// migrateUp brings a store's tables up to date, as opening it does, and says what
// that took.
func migrateUp(out io.Writer, address string) error {
	steps, err := backend.Migrations(address)
	if err != nil {
		return err
	}
	db, err := backend.Open(address, nil)
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	applied := 0
	for _, step := range steps {
		if !step.Applied() {
			fmt.Fprintf(out, "applied %s\n", step.Name)
			applied++
		}
	}
	if applied == 0 {
		fmt.Fprintf(out, "%s is up to date\n", shown(address))
	}
	return nil
}

func printMigrations(out io.Writer, address string, steps []store.Migration) error {
	if len(steps) == 0 {
		fmt.Fprintf(out, "%s has no tables to bring up to date\n", shown(address))
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, step := range steps {
		state := "pending"
		if step.Applied() {
			state = "applied " + step.AppliedAt.UTC().Format(time.DateTime)
		}
		if step.Newer {
			state += ", by a newer program"
		}
		fmt.Fprintf(table, "%s\t%s\n", step.Name, state)
	}
	return table.Flush()
}
