package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/bake"
)

func syncSkillsCommand(signals <-chan os.Signal) *cobra.Command {
	var cfg bake.Config
	var check, remote, asJSON bool
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Fetch the skills that a manifest names, or check that they are as fetched",
		Long: `Fetch the skills that helix.skills.json names from git repositories and plugin
marketplaces, and write them to a directory, with a lock that has the commit of each
source and the hash of each file. Commit the manifest, the lock and the directory: the
skills are reviewed like code, and are embedded in a program with Go's embed.

Skills are instructions for your agents by somebody else. Read what sync prints, and
the files that it lists, before you commit.

With --check, nothing is written: the command compares the manifest, the lock and the
files, without a network. With --check --remote, it also asks the sources whether a tag,
a branch or a plugin has moved.

The exit code is 0 if all is well, 1 if a source cannot be fetched or a check fails, and
2 for an invalid command line or manifest.`,
		Example: `  helix skills sync
  helix skills sync --check
  helix skills sync --check --remote`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if remote && !check {
				return usageError{fmt.Errorf("--remote requires --check (see %s --help)", cmd.CommandPath())}
			}
			return untilSignal(cmd.Context(), signals, func(ctx context.Context) error {
				if check {
					return checkSynced(ctx, cmd.OutOrStdout(), cfg, remote, asJSON)
				}
				return syncSkills(ctx, cmd.OutOrStdout(), cfg, asJSON)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&check, "check", false, "write nothing; fail if the files or the lock are not as fetched")
	flags.BoolVar(&remote, "remote", false, "with --check, also fail if a source has moved")
	flags.StringVar(&cfg.Manifest, "manifest", bake.DefaultManifest, "the `FILE` that names the sources")
	flags.StringVar(&cfg.Out, "out", bake.DefaultOut, "the `DIR` for the skills; it has nothing else")
	flags.StringVar(&cfg.Lock, "lock", bake.DefaultLock, "the `FILE` that records what was fetched")
	flags.BoolVar(&cfg.AllowLocal, "allow-local", false, "permit repositories on this machine: file URLs and paths")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// inputProblem makes the error about a manifest one that ends the program with the code for
// a bad command line.
func inputProblem(err error) error {
	if _, ok := errors.AsType[*bake.InputError](err); ok {
		return usageError{err}
	}
	return err
}

func syncSkills(ctx context.Context, out io.Writer, cfg bake.Config, asJSON bool) error {
	report, err := bake.Sync(ctx, cfg)
	if err != nil {
		return inputProblem(err)
	}
	if asJSON {
		return writeJSON(out, report)
	}
	for _, e := range report.Entries {
		fmt.Fprintf(out, "%s: %s at %.12s: %s\n", e.Name, visible(e.URL), e.Commit, strings.Join(e.Skills, ", "))
	}
	for _, note := range report.Notes {
		fmt.Fprintln(out, "note:", visible(note))
	}
	for i := range report.Changes {
		printChange(out, &report.Changes[i])
	}
	switch {
	case !report.Written:
		fmt.Fprintln(out, "Everything is up to date.")
	case len(report.Changes) == 0:
		fmt.Fprintf(out, "No skill has changed. %s is written.\n", visible(cfg.Lock))
	default:
		fmt.Fprintf(out, "%s written to %s.\n", count(len(report.Changes), "change"), visible(cfg.Out))
	}
	return nil
}

// marks are how changes look in a list.
var marks = map[string]string{bake.Added: "+", bake.Changed: "~", bake.Removed: "-"}

// maxListedFiles is how many changed files of a skill are listed.
const maxListedFiles = 20

// printChange prints a change of a skill. It has text of a stranger, which is shown with
// everything in it that does not print.
func printChange(out io.Writer, c *bake.Change) {
	fmt.Fprintf(out, "%s %s (%s)\n", marks[c.Kind], c.Skill, count(len(c.Files), "file"))
	if c.Kind == bake.Removed {
		return
	}
	for i, f := range c.Files {
		if i == maxListedFiles {
			fmt.Fprintf(out, "    and %s more\n", count(len(c.Files)-i, "file"))
			break
		}
		fmt.Fprintf(out, "    %s %s\n", marks[f.Kind], visible(f.Path))
	}
	for line := range strings.Lines(c.Diff) {
		fmt.Fprintf(out, "    %s\n", visible(strings.TrimSuffix(line, "\n")))
	}
}

// shownCheck is what sync --check prints as JSON.
type shownCheck struct {
	OK       bool           `json:"ok"`
	Problems []shownProblem `json:"problems"`
}

func checkSynced(ctx context.Context, out io.Writer, cfg bake.Config, remote, asJSON bool) error {
	var problems []*skill.Problem
	var err error
	if remote {
		problems, err = bake.CheckRemote(ctx, cfg)
	} else {
		problems, err = bake.Check(cfg)
	}
	if err != nil {
		return inputProblem(err)
	}
	if asJSON {
		err = writeJSON(out, shownCheck{len(problems) == 0, showProblems(problems)})
	} else {
		for _, p := range problems {
			fmt.Fprintln(out, visible(p.Error()))
		}
	}
	switch {
	case err != nil:
		return err
	case len(problems) > 0 && !asJSON:
		fmt.Fprintln(out, "\nRun helix skills sync to fetch the skills again, and review the changes.")
		return errRefusedSkills
	case len(problems) > 0:
		return errRefusedSkills
	case !asJSON:
		fmt.Fprintf(out, "%s and %s are as fetched.\n", visible(cfg.Out), visible(cfg.Lock))
	}
	return nil
}
