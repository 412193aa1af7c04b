package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/bake"
	"github.com/helixagents/helix/skill/files"
)

// errRefusedSkills ends a command for skills whose problems have been printed.
var errRefusedSkills = errors.New("the skills are not valid")

func skillsCommand(signals <-chan os.Signal) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skills",
		Short: "List, show, check and fetch skills",
		Long: `List, show and check the skills in directories, and fetch skills of other repositories.

A skill is a directory with a file SKILL.md, in the Agent Skills format. Directories are
searched for skills; without one, ./skills is.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listSkillsCommand(), showSkillCommand(), checkSkillsCommand(), syncSkillsCommand(signals))
	return cmd
}

// skillDirs returns the directories to search.
func skillDirs(args []string) []string {
	if len(args) == 0 {
		return []string{bake.DefaultOut}
	}
	return args
}

// shownProblem is a problem of a skill as JSON.
type shownProblem struct {
	Path    string `json:"path,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Skill   string `json:"skill,omitempty"`
	Message string `json:"message"`
	// Refused says that the skill cannot be used. Other problems are warnings.
	Refused bool `json:"refused,omitempty"`
}

func showProblems(problems []*skill.Problem) []shownProblem {
	out := []shownProblem{}
	for _, p := range problems {
		out = append(out, shownProblem{p.Path, p.Line, p.Column, p.Skill, p.Full(), p.Refused})
	}
	return out
}

// shownSkills is what ls and check print as JSON.
type shownSkills struct {
	OK       bool             `json:"ok"`
	Skills   []skill.Metadata `json:"skills"`
	Problems []shownProblem   `json:"problems"`
}

// findSkills returns the skills of directories, and what is wrong with them.
func findSkills(ctx context.Context, dirs []string) (*shownSkills, []*skill.Problem, error) {
	tree := files.Dir(dirs...)
	list, err := tree.List(ctx, skill.Scope{})
	if err != nil {
		return nil, nil, err
	}
	problems := tree.Problems(ctx, skill.Scope{})
	found := &shownSkills{OK: true, Skills: append([]skill.Metadata{}, list...), Problems: showProblems(problems)}
	for _, p := range problems {
		found.OK = found.OK && !p.Refused
	}
	return found, problems, nil
}

func listSkillsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [DIR]...",
		Short: "List the skills in directories",
		Long: `List the skills in directories. A skill that cannot be used is not listed; the reason
is a warning. helix skills check fails in that case.`,
		Example: `  helix skills ls
  helix skills ls ./skills ./more --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, problems, err := findSkills(cmd.Context(), skillDirs(args))
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), found)
			}
			printWarnings(cmd.ErrOrStderr(), problems)
			return printSkills(cmd.OutOrStdout(), found.Skills)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printWarnings(out io.Writer, problems []*skill.Problem) {
	for _, p := range problems {
		fmt.Fprintln(out, "warning:", visible(p.Error()))
	}
}

func printSkills(out io.Writer, skills []skill.Metadata) error {
	if len(skills) == 0 {
		fmt.Fprintln(out, "No skills.")
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SKILL\tDESCRIPTION")
	for i := range skills {
		fmt.Fprintf(table, "%s\t%s\n", skills[i].Name, firstSentence(skills[i].Description))
	}
	return table.Flush()
}

func showSkillCommand() *cobra.Command {
	var dirs []string
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a skill: its description, its instructions and its files",
		Example: `  helix skills show pdf
  helix skills show pdf --dir ./skills --file references/forms.md`,
		Args: oneSkill,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" && asJSON {
				return usageError{errors.New("--file and --json cannot be combined")}
			}
			tree := files.Dir(skillDirs(dirs)...)
			if file != "" {
				return printSkillFile(cmd.Context(), cmd.OutOrStdout(), tree, args[0], file)
			}
			one, err := tree.Load(cmd.Context(), skill.Scope{}, args[0])
			if err != nil {
				return noSkill(cmd.Context(), tree, args[0], err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), shownSkill{one.Metadata, one.Body, append([]skill.File{}, one.Files...)})
			}
			printSkill(cmd.OutOrStdout(), one)
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&dirs, "dir", nil, "the `DIR` to search; may be repeated (default: ./"+bake.DefaultOut+")")
	cmd.Flags().StringVar(&file, "file", "", "print the `PATH`, a file of the skill, as it is")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func oneSkill(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("one name of a skill is required (see %s --help)", cmd.CommandPath())}
	}
	return nil
}

// shownSkill is what show prints as JSON.
type shownSkill struct {
	skill.Metadata
	Body  string       `json:"body"`
	Files []skill.File `json:"files"`
}

// noSkill explains why there is no skill of a name: one that is invalid is not listed.
func noSkill(ctx context.Context, tree *files.Tree, name string, err error) error {
	if !errors.Is(err, session.ErrNotFound) {
		return err
	}
	for _, p := range tree.Problems(ctx, skill.Scope{}) {
		if p.Refused && p.Skill == name {
			return p
		}
	}
	return fmt.Errorf("%w; helix skills ls lists them", err)
}

func printSkill(out io.Writer, s *skill.Skill) {
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "%s: %s\n", name, visible(value))
		}
	}
	field("name", s.Name)
	field("description", s.Description)
	field("license", s.License)
	field("compatibility", s.Compatibility)
	field("allowed tools", strings.Join(s.AllowedTools, " "))
	field("digest", s.Digest)
	for _, f := range s.Files {
		mark := ""
		if f.Executable {
			mark = ", executable"
		}
		fmt.Fprintf(out, "file: %s (%d bytes%s)\n", visible(f.Path), f.Size, mark)
	}
	fmt.Fprintf(out, "\n%s\n", visibleText(s.Body))
}

// printSkillFile prints a file of a skill. On a terminal, it must neither control it nor hide
// what a model reads.
func printSkillFile(ctx context.Context, out io.Writer, tree *files.Tree, name, file string) error {
	f, err := tree.Open(ctx, skill.Scope{}, name, file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(f, skill.MaxBytes))
	if err != nil {
		return err
	}
	if isOnTerminal(out) {
		content = []byte(visibleText(string(content)))
	}
	_, err = out.Write(content)
	return err
}

func checkSkillsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [DIR]...",
		Short: "Check the skills in directories and list their problems",
		Long: `Check the skills in directories and list every problem, with its line and column. What
only keeps a skill from following the format to the letter is a warning.

The exit code is 0 if all skills can be used, 1 if not.`,
		Example: `  helix skills check ./skills`,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, problems, err := findSkills(cmd.Context(), skillDirs(args))
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), found)
			} else {
				printCheck(cmd.OutOrStdout(), found, problems)
			}
			if err == nil && !found.OK {
				err = errRefusedSkills
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printCheck(out io.Writer, found *shownSkills, problems []*skill.Problem) {
	refused := 0
	for _, p := range problems {
		if p.Refused {
			refused++
			fmt.Fprintln(out, visible(p.Error()))
		}
	}
	for _, p := range problems {
		if !p.Refused {
			fmt.Fprintln(out, "warning:", visible(p.Error()))
		}
	}
	if refused == 0 {
		fmt.Fprintf(out, "%s can be used\n", count(len(found.Skills), "skill"))
		return
	}
	fmt.Fprintf(out, "%s can be used; %s\n", count(len(found.Skills), "skill"), count(refused, "problem"))
}
