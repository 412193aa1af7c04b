package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// A short lease lets the next start recover a killed chat's turn quickly.
const (
	leaseTTL   = 3 * time.Second
	sweepEvery = 500 * time.Millisecond
	closeGrace = 2 * time.Second
)

var (
	errTerminated = errors.New("terminated")
	errTurnFailed = errors.New("a turn failed")
	errWaits      = errors.New("the session is waiting for an answer")
)

type chatOptions struct {
	target
	agent   string
	session string
	model   string
	pace    time.Duration
	verbose bool
}

func chatCommand(signals <-chan os.Signal) *cobra.Command {
	opts := chatOptions{target: target{signals: signals}}
	cmd := &cobra.Command{
		Use:   "chat [AGENT]",
		Short: "Talk to an agent in the terminal",
		Long: `Talk to an agent in the terminal: an agent of a server (--server, with the token in
--token or HELIX_TOKEN), of a file (--config, or else helix.yaml in this directory), or
the demo agent. If there are several, choose one with --agent.

Every step is stored as it happens. Stop the program, or kill it in the middle of an
answer: the next start continues where it stopped. The store is the file helix.db in
the directory $XDG_DATA_HOME/helix, ~/.local/share/helix or, without a home directory,
./helix-data. --store selects another directory, a file, or a server, such as
postgres://user@host/database or redis://host:6379.

The next start continues the most recent session. --session selects another one, or
starts it if it does not exist. On a server, which has sessions of other users, and
with piped input a new session starts unless you name one.

The demo's model is a script that needs no API key; the tools it calls are real. To use
a real model instead, set --model or HELIX_MODEL to provider/model; "--model demo"
always selects the script. The providers, and the variables with their API keys:

  openai        OPENAI_API_KEY
  openai-chat   OPENAI_API_KEY (the Chat Completions API)
  anthropic     ANTHROPIC_API_KEY
  gemini        GEMINI_API_KEY or GOOGLE_API_KEY

To use another server with one of these APIs, add @ and its URL; the key, if it needs
one, is in HELIX_MODEL_KEY. Separate several models with commas: each is used if those
before it fail.

Some calls need you: to approve them, or to answer a question. If you leave a question
open, the next start asks it again.

You can edit lines with the arrow keys, Home and End, Ctrl-A, E, K, U and W. Up and
Down recall earlier lines, which are stored in the file chat_history beside the data.
Pasted lines are one message; Alt-Enter starts a new line.

Ctrl-C stops an answer, and a second Ctrl-C quits at once. At the prompt, Ctrl-C clears
the line; on an empty line Ctrl-C, Ctrl-D or /quit quits. Without a terminal, messages
are read from standard input, one per line, and the exit code reports whether every
turn succeeded.`,
		Example: `  helix chat                              continue the latest session, or start one
  helix chat --session trip               continue or start the session "trip"
  helix chat shop                         talk to an agent of helix.yaml in this directory
  helix chat --server 127.0.0.1:4170 --agent assistant
                                          talk to an agent of a server
  helix chat --model openai/gpt-5         use a real model for the demo
  helix chat --model openai-chat/llama3.2@http://127.0.0.1:11434/v1
                                          use a model on this machine
  echo 'what is 6*7' | helix chat         send one message from a script`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("unknown argument %q: helix chat takes the name of an agent (see %s --help)", args[1], cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if opts.agent != "" && opts.agent != args[0] {
					return usageError{fmt.Errorf("two agents are named, %s and %s: choose one", args[0], opts.agent)}
				}
				opts.agent = args[0]
			}
			if err := opts.check(cmd); err != nil {
				return err
			}
			return runChat(cmd.Context(), &opts)
		},
	}
	opts.placeFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&opts.agent, "agent", "", "`NAME` of the agent to talk to (default: the only agent)")
	flags.StringVar(&opts.session, "session", "", "`ID` of the session to continue or start (default: the most recent session)")
	flags.StringVar(&opts.model, "model", "", "`PROVIDER/MODEL` to use for the demo (default: $HELIX_MODEL, or a script)")
	flags.DurationVar(&opts.pace, "pace", 30*time.Millisecond, "pause before each word of the demo script")
	flags.BoolVar(&opts.verbose, "verbose", false, "log to standard error")
	versionFlag(cmd)
	return cmd
}

// check refuses flags of the demo if another agent is chosen.
func (o *chatOptions) check(cmd *cobra.Command) error {
	other := ""
	switch {
	case o.server != "":
		other = "--server"
	case o.config != "" && o.config != demoConfig:
		other = "--config"
	case o.url() != "":
		other = "HELIX_SERVER"
	}
	if other == "" {
		if o.config, _ = findConfig(o.config); o.config != "" {
			other = o.config
		}
	}
	for _, name := range []string{"model", "pace"} {
		if other != "" && cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s is only for the demo agent and cannot be combined with %s (--config demo selects the demo)", name, other)}
		}
	}
	if other == "" && o.agent != "" {
		return usageError{errors.New(`the demo of helix chat has only one agent, so none can be chosen: "helix init" writes a file with an agent, and --server talks to a server`)}
	}
	return nil
}

// chat is a conversation in progress.
type chat struct {
	client   *client.Client
	agent    string
	screen   *screen
	lines    lines
	greeting string // a sentence about the model or the agent
	where    string // where the sessions are stored, for people
	owned    bool   // this process owns the store: it chooses session ids and continues the latest session
	user     string // whose sessions are continued
	id       string // the session's id; empty until the server has chosen one
	signals  <-chan os.Signal
	failed   bool // a turn has failed
	waits    bool // the session is waiting for an answer
}

func runChat(ctx context.Context, opts *chatOptions) error {
	log := slog.New(slog.DiscardHandler)
	if opts.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c := &chat{screen: newScreen(), signals: opts.signals, user: opts.user}
	end, err := c.reach(ctx, opts, log)
	if err != nil {
		return err
	}
	if c.lines == nil {
		c.lines = newLines(c.screen, func() *history { return openHistory(filepath.Dir(dataFile(""))) })
	}
	err = c.open(ctx, opts.session)
	switch {
	case err == nil:
		err = c.loop(ctx)
	case errors.Is(err, errQuit):
		err = c.verdict()
	}
	c.lines.close()
	// Give recovered turns a moment to finish unless the program must end at once. The next
	// start continues the rest.
	grace := closeGrace
	if errors.Is(err, errTerminated) {
		grace = 0
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return errors.Join(unknownToken(err), end(ctx))
}

// reach finds the agent and returns a client of the server or runtime that runs it.
func (c *chat) reach(ctx context.Context, opts *chatOptions, log *slog.Logger) (end func(context.Context) error, err error) {
	if url := opts.url(); url != "" {
		if c.client, err = opts.dial(url); err != nil {
			return nil, err
		}
		c.where = c.client.String()
		end = func(context.Context) error { return nil }
	} else {
		if end, err = c.openStore(ctx, opts, log); err != nil {
			return nil, err
		}
	}
	if err = c.choose(ctx, opts.agent, opts.session); err != nil {
		return nil, errors.Join(unknownToken(err), end(ctx))
	}
	return end, nil
}

// openStore starts a runtime on the store, with the agents of the file or of the demo.
func (c *chat) openStore(ctx context.Context, opts *chatOptions, log *slog.Logger) (func(context.Context) error, error) {
	p := &place{log: log, settings: config.Runtime{Kind: local.Name}}
	store := cmp.Or(opts.store, os.Getenv(storeVariable))
	if opts.config == "" {
		model, greeting, err := openModel(opts.model, opts.pace)
		if err != nil {
			return nil, err
		}
		p.agents, c.agent, c.greeting = []*helix.Agent{demoAgent(model)}, demoAgent(model).Name, greeting
	} else {
		file, err := config.Load(opts.config)
		if err != nil {
			return nil, err
		}
		if p.agents, err = file.Build(buildOptions(log)); err != nil {
			return nil, err
		}
		p.settings, store = file.Runtime, cmp.Or(store, file.Store)
		p.settings.Kind = cmp.Or(p.settings.Kind, local.Name)
		if err := lasting(p.settings.Kind, store); err != nil {
			return nil, err
		}
	}
	if p.settings.Kind == local.Name {
		p.settings.LeaseTTL = cmp.Or(p.settings.LeaseTTL, config.Duration(leaseTTL))
		p.settings.Sweep = cmp.Or(p.settings.Sweep, config.Duration(sweepEvery))
	} else {
		p.passing = true // the store's servers and workers recover orphaned runs
	}
	var err error
	if p.address, err = dataAddress(store, true); err != nil {
		return nil, err
	}
	if p.db, err = openStore(p.address, log); err != nil {
		return nil, err
	}
	c.where, c.owned = shown(p.address), true
	if opts.config != "" {
		c.where = opts.config + " · " + c.where
	}
	if kind, path := backend.Split(p.address); kind == backend.SQLite {
		c.lines = newLines(c.screen, func() *history { return openHistory(filepath.Dir(path)) })
	}
	var end func(context.Context) error
	c.client, end, err = opts.serve(ctx, p)
	return end, err
}

// choose selects the agent: the named one, the one of the session, or the only one that no
// other agent calls.
func (c *chat) choose(ctx context.Context, name, id string) error {
	if c.agent != "" {
		return nil
	}
	agents, err := c.client.Agents(ctx)
	if err != nil {
		return err
	}
	var all, called []string
	for i := range agents {
		all = append(all, agents[i].Name)
		called = append(append(called, agents[i].SubAgents...), agents[i].Companions...)
	}
	if name == "" && id != "" {
		state, err := c.client.Session(ctx, id)
		switch {
		case err == nil:
			name = state.Agent
		case !errors.Is(err, helix.ErrNotFound):
			return err
		}
	}
	if name == "" {
		first := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(called, name) })
		if len(first) != 1 {
			return usageError{fmt.Errorf("choose an agent with --agent: %s", strings.Join(all, ", "))}
		}
		name = first[0]
	}
	at := slices.Index(all, name)
	if at < 0 {
		return noAgent(name, all)
	}
	c.agent, c.greeting = name, "You are talking to "+name+"."
	if about := firstSentence(agents[at].Description); about != "" {
		c.greeting += " " + about
	}
	return nil
}

// noAgent returns the error for the name of an agent that does not exist.
func noAgent(name string, all []string) error {
	return usageError{fmt.Errorf("there is no agent %q; the agents are %s", name, strings.Join(all, ", "))}
}

// read reads the next line. It returns errInterrupted for Ctrl-C, errTerminated for another
// signal, and errQuit at the end of the input.
func (c *chat) read(prompt string, remember bool) (string, error) {
	select {
	case got, ok := <-c.lines.next(prompt, remember):
		c.lines.took()
		switch {
		case !ok:
			return "", errQuit
		case got.interrupted:
			return "", errInterrupted
		}
		return strings.TrimSpace(got.line), nil
	case s := <-c.signals:
		c.screen.leave()
		if s != os.Interrupt {
			return "", errTerminated
		}
		return "", errInterrupted
	}
}

// loop processes the user's lines until the input or the program ends.
func (c *chat) loop(ctx context.Context) error {
	for {
		c.screen.gap()
		line, err := c.read("> ", true)
		switch {
		case errors.Is(err, errQuit):
			c.screen.leave()
			return c.verdict()
		case errors.Is(err, errInterrupted):
			return nil
		case err != nil:
			return err
		}
		switch err := c.enter(ctx, line); {
		case errors.Is(err, errQuit):
			return c.verdict()
		case errors.Is(err, errTerminated):
			return err
		case err != nil:
			c.failed = true
			c.screen.error(unknownToken(err))
		}
	}
}

// verdict returns the error that determines the exit code for a script that pipes messages
// in.
func (c *chat) verdict() error {
	switch {
	case c.screen.interactive:
	case c.failed:
		return errTurnFailed
	case c.waits:
		return errWaits
	}
	return nil
}

// say runs a turn with the user's message.
func (c *chat) say(ctx context.Context, message wire.Messages, abandon bool) error {
	return c.turn(ctx, func() (*wire.Started, error) {
		return c.client.Start(ctx, wire.Start{SessionID: c.id, AgentType: c.agent, Message: message, AbandonPending: abandon})
	})
}

const (
	// maxEarlier limits how many turns of other processes a turn waits for.
	maxEarlier = 100
	// letGo is how long a turn that has ended may still hold its session's lease.
	letGo = 50 * time.Millisecond
)

// turn starts a run and shows it. If another process has a turn in progress, it shows that
// one first.
func (c *chat) turn(ctx context.Context, begin func() (*wire.Started, error)) error {
	for range maxEarlier {
		started, err := begin()
		if errors.Is(err, helix.ErrAlreadyRunning) {
			shown, err := c.finishEarlier(ctx)
			if err != nil {
				return err
			}
			if !shown { // the turn has ended but still holds the session's lease
				select {
				case <-time.After(letGo):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			continue
		}
		if errors.Is(err, helix.ErrAwaitingInput) {
			return fmt.Errorf("%w; /answer gives one, /abandon continues without it", errWaits)
		}
		if err != nil {
			return err
		}
		if c.id == "" {
			c.id = started.SessionID
			c.screen.note("Session %q.", c.id)
		}
		return c.follow(ctx, started.RunID, started.StartSequence, false)
	}
	return helix.ErrAlreadyRunning
}

// finishEarlier shows the rest of a turn that an earlier process left unfinished or that
// another process is running. It reports whether there was one.
func (c *chat) finishEarlier(ctx context.Context) (bool, error) {
	status, err := c.client.Status(ctx, c.id)
	if errors.Is(err, helix.ErrNotFound) || (err == nil && status.RunStatus != session.RunRunning) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if c.owned {
		c.screen.note("The last turn is unfinished. If its process has ended, this one recovers it in a few seconds.")
	} else {
		c.screen.note("The last turn is unfinished.")
	}
	return true, c.follow(ctx, status.RunID, 0, true)
}

// follow shows a run until it ends. Ctrl-C interrupts the run, and a second one ends the
// program at once. A termination signal ends the program and leaves the run as it is.
func (c *chat) follow(ctx context.Context, run string, from int64, withInput bool) error {
	show := func() {}
	if c.screen.interactive {
		show = sync.OnceFunc(hideTyping(os.Stdin))
	}
	defer show()
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(ctx, run, ended, cancel, show)
	}()
	stop := sync.OnceFunc(func() {
		close(ended)
		<-watched
	})
	defer cancel(nil)
	defer stop()
	view := turnView{screen: c.screen, session: c.id, withInput: withInput}
	for item, err := range c.client.ReadRun(ctx, c.id, run, from) {
		if err != nil {
			return cause(ctx, err)
		}
		if view.show(item); item.Frame == stream.FrameTruncated {
			c.screen.note("The beginning of the turn is no longer in the stream; /history shows the messages.")
		}
	}
	status, err := c.client.Status(ctx, c.id)
	if err != nil {
		return cause(ctx, err)
	}
	c.screen.end()
	stop()
	show() // people see what they answer
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return c.stand(ctx, status)
}

// stand shows the session's status after a turn and asks the questions that it waits for.
func (c *chat) stand(ctx context.Context, status *wire.Status) error {
	c.waits = status.Activity == session.ActivityWaiting
	switch status.Activity {
	case session.ActivityWaiting:
		return c.answer(ctx)
	case session.ActivityStopped:
		c.screen.note("The turn was stopped. /resume continues it.")
	case session.ActivityFailed:
		c.failed = true
		c.screen.failed(status.Error)
		c.screen.note("/retry tries again.")
	}
	return nil
}

// watch handles signals while a run is shown.
func (c *chat) watch(ctx context.Context, run string, ended <-chan struct{}, leave context.CancelCauseFunc, show func()) {
	stopping := false
	for {
		select {
		case <-ended:
			return
		case s := <-c.signals:
			switch {
			case s != os.Interrupt:
				leave(errTerminated)
				return
			case stopping:
				show()
				os.Exit(exitForced) // the next start continues the turn, and stops it
			}
			stopping = true
			_, err := c.client.Interrupt(ctx, wire.Stop{SessionID: c.id, RunID: run, Reason: "Ctrl-C"})
			if err != nil && !errors.Is(err, helix.ErrStale) {
				leave(fmt.Errorf("stop the turn: %w", err))
				return
			}
		}
	}
}

// cause returns the reason for an error that only reports a cancelled context.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
