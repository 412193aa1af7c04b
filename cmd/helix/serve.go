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
	"time"

	"github.com/spf13/cobra"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/server"
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

The file is helix.yaml, and "helix check" says what is wrong with one. It is read
again when it changes: agents and tokens are then those of the file, and the log
says if other settings have changed, which need a restart. A version that is not
valid is refused with the reason, and everything stays as it was. Without a file, a demo is served: its agents use a
model whose key is in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY or
GEMINI_API_KEY), and without a key a scripted one; HELIX_MODEL names another.

Who may use the server is said by the tokens in the file (server.tokens). Without
any, the server starts only with --allow-unauthenticated, and then listens on this
machine alone, and serves requests for its names alone: a web page that has its own
name point here is refused. --expose-unauthenticated lets it listen elsewhere, and
--host, or server.hosts in the file, says by which names it is reached there.

Sessions are kept in a SQLite file unless --store, the variable HELIX_STORE or the
file names a server; an address with a password belongs into one of the latter two.
Several helix serve may share a Postgres or Redis: any of them continues what
another left behind.

Turns are driven by this process, unless --runtime, or the file, says that a Temporal
server drives them, or DBOS in a database. This process works for Temporal, too,
unless --worker=false leaves that to "helix worker". What else there is to know about
the connection, such as certificates, comes from the variables that Temporal's own
command line uses. DBOS keeps its workflows in the store's Postgres, or beside the
store's SQLite file, unless it is told otherwise.

Ctrl-C, or SIGTERM, ends the open streams, gives running turns
--grace to end, and leaves the others to the next start, which continues them.
SIGHUP has the file read again at once; the server goes on.`,
		Example: `  helix serve --allow-unauthenticated            the demo, on this machine
  helix serve --config helix.yaml                your agents
  helix serve --config helix.yaml --addr :4170 --store postgres://helix@db/agents
  helix serve --config helix.yaml --store postgres://helix@db/agents --streams redis://cache:6379
  helix serve --config helix.yaml --store postgres://helix@db/agents --runtime temporal`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runServe(cmd.Context(), &opts, cmd.ErrOrStderr(), signals)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.addr, "addr", "", "`HOST:PORT` to listen on (default "+defaultAddr+")")
	flags.BoolVar(&opts.anonymous, "allow-unauthenticated", false, "serve whoever can reach the server")
	flags.BoolVar(&opts.expose, "expose-unauthenticated", false, "with --allow-unauthenticated: listen also where other machines can reach it")
	flags.StringArrayVar(&opts.hosts, "host", nil, "`NAME` that the server goes by, or * for any; may be repeated (default: server.hosts in the file)")
	opts.flags(cmd)
	flags.BoolVar(&opts.runtime.worker, "worker", true, "with --runtime temporal: work on turns, and not only start them")
	versionFlag(cmd)
	return cmd
}

// service is a server and what it stands on.
type service struct {
	*node
	asked *serveOptions
	// authenticate is nil where everybody is let in; else it goes by the tokens, which
	// the file may change.
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
	if err := opts.checkHosts(file, s.authenticate == nil && !loopback(addr)); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	if err := s.open(ctx, file); err != nil {
		return errors.Join(err, listener.Close())
	}
	return s.run(ctx, file, listener, signals)
}

// open makes everything that serves, but does not listen yet.
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
func authenticate(opts *serveOptions, file *config.File) (tokens, error) {
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

// names are those that the server goes by. Without any, the server takes requests for
// any name where callers are known by tokens, and else for this machine's own.
func (o *serveOptions) names(file *config.File) []string {
	if len(o.hosts) > 0 {
		return o.hosts
	}
	return file.Server.Hosts
}

// checkHosts checks the names. A server that other machines reach though it knows nobody
// must be told them: only the Host header distinguishes a request forged by a web page.
func (o *serveOptions) checkHosts(file *config.File, exposed bool) error {
	for _, host := range o.hosts {
		if err := config.CheckHost(host); err != nil {
			return usageError{fmt.Errorf("--host %q: %w", host, err)}
		}
	}
	if exposed && len(o.names(file)) == 0 {
		return usageError{errors.New("say by which names other machines reach the server: --host NAME (or server.hosts in the file), " +
			"or --host '*' for any, which lets every web page that they open use it")}
	}
	return nil
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

// stop ends the streams, then the requests, then the turns.
func (s *service) stop(ctx context.Context, web *http.Server) error {
	_ = s.api.Shutdown(ctx) // streams that do not end in time are cut by Close
	if err := web.Shutdown(ctx); err != nil {
		_ = web.Close()
	}
	return s.close(ctx)
}
