package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/store"
)

const (
	defaultAddr = "127.0.0.1:4170"
	reloadEvery = time.Second
)

type serveOptions struct {
	addr      string
	config    string
	data      string
	store     string
	streams   string
	anonymous bool
	expose    bool
	grace     time.Duration
	logFormat string
	logLevel  string
}

func serveCommand(signals <-chan os.Signal) *cobra.Command {
	var opts serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve agents over HTTP",
		Long: `Serve the agents of a file over HTTP: to browsers with Vercel's AI SDK, to other
services, and to the page at /.

The file is helix.yaml, and "helix check" says what is wrong with one. It is read
again when it changes: agents and tokens are then those of the file, and the log
says if other settings have changed, which need a restart. A version that is not
valid is refused with the reason, and everything stays as it was. Without a file, a demo is served: its agents use a
model whose key is in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY or
GEMINI_API_KEY), and without a key a scripted one; HELIX_MODEL names another.

Who may use the server is said by the tokens in the file (server.tokens). Without
any, the server starts only with --allow-unauthenticated, and then listens on this
machine alone.

Sessions are kept in a SQLite file unless --store, or the file, names a server.
Several helix serve may share a Postgres or Redis: any of them continues what
another left behind. Ctrl-C, or SIGTERM, ends the open streams, gives running turns
--grace to end, and leaves the others to the next start, which continues them.`,
		Example: `  helix serve --allow-unauthenticated            the demo, on this machine
  helix serve --config helix.yaml                your agents
  helix serve --config helix.yaml --addr :4170 --store postgres://helix@db/agents
  helix serve --config helix.yaml --store postgres://helix@db/agents --streams redis://cache:6379`,
		Version: version(),
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runServe(cmd.Context(), opts, cmd.ErrOrStderr(), signals)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.addr, "addr", "", "`host:port` to listen on (default "+defaultAddr+")")
	flags.StringVar(&opts.config, "config", "", "`file` of the agents (default: the demo)")
	flags.StringVar(&opts.data, "data", "", "`directory` or SQLite file to keep sessions in")
	flags.StringVar(&opts.store, "store", "", "`address` of the store: sqlite:PATH, postgres://…, redis://… or memory:")
	flags.StringVar(&opts.streams, "streams", "", "`address` of a store for the streams alone")
	flags.BoolVar(&opts.anonymous, "allow-unauthenticated", false, "serve whoever can reach the server")
	flags.BoolVar(&opts.expose, "expose-unauthenticated", false, "with --allow-unauthenticated: listen also where other machines can reach it")
	flags.DurationVar(&opts.grace, "grace", 5*time.Second, "how long running turns may go on after a signal to stop")
	flags.StringVar(&opts.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&opts.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// service is a server and what it stands on.
type service struct {
	opts serveOptions
	out  io.Writer
	log  *slog.Logger
	// authenticate is nil where everybody is let in; else it goes by the tokens, which
	// the file may change.
	authenticate func(*http.Request) (server.Identity, error)
	tokens       atomic.Pointer[tokens]
	db           store.Backend
	address      string // of the store, as people write it
	rt           *local.Runtime
	api          *server.Server
	agents       atomic.Pointer[[]*helix.Agent]
}

func runServe(ctx context.Context, opts serveOptions, out io.Writer, signals <-chan os.Signal) error {
	switch {
	case opts.data != "" && opts.store != "":
		return usageError{errors.New("--data and --store exclude each other")}
	case opts.grace < 0:
		return usageError{errors.New("--grace is negative")}
	}
	log, err := newLogger(out, opts.logFormat, opts.logLevel)
	if err != nil {
		return err
	}
	file, err := readConfig(opts.config)
	if err != nil {
		return err
	}
	s := &service{opts: opts, out: out, log: log}
	known, err := authenticate(opts, file)
	if err != nil {
		return err
	}
	if known != nil {
		s.tokens.Store(&known)
		s.authenticate = func(r *http.Request) (server.Identity, error) { return (*s.tokens.Load())(r) }
	}
	// Nothing is opened for a server that must not listen.
	addr := cmp.Or(opts.addr, file.Server.Addr, defaultAddr)
	if s.authenticate == nil && !opts.expose && !loopback(addr) {
		return usageError{fmt.Errorf("%s can be reached from other machines, by anybody: add tokens to the file, "+
			"or --expose-unauthenticated if that is what you want", addr)}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	if err := s.open(file); err != nil {
		return errors.Join(err, listener.Close())
	}
	return s.run(ctx, file, listener, signals)
}

// readConfig reads a file of agents, or else the demo's.
func readConfig(path string) (*config.File, error) {
	if path == "" {
		return demoFile()
	}
	return config.Load(path)
}

// open makes everything that serves, but does not listen yet.
func (s *service) open(file *config.File) error {
	agents, err := file.Build(buildOptions(s.log))
	if err != nil {
		return err
	}
	s.agents.Store(&agents)
	if s.db, err = s.openStore(file); err != nil {
		return err
	}
	cfg := runtimeConfig(file)
	cfg.Backend, cfg.Agents, cfg.Logger = s.db, agents, s.log
	s.rt, err = local.New(cfg)
	if err != nil {
		return errors.Join(err, s.db.Close())
	}
	s.api, err = server.New(server.Config{
		Executor: s.rt, Backend: s.db, Agents: func() []*helix.Agent { return *s.agents.Load() },
		Authenticate: s.authenticate, AllowUnauthenticated: s.authenticate == nil,
		Limits:    limits(&file.Server.Limits),
		RateLimit: server.RateLimit{PerSecond: file.Server.RateLimit.PerSecond, Burst: file.Server.RateLimit.Burst},
		Hosts:     s.hosts(), CORS: file.Server.CORS, Verbose: file.Server.Verbose, Logger: s.log, Cleanup: s.rt.Cleanup,
	})
	if err != nil {
		return errors.Join(err, s.close(context.Background()))
	}
	return nil
}

// runtimeConfig is what a file says about runs.
func runtimeConfig(file *config.File) local.Config {
	retries := 0
	if file.Runtime.ModelRetries != nil {
		retries = cmp.Or(*file.Runtime.ModelRetries, -1)
	}
	return local.Config{LeaseTTL: time.Duration(file.Runtime.LeaseTTL), Sweep: time.Duration(file.Runtime.Sweep), ModelRetries: retries}
}

func limits(of *config.Limits) server.Limits {
	return server.Limits{
		Body: of.Body, ReadTimeout: time.Duration(of.ReadTimeout), WriteTimeout: time.Duration(of.WriteTimeout),
		Operation: time.Duration(of.Operation), Streams: of.Streams, StreamsPerUser: of.StreamsPerUser,
	}
}

// tokens tell who sends a request.
type tokens func(*http.Request) (server.Identity, error)

// tokensOf are the tokens that a file has. Without any, nobody is known.
func tokensOf(file *config.File) (tokens, error) {
	if len(file.Server.Tokens) == 0 {
		return func(*http.Request) (server.Identity, error) {
			return server.Identity{}, errors.New("the file has no tokens")
		}, nil
	}
	all := make([]server.Token, len(file.Server.Tokens))
	for i, t := range file.Server.Tokens {
		all[i] = server.Token{Token: t.Token, Identity: server.Identity{User: t.User, Tenant: t.Tenant, Operator: t.Operator}}
	}
	return server.Tokens(all...)
}

// authenticate is how the file says that callers are known; nil lets everybody in.
func authenticate(opts serveOptions, file *config.File) (tokens, error) {
	if len(file.Server.Tokens) > 0 {
		if opts.anonymous {
			return nil, usageError{errors.New("--allow-unauthenticated is set, and the file has tokens: choose one")}
		}
		return tokensOf(file)
	}
	if !opts.anonymous && !file.Server.AllowUnauthenticated {
		return nil, usageError{errors.New("nobody could use the server: put tokens into the file (server.tokens), " +
			"or serve whoever can reach it with --allow-unauthenticated (see helix serve --help)")}
	}
	return nil, nil
}

// hosts are the names that the server goes by. One that other machines reach though it
// knows nobody has whatever name they use.
func (s *service) hosts() []string {
	if s.opts.expose {
		return []string{server.AnyHost}
	}
	return nil
}

// openStore opens the store, and that of the streams if it is another.
func (s *service) openStore(file *config.File) (store.Backend, error) {
	address := cmp.Or(s.opts.store, s.opts.data, file.Store)
	address, err := dataAddress(address, true)
	if err != nil {
		return nil, err
	}
	s.address = shown(address)
	sessions, err := backend.Open(address, s.log)
	if err != nil {
		return nil, err
	}
	apart := cmp.Or(s.opts.streams, file.Streams)
	if apart == "" {
		return sessions, nil
	}
	if apart, err = dataAddress(apart, true); err == nil {
		var streams store.Backend
		if streams, err = backend.Open(apart, s.log); err == nil {
			s.address += ", streams in " + shown(apart)
			return store.Mix{SessionsOf: sessions, StreamsOf: streams, LocksOf: sessions}, nil
		}
	}
	return nil, errors.Join(err, sessions.Close())
}

// loopback reports whether an address is of this machine alone.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true // what is wrong with it is said by listening
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// run serves until a signal comes.
func (s *service) run(ctx context.Context, file *config.File, listener net.Listener, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	web := server.HTTPServer("", withPage(s.api))
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	var beside sync.WaitGroup
	beside.Go(func() { s.reload(ctx, file) })
	beside.Go(func() { s.cleanUp(ctx, time.Duration(file.Cleanup.Every)) })
	s.greet(listener)

	var failure error
	select {
	case <-signals:
	case <-ctx.Done():
	case failure = <-served:
	}
	fmt.Fprintln(s.out, "helix: stopping; what still runs is continued by the next start")
	cancel()
	beside.Wait()
	return errors.Join(failure, s.stop(web, signals))
}

// greet says where the server is. People see it; programs read the log.
func (s *service) greet(listener net.Listener) {
	var names []string
	for _, agent := range *s.agents.Load() {
		names = append(names, agent.Name)
	}
	fmt.Fprintf(s.out, "helix: serving on http://%s\n  agents: %s\n  data:   %s\n", listener.Addr(), strings.Join(names, ", "), s.address)
}

// cleanUp fails the sessions whose time is up, every so often if at all, and says what
// that came to.
func (s *service) cleanUp(ctx context.Context, every time.Duration) {
	if every == 0 {
		return
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		done, err := s.rt.Cleanup(ctx, "")
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.log.ErrorContext(ctx, "expired sessions could not be cleaned up", "error", err)
		default:
			s.log.InfoContext(ctx, "expired sessions were cleaned up", "detected", done.Detected, "marked", done.Marked,
				"already_terminal", done.AlreadyTerminal, "running", done.Running, "errors", done.Errors)
		}
	}
}

// stop ends the streams, then the requests, then the turns. Another signal cuts the
// waiting short: what runs is continued by whoever comes next in any case.
func (s *service) stop(web *http.Server, signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.grace)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-done:
		}
	}()
	_ = s.api.Shutdown(ctx) // streams that do not end in time are cut by Close
	if err := web.Shutdown(ctx); err != nil {
		_ = web.Close()
	}
	return s.close(ctx)
}

// close lets go of what runs when the context ends, and closes everything.
func (s *service) close(ctx context.Context) error {
	return errors.Join(s.rt.Close(ctx), s.db.Close())
}
