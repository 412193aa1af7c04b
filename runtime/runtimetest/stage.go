package runtimetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// lease is how long an orphan waits for its takeover, where a scenario is about
// that.
const lease = 500 * time.Millisecond

// Stage is the environment of one scenario: its own backend, and executors on it.
type Stage struct {
	*testing.T
	// Backend holds what the scenario makes.
	Backend store.Backend
	// Log is what the executors log.
	Log *Log

	config   *Config
	scenario string       // "group/name"
	paced    *atomic.Bool // it has asked for a deadline
	name     string       // of the deployment
	tenants  []string
	loose    map[string]bool // sessions whose stream does not hold all of their transcript
	album    *album          // snapshots, if any are to be taken
	servers  []*server       // others, whose agents are called
}

func newStage(t *testing.T, config *Config, scenario string) *Stage {
	s := &Stage{
		T: t, Backend: config.NewBackend(t), Log: &Log{}, config: config, scenario: scenario, paced: &atomic.Bool{}, name: session.NewID(),
		tenants: []string{session.DefaultTenant}, loose: map[string]bool{},
	}
	if config.Snapshots {
		s.album = newAlbum()
	}
	return s
}

// withNewBackend returns a stage for a part of the scenario that has a backend of its own, in
// which sessions may have the same ids.
func (s *Stage) withNewBackend() *Stage {
	t := *s
	t.Backend = s.config.NewBackend(s.T)
	if s.album != nil {
		t.album = newAlbum()
	}
	return &t
}

// pace returns a deadline of a scenario, adjusted to this runtime. The scenario must be in
// the list [timed].
func (s *Stage) pace(d time.Duration) time.Duration {
	s.Helper()
	s.paced.Store(true)
	if !timed[s.scenario] {
		s.Fatalf("the scenario %s waits for a deadline, and is not in the list of timed ones", s.scenario)
	}
	return d * time.Duration(max(s.config.Pace, 1))
}

// Start starts an executor that knows the agents.
func (s *Stage) Start(agents ...*helix.Agent) Executor {
	s.Helper()
	return s.StartWith(Options{Agents: agents})
}

// StartWith starts an executor on the stage's backend.
func (s *Stage) StartWith(opts Options) Executor {
	s.Helper()
	return s.startOn(s.Backend, opts)
}

// StartOther starts an executor as another process would: on a second handle.
func (s *Stage) StartOther(opts Options) Executor {
	s.Helper()
	return s.startOn(s.config.Reopen(s.T, s.Backend), opts)
}

func (s *Stage) startOn(backend store.Backend, opts Options) Executor {
	s.Helper()
	if opts.RetryBackoff == 0 {
		opts.RetryBackoff = time.Millisecond
	}
	if s.album != nil {
		backend = &witness{backend, s.album}
	}
	if opts.Sweep == 0 { // a lease that has expired is found several times sooner than the next one does
		opts.Sweep = opts.LeaseTTL / 4
	}
	mortal := s.newFrail(backend)
	opts.Backend = mortal
	opts.Logger = slog.New(slog.NewTextHandler(s.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	x := &process{s.config.NewRuntime(s.T, s.name, opts), mortal.kill, mortal.faults}
	s.Cleanup(func() {
		if err := x.Close(); err != nil {
			s.Errorf("close the executor: %v", err)
		}
	})
	return x
}

// over returns a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// ctx returns a context with a deadline for one call.
func (s *Stage) ctx() context.Context {
	return eventually.Context(s.T)
}

// Execute starts a turn that must not be refused.
func (s *Stage) Execute(x helix.Executor, agent *helix.Agent, in helix.Input) helix.Run {
	s.Helper()
	run, err := x.Execute(s.ctx(), agent, in)
	s.ok(err, "execute")
	return run
}

// Say executes a text on a session and waits for the end of the turn.
func (s *Stage) Say(x helix.Executor, agent *helix.Agent, sessionID, text string) *helix.Result {
	s.Helper()
	return s.Result(s.Begin(x, agent, sessionID, text))
}

// Begin executes a text on a session.
func (s *Stage) Begin(x helix.Executor, agent *helix.Agent, sessionID, text string) helix.Run {
	s.Helper()
	return s.Execute(x, agent, helix.Input{SessionID: sessionID, Message: helix.UserText(text)})
}

// Result waits for a run's end.
func (s *Stage) Result(run helix.Run) *helix.Result {
	s.Helper()
	res, err := run.Result(s.ctx())
	s.ok(err, "result of run %s", run.ID())
	return res
}

// Resume resumes a session. It must not be refused.
func (s *Stage) Resume(x helix.Executor, sessionID string, opts helix.ResumeOptions) helix.Run {
	s.Helper()
	run, err := x.Resume(s.ctx(), sessionID, opts)
	s.ok(err, "resume")
	return run
}

// Retry retries a failed session. It must not be refused.
func (s *Stage) Retry(x helix.Executor, sessionID string) helix.Run {
	s.Helper()
	run, err := x.Retry(s.ctx(), sessionID, helix.RetryOptions{})
	s.ok(err, "retry")
	return run
}

// Attach returns a handle on a session's run.
func (s *Stage) Attach(x helix.Executor, sessionID string) helix.Run {
	s.Helper()
	run, err := x.Attach(s.ctx(), sessionID)
	s.ok(err, "attach")
	return run
}

// store returns the session store of the default tenant.
func (s *Stage) store() session.Store { return s.Backend.Sessions() }

func (s *Stage) load(id string) *session.State {
	s.Helper()
	state, err := s.store().Load(s.ctx(), id)
	s.ok(err, "load %s", id)
	return state
}

func (s *Stage) messages(id string) []session.Message {
	s.Helper()
	messages, err := s.store().AllMessages(s.ctx(), id)
	s.ok(err, "messages of %s", id)
	return messages
}

func (s *Stage) runs(id string) []session.Run {
	s.Helper()
	page, err := s.store().Runs(s.ctx(), id, session.PageRequest{Limit: session.MaxPageSize})
	s.ok(err, "runs of %s", id)
	return page.Items
}

func (s *Stage) run(id, runID string) *session.Run {
	s.Helper()
	run, err := s.store().Run(s.ctx(), id, runID)
	s.ok(err, "run %s", runID)
	return run
}

// checkpoints lists a session's checkpoints, oldest first.
func (s *Stage) checkpoints(id string) []session.Checkpoint {
	s.Helper()
	page, err := s.store().Checkpoints(s.ctx(), id, session.PageRequest{Limit: session.MaxPageSize})
	s.ok(err, "checkpoints of %s", id)
	slices.Reverse(page.Items)
	return page.Items
}

// state returns a session's custom state as JSON.
func (s *Stage) state(id string) string {
	s.Helper()
	raw, err := s.load(id).Custom.MarshalJSON()
	s.ok(err, "state of %s", id)
	return string(raw)
}

// chunks returns all chunks of a session's stream.
func (s *Stage) chunks(id string) []stream.Chunk {
	s.Helper()
	return s.tenantChunks(session.DefaultTenant, id)
}

func (s *Stage) tenantChunks(tenant, id string) []stream.Chunk {
	s.Helper()
	items, err := s.Backend.Streams().Tenant(tenant).Chunks(s.ctx(), id, 0, 1<<20)
	s.ok(err, "chunks of %s", id)
	chunks := make([]stream.Chunk, len(items))
	for i := range items {
		if items[i].Sequence != int64(i)+1 {
			s.Fatalf("chunk %d of stream %s has sequence %d", i+1, id, items[i].Sequence)
		}
		chunks[i] = *items[i].Chunk
	}
	return chunks
}

// collect reads a stream to its terminal item.
func (s *Stage) collect(run helix.Run) (items []stream.Item) {
	s.Helper()
	for item, err := range run.Stream(s.ctx()) {
		s.ok(err, "stream of run %s", run.ID())
		items = append(items, item)
	}
	if len(items) == 0 || !items[len(items)-1].Terminal() {
		s.Fatalf("the stream of run %s ended without a terminal item: %s", run.ID(), kinds(items))
	}
	return items
}

// kinds lists the kinds of items, but for when a reader had caught up, which is
// different for each, and how many deltas a text came in, which depends on time.
func kinds(items []stream.Item) string {
	var out []string
	for _, item := range items {
		if item.Chunk != nil {
			kind := string(item.Chunk.Kind)
			if item.Chunk.Delta == "" || len(out) == 0 || out[len(out)-1] != kind {
				out = append(out, kind)
			}
		} else if item.Terminal() {
			out = append(out, "<"+string(item.Frame)+">")
		}
	}
	return strings.Join(out, " ")
}

// ofKind returns the chunks of a kind.
func ofKind(chunks []stream.Chunk, kind stream.Kind) (out []stream.Chunk) {
	for i := range chunks {
		if chunks[i].Kind == kind {
			out = append(out, chunks[i])
		}
	}
	return out
}

// ok fails the scenario on an error.
func (s *Stage) ok(err error, format string, args ...any) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// refused checks that an error matches a sentinel and contains certain words.
func (s *Stage) refused(err, want error, words ...string) {
	s.Helper()
	if own, ok := errors.AsType[*session.Error](err); ok && own == nil { // that of a call that did not fail
		err = nil
	}
	if !errors.Is(err, want) {
		s.Fatalf("got error %v, want one that is %v", err, want)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			s.Fatalf("the error %q does not say %q", err, word)
		}
	}
}

// ended checks the status of a result.
func (s *Stage) ended(res *helix.Result, want helix.Status) {
	s.Helper()
	if res.Status != want {
		s.Fatalf("run %s is %s (%v), want %s", res.RunID, res.Status, res.Error, want)
	}
}

// failed checks that a result has failed with an error that matches a sentinel and contains
// certain words.
func (s *Stage) failed(res *helix.Result, want error, words ...string) {
	s.Helper()
	s.ended(res, helix.Failed)
	s.refused(res.Error, want, words...)
}

// code is an error to match a code with.
func code(c session.Code) error { return &session.Error{Code: c} }

// same checks that two values are equal; see [equal].
func (s *Stage) same(got, want any, format string, args ...any) {
	s.Helper()
	if equal(got, want) {
		return
	}
	g, w := fmt.Sprint(got), fmt.Sprint(want)
	if g == w {
		g, w = fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want)
	}
	s.Fatalf("%s:\n got %s\nwant %s", fmt.Sprintf(format, args...), g, w)
}

// equal is [reflect.DeepEqual], but for numbers and strings of another type, which is what a
// constant often is, and for nil, which is an empty slice.
func equal(got, want any) bool {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	switch {
	case g.Kind() == reflect.String && w.Kind() == reflect.String:
		return g.String() == w.String()
	case g.CanInt() && w.CanInt():
		return g.Int() == w.Int()
	case g.CanUint() && w.CanInt():
		return w.Int() >= 0 && g.Uint() == uint64(w.Int())
	case g.Kind() == reflect.Slice && w.Kind() == reflect.Slice && g.Len()+w.Len() == 0:
		return g.Type() == w.Type()
	}
	return reflect.DeepEqual(got, want)
}

// sameJSON checks that two JSON values are equal.
func (s *Stage) sameJSON(got, want string, format string, args ...any) {
	s.Helper()
	s.same(canonical(got), canonical(want), format, args...)
}

func canonical(raw string) string {
	var v any
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return string(out)
}

// transcript checks that a session's messages render as lines; see [render].
func (s *Stage) transcript(id string, lines ...string) {
	s.Helper()
	s.same(render(s.messages(id)), strings.Join(lines, "\n"), "transcript of %s", id)
}

// render writes messages one per line, such as
//
//	user: hello
//	assistant: let me see, add({"n":1})
//	tool add: 3
//	tool add failed: tool_timeout
func render(messages []session.Message) string {
	lines := make([]string, len(messages))
	for i := range messages {
		lines[i] = renderMessage(&messages[i])
	}
	return strings.Join(lines, "\n")
}

func renderMessage(m *session.Message) string {
	var parts []string
	head := string(m.Role) + ": "
	for _, p := range m.Parts {
		switch p.Kind {
		case session.PartText:
			parts = append(parts, p.Text)
		case session.PartReasoning:
			parts = append(parts, "<"+p.Text+">")
		case session.PartFile:
			parts = append(parts, "["+p.MediaType+" "+p.URL+"]")
		case session.PartToolCall:
			parts = append(parts, p.Tool+"("+string(p.Input)+")")
		case session.PartToolResult:
			head = "tool " + p.Tool + ": "
			if p.Error != nil {
				head = "tool " + p.Tool + " failed: "
				parts = append(parts, string(p.Error.Code))
			} else {
				parts = append(parts, string(p.ResultJSON()))
			}
		}
	}
	line := head + strings.Join(parts, ", ")
	if m.Hidden() {
		line += " [hidden]"
	}
	if stop, ok := m.Metadata[session.MetaInterrupted]; ok {
		line += " " + string(stop)
	}
	return line
}

// until waits until done reports true.
func (s *Stage) until(what string, done func() bool) {
	s.Helper()
	eventually.Poll(s.T, what, done)
}

// idle lets time pass in which nothing must happen.
//
// waits: what must not happen has no signal; on most backends this is a bubble's time
func (s *Stage) idle(d time.Duration) { <-time.After(d) }

// receive waits for a signal.
func (s *Stage) receive(what string, signal <-chan struct{}) {
	s.Helper()
	eventually.Receive(s.T, what, signal)
}

// receiveFrom waits for a value on a channel.
func (s *Stage) receiveFrom(what string, from <-chan string) string {
	s.Helper()
	return eventually.Receive(s.T, what, from)
}

// gate is a place where a tool, hook or model waits until the scenario opens it.
type gate struct {
	entered chan struct{}
	open    chan struct{}
	enter   func()
	release func()
}

// newGate makes a gate that opens when the scenario ends, if not before.
func (s *Stage) newGate() *gate {
	g := &gate{entered: make(chan struct{}), open: make(chan struct{})}
	g.enter = sync.OnceFunc(func() { close(g.entered) })
	g.release = sync.OnceFunc(func() { close(g.open) })
	s.Cleanup(g.release)
	return g
}

// pass waits at the gate, or for the end of ctx.
func (g *gate) pass(ctx context.Context) error {
	g.enter()
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tally counts.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *tally) add(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int{}
	}
	t.n[what]++
	return t.n[what]
}

func (t *tally) of(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n[what]
}

// journal is what happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// Log records what executors log, for scenarios that check a line and for failures.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns the log so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// logged checks that a line of the log contains all words.
func (s *Stage) logged(words ...string) {
	s.Helper()
	if !s.hasLogged(words...) {
		s.Fatalf("no line of the log says %q", words)
	}
}

// hasLogged reports whether a line of the log has all the words.
func (s *Stage) hasLogged(words ...string) bool {
	for line := range strings.Lines(s.Log.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return true
		}
	}
	return false
}

// countLogged returns how many lines of the log have a word.
func (s *Stage) countLogged(word string) int { return strings.Count(s.Log.String(), word) }

// newAgent is the agent of most scenarios.
func newAgent(model llm.Model, tools ...helix.Tool) *helix.Agent {
	return &helix.Agent{Name: "agent", Model: model, Tools: tools}
}

// num is the input of most scenarios' tools.
type num struct {
	N int `json:"n"`
}

// newTool is a tool on numbers.
func newTool[Out any](name string, fn func(ctx context.Context, call *helix.Call, n int) (Out, error)) helix.Tool {
	return helix.Tool{
		Name: name, Description: name,
		Execute: helix.Func(func(ctx context.Context, call *helix.Call, in num) (Out, error) { return fn(ctx, call, in.N) }),
	}
}

// double is a tool that works.
func double() helix.Tool {
	return newTool("double", func(_ context.Context, _ *helix.Call, n int) (int, error) { return 2 * n, nil })
}

// blocking is a tool that waits at a gate.
func blocking(g *gate) helix.Tool {
	return newTool("wait", func(ctx context.Context, _ *helix.Call, n int) (int, error) { return n, g.pass(ctx) })
}
