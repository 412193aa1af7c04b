package llmtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/sqlite"
	"github.com/helixagents/helix/stream"
)

// TestAIMock runs agents against a mock of the providers that others have written:
// first as it is meant to go, then with every fault that the mock has. Whatever it
// does, no run hangs, no message is lost that was committed, and the session continues
// when the faults are over.
func TestAIMock(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 2, 4)
	mock := testserver.StartAIMock(t, encodeFixtures(t))
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	var drawn sync.Map // how often each fault was asked for
	t.Run("agents", func(t *testing.T) {
		for _, adapter := range adapters {
			for i, backend := range backends {
				t.Run(adapter.name+"/"+backend.name, func(t *testing.T) {
					t.Parallel()
					w := &mockWorld{db: backend.open(t), drawn: &drawn, provider: adapter.name, number: i}
					w.open = func(f *faults) *helix.Agent {
						f.base = transport
						return &helix.Agent{Model: adapter.open(mock.URL()+adapter.path, "sk-test-0123456789", &http.Client{Transport: f})}
					}
					w.run(t)
				})
			}
		}
	})
	checkFaults(t, mock, &drawn)
}

var backends = []struct {
	name string
	open func(testing.TB) store.Backend
}{
	{"memory", func(testing.TB) store.Backend { return memory.New(memory.Config{}) }},
	{"sqlite", func(t testing.TB) store.Backend {
		db, err := sqlite.Open(filepath.Join(t.TempDir(), "helix.db"))
		if err != nil {
			t.Fatal(err)
		}
		return db
	}},
}

// The sessions of each backend, and their turns with faults. Each turn begins with
// another fault, so that every provider meets each of them; the rest is drawn.
const (
	mockSessions = 5
	mockTurns    = 4
)

// mockWorld is a provider, a backend and a runtime.
type mockWorld struct {
	db    store.Backend
	rt    *local.Runtime
	open  func(*faults) *helix.Agent
	drawn *sync.Map

	provider string
	number   int // of the backend
}

func (w *mockWorld) run(t *testing.T) {
	rt, err := local.New(local.Config{Backend: w.db, RetryBackoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.rt = rt
	t.Cleanup(func() {
		ctx := eventually.Context(t)
		if err := rt.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
	})
	sessions := mockSessions
	if testshare.Soak() {
		sessions = 150
	}
	// Not subtests, of which only as many run at a time as there are processors: these
	// mostly wait.
	var all sync.WaitGroup
	all.Go(func() { w.tell(t, w.newSession(-1).stopWhileHeld) })
	for i := range sessions {
		all.Go(func() { w.tell(t, w.newSession(i).faulty) })
	}
	all.Wait()
}

func (w *mockWorld) tell(t *testing.T, play func(context.Context) error) {
	if err := play(t.Context()); err != nil {
		t.Error(err)
	}
}

// mockSession is a session, and all that was seen committed in it.
type mockSession struct {
	*mockWorld
	id         string
	number     int
	structured bool
	agent      *helix.Agent
	faults     *faults

	mu   sync.Mutex
	seen [][]string // transcripts
}

func (w *mockWorld) newSession(number int) *mockSession {
	s := &mockSession{mockWorld: w, id: fmt.Sprintf("s-%d", number), number: number, structured: number%2 == 1}
	h := fnv.New64a()
	fmt.Fprint(h, w.provider, w.number, number)
	s.faults = &faults{rng: rand.New(rand.NewPCG(h.Sum64(), 1)), provider: w.provider, drawn: w.drawn}
	s.agent = w.open(s.faults)
	s.agent.Name, s.agent.Instructions = "tester-"+s.id, "You are terse."
	s.agent.Tools = []helix.Tool{mockTool("search", "north", true), mockTool("weather", "sunny", true), mockTool("note", "noted", false)}
	if s.structured {
		s.agent.Output = helix.OutputOf[mockOutput]()
	}
	s.agent.Hooks = helix.Hooks{
		BeforeLLMCall: func(ctx context.Context, _ *helix.HookContext, _ helix.BeforeLLMCallEvent) error { return s.look(ctx) },
		BeforeTool:    func(ctx context.Context, _ *helix.HookContext, _ helix.BeforeToolEvent) error { return s.look(ctx) },
	}
	return s
}

type mockOutput struct {
	Color string `json:"color"`
}

func mockTool(name, result string, readOnly bool) helix.Tool {
	return helix.Tool{
		Name: name, Description: name, ReadOnly: readOnly,
		Execute: helix.RawFunc(json.RawMessage(`{"type":"object"}`),
			func(context.Context, *helix.Call, json.RawMessage) (json.RawMessage, error) {
				return session.AppendString(nil, result), nil
			}),
	}
}

// look remembers what is committed now.
func (s *mockSession) look(ctx context.Context) error {
	messages, err := s.db.Sessions().AllMessages(ctx, s.id)
	if err != nil {
		return err
	}
	texts := make([]string, len(messages))
	for i := range messages {
		raw, err := session.Encode(messages[i])
		if err != nil {
			return err
		}
		texts[i] = string(raw)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, texts)
	return nil
}

// ended waits for a run, but not forever.
func (s *mockSession) ended(ctx context.Context, run helix.Run) (*helix.Result, error) {
	waiting, cancel := context.WithTimeout(ctx, eventually.Patience)
	defer cancel()
	res, err := run.Result(waiting)
	if err != nil {
		return nil, fmt.Errorf("the run hangs after %s: %w", s.faults, err)
	}
	return res, s.look(ctx)
}

func (s *mockSession) execute(ctx context.Context, text string) (*helix.Result, error) {
	run, err := s.rt.Execute(ctx, s.agent, helix.Input{SessionID: s.id, Message: helix.UserText(text)})
	if err != nil {
		return nil, fmt.Errorf("execute after %s: %w", s.faults, err)
	}
	return s.ended(ctx, run)
}

// faulty is a session that goes well, then badly for a few turns, then well.
func (s *mockSession) faulty(ctx context.Context) error {
	if err := s.goesWell(ctx, "Find it."); err != nil {
		return err
	}
	s.faults.on.Store(true)
	for turn := range mockTurns {
		s.faults.first((s.mockWorld.number*mockSessions+s.number)*mockTurns + turn)
		if err := s.goesBadly(ctx, fmt.Sprintf("Find number %d.", turn)); err != nil {
			return err
		}
	}
	s.faults.on.Store(false)
	if err := s.goesWell(ctx, "And now?"); err != nil {
		return err
	}
	return s.check(ctx)
}

// goesBadly has a turn tried a few times, and wants it to end in one way or the
// other.
func (s *mockSession) goesBadly(ctx context.Context, text string) error {
	res, err := s.execute(ctx, text)
	for range 2 {
		if err != nil || res.Status != helix.Failed {
			break
		}
		if !strings.HasPrefix(string(res.Error.Code), "provider_") {
			return fmt.Errorf("the run failed after %s: %w", s.faults, res.Error)
		}
		run, err := s.rt.Retry(ctx, s.id, helix.RetryOptions{})
		if err != nil {
			return fmt.Errorf("retry after %s: %w", s.faults, err)
		}
		if res, err = s.ended(ctx, run); err != nil {
			return err
		}
	}
	if err == nil && res.Status != helix.Completed && res.Status != helix.Failed {
		return fmt.Errorf("the run is %s after %s", res.Status, s.faults)
	}
	return err
}

// goesWell wants a whole turn: reasoning, parallel tools, a tool with an effect, and
// an answer.
func (s *mockSession) goesWell(ctx context.Context, text string) error {
	res, err := s.execute(ctx, text)
	if err != nil {
		return err
	}
	if res.Status != helix.Completed {
		return fmt.Errorf("without faults, after %s, the run is %s: %w", s.faults, res.Status, res.Error)
	}
	if s.structured && string(res.Output) != `{"color":"blue"}` || !s.structured && res.Text != mockAnswer {
		return fmt.Errorf("it ended with %q, output %s", res.Text, res.Output)
	}
	messages, err := s.db.Sessions().AllMessages(ctx, s.id)
	if err != nil {
		return err
	}
	want := []string{"user: " + text, "assistant: reasoning search weather", "tool search", "tool weather", "assistant: text note", "tool note"}
	if s.structured {
		want = append(want, "assistant: __finish__", "tool __finish__")
	} else {
		want = append(want, "assistant: text")
	}
	var got []string
	for i := max(0, len(messages)-len(want)); i < len(messages); i++ {
		got = append(got, shape(&messages[i]))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("the turn is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return nil
}

// stopWhileHeld interrupts a run whose provider does not answer.
func (s *mockSession) stopWhileHeld(ctx context.Context) error {
	if err := s.goesWell(ctx, "Find it."); err != nil {
		return err
	}
	asked := make(chan struct{})
	s.faults.hold(asked)
	run, err := s.rt.Execute(ctx, s.agent, helix.Input{SessionID: s.id, Message: helix.UserText("Find more.")})
	if err != nil {
		return err
	}
	select {
	case <-asked:
	case <-time.After(eventually.Patience):
		return errors.New("the provider was not asked")
	}
	if err := run.Interrupt(ctx, "enough"); err != nil {
		return err
	}
	res, err := s.ended(ctx, run)
	if err != nil {
		return err
	}
	if res.Status != helix.Interrupted {
		return fmt.Errorf("the run is %s", res.Status)
	}
	if err := s.goesWell(ctx, "And now?"); err != nil {
		return err
	}
	return s.check(ctx)
}

// check wants everything that was ever committed to be there still, in order, the
// transcript one that a provider takes, and readers told of nothing else.
func (s *mockSession) check(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	final := s.seen[len(s.seen)-1]
	for _, seen := range s.seen {
		for i := range seen {
			if i >= len(final) || seen[i] != final[i] {
				return fmt.Errorf("message %d was committed and is lost, after %s:\n%s", i, s.faults, seen[i])
			}
		}
	}
	messages, err := s.db.Sessions().AllMessages(ctx, s.id)
	if err != nil {
		return err
	}
	if _, err := session.NewTranscript(messages); err != nil {
		return fmt.Errorf("the transcript is not valid, after %s: %w", s.faults, err)
	}
	for i := range messages {
		if half := unsaid(&messages[i]); half != "" {
			return fmt.Errorf("message %d holds %q, which nobody said, after %s", i, half, s.faults)
		}
	}
	return s.checkStream(ctx, messages)
}

// unsaid is what is in a reply and in none of the mock's answers: a part of one.
func unsaid(m *session.Message) string {
	if m.Role != session.RoleAssistant {
		return ""
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		text := p.Text
		if p.Kind == session.PartToolCall {
			text = p.Tool + string(p.Input)
		}
		if !slices.Contains(mockSays, text) {
			return text
		}
	}
	return ""
}

func (s *mockSession) checkStream(ctx context.Context, messages []session.Message) error {
	ids := map[string]bool{}
	for i := range messages {
		ids[messages[i].ID] = true
	}
	committed, ended := 0, false
	for item, err := range s.db.Streams().Read(ctx, s.id, 0, false) {
		if err != nil {
			return err
		}
		ended = item.Frame == stream.FrameEnd
		if item.Chunk == nil || item.Chunk.Kind != stream.StepCommitted {
			continue
		}
		committed++
		if !ids[item.Chunk.MessageID] {
			return fmt.Errorf("readers were told that %s is committed, and it is not there", item.Chunk.MessageID)
		}
	}
	if committed == 0 || !ended {
		return fmt.Errorf("%d steps were committed in the stream, which ended: %v", committed, ended)
	}
	return nil
}

// faults is the way to the mock. Its headers say how each request is to fail, drawn
// from a seed: a session that goes wrong goes wrong again.
type faults struct {
	base     http.RoundTripper
	on       atomic.Bool
	provider string
	drawn    *sync.Map

	mu   sync.Mutex
	rng  *rand.Rand
	next *mockFault // instead of the next one drawn
	log  []string
	held chan struct{}
}

// mockHold is the longest that the mock holds an answer back.
const mockHold = 30 * time.Second

// hold holds back the answer to the next request until its context has ended, and tells
// of it.
func (f *faults) hold(asked chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = asked
}

// first sets the fault of the next request: that of a number, of which there is no
// end.
func (f *faults) first(number int) {
	all := mockFaults()[1:]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = &all[number%len(all)]
}

// RoundTrip implements [http.RoundTripper].
func (f *faults) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	f.mu.Lock()
	asked := f.held
	f.held = nil
	if asked != nil {
		r.Header.Set("X-Aimock-Chaos-Latency", fmt.Sprint(mockHold.Milliseconds()))
	} else if f.on.Load() {
		fault := draw(f.rng)
		if f.next != nil {
			fault, f.next = *f.next, nil
		}
		f.log = append(f.log, fault.name)
		for name, value := range fault.header {
			r.Header.Set(name, value)
		}
		n, _ := f.drawn.LoadOrStore(f.provider+" "+fault.name, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
	}
	f.mu.Unlock()
	if asked != nil {
		close(asked)
	}
	answer, err := f.base.RoundTrip(r)
	if asked != nil && err == nil { // the machine was so busy that the mock has answered
		_ = answer.Body.Close()
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return answer, err
}

// String is the faults so far.
func (f *faults) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return "[" + strings.Join(f.log, " ") + "]"
}

// checkFaults wants every fault to have been asked for of every provider, and served:
// by the mock's own journal.
func checkFaults(t *testing.T, mock *testserver.Server, drawn *sync.Map) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, mock.URL()+"/__aimock/journal", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var journal []struct {
		Path     string            `json:"path"`
		Headers  map[string]string `json:"headers"`
		Response struct {
			Status          int    `json:"status"`
			ChaosAction     string `json:"chaosAction"`
			InterruptReason string `json:"interruptReason"`
			Fixture         *struct {
				Match struct {
					Context string `json:"context"`
				} `json:"match"`
			} `json:"fixture"`
		} `json:"response"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&journal); err != nil {
		t.Fatal(err)
	}
	served := map[string]int{}
	for i := range journal {
		r := &journal[i].Response
		if r.Fixture == nil && r.ChaosAction == "" && r.InterruptReason != "client aborted" { // it was held back
			t.Errorf("the mock had no answer: %+v", journal[i])
		}
		served[r.ChaosAction]++
		served[r.InterruptReason]++
		if r.Fixture != nil {
			served[r.Fixture.Match.Context]++
		}
	}
	var report strings.Builder
	for _, fault := range mockFaults() {
		sum := int64(0)
		for _, adapter := range adapters {
			n, ok := drawn.Load(adapter.name + " " + fault.name)
			if !ok {
				t.Errorf("%s has never met the fault %s", adapter.name, fault.name)
				continue
			}
			sum += n.(*atomic.Int64).Load()
		}
		fmt.Fprintf(&report, " %s:%d", fault.name, sum)
	}
	for _, name := range []string{"drop", "malformed", "rateLimit", "disconnect", "truncateAfterChunks", "disconnectAfterMs"} {
		if served[name] == 0 {
			t.Errorf("the mock has never served the fault %s", name)
		}
	}
	t.Logf("%d requests;%s", len(journal), report.String())
}
