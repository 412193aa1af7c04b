package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// Open gives a fresh, empty backend.
type Open func(t *testing.T) store.Backend

// tenants numbers the tenants of worlds on one backend: each turn has one to
// itself, which is cheaper than a database.
var tenants atomic.Int64

// world is what lies outside of a process and survives it: the backend, the
// effects that tools had, and the model.
type world struct {
	t       *testing.T
	backend store.Backend
	tenant  string
	agent   *helix.Agent
	model   *scripted.Model
	apart   bool

	mu     sync.Mutex
	starts map[string]int // tool and idempotency key → how often a call was started
}

// memo is the agent's state. Every write of tools and hooks leaves a trace in it
// whose place is known from the transcript.
type memo struct {
	Notes []string `json:"notes"` // by tools, in call order
	Count int      `json:"count"` // successful payments
	Log   []string `json:"log"`   // by AfterTool
	Seen  []string `json:"seen"`  // by OnMessage
	Asked []int    `json:"asked"` // by BeforeLLMCall
}

type subject struct {
	What string `json:"what"`
}

type receipt struct {
	Total int `json:"total"`
}

// scenario is a turn to be cut off.
type scenario struct {
	name  string
	steps []scripted.Step
	// apart is a runtime that may handle each effect in another process: every claim
	// and settle is a write of its own.
	apart bool
}

// modes are the scenarios under both kinds of runtime.
func modes() []scenario {
	out := scenarios()
	for _, s := range scenarios() {
		s.name += ", apart"
		s.apart = true
		out = append(out, s)
	}
	return out
}

// scenarios cover parallel calls of every kind, a step that commits once, a model
// error in mid-stream that is tried again, a finish with a sibling, and a
// FinishWith tool after a regular one.
func scenarios() []scenario {
	failing := scripted.Reply(scripted.Say("half a tho"),
		scripted.Failing(llm.Error("provider_overloaded", true, "the model is overloaded")))
	return []scenario{
		{name: "finish", steps: []scripted.Step{
			scripted.Reply(scripted.Say("First I look, pay and send."), scripted.Calling("look", subject{"a"}),
				scripted.Calling("pay", subject{"b"}), scripted.Calling("send", subject{"c"})),
			scripted.Reply(scripted.Calling("look", subject{"d"}), scripted.Calling("look", subject{"e"})),
			scripted.Takes(failing, scripted.Reply(scripted.Say("Then I pay."), scripted.Calling("pay", subject{"f"}))),
			scripted.Reply(scripted.Say("Done."), scripted.Calling("pay", subject{"g"}), scripted.Finishing(receipt{3})),
		}},
		{name: "finish with", steps: []scripted.Step{
			scripted.Reply(scripted.Calling("pay", subject{"a"}), scripted.Calling("send", subject{"b"}),
				scripted.Calling("book", subject{"c"})),
			scripted.Text("Whether it is booked I cannot say."), // only where the booking was cut off
		}},
		{name: "reply", steps: []scripted.Step{
			scripted.Reply(scripted.Think("hm"), scripted.Calling("pay", subject{"a"})),
			scripted.Text("That is all."),
		}},
	}
}

func newWorld(t *testing.T, backend store.Backend, s scenario) *world {
	w := &world{t: t, backend: backend, tenant: fmt.Sprintf("t-%d", tenants.Add(1)), starts: map[string]int{}, apart: s.apart}
	w.model = scripted.New(s.steps...).ByPosition().Vary()
	note := func(name string, pays bool) helix.Callable {
		return helix.Func(func(_ context.Context, call *helix.Call, in subject) (string, error) {
			w.mu.Lock()
			w.starts[name+" "+call.IdempotencyKey()]++
			w.mu.Unlock()
			helix.Append(call, "notes", name+" "+in.What)
			if pays {
				helix.Update(call, func(m *memo) { m.Count++ })
			}
			call.Emit("noted", in.What)
			return name + " done: " + in.What, nil
		})
	}
	w.agent = &helix.Agent{
		Name: "clerk", Instructions: "Work.", Model: w.model, State: helix.StateOf(memo{}),
		Tools: []helix.Tool{
			{Name: "look", Description: "Looks.", Execute: note("look", false), ReadOnly: true},
			{Name: "send", Description: "Sends.", Execute: note("send", false), Idempotent: true},
			{Name: "pay", Description: "Pays.", Execute: note("pay", true)},
			{Name: "book", Description: "Books.", Execute: note("book", false), FinishWith: true},
		},
		Hooks: helix.Hooks{
			BeforeLLMCall: func(_ context.Context, h *helix.HookContext, e helix.BeforeLLMCall) error {
				if e.Attempt == 1 {
					helix.Append(h, "asked", h.Step)
				}
				return nil
			},
			OnMessage: func(_ context.Context, h *helix.HookContext, e helix.NewMessage) error {
				helix.Append(h, "seen", string(e.Message.Role))
				return nil
			},
			AfterTool: func(_ context.Context, h *helix.HookContext, e helix.AfterTool) error {
				helix.Append(h, "log", trace(e.Tool, e.Error))
				return nil
			},
		},
	}
	if strings.TrimSuffix(s.name, ", apart") == "finish" {
		w.agent.Output = helix.OutputOf[receipt]()
	}
	return w
}

func trace(tool string, err *helix.Error) string {
	if err != nil {
		return tool + ": " + string(err.Code)
	}
	return tool + ": ok"
}

// handler is a process: all it knows is in the backend. Its leases expire at
// once, so that the next process need not wait.
func (w *world) handler(backend store.Backend) *engine.Handler {
	w.t.Helper()
	h := engine.NewHandler(engine.Config{
		Backend: backend, Runtime: "test", Colocated: !w.apart, LeaseTTL: time.Nanosecond, RetryBackoff: time.Millisecond,
		FlushEvery: time.Hour, // only before commits, so that every run makes the same writes
	})
	if err := h.Register(w.agent); err != nil {
		w.t.Fatal(err)
	}
	return h
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
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

// finish has fresh processes take the session up until its turn has ended, as an
// executor and its sweeper would.
func (w *world) finish(ctx context.Context) {
	w.t.Helper()
	for range 20 {
		h := w.handler(w.backend)
		opened, err := h.Open(ctx, w.request())
		if err != nil {
			w.t.Fatalf("open: %v", err)
		}
		if opened.Existing {
			expired := w.due(ctx, session.Store.ExpiredLeases)
			if len(expired) == 0 {
				w.settle(ctx, h)
				return
			}
			if opened, err = h.Recover(ctx, expired[0]); err != nil {
				w.t.Fatalf("recover: %v", err)
			}
		}
		if err := drive(ctx, h, opened, nil); err != nil {
			w.t.Fatalf("drive: %v", err)
		}
	}
	w.t.Fatal("the turn did not end")
}

// due lists what a sweep finds of this world.
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
func (w *world) settle(ctx context.Context, h *engine.Handler) {
	w.t.Helper()
	for _, due := range w.due(ctx, session.Store.OwedCloses) {
		if err := h.SettleClose(ctx, due); err != nil {
			w.t.Fatalf("settle close: %v", err)
		}
	}
}

// effects is who carries effects out.
type effects interface {
	Handle(ctx context.Context, e engine.Effect) (engine.Result, error)
}

// drive handles a turn's effects one by one. after, if set, is called after each
// and ends the drive by returning false.
func drive(ctx context.Context, h effects, opened *engine.Opened, after func(engine.Effect, engine.Result) bool) error {
	machine, wave := engine.NewMachine(opened.Key, opened.Run.ID, opened.Position)
	for {
		results := make([]engine.Result, len(wave))
		for i, effect := range wave {
			var err error
			if results[i], err = h.Handle(ctx, effect); err != nil {
				return err
			}
			if after != nil && !after(effect, results[i]) {
				return nil
			}
		}
		next, end := machine.Next(results)
		if end != nil {
			return nil
		}
		wave = next
	}
}

// outcome is what a turn left behind, in a form in which two turns compare.
type outcome struct {
	messages []session.Message
	lines    []string
	status   session.RunStatus
	output   string
}

var take = regexp.MustCompile(` text "\(take \d+\)"| \(take \d+\)`)

// inspect reads what the turn left and checks what must hold of any turn: a valid
// transcript that the stream folds to, a state that follows from it, and no call
// started more often than its tool allows.
func (w *world) inspect(ctx context.Context) outcome {
	w.t.Helper()
	messages, err := w.sessions().AllMessages(ctx, sessionID)
	if err != nil {
		w.t.Fatalf("messages: %v", err)
	}
	run, err := w.sessions().Run(ctx, sessionID, runID)
	if err != nil {
		w.t.Fatalf("run: %v", err)
	}
	if !run.Status.Ended() {
		w.t.Fatalf("the run is %s", run.Status)
	}
	transcript, err := session.NewTranscript(messages)
	if err == nil {
		err = transcript.Sendable()
	}
	if err != nil {
		w.t.Errorf("the transcript is invalid: %v", err)
	}
	out := outcome{messages: messages, lines: Lines(messages), status: run.Status, output: string(run.Outcome.Output)}
	w.checkStream(ctx, out.lines)
	w.checkState(ctx, messages)
	w.checkStarts(messages)
	return out
}

// Lines renders messages without ids and times, one line each, for comparison.
func Lines(messages []session.Message) []string {
	var lines []string
	for i := range messages {
		m := &messages[i]
		var line strings.Builder
		line.WriteString(string(m.Role) + ":")
		for j := range m.Parts {
			p := &m.Parts[j]
			switch p.Kind {
			case session.PartToolCall:
				fmt.Fprintf(&line, " call %s %s(%s)", p.CallID, p.Tool, p.Input)
			case session.PartToolResult:
				fmt.Fprintf(&line, " result %s %s", p.CallID, p.ResultJSON())
			default:
				fmt.Fprintf(&line, " %s %q", p.Kind, p.Text)
			}
		}
		lines = append(lines, line.String())
	}
	return lines
}

func (w *world) checkStream(ctx context.Context, want []string) {
	w.t.Helper()
	var chunks []stream.Chunk
	last := int64(0)
	for item, err := range w.streams().Read(ctx, sessionID, 0, false) {
		if err != nil {
			w.t.Fatalf("read the stream: %v", err)
		}
		if item.Chunk != nil {
			if item.Sequence != last+1 {
				w.t.Errorf("sequence %d follows %d", item.Sequence, last)
			}
			last = item.Sequence
			chunks = append(chunks, *item.Chunk)
		}
		if item.Terminal() && item.Frame != stream.FrameEnd {
			w.t.Errorf("the stream ended with %s", item.Frame)
		}
	}
	if got := Lines(stream.Fold(sessionID, chunks)); !slices.Equal(got, want) {
		w.t.Errorf("folding the stream gives\n%s\nbut the transcript is\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// checkState derives from the transcript what tools and hooks must have written.
func (w *world) checkState(ctx context.Context, messages []session.Message) {
	w.t.Helper()
	state, err := w.sessions().Load(ctx, sessionID)
	if err != nil {
		w.t.Fatalf("load: %v", err)
	}
	raw, err := state.Custom.MarshalJSON()
	if err != nil {
		w.t.Fatal(err)
	}
	var got memo
	if err := json.Unmarshal(raw, &got); err != nil {
		w.t.Fatal(err)
	}
	if want := expectedMemo(messages); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		w.t.Errorf("state is\n%+v\nwant\n%+v", got, want)
	}
}

func expectedMemo(messages []session.Message) memo {
	var m memo
	inputs := map[string]string{}
	for i := range messages {
		msg := &messages[i]
		switch msg.Role {
		case session.RoleAssistant:
			m.Asked = append(m.Asked, msg.Step)
			m.Seen = append(m.Seen, string(msg.Role))
			for _, call := range msg.Calls() {
				var in subject
				_ = json.Unmarshal(call.Input, &in) // the finish call has none
				inputs[call.CallID] = in.What
			}
		case session.RoleTool:
			m.Seen = append(m.Seen, string(msg.Role))
			result := &msg.Parts[0]
			if result.Tool == session.FinishTool {
				continue
			}
			m.Log = append(m.Log, trace(result.Tool, result.Error))
			if result.Error != nil {
				continue
			}
			m.Notes = append(m.Notes, result.Tool+" "+inputs[result.CallID])
			if result.Tool == "pay" {
				m.Count++
			}
		}
	}
	return m
}

// checkStarts holds every call to what its tool allows: one that may not run
// again was started at most once, and not at all only if nobody claims it was.
func (w *world) checkStarts(messages []session.Message) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range messages {
		if messages[i].Role != session.RoleTool {
			continue
		}
		result := &messages[i].Parts[0]
		if result.Tool == session.FinishTool {
			continue
		}
		n := w.starts[result.Tool+" "+sessionID+"/"+result.CallID]
		once := result.Tool == "pay" || result.Tool == "book"
		if once && n > 1 {
			w.t.Errorf("%s %s was started %d times", result.Tool, result.CallID, n)
		}
		if result.Error == nil && n == 0 {
			w.t.Errorf("%s %s has a result but was never started", result.Tool, result.CallID)
		}
		if result.Error != nil && (!once || result.Error.Code != session.CodeToolOutcome) {
			w.t.Errorf("%s %s failed: %v", result.Tool, result.CallID, result.Error)
		}
	}
}

// sameTurn compares two outcomes, but for what may differ: a reply that was not
// committed is another take, and a call that was cut off has no result.
func (w *world) sameTurn(got, want outcome) {
	w.t.Helper()
	unknown := 0
	for i, line := range got.lines {
		if i >= len(want.lines) {
			break
		}
		if strings.Contains(line, string(session.CodeToolOutcome)) {
			unknown++
			continue
		}
		if a, b := take.ReplaceAllString(line, ""), take.ReplaceAllString(want.lines[i], ""); a != b {
			w.t.Errorf("message %d is\n%s\nwant\n%s", i, a, b)
		}
	}
	if unknown > 1 {
		w.t.Errorf("%d calls were cut off by one crash", unknown)
	}
	// A FinishWith call that was cut off does not complete the turn.
	if unknown == 0 && (len(got.lines) != len(want.lines) || got.status != want.status || got.output != want.output) {
		w.t.Errorf("the turn ended %s %s with %d messages, want %s %s with %d",
			got.status, got.output, len(got.lines), want.status, want.output, len(want.lines))
	}
}

// prefix reads what was committed when the process died, and returns a check that
// none of it changed since.
func (w *world) prefix(ctx context.Context) func() {
	w.t.Helper()
	before, err := w.sessions().AllMessages(ctx, sessionID)
	if err != nil {
		return func() {} // the turn was not opened yet
	}
	return func() {
		w.t.Helper()
		after, err := w.sessions().AllMessages(ctx, sessionID)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range before {
			if i >= len(after) || !before[i].Equal(&after[i]) {
				w.t.Errorf("message %d was committed and then changed", i)
			}
		}
	}
}
