// Command helix is the program of the Helix framework: serve offers agents over
// HTTP, worker works on turns that servers start, check validates a file of agents,
// chat is a conversation with a demo agent in the terminal, sessions, submit, resume,
// interrupt and cleanup operate what is served, migrate sees to the tables of a store.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes beside 0 for success.
const (
	exitFailure    = 1
	exitUsage      = 2
	exitForced     = 128 + int(syscall.SIGINT)
	exitTerminated = 128 + int(syscall.SIGTERM)
)

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(os.Args[1:], signals, os.Stdout, os.Stderr))
}

// run carries out a command line and gives the exit code.
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
	case errors.Is(err, errTurnFailed), errors.Is(err, errRefusedConfig): // it has been reported
		return exitFailure
	}
	fmt.Fprintln(complaints, "helix:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

func rootCommand(signals <-chan os.Signal) *cobra.Command {
	root := &cobra.Command{
		Use:   "helix",
		Short: "Durable AI agents",
		Long: `Helix runs durable AI agents: conversations that survive being killed.

Secrets need not be on a command line, where every user of the machine can see them.
The environment has variables for all of them:

  HELIX_TOKEN          the token for a server, instead of --token
  HELIX_STORE          the address of the store, with its password, instead of --store and --data
  HELIX_STREAMS        the address of a store for the streams, instead of --streams
  HELIX_DBOS_DATABASE  the address of DBOS's database, instead of --dbos-database

Keys of models are in the variables of their providers, such as OPENAI_API_KEY, or in
HELIX_MODEL_KEY. In helix.yaml, ${NAME} stands for any variable.`,
		Example: `  helix serve --allow-unauthenticated
                              serve demo agents on this machine
  helix check                 see whether ./helix.yaml is valid
  helix chat                  talk to a demo agent
  helix migrate status        see whether a store's tables are up to date`,
		Version: version(),
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// Errors are one line, printed by run.
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	root.SetVersionTemplate("helix {{.Version}}\n")
	root.AddCommand(serveCommand(signals), workerCommand(signals), checkCommand(), chatCommand(signals), sessionsCommand(signals), submitCommand(signals),
		resumeCommand(signals), interruptCommand(signals), cleanupCommand(signals), migrateCommand())
	return root
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	what := "argument"
	if cmd.HasSubCommands() {
		what = "command"
	}
	return usageError{fmt.Errorf("unknown %s %q (see %s --help)", what, args[0], cmd.CommandPath())}
}

// version is the module's version, as the Go tool recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
