package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/page"
)

const defaultAddr = "127.0.0.1:4170"

type serveOptions struct {
	nodeOptions
	addr      string
	anonymous bool
	expose    bool
	hosts     []string
}

func serveCommand(signals <-chan os.Signal) *cobra.Command {
	var opts serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve agents over HTTP",
		Long: `Serve the agents of a file over HTTP: to browsers with Vercel's AI SDK, to other
services, and to the page at /.

The file is the one in --config, or helix.yaml in this directory; "helix init" writes one
to begin with, and "helix check" lists the problems of a file. When the file changes, it
is read again: agents and tokens take effect at once, and the log warns about other
settings, which need a restart. An invalid file is refused and logged, and the old
settings stay in effect. Without a file, or with --config demo, a demo is served. Its agents use a model whose
key is in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY), or a
script if there is no key; HELIX_MODEL selects another model.

The tokens in the file (server.tokens) determine who may use the server. Without
tokens, the server starts only with --allow-unauthenticated. It then listens on this
machine only and accepts only requests for this machine's names, so a web page whose
own name points here is refused. --expose-unauthenticated lets it listen elsewhere;
--host, or server.hosts in the file, sets the names under which it is reached there.

Sessions are stored in a SQLite file unless --store, HELIX_STORE or the file selects a
server. Put an address with a password into the variable or the file. Several
processes can share a Postgres or Redis: each of them recovers the turns of the others.

This process runs the turns, unless --runtime or the file selects Temporal or DBOS.
With Temporal this process is a worker, too, unless --worker=false leaves the turns to
"helix worker"; other connection settings, such as certificates, are read from the
variables of Temporal's own command line. DBOS stores its workflows in the store's
Postgres, or beside the store's SQLite file, unless you name another database.

Ctrl-C or SIGTERM ends the open streams and gives running turns --grace to finish. The
next start continues the others. SIGHUP reloads the file at once.`,
		Example: `  helix serve --allow-unauthenticated            the demo, if there is no helix.yaml
  helix serve                                    the agents of helix.yaml in this directory
  helix serve --config agents/helix.yaml --addr :4170 --store postgres://helix@db/agents
  helix serve --store postgres://helix@db/agents --streams redis://cache:6379
  helix serve --store postgres://helix@db/agents --runtime temporal`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runServe(cmd.Context(), &opts, cmd.ErrOrStderr(), signals)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.addr, "addr", "", "`HOST:PORT` to listen on (default "+defaultAddr+")")
	flags.BoolVar(&opts.anonymous, "allow-unauthenticated", false, "serve everybody who can reach the server")
	flags.BoolVar(&opts.expose, "expose-unauthenticated", false, "with --allow-unauthenticated: allow an address that other machines can reach")
	flags.StringArrayVar(&opts.hosts, "host", nil, "host `NAME` of the server, or * for any; may be repeated (default: server.hosts in the file)")
	opts.flags(cmd)
	flags.BoolVar(&opts.runtime.worker, "worker", true, "with --runtime temporal: also run turns, not only start them")
	versionFlag(cmd)
	return cmd
}

// service is a server with its store and runtime.
type service struct {
	*node
	asked *serveOptions
	// authenticate is nil if everybody is admitted. Otherwise it checks the tokens, which a
	// reload may replace.
	authenticate func(*http.Request) (server.Identity, error)
	tokens       atomic.Pointer[tokens]
	api          *server.Server
}

func runServe(ctx context.Context, opts *serveOptions, out io.Writer, signals <-chan os.Signal) error {
	s := &service{node: &node{opts: &opts.nodeOptions, out: out}, asked: opts}
	file, err := s.prepare()
	if err != nil {
		return err
	}
	known, err := authenticate(opts, file, s.demo)
	if err != nil {
		return err
	}
	if known != nil {
		s.tokens.Store(&known)
		s.authenticate = func(r *http.Request) (server.Identity, error) { return (*s.tokens.Load())(r) }
	}
	// Check the address before anything is opened.
	addr := cmp.Or(opts.addr, file.Server.Addr, defaultAddr)
	if s.authenticate == nil && !opts.expose && !loopback(addr) {
		return usageError{fmt.Errorf("anybody on another machine could use a server on %s: add tokens to the file, "+
			"or --expose-unauthenticated if you want that", addr)}
	}
	if err := opts.checkHosts(file, s.authenticate == nil && !loopback(addr)); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return explainListen(addr, err)
	}
	if err := s.open(ctx, file); err != nil {
		return errors.Join(err, listener.Close())
	}
	return s.run(ctx, file, listener, signals)
}

// explainListen says what to do about an address on which the server cannot listen.
func explainListen(addr string, err error) error {
	switch _, _, malformed := net.SplitHostPort(addr); {
	case malformed != nil:
		return usageError{fmt.Errorf("the address %q is not HOST:PORT, such as %s", addr, defaultAddr)}
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s: %w. Stop the program that listens there, perhaps another helix serve, or choose another address with --addr", addr, syscall.EADDRINUSE)
	}
	return err
}

// open creates everything that serves, but does not listen yet.
func (s *service) open(ctx context.Context, file *config.File) error {
	err := s.node.open(ctx, file)
	if err != nil {
		return err
	}
	s.api, err = server.New(server.Config{
		Executor: s.rt, Backend: s.db, Agents: func() []*helix.Agent { return *s.agents.Load() },
		Authenticate: s.authenticate, AllowUnauthenticated: s.authenticate == nil,
		Limits:    limits(&file.Server.Limits),
		RateLimit: server.RateLimit{PerSecond: float64(file.Server.RateLimit.PerSecond), Burst: file.Server.RateLimit.Burst},
		Hosts:     s.asked.names(file), CORS: file.Server.CORS, Verbose: file.Server.Verbose, Logger: s.log, Cleanup: s.rt.Cleanup,
		TaskStats: s.rt.TaskStats,
	})
	if err != nil {
		return errors.Join(err, s.close(context.Background()))
	}
	return nil
}

func limits(of *config.Limits) server.Limits {
	return server.Limits{
		Body: of.Body, Buffered: of.Buffered, Tags: of.Tags, Metadata: of.Metadata, StateKeys: of.StateKeys,
		Messages: of.Messages, Parts: of.Parts, RefuseRemoteFiles: of.RefuseRemoteFiles,
		ReadTimeout: time.Duration(of.ReadTimeout), WriteTimeout: time.Duration(of.WriteTimeout),
		Operation: time.Duration(of.Operation), Streams: of.Streams, StreamsPerUser: of.StreamsPerUser,
		RunsPerUser: int(of.RunsPerUser), PageBytes: of.PageBytes,
	}
}

// tokens identifies the sender of a request.
type tokens func(*http.Request) (server.Identity, error)

// tokensOf returns the authentication by the tokens of a file. Without tokens it refuses
// everybody.
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

// authenticate returns the authentication of the file; nil admits everybody. demo is set if the
// demo was asked for, and is not only what is served where there is no file.
func authenticate(opts *serveOptions, file *config.File, demo bool) (tokens, error) {
	if len(file.Server.Tokens) > 0 {
		if opts.anonymous {
			return nil, usageError{errors.New("--allow-unauthenticated cannot be combined with tokens in the file: choose one")}
		}
		return tokensOf(file)
	}
	if !opts.anonymous && opts.config == "" {
		why := "the demo has no tokens"
		if !demo {
			why = noConfig()
		}
		return nil, usageError{fmt.Errorf("%s. Serve the demo to everybody who can reach it with --allow-unauthenticated (see helix serve --help)", why)}
	}
	if !opts.anonymous && !file.Server.AllowUnauthenticated {
		return nil, usageError{errors.New("the server has no tokens: add some to the file (server.tokens), " +
			"or serve everybody who can reach it with --allow-unauthenticated (see helix serve --help)")}
	}
	return nil, nil
}

// names returns the host names of the server. Without any, a server with tokens accepts
// requests for any name, and one without tokens only for this machine's names.
func (o *serveOptions) names(file *config.File) []string {
	if len(o.hosts) > 0 {
		return o.hosts
	}
	return file.Server.Hosts
}

// checkHosts checks the host names. A server without tokens that other machines can reach
// must have some: only the Host header reveals a request that a web page forged.
func (o *serveOptions) checkHosts(file *config.File, exposed bool) error {
	for _, host := range o.hosts {
		if err := config.CheckHost(host); err != nil {
			return usageError{fmt.Errorf("--host %q: %w", host, err)}
		}
	}
	if exposed && len(o.names(file)) == 0 {
		return usageError{errors.New("set the names under which other machines reach the server: --host NAME (or server.hosts in the file), " +
			"or --host '*' for any, which lets every web page that they open use the server")}
	}
	return nil
}

// loopback reports whether an address belongs to this machine only.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true // listening will report what is wrong with it
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// run serves until a signal arrives.
func (s *service) run(ctx context.Context, file *config.File, listener net.Listener, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	web := server.HTTPServer("", page.New(page.Config{API: s.api}))
	var failure error
	served := make(chan struct{})
	go func() {
		defer close(served)
		failure = web.Serve(listener)
	}()
	var beside sync.WaitGroup
	beside.Go(func() { s.reload(ctx, file, s.replace, s.changed) })
	beside.Go(func() { s.cleanUp(ctx, time.Duration(file.Cleanup.Every)) })
	s.greet(fmt.Sprintf("serving on http://%s", listener.Addr()))

	s.awaitStop(ctx, signals, served)
	grace, done := s.leaving(signals)
	defer done()
	cancel()
	beside.Wait()
	err := s.stop(grace, web)
	<-served
	if errors.Is(failure, http.ErrServerClosed) {
		failure = nil
	}
	return errors.Join(failure, err)
}

// cleanUp fails expired sessions at an interval, if it is set, and logs the result.
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
			s.log.ErrorContext(ctx, "cleanup.failed", "error", err)
		default:
			s.log.InfoContext(ctx, "cleanup.completed", "detected", done.Detected, "marked", done.Marked,
				"already_terminal", done.AlreadyTerminal, "running", done.Running, "errors", done.Errors)
		}
	}
}

// stop ends the streams, then the requests, then the turns.
func (s *service) stop(ctx context.Context, web *http.Server) error {
	_ = s.api.Shutdown(ctx) // Close cuts streams that do not end in time
	if err := web.Shutdown(ctx); err != nil {
		_ = web.Close()
	}
	return s.close(ctx)
}
