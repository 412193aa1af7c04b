package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/store"
)

// runtimeFlags are the flags for the runtime. They override the file.
type runtimeFlags struct {
	cmd  *cobra.Command
	kind string
	// For Temporal.
	address   string
	namespace string
	taskQueue string
	worker    bool
	// For DBOS.
	database string
}

// ofRuntime lists the flags that only one runtime uses.
var ofRuntime = map[string][]string{
	temporal.Name: {"temporal-address", "temporal-namespace", "task-queue", "worker"},
	dbos.Name:     {"dbos-database"},
}

func (f *runtimeFlags) flags(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "runtime", "", "`NAME` of the runtime: local, temporal or dbos (default: the file's, or local)")
	flags.StringVar(&f.address, "temporal-address", "", "`HOST:PORT` of Temporal (default: the file's, $TEMPORAL_ADDRESS or "+temporalAddress+")")
	flags.StringVar(&f.namespace, "temporal-namespace", "", "`NAMESPACE` in Temporal (default: the file's, $TEMPORAL_NAMESPACE or default)")
	flags.StringVar(&f.taskQueue, "task-queue", "", "`QUEUE` that the processes of a deployment share (default: the file's, or helix)")
	flags.StringVar(&f.database, "dbos-database", "", "`ADDRESS` of DBOS's database: postgres://… or sqlite:PATH (default: $"+dbosVariable+", the file's, or the store's)")
}

// over returns the settings of the file, overridden by the flags.
func (f *runtimeFlags) over(settings config.Runtime) (config.Runtime, error) {
	settings.Kind = cmp.Or(f.kind, settings.Kind, local.Name)
	switch settings.Kind {
	case local.Name, temporal.Name, dbos.Name:
	default:
		return settings, usageError{fmt.Errorf("--runtime %q is invalid: use local, temporal or dbos", settings.Kind)}
	}
	for kind, names := range ofRuntime {
		for _, name := range names {
			if settings.Kind != kind && f.cmd.Flags().Changed(name) {
				return settings, usageError{fmt.Errorf("--%s requires --runtime %s, but the runtime is %s", name, kind, settings.Kind)}
			}
		}
	}
	t := &settings.Temporal
	t.Address = cmp.Or(f.address, t.Address)
	t.Namespace = cmp.Or(f.namespace, t.Namespace)
	t.TaskQueue = cmp.Or(f.taskQueue, t.TaskQueue)
	if f.cmd.Flags().Changed("worker") {
		t.Worker = &f.worker
	}
	settings.DBOS.Database = cmp.Or(f.database, os.Getenv(dbosVariable), settings.DBOS.Database)
	return settings, nil
}

// place holds everything that a runtime is started with.
type place struct {
	settings config.Runtime
	address  string // of the store
	db       store.Backend
	agents   []*helix.Agent
	log      *slog.Logger
	// passing is set for a command that handles one session and ends. It leaves orphaned
	// runs to servers.
	passing bool
}

// modelRetries converts the file's retries to those of [helix.RuntimeOptions].
func (p *place) modelRetries() int {
	if p.settings.ModelRetries == nil {
		return 0
	}
	return cmp.Or(*p.settings.ModelRetries, -1)
}

// options returns the settings that all runtimes share.
func (p *place) options() helix.RuntimeOptions {
	return helix.RuntimeOptions{
		Backend: p.db, Agents: p.agents, LeaseTTL: time.Duration(p.settings.LeaseTTL), Sweep: time.Duration(p.settings.Sweep),
		ModelRetries: p.modelRetries(), MaxSession: int64(p.settings.SessionBytes), MaxChunks: int64(p.settings.MaxChunks),
		NoRecovery: p.passing, Logger: p.log, Tasks: p.tasks(),
	}
}

// tasks returns the settings of tasks. A command that handles one session and ends leaves
// tasks to servers.
func (p *place) tasks() helix.TaskOptions {
	t := &p.settings.Tasks
	opts := helix.TaskOptions{
		MaxAttempts: t.MaxAttempts, KeepGivenUp: time.Duration(t.KeepGivenUp),
		TrimStreams: time.Duration(t.TrimStreams), CleanCalls: time.Duration(t.CleanCalls),
	}
	if t.Workers != nil {
		opts.Workers = cmp.Or(*t.Workers, -1)
	}
	if p.passing {
		opts.Workers = -1
	}
	return opts
}

// shutdown stops a runtime. If ctx ends first, the runtime hands its turns over, which is
// not an error.
func shutdown(ctx context.Context, rt helix.Runtime) error {
	if err := rt.Shutdown(ctx); ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	return nil
}

// start starts the configured runtime and returns where turns run, for people.
func (p *place) start(ctx context.Context) (helix.Runtime, string, error) {
	if p.passing {
		p.settings.Sweep = config.Duration(24 * time.Hour) // the command ends long before
	}
	switch p.settings.Kind {
	case temporal.Name:
		return p.startTemporal(ctx)
	case dbos.Name:
		return p.startDBOS(ctx)
	}
	rt, err := local.New(p.options())
	if err != nil {
		return nil, "", err
	}
	return rt, "this process", nil
}

// lasting refuses an in-memory store: turns on a workflow engine outlive the process that
// started them, and other processes run them.
func lasting(kind, address string) error {
	if kind != local.Name && backend.Kind(address) == backend.Memory {
		return usageError{fmt.Errorf("the store memory: exists only in this process, but turns on %s outlive processes "+
			"and run in others: choose another store", kind)}
	}
	return nil
}
