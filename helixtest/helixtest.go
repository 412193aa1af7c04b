package helixtest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/stream"
)

const (
	// patience is how long a turn may take before the test fails.
	patience = time.Minute
	// retryBackoff is short, so that tests with a failing model do not wait.
	retryBackoff = time.Millisecond
)

var errTooSlow = errors.New("the turn did not end within " + patience.String())

// TB is the part of [testing.TB] that this package needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}

// Result is the outcome of a turn. It is read after the turn has ended and does not change
// any more.
type Result struct {
	*helix.Result
	// Messages is the session's whole transcript, including earlier turns.
	Messages []session.Message
	// Calls are the tool calls of this turn, in the order the model made them.
	Calls []Call
	// Chunks is the turn's stream.
	Chunks []stream.Chunk
	// Custom is the session's custom state; [State] decodes it.
	Custom session.CustomState
	// Backend holds the session.
	Backend store.Backend

	setup *setup
	runs  []string // of the turn
}

// Call is a tool call of the model and its result.
type Call struct {
	ID    string
	Tool  string
	Input json.RawMessage
	// Output is the result as JSON, unless Error is set.
	Output json.RawMessage
	Error  *helix.Error
}

// Run runs one turn of the agent with the model of [With], and waits until it ends. It does
// not change the agent.
func Run(t TB, agent *helix.Agent, model Option, prompt string, more ...Option) *Result {
	t.Helper()
	if agent == nil {
		t.Fatalf("helixtest: the agent is nil")
		return nil
	}
	s := setup{input: helix.Input{Message: helix.UserText(prompt)}}
	for _, option := range append([]Option{model}, more...) {
		if option != nil {
			option(&s)
		}
	}
	if s.backend == nil {
		backend := memory.New(memory.Config{})
		t.Cleanup(func() { _ = backend.Close() })
		s.backend = backend
	}
	var err error
	if s.agent, err = s.withModels(agent); err != nil {
		t.Fatalf("helixtest: %v", err)
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errTooSlow)
	defer cancel()
	var res *Result
	err = s.on(ctx, func(x helix.Executor, agent *helix.Agent) error {
		run, err := x.Execute(ctx, agent, s.input)
		if err == nil {
			res, err = s.result(ctx, run, nil)
		}
		return err
	})
	if err != nil {
		t.Fatalf("helixtest: %v", err)
		return nil
	}
	s.checkScript(t, res.Result)
	return res
}

// result waits for a run and collects the turn's result. earlier is the result of the run
// that it continues, if any.
func (s *setup) result(ctx context.Context, run helix.Run, earlier *Result) (*Result, error) {
	ended, err := run.Result(ctx)
	if err != nil {
		return nil, err
	}
	res := &Result{Result: ended, Backend: s.backend, setup: s, runs: []string{ended.RunID}}
	if earlier != nil {
		res.runs = append(slices.Clip(earlier.runs), ended.RunID)
		res.Chunks = slices.Clip(earlier.Chunks)
	}
	for item, err := range run.Stream(ctx) {
		if err != nil {
			return nil, err
		}
		if item.Chunk != nil {
			res.Chunks = append(res.Chunks, *item.Chunk)
		}
	}
	sessions := s.backend.Sessions().Tenant(tenant(s.input.User))
	if res.Messages, err = sessions.AllMessages(ctx, ended.SessionID); err != nil {
		return nil, err
	}
	state, err := sessions.Load(ctx, ended.SessionID)
	if err != nil {
		return nil, err
	}
	res.Custom = state.Custom.Public()
	res.Calls = calls(res.Messages, res.runs)
	return res, nil
}

func tenant(user helix.User) string {
	if user.Tenant == "" {
		return session.DefaultTenant
	}
	return user.Tenant
}

// calls pairs the calls of a turn's runs with their results.
func calls(messages []session.Message, runs []string) []Call {
	var out []Call
	index := map[string]int{}
	for i := range messages {
		m := &messages[i]
		if !slices.Contains(runs, m.RunID) {
			continue
		}
		for _, part := range m.Parts {
			switch part.Kind {
			case session.PartToolCall:
				index[part.CallID] = len(out)
				out = append(out, Call{ID: part.CallID, Tool: part.Tool, Input: part.Input})
			case session.PartToolResult:
				if at, ok := index[part.CallID]; ok && part.Error != nil {
					out[at].Error = part.Error
				} else if ok {
					out[at].Output = part.ResultJSON()
				}
			}
		}
	}
	return out
}

// checkScript fails the test if the script was too short or too long for the run.
func (s *setup) checkScript(t TB, res *helix.Result) {
	t.Helper()
	if res.Error != nil && errors.Is(res.Error, &session.Error{Code: scripted.CodeExhausted}) {
		t.Errorf("helixtest: the script is too short: %v", res.Error)
	}
	if res.Status.Suspended() || res.Status == helix.Interrupted {
		return // the rest is for the resumed run
	}
	for _, model := range append([]llm.Model{s.model}, slices.Collect(maps.Values(s.below))...) {
		if m, ok := model.(interface{ Check(t scripted.TB) }); ok {
			m.Check(t)
		}
	}
}

// CallsOf returns the turn's calls of one tool.
func (r *Result) CallsOf(tool string) []Call {
	var out []Call
	for _, call := range r.Calls {
		if call.Tool == tool {
			out = append(out, call)
		}
	}
	return out
}

// Events returns the data of the custom events with the given name, in order; see
// [helix.Scope.Emit].
func (r *Result) Events(name string) []json.RawMessage {
	var out []json.RawMessage
	for i := range r.Chunks {
		if c := &r.Chunks[i]; c.Kind == stream.Custom && c.Name == name {
			out = append(out, c.Data)
		}
	}
	return out
}

// State decodes the session's custom state. It fails the test if the state does not decode
// into T.
func State[T any](t TB, res *Result) T {
	t.Helper()
	var out T
	raw, err := res.Custom.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatalf("helixtest: decode the state %s into %T: %v", raw, out, err)
	}
	return out
}

// Output decodes the output of a completed run. It fails the test if there is none, or if
// it does not decode into T.
func Output[T any](t TB, res *Result) T {
	t.Helper()
	out, err := helix.Output[T](res.Result)
	switch {
	case err != nil && res.Error != nil:
		t.Fatalf("helixtest: %v, because: %v", err, res.Error)
	case err != nil:
		t.Fatalf("helixtest: %v", err)
	}
	return out
}

// Option configures [Run].
type Option func(*setup)

// setup collects the options.
type setup struct {
	agent   *helix.Agent // with the test's model
	model   llm.Model
	below   map[string]llm.Model // of the agents that the agent may call, by their names
	backend store.Backend
	input   helix.Input
}

// With sets the model that replaces the agent's own. It is usually a [scripted.Model]; the
// test then fails if steps of its script were not played.
func With(model llm.Model) Option { return func(s *setup) { s.model = model } }

// WithModel sets the model of an agent that the agent under test may call, directly or
// indirectly, as [With] does for that one. Agents for which it is not used keep their own.
func WithModel(agent string, model llm.Model) Option {
	return func(s *setup) {
		if s.below == nil {
			s.below = map[string]llm.Model{}
		}
		s.below[agent] = model
	}
}

// Session sets the session's id. Defaults to a new id.
func Session(id string) Option { return func(s *setup) { s.input.SessionID = id } }

// InitialState sets a new session's custom state, merged over the agent's defaults.
func InitialState(state any) Option { return func(s *setup) { s.input.State = state } }

// User sets the owner of the session.
func User(user helix.User) Option { return func(s *setup) { s.input.User = user } }

// Backend stores the session in the given backend, which the test closes. Defaults to a new
// memory backend that is closed at the end of the test.
func Backend(backend store.Backend) Option { return func(s *setup) { s.backend = backend } }

// Continue runs the turn as the next one of an earlier result's session.
func Continue(earlier *Result) Option {
	return func(s *setup) {
		s.backend, s.input.SessionID, s.input.User = earlier.Backend, earlier.SessionID, earlier.setup.input.User
	}
}

// Input changes the turn's input in any other way: tags, metadata, more messages, a branch.
func Input(change func(in *helix.Input)) Option { return func(s *setup) { change(&s.input) } }
