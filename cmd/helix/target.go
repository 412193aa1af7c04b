package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/internal/pipe"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// target is the place of a command's sessions: a server, or a store that this process
// opens.
type target struct {
	signals <-chan os.Signal
	server  string
	token   string
	store   string
	config  string
	tenant  string
	user    string
	json    bool
	// lists is set for commands that list the agents.
	lists bool
	// creates is set for commands that begin sessions. Others find none in a store that does
	// not exist.
	creates bool
	// complaints is where the command says what is not its output.
	complaints func() io.Writer
	// runs is set for commands that continue a session. They use the runtime of the file, so
	// that its servers recover unfinished turns; other commands need no runtime.
	runs bool
}

const targetHelp = `
The command uses the server in --server or HELIX_SERVER, with the token in --token or
HELIX_TOKEN. Without a server it uses the store in --store or HELIX_STORE, by default
the same store as "helix serve". Prefer the variables for secrets: other users can see
arguments.`

func (t *target) flags(cmd *cobra.Command) {
	t.placeFlags(cmd)
	cmd.PersistentFlags().BoolVar(&t.json, "json", false, "print JSON")
}

// placeFlags adds the flags that select the sessions and the acting user.
func (t *target) placeFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&t.server, "server", "", "`URL` of a server, such as "+defaultAddr+" (default: $HELIX_SERVER, or the store)")
	flags.StringVar(&t.token, "token", "", "`TOKEN` for the server (default: $HELIX_TOKEN)")
	addStoreFlag(flags, &t.store, storeUsage)
	flags.StringVar(&t.config, "config", "", configUsage)
	t.complaints = cmd.ErrOrStderr
	flags.StringVar(&t.tenant, "tenant", "", "`TENANT` in the store (default: the default one)")
	flags.StringVar(&t.user, "as", "", "`USER` that acts on the store, for tools that restrict who may approve")
}

// with calls do with a client of the target. A signal cancels its context.
func (t *target) with(ctx context.Context, do func(context.Context, *client.Client) error) error {
	return untilSignal(ctx, t.signals, func(ctx context.Context) error { return t.reach(ctx, do) })
}

// untilSignal calls do with a context that a signal cancels.
func untilSignal(ctx context.Context, signals <-chan os.Signal, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-signals:
			cancel(errTerminated)
		case <-ctx.Done():
		}
	}()
	err := do(ctx)
	if errors.Is(context.Cause(ctx), errTerminated) {
		return errTerminated
	}
	return err
}

func (t *target) reach(ctx context.Context, do func(context.Context, *client.Client) error) error {
	if url := t.url(); url != "" {
		c, err := t.dial(url)
		if err != nil {
			return err
		}
		return unknownToken(do(ctx, c))
	}
	return t.here(ctx, do)
}

// unknownToken explains an error about an unknown token.
func unknownToken(err error) error {
	if refusal, ok := errors.AsType[*session.Error](err); ok && refusal.Code == wire.CodeUnauthorized {
		return errors.New("the server does not accept the token, or wants one: set it with --token or HELIX_TOKEN")
	}
	return err
}

// url returns the address of the server, or "" if the sessions are in a store. A file that
// was named goes before the environment.
func (t *target) url() string {
	if t.server == "" && t.config != "" {
		return ""
	}
	return cmp.Or(t.server, os.Getenv("HELIX_SERVER"))
}

// dial returns a client of a server. An address without a scheme uses HTTP, as in the
// output and the flags of "helix serve".
func (t *target) dial(url string) (*client.Client, error) {
	switch {
	case t.store != "":
		return nil, usageError{errors.New("--server and --store cannot be combined")}
	case t.config != "":
		return nil, usageError{errors.New("--server and --config cannot be combined: a server has its own agents")}
	}
	if !strings.Contains(url, "://") {
		if _, _, err := net.SplitHostPort(url); err != nil {
			return nil, usageError{fmt.Errorf("--server %q is neither a URL nor host:port", url)}
		}
		url = "http://" + url
	}
	c, err := client.New(client.Config{URL: url, Token: cmp.Or(t.token, os.Getenv("HELIX_TOKEN"))})
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// again returns the flags that make another command use the same target. It omits the
// token, which is secret.
func (t *target) again() string {
	var flags strings.Builder
	for _, flag := range []struct{ name, value string }{
		{"server", t.server}, {storeFlag, t.store}, {"config", t.config}, {"tenant", t.tenant}, {"as", t.user},
	} {
		if flag.value != "" {
			fmt.Fprintf(&flags, " --%s %s", flag.name, shellWord(flag.value))
		}
	}
	return flags.String()
}

// shellWord quotes a text as one word of a command line.
func shellWord(text string) string {
	text = visible(text)
	if text != "" && strings.IndexFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("@%+=:,./_-", r)
	}) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// here serves the store to this process alone, so that commands work the same way with a
// server and with a store.
func (t *target) here(ctx context.Context, do func(context.Context, *client.Client) error) (err error) {
	path, found := findConfig(t.config)
	if found {
		tellConfig(t.complaints(), path)
	}
	file, agents, err := t.readAgents(path, found)
	if err != nil {
		return err
	}
	address, err := dataAddress(cmp.Or(t.store, os.Getenv(storeVariable), file.Store), t.creates)
	if err != nil {
		return err
	}
	if kind, path := backend.Split(address); kind == backend.SQLite && !t.creates {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			if t.store != "" {
				return fmt.Errorf("there is no store at %s; helix serve, chat and run make one", shown(address))
			}
			fmt.Fprintf(t.complaints(), "helix: there is no store at %s yet\n", shown(address))
			address = memoryStore
		}
	}
	db, err := openStore(address, nil)
	if err != nil {
		return err
	}
	p := &place{settings: config.Runtime{Kind: local.Name}, address: address, db: db, agents: agents, log: slog.New(slog.DiscardHandler), passing: true}
	if t.runs {
		p.settings = file.Runtime
	}
	c, end, err := t.serve(ctx, p)
	if err != nil {
		return err
	}
	defer func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		err = errors.Join(err, end(ended))
	}()
	return do(ctx, c)
}

// readAgents reads a file and builds its agents. A command that needs none, such as a list,
// does without them, and without a file that nobody named if the store is known.
func (t *target) readAgents(path string, found bool) (*config.File, []*helix.Agent, error) {
	optional := found && !t.runs && !t.lists
	file, err := readConfig(path)
	if err != nil && optional && cmp.Or(t.store, os.Getenv(storeVariable)) != "" {
		file, err = readConfig("")
	}
	if err != nil {
		return nil, nil, err
	}
	agents, err := file.Build(buildOptions(nil))
	if _, ok := errors.AsType[*config.Error](err); ok && optional {
		return file, nil, nil
	}
	return file, agents, err
}

// serve starts a runtime and serves it to this process. end stops both and closes the
// store; its context bounds how long runs may continue. After an error everything is
// closed.
func (t *target) serve(ctx context.Context, p *place) (c *client.Client, end func(context.Context) error, err error) {
	rt, _, err := p.start(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, p.db.Close())
	}
	stop := func(ctx context.Context) error { return errors.Join(shutdown(ctx, rt), p.db.Close()) }
	api, err := server.New(server.Config{
		Executor: rt, Backend: p.db, Agents: func() []*helix.Agent { return p.agents }, Cleanup: rt.Cleanup, TaskStats: rt.TaskStats,
		Logger: p.log, Verbose: true, Limits: server.Limits{RunsPerUser: -1}, RateLimit: server.RateLimit{PerSecond: -1},
		Authenticate: func(*http.Request) (server.Identity, error) {
			return server.Identity{User: t.user, Tenant: t.tenant, Operator: true}, nil
		},
	})
	if err != nil {
		return nil, nil, errors.Join(err, stop(ctx))
	}
	listener := pipe.Listen()
	web := server.HTTPServer("", api)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = web.Serve(listener) // returns when it is closed
	}()
	transport := &http.Transport{DialContext: listener.Dial}
	end = func(ctx context.Context) error {
		transport.CloseIdleConnections()
		_ = web.Close()
		<-served
		return stop(ctx)
	}
	c, err = client.New(client.Config{URL: "http://store", HTTP: &http.Client{Transport: transport}})
	if err != nil {
		return nil, nil, errors.Join(err, end(ctx))
	}
	return c, end, nil
}

// print prints a result as JSON, or in the form for people.
func (t *target) print(out io.Writer, value any, people func()) error {
	if !t.json {
		people()
		return nil
	}
	return writeJSON(out, value)
}

// writeJSON prints a value. What does not print is escaped, so that it neither controls a
// terminal nor hides from whoever reads the output there.
func writeJSON(out io.Writer, value any) error {
	var encoded strings.Builder
	encoder := json.NewEncoder(&encoded)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(out, visibleText(encoded.String()))
	return err
}

// when formats a time in the local zone.
func when(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.Local().Format("2006-01-02 15:04:05")
}

func oneSession(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return usageError{fmt.Errorf("name one session (see %s --help)", cmd.CommandPath())}
}
