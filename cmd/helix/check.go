package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/runtime/local"
)

// errRefusedConfig ends the command for an invalid file whose problems have been printed.
var errRefusedConfig = errors.New("the configuration is not valid")

func checkCommand() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a helix.yaml and list its problems",
		Long: `Check a helix.yaml and list every problem with its line and column. Environment
variables that the file uses must be set, as they must when the file is served. The
skills of the file are read, and their problems listed, too. A missing API key is only
a warning. Nothing is started or changed.

The exit code is 0 if the file is valid, 1 if it is not.`,
		Example: `  helix check
  helix check --config agents/helix.yaml --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := checkConfig(path)
			if err != nil {
				return err
			}
			if asJSON {
				err = report.writeJSON(cmd.OutOrStdout())
			} else {
				report.write(cmd.OutOrStdout())
			}
			if err == nil && !report.OK {
				err = errRefusedConfig
			}
			return err
		},
	}
	cmd.Flags().StringVar(&path, "config", defaultConfig, "the `FILE` to check")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// checkReport is the result of a check.
type checkReport struct {
	OK       bool             `json:"ok"`
	File     string           `json:"file"`
	Problems []config.Problem `json:"problems"`
	Omitted  int              `json:"omitted,omitempty"`
	// Warnings are about what is missing only on this machine, such as keys.
	Warnings []config.Problem `json:"warnings"`
	Models   []string         `json:"models"`
	Agents   []string         `json:"agents"`
	Tools    []string         `json:"tools"`
	Skills   []string         `json:"skills"`

	closed bool // helix serve refuses it without --allow-unauthenticated
}

// checkConfig checks a file. It returns an error only if the file cannot be read.
func checkConfig(path string) (*checkReport, error) {
	report := &checkReport{
		File: path, Problems: []config.Problem{}, Warnings: []config.Problem{}, Models: []string{}, Agents: []string{}, Tools: []string{},
		Skills: []string{},
	}
	from, _ := findConfig(path)
	var file *config.File
	var err error
	if from == "" {
		file, err = parseDemo()
	} else {
		file, err = readConfig(from)
	}
	if failure, ok := errors.AsType[*config.Error](err); ok {
		report.Problems, report.Omitted = failure.Problems, failure.Omitted
		return report, nil
	}
	if err != nil {
		return nil, err
	}
	report.OK = true
	for i := range file.Models {
		report.Models = append(report.Models, file.Models[i].Name)
	}
	for i := range file.Agents {
		report.Agents = append(report.Agents, file.Agents[i].Name)
	}
	for i := range file.Tools {
		report.Tools = append(report.Tools, file.Tools[i].Name)
	}
	names, problems, warnings := file.CheckSkills(buildOptions(nil).Skills)
	report.Skills, report.Warnings = append(report.Skills, names...), append(report.Warnings, warnings...)
	if len(problems) > 0 {
		report.OK, report.Problems = false, problems
		return report, nil
	}
	report.Warnings = append(report.Warnings, file.Warnings()...)
	report.closed = len(file.Server.Tokens) == 0 && !file.Server.AllowUnauthenticated
	if err := lasting(cmp.Or(file.Runtime.Kind, local.Name), cmp.Or(os.Getenv(storeVariable), file.Store)); err != nil {
		report.warn("runtime", "helix serve refuses this: "+err.Error())
	}
	// Whether the agents can be built here and now depends on API keys.
	_, err = file.Build(buildOptions(nil))
	if failure, ok := errors.AsType[*config.Error](err); ok {
		report.Warnings = append(report.Warnings, failure.Problems...)
		err = nil
	}
	return report, err
}

// warn adds a warning about a section of the file as a whole.
func (r *checkReport) warn(section, message string) {
	r.Warnings = append(r.Warnings, config.Problem{File: r.File, Line: 1, Column: 1, Path: section, Message: message})
}

func (r *checkReport) writeJSON(out io.Writer) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func (r *checkReport) write(out io.Writer) {
	for i := range r.Problems {
		fmt.Fprintln(out, r.Problems[i].String())
	}
	if r.Omitted > 0 {
		fmt.Fprintf(out, "and %d more\n", r.Omitted)
	}
	for i := range r.Warnings {
		fmt.Fprintln(out, "warning:", r.Warnings[i].String())
	}
	if r.OK {
		var found []string
		for _, of := range []struct {
			names []string
			what  string
		}{{r.Models, "model"}, {r.Agents, "agent"}, {r.Tools, "tool"}, {r.Skills, "skill"}} {
			if len(of.names) > 0 {
				found = append(found, count(len(of.names), of.what))
			}
		}
		fmt.Fprintf(out, "%s is valid: %s\n", r.File, strings.Join(found, ", "))
		if r.closed {
			fmt.Fprintln(out, "It has no tokens, so helix serve starts only with --allow-unauthenticated.")
		}
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
