// Command helix runs and operates agents: init begins a project, serve offers agents over
// HTTP, worker runs turns that servers start, check validates a configuration file, chat
// talks to an agent in the terminal, run sends it one message. sessions, agents, waiting, submit, resume, retry, interrupt and cleanup operate
// sessions, skills shows, checks and fetches skills, and migrate updates the tables of a
// store.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/internal/version"
)

// Exit codes other than 0 for success.
const (
	exitFailure    = 1
	exitUsage      = 2
	exitWaits      = 3
	exitForced     = 128 + int(syscall.SIGINT)
	exitTerminated = 128 + int(syscall.SIGTERM)
)

// usageError is an invalid command line.
type usageError struct{ error }

func main() {
	cobra.EnableCommandSorting = false // keep the order of groups
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(os.Args[1:], signals, os.Stdout, os.Stderr))
}

// run runs a command line and returns the exit code.
func run(args []string, signals <-chan os.Signal, out, complaints io.Writer) int {
	cmd := rootCommand(signals)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(complaints)
	err := cmd.Execute()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errTerminated):
		return exitTerminated
	case errors.Is(err, errAwaitsPerson):
		return exitWaits
	case errors.Is(err, errTurnFailed), errors.Is(err, errRefusedConfig), errors.Is(err, errRefusedSkills): // it has been reported
		return exitFailure
	}
	fmt.Fprintln(complaints, "helix:", printable(err.Error()))
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

func rootCommand(signals <-chan os.Signal) *cobra.Command {
	root := &cobra.Command{
		Use:   "helix",
		Short: "Durable AI agents",
		Long:  "Helix runs durable AI agents: conversations that survive crashes and restarts.",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// run prints errors, on one line.
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", explainFlag(err), cmd.CommandPath())}
	})
	versionFlag(root)
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run agents:", []*cobra.Command{initCommand(), checkCommand(), chatCommand(signals), runCommand(signals), serveCommand(signals), workerCommand(signals)}},
		{"Inspect agents and sessions:", []*cobra.Command{agentsCommand(signals), sessionsCommand(signals), waitingCommand(signals)}},
		{"Operate sessions:", []*cobra.Command{submitCommand(signals), resumeCommand(signals), retryCommand(signals), interruptCommand(signals)}},
		{"Maintain a store, or skills:", []*cobra.Command{cleanupCommand(signals), tasksCommand(signals), migrateCommand(), skillsCommand(signals)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(environmentTopic())
	root.SetHelpCommand(helpCommand())
	completeNoFiles(root)
	others := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd != root {
			others(cmd, args)
			return
		}
		overview(cmd)
	})
	return root
}

// overview prints the program's help. Cobra's own help is longer than a small screen.
func overview(root *cobra.Command) {
	out := root.OutOrStdout()
	fmt.Fprintln(out, root.Long)
	for _, group := range root.Groups() {
		fmt.Fprintln(out, "\n"+group.Title)
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				fmt.Fprintf(out, "  %-10s %s\n", cmd.Name(), cmd.Short)
			}
		}
	}
	fmt.Fprint(out, `
helix COMMAND --help explains a command, helix help environment the environment variables;
helix completion SHELL completes words in bash, zsh or fish; helix --version is the version.
`)
}

// environmentTopic is a help topic without a command.
func environmentTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "Environment variables of the commands",
		Long: `Put secrets into the environment: every user of the machine can see the arguments of a
program. These variables replace flags:

  HELIX_TOKEN          the token for a server, instead of --token
  HELIX_STORE          the address of the store, with its password, instead of --store
  HELIX_STREAMS        the address of a store for the streams, instead of --streams
  HELIX_DBOS_DATABASE  the address of DBOS's database, instead of --dbos-database

HELIX_SERVER is the URL of the server that commands talk to, instead of --server.

API keys are read from the providers' variables, such as OPENAI_API_KEY, or from
HELIX_MODEL_KEY. In helix.yaml, ${NAME} is replaced with any variable.`,
	}
}

// helpCommand is help COMMAND. Cobra's own accepts any words.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknown(found, rest[0])
			}
			found.InitDefaultHelpFlag() // list --help among the flags
			return found.Help()
		},
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknown(cmd, args[0])
}

// unknown returns the error for an unknown word, with suggestions if it may be a mistyped
// command.
func unknown(cmd *cobra.Command, word string) error {
	if !cmd.HasSubCommands() {
		return usageError{fmt.Errorf("unknown argument %q (see %s --help)", word, cmd.CommandPath())}
	}
	cmd.SuggestionsMinimumDistance = 2
	if meant := cmd.SuggestionsFor(word); len(meant) > 0 {
		return usageError{fmt.Errorf("unknown command %q: did you mean %s? (see %s --help)", word, strings.Join(meant, " or "), cmd.CommandPath())}
	}
	return usageError{fmt.Errorf("unknown command %q (see %s --help)", word, cmd.CommandPath())}
}

// versionFlag adds --version to a command. A version template of Cobra would link text/template, for which the linker keeps
// the exported methods of all types.
func versionFlag(cmd *cobra.Command) {
	show := cmd.Flags().BoolP("version", "v", false, "version for "+cmd.Name())
	args, run := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, words []string) error {
		if *show {
			return nil
		}
		return args(cmd, words)
	}
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		if *show {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "helix", version.Helix())
			return err
		}
		return run(cmd, words)
	}
}
