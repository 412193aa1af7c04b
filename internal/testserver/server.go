package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
)

// Server is a server that belongs to one test. Its methods may be called from any goroutine; what goes wrong fails the
// test.
type Server struct {
	tb     testing.TB
	server *server
}

// URL returns the address that a client is configured with.
func (s *Server) URL() string { return s.server.url() }

// Addr returns the host and port that the server listens on. They stay the same when it is started again.
func (s *Server) Addr() string { return s.server.addr() }

// Kill ends all processes of the server at once with SIGKILL, and returns when they are gone.
func (s *Server) Kill() {
	s.tb.Helper()
	s.check("kill", s.server.kill())
}

// Stop shuts the server down in an orderly way, without waiting for clients to leave.
func (s *Server) Stop() {
	s.tb.Helper()
	s.check("stop", s.server.stop())
}

// Start starts the server again after Kill or Stop, on the same port and data, and returns when it accepts clients.
func (s *Server) Start() {
	s.tb.Helper()
	s.check("start", s.server.start(context.WithoutCancel(s.tb.Context())))
}

// Pause stops all processes of the server with SIGSTOP: connections stay open and nothing is answered.
func (s *Server) Pause() {
	s.tb.Helper()
	s.check("pause", s.server.pause())
}

// Resume continues a paused server.
func (s *Server) Resume() {
	s.tb.Helper()
	s.check("resume", s.server.resume())
}

// Log returns the end of what the server has logged.
func (s *Server) Log() string { return s.server.logTail() }

func (s *Server) check(what string, err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Errorf("%s %s: %v", what, s.server.program.name, err)
	}
}

// program is what a server runs: which processes, and how to tell that they are ready.
type program struct {
	name string // for messages
	// owner is who the data directory belongs to; nil for this process's user.
	owner *account
	// prepare makes the data directory; it runs once.
	prepare func(ctx context.Context, place *place) error
	// launch starts the processes. Their output goes to log.
	launch func(place *place, log *os.File) (process, error)
	// ping asks the server once whether it is ready.
	ping func(ctx context.Context, addr string) error
	url  func(addr string) string
	// dropped says that the server is killed when it is needed no more: an orderly end would take it seconds.
	dropped bool
	// clean removes what a server that was killed leaves outside its directory. May be nil.
	clean func(place *place)
}

// process is a running server, wherever it runs.
type process interface {
	// done is closed when the server has ended, by itself or not.
	done() <-chan struct{}
	// shutdown asks the server to end in an orderly way and does not wait.
	shutdown() error
	// kill ends the server at once and returns when all of it is gone.
	kill() error
	pause() error
	resume() error
}

// server is a program at its place. Its process comes and goes.
type server struct {
	program *program
	place   *place

	mu      sync.Mutex
	process process // nil if not started
	paused  bool
}

// startAttempts is how often a new server is given another port because the first was taken after all.
const startAttempts = 3

// newServer starts a program at a new place.
func newServer(ctx context.Context, p *program) (*server, error) {
	var errs []error
	for range startAttempts {
		s, err := tryNewServer(ctx, p)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
		if !strings.Contains(strings.ToLower(err.Error()), "address already in use") { // in the server's log
			break
		}
	}
	return nil, fmt.Errorf("start %s: %w", p.name, errors.Join(errs...))
}

func tryNewServer(ctx context.Context, p *program) (*server, error) {
	place, err := claimPlace(p.owner)
	if err != nil {
		return nil, err
	}
	s := &server{program: p, place: place}
	if err := p.prepare(ctx, place); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) addr() string { return s.place.addr() }

func (s *server) url() string { return s.program.url(s.addr()) }

// errEnded says that a server ended by itself while it was awaited.
var errEnded = errors.New("the server ended")

func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return errors.New("it runs already")
	}
	log, err := os.OpenFile(s.place.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	process, err := s.program.launch(s.place, log)
	if err != nil {
		return err
	}
	if err := s.awaitReady(ctx, process); err != nil {
		return fmt.Errorf("%w\nits log ends with:\n%s", errors.Join(err, process.kill()), s.logTail())
	}
	s.process, s.paused = process, false
	return nil
}

func (s *server) awaitReady(ctx context.Context, process process) error {
	ctx, cancel := context.WithTimeout(ctx, eventually.Patience)
	defer cancel()
	var err error
	ended := false
	late := eventually.PollContext(ctx, func() bool {
		err = s.program.ping(ctx, s.addr())
		select {
		case <-process.done():
			ended = true
		default:
		}
		return ended || err == nil
	})
	switch {
	case ended:
		return errEnded
	case late != nil:
		return fmt.Errorf("not ready: %w", err)
	}
	return nil
}

func (s *server) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	err := s.process.kill()
	s.process = nil
	return err
}

func (s *server) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	process := s.process
	s.process = nil
	if s.paused {
		if err := process.resume(); err != nil {
			return errors.Join(err, process.kill())
		}
	}
	if err := process.shutdown(); err != nil {
		return errors.Join(err, process.kill())
	}
	timeout := time.NewTimer(eventually.Patience)
	defer timeout.Stop()
	again := time.NewTicker(time.Second) // waits: a Redis that is writing its first append-only file refuses to stop, and forgets
	defer again.Stop()
	for {
		select {
		case <-process.done():
			return nil
		case <-again.C:
			_ = process.shutdown() // or it has just ended
			continue
		case <-timeout.C:
		}
		err := fmt.Errorf("%s did not stop within %v; its log ends with:\n%s", s.program.name, eventually.Patience, s.logTail())
		return errors.Join(err, process.kill())
	}
}

func (s *server) pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return errors.New("it is not running")
	}
	s.paused = true
	return s.process.pause()
}

func (s *server) resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return errors.New("it is not running")
	}
	s.paused = false
	return s.process.resume()
}

// close stops the server and gives its place back.
func (s *server) close() error {
	end := s.stop
	if s.program.dropped {
		end = s.kill
	}
	err := end()
	if s.program.clean != nil {
		s.program.clean(s.place)
	}
	return errors.Join(err, s.place.release())
}

// logSize is how much of a log a message shows.
const logSize = 4 << 10

func (s *server) logTail() string {
	log, err := os.ReadFile(s.place.logFile())
	if err != nil {
		return err.Error()
	}
	if len(log) > logSize {
		log = log[len(log)-logSize:]
		if _, rest, ok := bytes.Cut(log, []byte("\n")); ok {
			log = rest
		}
	}
	return string(log)
}
