package scripted

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// CodeExhausted is the code of the error for a request that the script has no step for. It
// is not retryable.
const CodeExhausted session.Code = "provider_script_exhausted"

// Model plays scripts. It is safe for concurrent use. Call For, ByPosition and Vary before
// the first Generate.
type Model struct {
	mu         sync.Mutex
	byPosition bool
	vary       bool
	firstTake  int
	shared     *script
	agents     map[string]*script
	order      []string // agents in the order they were added
	asked      map[ask]int
	requests   []llm.Request
}

// script is a list of steps and how many of them were played.
type script struct {
	steps  []Step
	next   int   // the step to play next, in sequence
	played []int // per step, how many of its takes were played, at most all
}

// ask is a position in a conversation for which a reply was requested.
type ask struct {
	session, agent string
	position       int
}

// New returns a model that plays steps for every agent without its own script.
func New(steps ...Step) *Model {
	return &Model{
		firstTake: 1,
		shared:    newScript(steps),
		agents:    map[string]*script{},
		asked:     map[ask]int{},
	}
}

func newScript(steps []Step) *script {
	return &script{steps: steps, played: make([]int, len(steps))}
}

// For adds steps to the script of one agent. It returns the model.
func (m *Model) For(agent string, steps ...Step) *Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.agents[agent]
	if own == nil {
		own = newScript(nil)
		m.agents[agent] = own
		m.order = append(m.order, agent)
	}
	own.steps = append(own.steps, steps...)
	own.played = append(own.played, make([]int, len(steps))...)
	return m
}

// ByPosition selects the step by the transcript: the first if it has no assistant message,
// the second if it has one, and so on, however often and in whichever process it is
// requested. It returns the model.
func (m *Model) ByPosition() *Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byPosition = true
	return m
}

// Vary makes a repeated reply, at the same position of the same session, visibly different:
// its text ends in "(take 2)", "(take 3)" and so on. It implies [Model.ByPosition] and
// returns the model.
func (m *Model) Vary() *Model { return m.VaryFrom(1) }

// VaryFrom is [Model.Vary] in a process that follows others, whose requests this model does
// not know: takes are counted from the given one, so that no reply equals one of an earlier
// process.
func (m *Model) VaryFrom(take int) *Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byPosition, m.vary, m.firstTake = true, true, take
	return m
}

// Generate implements [llm.Model].
func (m *Model) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	step, take, err := m.choose(request)
	if err != nil {
		return nil, err
	}
	for step.compute != nil || step.takes != nil {
		outer := step.settings
		if step.compute != nil {
			step = step.compute(request)
		} else {
			step = step.takes[0]
		}
		step.settings = step.settings.or(outer)
	}
	return step.play(ctx, emit, take)
}

// choose selects the step for a request and records that it was played.
func (m *Model) choose(request *llm.Request) (step Step, take int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, *request)
	s := m.agents[request.Agent]
	if s == nil {
		s = m.shared
	}
	at, nth := s.next, 0
	if m.byPosition {
		at = replies(request.Messages)
		place := ask{request.SessionID, request.Agent, at}
		nth = m.asked[place]
		m.asked[place]++
	}
	if at >= len(s.steps) {
		return Step{}, 0, exhausted(request.Agent, at, len(s.steps))
	}
	if !m.byPosition {
		nth = s.played[at]
	}
	step = s.play(at, nth)
	if !m.vary {
		return step, 1, nil
	}
	return step, m.firstTake + nth, nil
}

// play records the nth playing of a step and returns what to play. In sequence, a step is
// over when its last take was played.
func (s *script) play(at, nth int) Step {
	step := s.steps[at]
	n := step.length()
	nth = min(nth, n-1)
	s.played[at] = max(s.played[at], nth+1)
	if nth == n-1 {
		s.next = max(s.next, at+1)
	}
	if step.takes != nil {
		outer := step.settings
		step = step.takes[nth]
		step.settings = step.settings.or(outer)
	}
	return step
}

// length returns how often a step is played in sequence.
func (s Step) length() int { return max(1, len(s.takes)) }

func replies(messages []session.Message) int {
	n := 0
	for i := range messages {
		if messages[i].Role == session.RoleAssistant {
			n++
		}
	}
	return n
}

func exhausted(agent string, at, steps int) error {
	return llm.Error(CodeExhausted, false,
		"agent %q asked for reply %d, but its script has %d", agent, at+1, steps)
}

// Requests returns the received requests in order. The messages are copies; what they refer
// to is shared.
func (m *Model) Requests() []llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.requests)
	for i := range out {
		out[i].Messages = slices.Clone(out[i].Messages)
		out[i].Tools = slices.Clone(out[i].Tools)
	}
	return out
}

// Unused describes the steps and takes that were never played.
func (m *Model) Unused() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.shared.unused("")
	for _, agent := range m.order {
		out = append(out, m.agents[agent].unused(fmt.Sprintf("agent %q: ", agent))...)
	}
	return out
}

func (s *script) unused(prefix string) []string {
	var out []string
	for i, step := range s.steps {
		if step.takes == nil && s.played[i] == 0 {
			out = append(out, fmt.Sprintf("%sstep %d of %d: %s", prefix, i+1, len(s.steps), step))
		}
		for take := s.played[i]; take < len(step.takes); take++ {
			out = append(out, fmt.Sprintf("%sstep %d of %d, take %d: %s", prefix, i+1, len(s.steps), take+1, step.takes[take]))
		}
	}
	return out
}

// TB is the part of [testing.TB] that [Model.Check] needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Check fails a test for every step that was never played.
func (m *Model) Check(t TB) {
	t.Helper()
	for _, step := range m.Unused() {
		t.Errorf("the script was not played to its end: %s", step)
	}
}
