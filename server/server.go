package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/shares"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// Server is the handler of all routes. It has no state of its own: any number of servers
// may share one store.
type Server struct {
	cfg     Config
	mux     *http.ServeMux
	cross   *http.CrossOriginProtection
	limit   *limiter
	starts  *starts
	budget  *budget
	metrics *metrics
	openAPI func() ([]byte, error) // described once, when first asked for

	transcripts *shares.Shares[Identity] // transcripts being read as a whole
	compactions *shares.Shares[Identity] // transcripts being compacted
	blobs       *shares.Shares[Identity] // blobs being downloaded
	reloads     reloads
	copies      shares.Permits // copies of sessions being made
	listings    listings

	mu      sync.Mutex
	open    map[*exchange]bool // open streams
	perUser map[Identity]int   // open streams per identity
	idle    chan struct{}      // closed when the last stream has ended after closing
	closing chan struct{}
	closed  bool
}

// New returns a server.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.fill()
	cross, err := crossOrigin(cfg.CORS)
	if err != nil {
		return nil, session.Invalid("CORS", "%v", err)
	}
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(), cross: cross, limit: newLimiter(cfg.RateLimit), metrics: newMetrics(),
		starts: &starts{by: map[Identity]*runCount{}}, transcripts: shares.New[Identity](wholeTranscripts, largeEach),
		compactions: shares.New[Identity](wholeTranscripts, largeEach), blobs: shares.New[Identity](largeBlobs, largeEach),
		copies: make(shares.Permits, sessionCopies),
		budget: newBudget(cfg.Limits.Buffered, cfg.Limits.Body),
		open:   map[*exchange]bool{}, perUser: map[Identity]int{}, idle: make(chan struct{}), closing: make(chan struct{}),
	}
	s.listings.closing = s.closing
	routes := table()
	s.openAPI = sync.OnceValues(func() ([]byte, error) {
		return describeAPI(cmp.Or(cfg.ServiceName, "Helix agent server"), routes)
	})
	for _, r := range routes {
		s.mux.HandleFunc(r.pattern(), func(_ http.ResponseWriter, q *http.Request) { s.serve(&r, q) })
	}
	return s, nil
}

// exchangeKey is the context key of the exchange, which passes it through the mux.
type exchangeKey struct{}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{server: s, w: &recorder{ResponseWriter: w}, caller: r.Context(), began: time.Now()}
	x.r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	defer x.finish()
	defer s.leave(x)
	defer x.recover()
	if r.ContentLength == 0 { // without a body, reading detects that the client disconnected
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	}
	x.identifyRequest()
	if err := s.host(x); err != nil {
		x.fail(err)
		return
	}
	if done, err := s.origin(x); err != nil || done {
		if err != nil {
			x.fail(err)
		}
		return
	}
	if _, pattern := s.mux.Handler(x.r); pattern == "" {
		x.fail(s.noRoute(x))
		return
	}
	s.mux.ServeHTTP(x.w, x.r)
}

// serve serves a request that matches a route.
func (s *Server) serve(to *route, r *http.Request) {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	x.route, x.r = to, r
	if err := s.admit(x); err != nil {
		x.fail(err)
		return
	}
	if err := to.handle(x); err != nil {
		x.fail(err)
	}
}

// admit sets the request's identity, and the stores and executor that it may use.
func (s *Server) admit(x *exchange) error {
	if v := x.r.Header.Get(wire.HeaderVersion); v != "" && v != wire.ProtocolVersion {
		return refuse(http.StatusBadRequest, wire.CodeVersion, "this server speaks version "+wire.ProtocolVersion+" of the API").
			field(wire.HeaderVersion)
	}
	if x.route.open {
		return nil
	}
	who, err := s.identify(x.r)
	if err != nil {
		return err
	}
	x.who = who
	if wait, ok := s.limit.take(who); !ok {
		return refuse(http.StatusTooManyRequests, wire.CodeRateLimited, "too many requests; slow down").limit(limitRate).retry(wait)
	}
	x.sessions = s.cfg.Backend.Sessions().Tenant(who.Tenant)
	x.streams = s.cfg.Backend.Streams().Tenant(who.Tenant)
	x.executor = s.cfg.Executor.Tenant(who.Tenant)
	return nil
}

// offered returns the agents that users may talk to.
func (s *Server) offered() []*helix.Agent {
	return slices.DeleteFunc(slices.Clone(s.cfg.Agents()), func(a *helix.Agent) bool { return a.Internal })
}

// agent returns the offered agent that a field of the request names.
func (s *Server) agent(field, name string) (*helix.Agent, error) {
	for _, agent := range s.offered() {
		if agent.Name == name {
			return agent, nil
		}
	}
	if name == "" {
		return nil, session.Invalid(field, "must not be empty")
	}
	err := session.UnknownAgent(name)
	err.Field = field
	return nil, err
}

// agentFor returns the agent of a session for a turn or a copy. Only operators may use
// sessions of sub-agents and of agents that are not offered: a user would bypass the agent
// in front of them.
func (x *exchange) agentFor(field string, state *session.State) (*helix.Agent, error) {
	if x.who.Operator {
		return x.server.agentOf(state)
	}
	if state.ParentID != "" {
		return nil, session.Invalid(field, "%q is the session of a sub-agent; use the conversation's root session", state.ID)
	}
	return x.server.agent("", state.Agent)
}

// agentOf returns the agent of an existing session: an offered one, or one that those may
// call.
func (s *Server) agentOf(state *session.State) (*helix.Agent, error) {
	for _, offered := range s.cfg.Agents() {
		for _, agent := range offered.Reaches() {
			if agent.Name == state.Agent {
				return agent, nil
			}
		}
	}
	return nil, session.UnknownAgent(state.Agent)
}

// farewell is how long the reader of a stream may take for the last frames during shutdown.
const farewell = time.Second

// Shutdown ends all streams, refuses new ones, and waits until they are closed. Call it
// before [http.Server.Shutdown], which waits for requests to end.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
		for x := range s.open { // interrupts writes that wait for their client
			_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(farewell))
		}
		if len(s.open) == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enter counts an exchange as a stream until it ends.
func (s *Server) enter(x *exchange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open[x]:
		return nil
	case s.closed:
		return refuse(http.StatusServiceUnavailable, wire.CodeShuttingDown, "the server is shutting down").retry(time.Second)
	case len(s.open) >= s.cfg.Limits.Streams:
		return refuse(http.StatusServiceUnavailable, session.CodeUnavailable, "too many streams are open").retry(time.Second)
	case x.who.User != "" && s.perUser[x.who] >= s.cfg.Limits.StreamsPerUser:
		return refuse(http.StatusTooManyRequests, wire.CodeRateLimited, "you have too many streams open").limit(limitStreams).retry(time.Second)
	}
	s.open[x] = true
	s.perUser[x.who]++
	return nil
}

func (s *Server) leave(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open[x] {
		return
	}
	delete(s.open, x)
	if s.perUser[x.who]--; s.perUser[x.who] == 0 {
		delete(s.perUser, x.who)
	}
	if s.closed && len(s.open) == 0 {
		close(s.idle)
	}
}

// recover responds to a request whose handler panicked.
func (x *exchange) recover() {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // the way to abort a connection
	}
	begun := x.w.status != 0
	x.panicked(p)
	x.fail(session.ErrInternal)
	if begun {
		panic(http.ErrAbortHandler) // a response that just ends would look complete
	}
}

// panicked logs a panic.
func (x *exchange) panicked(p any) {
	x.server.cfg.Logger.ErrorContext(x.r.Context(), "request.panicked", x.attrs("panic", p, "stack", string(debug.Stack()))...)
}
