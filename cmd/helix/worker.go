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
		Short: "Work on the turns that servers start",
		Long: `Work on the turns that "helix serve --runtime temporal" starts, without serving
anything. Any number of workers share a task queue; with "helix serve --worker=false"
they do all the work, and servers only start turns, stream and take answers. When a
worker dies, another goes on with its turns. With --runtime dbos, workers take turns
out of the queue that the file describes (runtime.dbos.queue).

A worker has the same file of agents and the same store as the servers, and reads the
file again when it changes, as they do. What else there is to know about the
connection to Temporal, such as certificates, comes from the variables that Temporal's
own command line uses.

Ctrl-C, or SIGTERM, takes no more turns on, gives those at work --grace to end, and
leaves the others to other workers. A second one does not wait. SIGHUP has the file
read again at once.`,
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
		return usageError{errors.New("the runtime is local, with which the server itself works on turns, so there is nothing for a worker: " +
			"choose --runtime temporal, here and for the server")}
	}
	if n.settings.Kind == dbos.Name && n.settings.DBOS.Queue == nil {
		return usageError{errors.New("without a queue (runtime.dbos.queue in the file) a turn on DBOS is worked on by the server that was asked for it, " +
			"so there is nothing for a worker")}
	}
	works := true
	n.settings.Temporal.Worker = &works // what the file says is about servers
	if err := n.open(ctx, file); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beside sync.WaitGroup
	beside.Go(func() {
		n.reload(ctx, file, n.replace, n.changed)
	})
	n.greet("working on turns")
	n.awaitStop(ctx, signals, nil)
	grace, done := n.leaving(signals)
	defer done()
	cancel()
	beside.Wait()
	return n.close(grace)
}
