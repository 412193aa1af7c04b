package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// text is what model and tool say: about 500 bytes each.
var text = strings.Repeat("All work and no play makes a dull agent. ", 12)

// worker is a model that answers at once: it calls the tool for a number of
// steps, then ends. It notes when it was asked.
type worker struct {
	steps int
	input json.RawMessage

	// pause, if set, is called between two steps and does not count as part of
	// either: there the floor is measured, so that both see the same machine.
	pause func(sessionID string, step int) error

	mu    sync.Mutex
	asked map[string][]time.Time // by session: when its steps ended
	begun map[string][]time.Time // and when they began
	first chan string            // receives the session of each first model call, if set
}

func newWorker(steps int) *worker {
	return &worker{steps: steps, input: json.RawMessage(`{"n":1}`), asked: map[string][]time.Time{}, begun: map[string][]time.Time{}}
}

// Generate implements [llm.Model].
func (w *worker) Generate(_ context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	w.mu.Lock()
	if len(w.asked[r.SessionID]) == 0 && w.first != nil {
		w.first <- r.SessionID
	}
	w.asked[r.SessionID] = append(w.asked[r.SessionID], time.Now())
	w.mu.Unlock()
	if w.pause != nil {
		if err := w.pause(r.SessionID, r.Step); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	w.begun[r.SessionID] = append(w.begun[r.SessionID], time.Now())
	w.mu.Unlock()
	emit(llm.Delta{Kind: llm.DeltaText, Text: text})
	response := &llm.Response{Parts: []session.Part{session.Text(text)}, Finish: llm.FinishStop}
	if r.Step <= w.steps {
		response.Parts = append(response.Parts, session.Part{
			Kind: session.PartToolCall, Tool: "work", ProviderCallID: "call_1", Input: w.input,
		})
		response.Finish = llm.FinishToolCalls
	}
	return response, nil
}

// durations is how long each step of a session took.
func (w *worker) durations(sessionID string) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked, begun := w.asked[sessionID], w.begun[sessionID]
	var out []time.Duration
	for i := 1; i < len(asked); i++ {
		out = append(out, asked[i].Sub(begun[i-1]))
	}
	return out
}

// forget drops what was noted of a session.
func (w *worker) forget(sessionID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.asked, sessionID)
	delete(w.begun, sessionID)
}

// list is state that grows by an item per step.
type list struct {
	Items []string `json:"items"`
}

// work is what the tool does.
type work string

const (
	effect       work = ""               // it has an effect, so the call is recorded before it runs
	growingState work = "-growing-state" // it also appends to the state
	reading      work = "-read-only"     // it has none, so a step is one commit
	extended     work = "-extended"      // it has an effect, and the agent two extensions
	guarded      work = "-guarded"       // these also look at every call and its result
	bounded      work = "-context"       // it has an effect, and the agent keeps the conversation short
)

// agentOf is an agent with one tool.
func agentOf(model llm.Model, of work) *helix.Agent {
	agent := &helix.Agent{Name: "bench", Model: model, MaxSteps: helix.Unlimited}
	if of == growingState {
		agent.State = helix.StateOf(list{})
	}
	agent.Tools = []helix.Tool{{
		Name: "work", Description: "Works.", ReadOnly: of == reading,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct {
			N int `json:"n"`
		},
		) (string, error) {
			if of == growingState {
				helix.Append(call, "items", "an item of the list, some forty bytes long")
			}
			return text, nil
		}),
	}}
	switch of {
	case extended:
		agent.Extensions = []helix.Extension{rules{"house"}, rules{"garden"}}
	case guarded:
		agent.Extensions = []helix.Extension{guard{rules{"house"}}, guard{rules{"garden"}}}
	case bounded:
		agent.Context = policy()
	}
	return agent
}

// rules is an extension with instructions, a tool, a message before each exchange and a
// task after it.
type rules struct{ name string }

var _ interface {
	helix.Preparer
	helix.Finisher
	helix.TaskHandler
} = rules{}

func (r rules) Name() string { return r.name }

func (r rules) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	look := helix.Func(func(context.Context, *helix.Call, struct{}) (string, error) { return text, nil })
	return &helix.Attachment{
		Instructions: text,
		Tools:        []helix.Tool{{Name: "rules_of_the_" + r.name, Description: "Reads the rules.", ReadOnly: true, Execute: look}},
	}, nil
}

func (r rules) Prepare(context.Context, *helix.Turn) ([]session.Message, error) {
	return []session.Message{helix.UserText(text)}, nil
}

func (r rules) Finish(context.Context, *helix.Turn, *session.Outcome) ([]session.Task, error) {
	return []session.Task{{Kind: r.name}}, nil
}

func (r rules) TaskKinds() []string { return []string{r.name} }

func (r rules) HandleTask(context.Context, *session.Task) error { return nil }

// guard is such an extension that looks at calls and results as well.
type guard struct{ rules }

func (guard) Check(context.Context, *helix.Call) error { return nil }

func (guard) Filter(_ context.Context, _ *helix.Call, result helix.CallResult) (helix.CallResult, error) {
	return result, nil
}

// runSession runs one session to its end.
func runSession(ctx context.Context, rt helix.Executor, agent *helix.Agent, id string) error {
	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: id, Message: helix.UserText("Begin.")})
	if err != nil {
		return err
	}
	res, err := run.Result(ctx)
	if err == nil && res.Error != nil {
		err = res.Error
	}
	return err
}
