package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/store"
)

func migrateCommand() *cobra.Command {
	var place, file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Show or update the tables of a store",
		Long: `Show or update the tables of a store.

A program updates the tables of its store when it opens the store, unless NoMigrate is
set. In that case run this command before you deploy the program. Migrations only add
to the tables, so programs of the previous version keep working. Several processes may
run it at once: one of them does the work.`,
		Example: `  helix migrate status --store postgres://helix@db/agents
  helix migrate up --store ./demo/helix.db`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	addStoreFlag(cmd.PersistentFlags(), &place, storeUsage)
	cmd.PersistentFlags().StringVar(&file, "config", "", "`FILE` that names the store (default: "+defaultConfig+" in this directory, if it is there)")
	status := &cobra.Command{
		Use:   "status",
		Short: "List applied and missing migrations without changing anything",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			place, err := storeToMigrate(cmd, place, file)
			if err != nil {
				return err
			}
			address, err := dataAddress(place, false)
			if err != nil {
				return err
			}
			if err := checkPlace(place, address); err != nil {
				return err
			}
			steps, err := backend.Migrations(address)
			if err != nil {
				return err
			}
			if asJSON {
				return printMigrationsJSON(cmd.OutOrStdout(), address, steps)
			}
			return printMigrations(cmd.OutOrStdout(), address, steps)
		},
	}
	status.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(status,
		&cobra.Command{
			Use:   "up",
			Short: "Apply missing migrations",
			Args:  noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				place, err := storeToMigrate(cmd, place, file)
				if err != nil {
					return err
				}
				address, err := dataAddress(place, true)
				if err != nil {
					return err
				}
				return migrateUp(cmd.OutOrStdout(), address)
			},
		},
	)
	return cmd
}

// storeToMigrate returns the store of the flag, of the environment, or of a file.
func storeToMigrate(cmd *cobra.Command, flag, file string) (string, error) {
	if store := cmp.Or(flag, os.Getenv(storeVariable)); store != "" {
		return store, nil
	}
	path, found := findConfig(file)
	if found {
		tellConfig(cmd.ErrOrStderr(), path)
	}
	read, err := readConfig(path)
	if err != nil {
		return "", err
	}
	return read.Store, nil
}

// migrateUp updates a store's tables, as opening the store does, and prints the applied
// steps.
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

// checkPlace refuses a path whose directory's parent does not exist. A mistyped path would
// otherwise look like an empty store.
func checkPlace(place, address string) error {
	if kind, _ := backend.Split(address); place == "" || kind != backend.SQLite {
		return nil
	}
	_, path := backend.Split(place)
	above := filepath.Dir(filepath.Clean(path))
	info, err := os.Stat(above)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no store at %s: there is no directory %s", path, above)
	case err != nil:
		return fmt.Errorf("there is no store at %s: %w", path, err)
	case !info.IsDir():
		return fmt.Errorf("there is no store at %s: %s is not a directory", path, above)
	}
	return nil
}

// shownMigrations is what status prints as JSON.
type shownMigrations struct {
	Store string           `json:"store"`
	Steps []shownMigration `json:"steps"`
	// UpToDate reports whether no step is missing.
	UpToDate bool `json:"upToDate"`
}

type shownMigration struct {
	Name      string    `json:"name"`
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"appliedAt,omitzero"`
	// Newer marks a step of a newer program that this one does not know.
	Newer bool `json:"newer,omitempty"`
}

func printMigrationsJSON(out io.Writer, address string, steps []store.Migration) error {
	shown := shownMigrations{Store: shown(address), Steps: []shownMigration{}, UpToDate: true}
	for _, step := range steps {
		shown.Steps = append(shown.Steps, shownMigration{Name: step.Name, Applied: step.Applied(), AppliedAt: step.AppliedAt, Newer: step.Newer})
		shown.UpToDate = shown.UpToDate && step.Applied()
	}
	return writeJSON(out, shown)
}

func printMigrations(out io.Writer, address string, steps []store.Migration) error {
	if len(steps) == 0 {
		fmt.Fprintf(out, "%s has no tables to update\n", shown(address))
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
