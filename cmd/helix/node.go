package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/internal/version"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store"
)

// nodeOptions are the flags of serve and worker.
type nodeOptions struct {
	config    string
	store     string
	streams   string
	grace     time.Duration
	logFormat string
	logLevel  string
	runtime   runtimeFlags
}

func (o *nodeOptions) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", configUsage)
	addStoreFlag(flags, &o.store, "`ADDRESS` of the store: directory, SQLite file, postgres://…, redis://… or memory: (default: $"+storeVariable+", or the file's)")
	flags.StringVar(&o.streams, "streams", "", "`ADDRESS` of a separate store for the streams (default: $"+streamsVariable+", or the file's)")
	flags.DurationVar(&o.grace, "grace", 5*time.Second, "how long running turns may continue after a signal to stop")
	flags.StringVar(&o.logFormat, "log-format", logText, "text or json")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	o.runtime.flags(cmd)
}

// node is a process that runs the agents of a file on a store: a server or a worker.
type node struct {
	opts     *nodeOptions
	out      io.Writer
	log      *slog.Logger
	demo     bool // the demo was asked for
	settings config.Runtime
	store    string // the store's address
	db       store.Backend
	shown    string // where the data is stored, for people
	rt       helix.Runtime
	where    string // where turns run, for people
	agents   atomic.Pointer[[]*helix.Agent]
	hangup   chan struct{} // requests a reload of the file
}

// prepare reads the file and performs all checks that need no open store.
func (n *node) prepare() (*config.File, error) {
	if n.opts.grace < 0 {
		return nil, usageError{errors.New("--grace must not be negative")}
	}
	n.hangup = make(chan struct{}, 1)
	var err error
	if n.log, err = newLogger(n.out, n.opts.logFormat, n.opts.logLevel); err != nil {
		return nil, err
	}
	n.demo = n.opts.config == demoConfig
	n.opts.config, _ = findConfig(n.opts.config)
	file, err := readConfig(n.opts.config)
	if err != nil {
		return nil, err
	}
	if n.settings, err = n.opts.runtime.over(file.Runtime); err != nil {
		return nil, err
	}
	n.store = cmp.Or(n.opts.store, os.Getenv(storeVariable), file.Store)
	return file, lasting(n.settings.Kind, n.store)
}

// open opens the store and starts the runtime.
func (n *node) open(ctx context.Context, file *config.File) error {
	agents, err := file.Build(buildOptions(n.log))
	if err != nil {
		return err
	}
	n.agents.Store(&agents)
	n.warn(ctx, file)
	if n.db, err = n.openStore(file); err != nil {
		return err
	}
	p := &place{settings: n.settings, address: n.store, db: n.db, agents: agents, log: n.log}
	if n.rt, n.where, err = p.start(ctx); err != nil {
		return errors.Join(err, n.db.Close())
	}
	return nil
}

// warn logs what a file probably does not mean, and what is wrong with its skills. The
// agents do without those that cannot be used.
func (n *node) warn(ctx context.Context, file *config.File) {
	for _, p := range file.Warnings() {
		n.log.WarnContext(ctx, "config.warning", "problem", p.String())
	}
	_, problems, warnings := file.CheckSkills(demoSkills())
	for _, p := range append(problems, warnings...) {
		n.log.WarnContext(ctx, "skill.problem", "problem", p.String())
	}
}

// openStore opens the store and, if it is another one, the store of the streams.
func (n *node) openStore(file *config.File) (store.Backend, error) {
	address, err := dataAddress(n.store, true)
	if err != nil {
		return nil, err
	}
	n.store, n.shown = address, shown(address)
	sessions, err := openStore(address, n.log)
	if err != nil {
		return nil, err
	}
	apart := cmp.Or(n.opts.streams, os.Getenv(streamsVariable), file.Streams)
	if apart == "" {
		return sessions, nil
	}
	if apart, err = dataAddress(apart, true); err == nil {
		var streams store.Backend
		if streams, err = openStore(apart, n.log); err == nil {
			n.shown += ", streams in " + shown(apart)
			return store.Mix{SessionsOf: sessions, StreamsOf: streams, LocksOf: sessions}, nil
		}
	}
	return nil, errors.Join(err, sessions.Close())
}

// greet prints what runs where, for people. Programs read the log.
func (n *node) greet(what string) {
	var names []string
	for _, agent := range *n.agents.Load() {
		names = append(names, agent.Name)
	}
	on := ""
	if n.settings.Kind != local.Name {
		on = "  turns:  " + n.where + "\n"
	}
	file := cmp.Or(n.opts.config, "the demo")
	if file != n.opts.config && !n.demo {
		file += ", because there is no " + defaultConfig + " here"
	}
	n.log.Info("process.started", "version", version.Helix(), "what", what)
	fmt.Fprintf(n.out, "helix: %s\n  agents: %s\n%s  data:   %s\n  file:   %s\n  pid:    %d\n", what, strings.Join(names, ", "), on, n.shown, file, os.Getpid())
}

// leaving returns a context that bounds how long running turns may continue after a signal.
// A second signal ends it at once: another process continues the turns in any case.
func (n *node) leaving(signals <-chan os.Signal) (ctx context.Context, done func()) {
	fmt.Fprintln(n.out, "helix: stopping; the next start continues unfinished turns")
	ctx, cancel := context.WithTimeout(context.Background(), n.opts.grace)
	go func() {
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGHUP {
					continue
				}
				cancel()
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// close stops the runtime, handing over what still runs when ctx ends, and closes the
// store.
func (n *node) close(ctx context.Context) error {
	return errors.Join(shutdown(ctx, n.rt), n.db.Close())
}
