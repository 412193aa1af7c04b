package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
	"github.com/helixagents/helix/stream"
)

// Open returns a fresh, empty backend.
type Open func(t *testing.T) store.Backend

// tenants numbers the tenants of worlds on one backend: each turn has its own tenant,
// which is cheaper than a database.
var tenants atomic.Int64

// world is what is outside of a process and survives it: the backend, the effects
// that tools had, the model, and the people who answer.
type world struct {
	t          *testing.T
	backend    store.Backend
	tenant     string
	agent      *helix.Agent
	model      *scripted.Model
	people     schedule
	markers    int
	compaction compactionWay
	// summaries counts how often a summary was asked for.
	summaries atomic.Int64
	office    *office             // a remote agent
	cutOff    int                 // how many calls a crash may have cut off, so that their outcome is unknown
	ledger    *ledger             // the agents' extension, or nil
	book      *storetest.TaskBook // the backend, which notes tasks

	mu     sync.Mutex
	starts map[string]int              // tool and idempotency key → how often a call was started
	said   map[string]helix.Submission // by waitName: what people have answered
	unsure map[string]bool             // by waitName: whether an answer was accepted is unknown
}

// memo is an agent's state. Every write of tools and hooks leaves a trace in it; the
// transcript says which traces there must be.
type memo struct {
	Notes []string `json:"notes"` // by tools, in call order
	Count int      `json:"count"` // successful payments
	Log   []string `json:"log"`   // by AfterTool and AfterSubAgent
	Seen  []string `json:"seen"`  // by OnMessage
	Asked []int    `json:"asked"` // by BeforeLLMCall
	// Summed is by BeforeLLMCall and AfterLLMCall of summaries.
	Summed []string `json:"summed"`
}

type subject struct {
	What string `json:"what"`
}

type receipt struct {
	Total int `json:"total"`
}

func newWorld(t *testing.T, backend store.Backend, s scenario) *world {
	notes := &storetest.TaskBook{Backend: backend}
	w := &world{
		t: t, backend: notes, book: notes, tenant: fmt.Sprintf("t-%d", tenants.Add(1)), people: s.people, markers: s.markers, compaction: s.compaction,
		office: &office{started: map[string]int{}},
		starts: map[string]int{}, said: map[string]helix.Submission{}, unsure: map[string]bool{},
	}
	if s.helper == nil {
		s.helper = helperSteps()
	}
	w.model = scripted.New(s.steps...).For("helper", s.helper...).For("friend", friendSteps()...).For("scribe", scribeSteps()...).Vary()
	if s.ledger {
		w.ledger = &ledger{asked: map[string]int{}, inputs: map[string][]string{}}
	}
	w.agent = w.worker("clerk", "look", "send", "pay", "book", "choose", "sign", "stack", "measure", "quiz", "peek", "clear", "ship", "keep", "file", "dump", "print", "issue")
	helper := w.worker("helper", "pay", "seal")
	helper.SubAgents = []helix.SubAgent{{Agent: w.worker("scribe", "look", "quiz")}}
	w.agent.SubAgents = []helix.SubAgent{{Agent: helper}, {Name: "office", Remote: w.office}}
	w.agent.Companions = []helix.Companion{{Agent: w.worker("friend", "pay"), Mode: s.companion}}
	if s.evicts {
		w.agent.Context = evicting()
	}
	if s.output {
		w.agent.Output = helix.OutputOf[receipt]()
	}
	return w
}

// worker is an agent whose tools and hooks leave their traces.
func (w *world) worker(name string, tools ...string) *helix.Agent {
	after := func(_ context.Context, h *helix.HookContext, e helix.AfterToolEvent) error {
		helix.Append(h, "log", trace(e.Tool, e.Error))
		return nil
	}
	agent := &helix.Agent{
		Name: name, Instructions: "Work.", Model: recalling{w.model, w}, State: helix.StateOf(memo{}),
		Hooks: helix.Hooks{
			BeforeLLMCall: func(_ context.Context, h *helix.HookContext, e helix.BeforeLLMCallEvent) error {
				switch {
				case e.Summary:
					helix.Append(h, "summed", fmt.Sprint("before ", h.Step))
				case e.Attempt == 1:
					helix.Append(h, "asked", h.Step)
				}
				return nil
			},
			AfterLLMCall: func(_ context.Context, h *helix.HookContext, e helix.AfterLLMCallEvent) error {
				if e.Summary {
					helix.Append(h, "summed", fmt.Sprint("after ", h.Step))
				}
				return nil
			},
			OnMessage: func(_ context.Context, h *helix.HookContext, e helix.MessageEvent) error {
				helix.Append(h, "seen", string(e.Message.Role))
				return nil
			},
			AfterTool: after, AfterSubAgent: after,
		},
	}
	for _, tool := range tools {
		agent.Tools = append(agent.Tools, w.tool(tool))
	}
	if w.ledger != nil {
		agent.Extensions = []helix.Extension{w.ledger}
	}
	if w.markers > 0 {
		agent.Context = w.compaction.policy(w.markers, &w.summaries)
	}
	return agent
}

func (w *world) tool(name string) helix.Tool {
	tool := helix.Tool{Name: name, Description: name}
	switch name {
	case "choose":
		tool.Execute = helix.OnClient[subject]()
		return tool
	case "look", "peek", "file", "print":
		tool.ReadOnly = true
	case "send", "keep":
		tool.Idempotent = true
	case "book", "ship", "issue":
		tool.FinishWith = true
	case "stack":
		tool.Serial = true
	case "sign", "seal", "clear":
		tool.Approval = helix.RequireApproval
	}
	if questions[name] > 0 {
		tool.Asks, tool.Execute = true, w.asker(name)
		return tool
	}
	tool.Execute = helix.Func(func(ctx context.Context, call *helix.Call, in subject) (string, error) {
		w.mu.Lock()
		w.starts[name+" "+call.IdempotencyKey()]++
		w.mu.Unlock()
		helix.Append(call, "notes", name+" "+in.What)
		if name == "pay" {
			helix.Update(call, func(m *memo) { m.Count++ })
		}
		call.Emit("noted", in.What)
		if name == "keep" || name == "file" {
			ref, err := call.PutBlob(ctx, []byte(name+" "+in.What))
			return name + " done: " + ref, err
		}
		if large[name] {
			return report(name, in.What), nil
		}
		if w.markers > 0 { // a summary must be shorter than what it stands for
			return name + " done: " + in.What + strings.Repeat(".", w.compaction.padding()), nil
		}
		return name + " done: " + in.What, nil
	})
	return tool
}

func trace(tool string, err *helix.Error) string {
	if err != nil {
		return tool + ": " + string(err.Code)
	}
	return tool + ": ok"
}

// process is a handler that knows nothing but what is in the backend.
type process struct {
	*engine.Handler
	backend store.Backend
	runs    []string // that it has driven
}

// process starts a process. Its leases expire at once, so that the next process need
// not wait.
func (w *world) process(backend store.Backend) *process {
	w.t.Helper()
	h := engine.NewHandler(engine.Config{
		Backend: backend, Runtime: "test", LeaseTTL: time.Nanosecond, RetryBackoff: time.Millisecond,
		FlushEvery: time.Hour, // only before commits, so that every run makes the same writes
	})
	if _, err := h.Register(w.agent); err != nil {
		w.t.Fatal(err)
	}
	return &process{Handler: h, backend: backend}
}

func (p *process) Open(ctx context.Context, req engine.OpenRequest) (*engine.Opened, error) {
	opened, err := p.Handler.Open(ctx, req)
	return p.works(opened), err
}

func (p *process) Recover(ctx context.Context, due session.Due) (*engine.Opened, error) {
	opened, err := p.Handler.Recover(ctx, due)
	return p.works(opened), err
}

func (p *process) OpenChild(ctx context.Context, e machine.Effect) (*engine.Opened, error) {
	opened, err := p.Handler.OpenChild(ctx, e)
	return p.works(opened), err
}

func (p *process) works(opened *engine.Opened) *engine.Opened {
	if opened != nil && !opened.Existing {
		p.runs = append(p.runs, opened.Run.ID)
	}
	return opened
}

// deliver delivers the wakes of a tenant.
func (p *process) deliver(ctx context.Context, tenant string) error {
	request := session.WakeRequest{Limit: 1000}
	for {
		page, err := p.backend.Sessions().Wakes(ctx, request)
		if err != nil {
			return err
		}
		for _, wake := range page {
			if wake.Tenant != tenant {
				continue
			}
			if _, err := p.Deliver(ctx, wake); err != nil {
				return err
			}
			if err := p.Delivered(ctx, wake); err != nil {
				return err
			}
		}
		if len(page) < request.Limit {
			return nil
		}
		request.After = &page[len(page)-1]
	}
}

// kill ends the process where it is.
func (p *process) kill() {
	for _, run := range p.runs {
		p.Drop(run)
	}
}

func testContext(t *testing.T) context.Context {
	ctx := eventually.Context(t)
	return ctx
}

const (
	sessionID = "s-1"
	runID     = "run-1"
)

func (w *world) request() engine.OpenRequest {
	return engine.OpenRequest{
		Kind: session.RunExecute, Agent: w.agent, Tenant: w.tenant, SessionID: sessionID, RunID: runID,
		RequestID: "request-1", Input: helix.Input{Message: helix.UserText("Please work.")},
	}
}

// turns is more often than a session is opened, recovered and resumed until it has
// completed.
const turns = 20

// finish has fresh processes open, recover or resume the session until its turn has
// ended, as an executor and its sweeper would.
func (w *world) finish(ctx context.Context) {
	w.t.Helper()
	for range turns {
		p := w.process(w.backend)
		opened, err := w.next(ctx, p)
		if err != nil {
			w.t.Fatalf("take up: %v", err)
		}
		if opened == nil {
			return
		}
		if err := w.drive(ctx, p, p, opened, nil); err != nil {
			w.t.Fatalf("drive: %v", err)
		}
	}
	w.t.Fatal("the turn did not end")
}

// play has one process do everything until the turn has ended. h carries out its
// effects; after is the parameter of [drive].
func (w *world) play(ctx context.Context, p *process, h effects, after func(machine.Effect, machine.Result) bool) error {
	for range turns {
		opened, err := w.next(ctx, p)
		if err != nil || opened == nil {
			return err
		}
		if err := w.drive(ctx, p, h, opened, after); err != nil {
			return err
		}
	}
	return errors.New("the turn did not end")
}

// next begins what is due: the turn, its recovery, or, where it waits for people,
// their answers and a resume. It returns nil when the turn has ended.
func (w *world) next(ctx context.Context, p *process) (*engine.Opened, error) {
	opened, err := p.Open(ctx, w.request())
	if err != nil || !opened.Existing {
		return opened, err
	}
	if err := w.watch(ctx, p); err != nil {
		return nil, err
	}
	for _, due := range w.due(ctx, session.Store.ExpiredLeases) {
		return p.Recover(ctx, due)
	}
	w.settle(ctx, p)
	if err := p.deliver(ctx, w.tenant); err != nil {
		return nil, err
	}
	return w.resume(ctx, p)
}

// due lists what a sweep finds in this world.
func (w *world) due(ctx context.Context, sweep func(session.Store, context.Context, session.SweepRequest) ([]session.Due, error)) []session.Due {
	w.t.Helper()
	var found []session.Due
	request := session.SweepRequest{Limit: 1000}
	for {
		page, err := sweep(w.backend.Sessions(), ctx, request)
		if err != nil {
			w.t.Fatalf("sweep: %v", err)
		}
		for _, due := range page {
			if due.Tenant == w.tenant {
				found = append(found, due)
			}
		}
		if len(page) < request.Limit {
			return found
		}
		request.After = &page[len(page)-1]
	}
}

// sessions and streams are the world's own.
func (w *world) sessions() session.Store { return w.backend.Sessions().Tenant(w.tenant) }
func (w *world) streams() stream.Manager { return w.backend.Streams().Tenant(w.tenant) }

// settle closes the stream if the turn's process could not.
func (w *world) settle(ctx context.Context, h *process) {
	w.t.Helper()
	for _, due := range w.due(ctx, session.Store.PendingCloses) {
		if err := h.SettleClose(ctx, due); err != nil {
			w.t.Fatalf("settle close: %v", err)
		}
	}
}

// effects carries effects out.
type effects interface {
	Handle(ctx context.Context, e machine.Effect) (machine.Result, error)
	OpenChild(ctx context.Context, e machine.Effect) (*engine.Opened, error)
}

// errKilled is the error that a killed process gets from its store, and that its
// driver returns. It is not retryable.
var errKilled = errors.New("killed")

// drive handles a turn's effects one by one, with those of the agents that it calls.
// after, if set, is called after each effect and kills the driver by returning false.
func drive(ctx context.Context, h effects, opened *engine.Opened, after func(machine.Effect, machine.Result) bool) error {
	m, wave := machine.New(opened.Key, opened.Run.ID, opened.Position)
	for {
		results := make([]machine.Result, len(wave))
		for i, effect := range wave {
			var err error
			if results[i], err = handle(ctx, h, effect, after); err != nil {
				return err
			}
			if after != nil && !after(effect, results[i]) {
				return errKilled
			}
		}
		next, end := m.Next(results)
		if end != nil {
			return nil
		}
		wave = next
	}
}

// handle carries out one effect. For a call of another agent it drives the agent's
// turn first.
func handle(ctx context.Context, h effects, e machine.Effect, after func(machine.Effect, machine.Result) bool) (machine.Result, error) {
	if e.Kind == machine.CallChild {
		opened, err := h.OpenChild(ctx, e)
		if err != nil {
			return machine.Result{}, err
		}
		if opened != nil {
			if err := drive(ctx, h, opened, after); err != nil {
				return machine.Result{}, err
			}
		}
	}
	return h.Handle(ctx, e)
}
