package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/local"
)

func workerCommand(signals <-chan os.Signal) *cobra.Command {
	var opts nodeOptions
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run the turns that servers start",
		Long: `Run the turns that "helix serve --runtime temporal" starts, without serving HTTP. Any
number of workers share a task queue. With "helix serve --worker=false" they run all
turns, and servers only start turns, stream and accept answers. When a worker dies,
another one continues its turns. With --runtime dbos, workers take turns from the
queue in the file (runtime.dbos.queue).

A worker needs the same file of agents and the same store as the servers, and reads the
file again when it changes. Other settings of the connection to Temporal, such as
certificates, are read from the variables of Temporal's own command line.

Ctrl-C or SIGTERM stops accepting turns, gives running ones --grace to finish, and leaves
the others to other workers. A second signal does not wait. SIGHUP reloads the file at
once.`,
		Example: `  helix worker --runtime temporal --config helix.yaml --store postgres://helix@db/agents
  helix worker --config helix.yaml --grace 1m      with runtime.kind: temporal in the file`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runWorker(cmd.Context(), &opts, cmd.ErrOrStderr(), signals)
		},
	}
	opts.flags(cmd)
	versionFlag(cmd)
	return cmd
}

func runWorker(ctx context.Context, opts *nodeOptions, out io.Writer, signals <-chan os.Signal) error {
	n := &node{opts: opts, out: out}
	file, err := n.prepare()
	if err != nil {
		return err
	}
	if n.settings.Kind == local.Name {
		return usageError{errors.New("a worker has nothing to do with the runtime local, because the server itself runs the turns: " +
			"use --runtime temporal, here and for the server")}
	}
	if n.settings.Kind == dbos.Name && n.settings.DBOS.Queue == nil {
		return usageError{errors.New("a worker has nothing to do without a queue (runtime.dbos.queue in the file), because the server that starts a turn on DBOS " +
			"also runs it")}
	}
	works := true
	n.settings.Temporal.Worker = &works // the file's setting is for servers
	if err := n.open(ctx, file); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beside sync.WaitGroup
	beside.Go(func() {
		n.reload(ctx, file, n.replace, n.changed)
	})
	n.greet("running turns")
	n.awaitStop(ctx, signals, nil)
	grace, done := n.leaving(signals)
	defer done()
	cancel()
	beside.Wait()
	return n.close(grace)
}
