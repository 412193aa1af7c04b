package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// A lease this short lets the next start take over soon after a kill.
const (
	leaseTTL   = 3 * time.Second
	sweepEvery = 500 * time.Millisecond
	closeGrace = 2 * time.Second
)

var (
	errTerminated = errors.New("terminated")
	errTurnFailed = errors.New("a turn failed")
	errWaits      = errors.New("the session waits for an answer")
)

type chatOptions struct {
	session string
	data    string
	model   string
	pace    time.Duration
	verbose bool
}

func chatCommand(signals <-chan os.Signal) *cobra.Command {
	var opts chatOptions
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "Talk to a demo agent in the terminal",
		Long: `Talk to a demo agent in the terminal.

Everything is kept in a SQLite file, or another store, as it happens. Stop the program, or kill it in
the middle of an answer: the next start goes on where it was. The model is a
scripted demo that needs no API key; the tools it calls are real.

--model, or the variable HELIX_MODEL, names a true model to answer instead, as
provider/model; "--model demo" is the demo in any case. The providers, with the
variable that holds the key:

  openai        OPENAI_API_KEY
  openai-chat   OPENAI_API_KEY (the Chat Completions API)
  anthropic     ANTHROPIC_API_KEY
  gemini        GEMINI_API_KEY or GOOGLE_API_KEY

Another server that speaks one of these is named after an @; it is sent the key in
HELIX_MODEL_KEY, if there is one. Of several models with commas between them, each
is asked when those before it cannot answer.

The next start continues the session that was used last; --session names another,
which begins if there is none of that id. The file is helix.db in the directory
$XDG_DATA_HOME/helix, or ~/.local/share/helix, or, without a home, ./helix-data;
--store names another directory, a file, or a server, such as
postgres://user@host/database or redis://host:6379.

Some calls ask you: to approve them, or for what only you can tell. A question that
is left open is asked again by the next start.

Ctrl-C stops an answer; at the prompt, Ctrl-C, Ctrl-D or /quit ends the program.
A second Ctrl-C while an answer is being stopped ends it at once. Without a
terminal, messages are read line by line from the standard input, and the exit
code tells whether every turn went well.`,
		Example: `  helix chat                              continue the latest session, or begin one
  helix chat --session trip               continue or begin the session "trip"
  helix chat --store ./demo                keep the data in ./demo/helix.db
  helix chat --model openai/gpt-5         let a true model answer
  helix chat --model openai-chat/llama3.2@http://127.0.0.1:11434/v1
                                          let a model on this machine answer
  echo 'what is 6*7' | helix chat         ask one thing from a script`,
		Version: version(),
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runChat(cmd.Context(), opts, signals)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.session, "session", "", "`ID` of the session to continue or begin (default: the one used last)")
	addStoreFlag(flags, &opts.data, storeUsage)
	flags.StringVar(&opts.model, "model", "", "`PROVIDER/MODEL` that answers (default: $HELIX_MODEL, or else the demo)")
	flags.DurationVar(&opts.pace, "pace", 30*time.Millisecond, "pause before each word of the demo model")
	flags.BoolVar(&opts.verbose, "verbose", false, "log to the standard error")
	return cmd
}

// chat is a conversation in progress.
type chat struct {
	agent    *helix.Agent
	rt       runner
	sessions session.Store
	screen   *screen
	greeting string // about the model
	id       string // of the session
	lines    <-chan string
	signals  <-chan os.Signal
	failed   bool // some turn
	waits    bool // the session, for an answer
}

func runChat(ctx context.Context, opts chatOptions, signals <-chan os.Signal) error {
	model, greeting, err := openModel(opts.model, opts.pace)
	if err != nil {
		return err
	}
	address, err := dataAddress(cmp.Or(opts.data, os.Getenv(storeVariable)), true)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if opts.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	db, err := openStore(address, log)
	if err != nil {
		return err
	}
	defer db.Close()
	c, err := newChat(db, demoAgent(model), newScreen(), log)
	if err != nil {
		return err
	}
	c.signals, c.lines, c.greeting = signals, readLines(os.Stdin), greeting
	err = c.open(ctx, opts.session, shown(address))
	switch {
	case err == nil:
		err = c.loop(ctx)
	case errors.Is(err, errQuit):
		err = c.verdict()
	}
	return errors.Join(err, c.close(ctx, errors.Is(err, errTerminated)))
}

func newChat(db store.Backend, agent *helix.Agent, screen *screen, log *slog.Logger) (*chat, error) {
	rt, err := local.New(local.Config{
		Backend: db, Agents: []*helix.Agent{agent}, LeaseTTL: leaseTTL, Sweep: sweepEvery, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	return &chat{agent: agent, rt: rt, sessions: db.Sessions(), screen: screen}, nil
}

// close ends the runtime. Turns that it has taken over from others get a moment
// to finish, unless there is no time; what is left is continued by the next start.
func (c *chat) close(ctx context.Context, now bool) error {
	grace := closeGrace
	if now {
		grace = 0
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return c.rt.Close(ctx)
}

// loop takes what the user enters until there is no more, or it is time to go.
func (c *chat) loop(ctx context.Context) error {
	for {
		c.screen.prompt()
		select {
		case line, ok := <-c.lines:
			if !ok {
				c.screen.leave()
				return c.verdict()
			}
			switch err := c.enter(ctx, strings.TrimSpace(line)); {
			case errors.Is(err, errQuit):
				return c.verdict()
			case errors.Is(err, errTerminated):
				return err
			case err != nil:
				c.failed = true
				c.screen.error(err)
			}
		case s := <-c.signals:
			c.screen.leave()
			if s != os.Interrupt {
				return errTerminated
			}
			return nil
		}
	}
}

// verdict is what a script that pipes messages in is told by the exit code.
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

// say runs a turn with the user's words.
func (c *chat) say(ctx context.Context, words string) error {
	return c.turn(ctx, func() (helix.Run, error) {
		return c.rt.Execute(ctx, c.agent, helix.Input{SessionID: c.id, Message: helix.UserText(words)})
	})
}

// turn begins a run and shows it. A turn that another process has under way is
// shown first.
func (c *chat) turn(ctx context.Context, begin func() (helix.Run, error)) error {
	for {
		run, err := begin()
		if errors.Is(err, helix.ErrAlreadyRunning) {
			if _, err := c.finishEarlier(ctx); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, helix.ErrAwaitingInput) {
			return fmt.Errorf("%w; /answer gives one, /abandon goes on without", errWaits)
		}
		if err != nil {
			return err
		}
		return c.follow(ctx, run, false)
	}
}

// finishEarlier shows the rest of a turn that an earlier process left unfinished,
// or that another has under way. It reports whether there was one.
func (c *chat) finishEarlier(ctx context.Context) (bool, error) {
	current, err := c.sessions.CurrentRun(ctx, c.id)
	if errors.Is(err, helix.ErrNotFound) || (err == nil && current.Status != session.RunRunning) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	run, err := c.rt.Attach(ctx, c.id)
	if err != nil {
		return false, err
	}
	c.screen.note("The last turn is unfinished. If its process is gone, it is taken over in up to %s.", leaseTTL)
	return true, c.follow(ctx, run, true)
}

// follow shows a run until it has ended. Ctrl-C interrupts it, a second one ends
// the program at once; a signal to terminate leaves it where it is.
func (c *chat) follow(ctx context.Context, run helix.Run, withInput bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(ctx, run, ended, cancel)
	}()
	stop := sync.OnceFunc(func() {
		close(ended)
		<-watched
	})
	defer cancel(nil)
	defer stop()
	view := turnView{screen: c.screen, withInput: withInput}
	for item, err := range run.Stream(ctx) {
		if err != nil {
			return cause(ctx, err)
		}
		view.show(item)
	}
	res, err := run.Result(ctx)
	if err != nil {
		return cause(ctx, err)
	}
	c.screen.end()
	c.waits = res.Status.Suspended()
	switch {
	case c.waits:
		stop()
		return c.answer(ctx)
	case res.Status == helix.Failed:
		c.failed = true
		c.screen.error(res.Error)
		c.screen.note("/retry tries again.")
	}
	return nil
}

// watch acts on signals while a run is shown.
func (c *chat) watch(ctx context.Context, run helix.Run, ended <-chan struct{}, leave context.CancelCauseFunc) {
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
				os.Exit(exitForced) // the turn is continued, and stopped, by the next start
			}
			stopping = true
			if err := run.Interrupt(ctx, "Ctrl-C"); err != nil && !errors.Is(err, helix.ErrStale) {
				leave(fmt.Errorf("cannot stop the turn: %w", err))
				return
			}
		}
	}
}

// cause explains an error that is only the echo of a cancelled context.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
