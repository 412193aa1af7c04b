package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
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
// effects that tools had, the model, and the people who answer.
type world struct {
	t       *testing.T
	backend store.Backend
	tenant  string
	agent   *helix.Agent
	model   *scripted.Model
	people  schedule
	office  *office // a remote agent

	mu     sync.Mutex
	starts map[string]int              // tool and idempotency key → how often a call was started
	said   map[string]helix.Submission // by tool: what people have answered
	unsure map[string]bool             // by tool: whether an answer was given may be unknown
}

// memo is an agent's state. Every write of tools and hooks leaves a trace in it
// whose place is known from the transcript.
type memo struct {
	Notes []string `json:"notes"` // by tools, in call order
	Count int      `json:"count"` // successful payments
	Log   []string `json:"log"`   // by AfterTool and AfterSubAgent
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
	// output makes the agent owe one.
	output bool
	// people says who answers when; nobody in a turn that waits for none.
	people schedule
	// companion is how the agent's companion works.
	companion helix.CompanionMode
}

// act is a turn to be cut off, in all the courses that it may take. What it comes
// to is the same in each.
type act struct {
	name    string
	courses []scenario
	// part is which of the points to take, unless the run is long.
	part Part
}

// Part is a share of the points of turns that take many courses: the At-th of Of.
// Backends that each run another share of them cover all together. The zero value is
// all of them; in a long run, every part is.
type Part struct{ At, Of int }

// has reports whether the n-th point belongs to the part.
func (p Part) has(n int) bool { return p.Of < 2 || n%p.Of == p.At%p.Of || soak() }

// ofShort is the share of the points of turns that take one course, which are fewer.
func (p Part) ofShort() Part { return Part{At: p.At, Of: p.Of / 8} }

// acts are all turns.
func (p Part) acts() []act {
	var out []act
	for _, s := range scenarios() {
		out = append(out, act{name: s.name, courses: []scenario{s}, part: p.ofShort()})
	}
	for _, mode := range []helix.CompanionMode{helix.Blocking, helix.NonBlocking} {
		mixed := act{name: "mixture", part: p}
		if mode == helix.NonBlocking {
			mixed.name, mixed.part = "mixture, companion by itself", Part{At: p.At, Of: 4 * max(p.Of, 1)}
		}
		for _, people := range schedules() {
			s := mixture()
			s.people, s.companion = people, mode
			mixed.courses = append(mixed.courses, s)
		}
		out = append(out, mixed)
	}
	far := act{name: "remote", part: Part{At: p.At, Of: p.Of / 2}}
	for _, when := range []moment{atOnce, live} {
		s := distant()
		s.people = schedule{[]string{"stamp"}, when}
		far.courses = append(far.courses, s)
	}
	out = append(out, far)
	for i := range out {
		if out[i].part.Of > 1 {
			out[i] = out[i].few()
		}
	}
	return out
}

// soak reports whether to run long.
func soak() bool { return os.Getenv("HELIX_SOAK") != "" }

// few leaves out most of the courses: one for each moment of answering is left,
// unless the run is long.
func (a act) few() act {
	if soak() {
		return a
	}
	seen := map[moment]bool{}
	var few []scenario
	for i := range a.courses {
		if s := a.courses[(5*i)%len(a.courses)]; !seen[s.people.when] {
			seen[s.people.when] = true
			few = append(few, s)
		}
	}
	a.courses = few
	return a
}

// pick chooses the courses in which the n-th point of an act is tried: all that
// have such a point in a long run, else one, each time another.
func (a act) pick(n int, has func(course int) bool) []scenario {
	var out []scenario
	if !a.part.has(n) {
		return nil
	}
	for i := range a.courses {
		if at := (n + i) % len(a.courses); has(at) && (soak() || len(out) == 0) {
			out = append(out, a.courses[at])
		}
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
		{name: "finish", output: true, steps: []scripted.Step{
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
	w := &world{
		t: t, backend: backend, tenant: fmt.Sprintf("t-%d", tenants.Add(1)), people: s.people,
		office: &office{started: map[string]int{}},
		starts: map[string]int{}, said: map[string]helix.Submission{}, unsure: map[string]bool{},
	}
	w.model = scripted.New(s.steps...).For("helper", helperSteps()...).For("friend", friendSteps()...).Vary()
	w.agent = w.worker("clerk", "look", "send", "pay", "book", "choose", "sign")
	w.agent.SubAgents = []helix.SubAgent{{Agent: w.worker("helper", "pay", "seal")}, {Name: "office", Remote: w.office}}
	w.agent.Companions = []helix.Companion{{Agent: w.worker("friend", "pay"), Mode: s.companion}}
	if s.output {
		w.agent.Output = helix.OutputOf[receipt]()
	}
	return w
}

// worker is an agent whose tools and hooks leave their traces.
func (w *world) worker(name string, tools ...string) *helix.Agent {
	after := func(_ context.Context, h *helix.HookContext, e helix.AfterTool) error {
		helix.Append(h, "log", trace(e.Tool, e.Error))
		return nil
	}
	agent := &helix.Agent{
		Name: name, Instructions: "Work.", Model: w.model, State: helix.StateOf(memo{}),
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
			AfterTool: after, AfterSubAgent: after,
		},
	}
	for _, tool := range tools {
		agent.Tools = append(agent.Tools, w.tool(tool))
	}
	return agent
}

func (w *world) tool(name string) helix.Tool {
	tool := helix.Tool{Name: name, Description: name}
	switch name {
	case "choose":
		tool.Execute = helix.OnClient[subject]()
		return tool
	case "look":
		tool.ReadOnly = true
	case "send":
		tool.Idempotent = true
	case "book":
		tool.FinishWith = true
	case "sign", "seal":
		tool.Approval = helix.ApproveAlways
	}
	tool.Execute = helix.Func(func(_ context.Context, call *helix.Call, in subject) (string, error) {
		w.mu.Lock()
		w.starts[name+" "+call.IdempotencyKey()]++
		w.mu.Unlock()
		helix.Append(call, "notes", name+" "+in.What)
		if name == "pay" {
			helix.Update(call, func(m *memo) { m.Count++ })
		}
		call.Emit("noted", in.What)
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

// process is a handler: all it knows is in the backend.
type process struct {
	*engine.Handler
	backend store.Backend
	runs    []string // that it has worked on
}

// process starts a process. Its leases expire at once, so that the next need not
// wait.
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

// kill ends the process where it stands.
func (p *process) kill() {
	for _, run := range p.runs {
		p.Drop(run)
	}
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

// turns is more than how often a session is taken up until it has completed.
const turns = 20

// finish has fresh processes take the session up until its turn has ended, as an
// executor and its sweeper would.
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
// effects; after is that of [drive].
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

// next begins what is due: the turn, its takeover, or, where it waits for people,
// their answers and a resume. It gives nothing when the turn has ended.
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
func (w *world) settle(ctx context.Context, h *process) {
	w.t.Helper()
	for _, due := range w.due(ctx, session.Store.OwedCloses) {
		if err := h.SettleClose(ctx, due); err != nil {
			w.t.Fatalf("settle close: %v", err)
		}
	}
}

// effects is who carries effects out.
type effects interface {
	Handle(ctx context.Context, e machine.Effect) (machine.Result, error)
	OpenChild(ctx context.Context, e machine.Effect) (*engine.Opened, error)
}

// errKilled is what a process that was killed gets from its store, and what its
// driver returns. Nobody would try again.
var errKilled = errors.New("killed")

// drive handles a turn's effects one by one, with those of the agents it calls.
// after, if set, is called after each and kills the driver by returning false.
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

// handle carries out one effect. That of a call of another agent includes the
// agent's turn.
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

// outcome is what a turn left behind, in a form in which two turns compare.
type outcome struct {
	status   session.RunStatus
	output   string
	sessions map[string][]string // the transcripts of the session and of the agents it called
	replies  int                 // of models, in all of them
}

// inspect reads what the turn left and checks what must hold of any turn: valid
// transcripts that the stream folds to, states that follow from them, no call
// started more often than its tool allows, and nothing that still waits.
func (w *world) inspect(ctx context.Context) outcome {
	w.t.Helper()
	run, err := w.sessions().CurrentRun(ctx, sessionID)
	if err != nil {
		w.t.Fatalf("run: %v", err)
	}
	if !run.Status.Ended() || run.Status.Suspended() {
		w.t.Fatalf("the run is %s", run.Status)
	}
	out := outcome{status: run.Status, output: string(run.Outcome.Output), sessions: map[string][]string{}}
	streams := map[string][]stream.Chunk{}
	for _, id := range w.family(ctx) {
		state, err := w.sessions().Load(ctx, id)
		if err != nil {
			w.t.Fatalf("load: %v", err)
		}
		if streams[state.StreamID] == nil {
			streams[state.StreamID] = w.readStream(ctx, state.StreamID)
		}
		messages, err := w.sessions().AllMessages(ctx, id)
		if err != nil {
			w.t.Fatalf("messages: %v", err)
		}
		transcript, err := session.NewTranscript(messages)
		if err == nil {
			err = transcript.Sendable()
		}
		if err != nil {
			w.t.Errorf("the transcript of %s is invalid: %v", id, err)
		}
		lines := Lines(messages)
		if standsIn(id) {
			w.checkOffice(id, streams[state.StreamID])
			out.sessions[place(id)] = plain(lines)
			continue
		}
		if got := Lines(stream.Fold(id, streams[state.StreamID])); !slices.Equal(got, lines) {
			w.t.Errorf("folding the stream of %s gives\n%s\nbut the transcript is\n%s", id, strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
		w.checkState(state, messages)
		w.checkStarts(id, messages)
		out.sessions[place(id)] = plain(w.withoutNotices(ctx, id, messages))
		out.replies += replies(messages)
	}
	w.checkPeople(ctx)
	return out
}

// randomPart is what makes a child's id unguessable, and differ from turn to turn.
var randomPart = regexp.MustCompile(`\.[0-9a-z]{16}`)

// place is a session's id without what is random in it: where it is in the family.
func place(id string) string { return randomPart.ReplaceAllString(id, "") }

// replies is the number of a model's replies.
func replies(messages []session.Message) int {
	n := 0
	for i := range messages {
		if messages[i].Role == session.RoleAssistant {
			n++
		}
	}
	return n
}

// family lists the session and those of the agents below it, all that there are.
func (w *world) family(ctx context.Context) []string {
	w.t.Helper()
	page, err := w.sessions().List(ctx, session.Query{PageRequest: session.PageRequest{Limit: session.MaxPageSize}})
	if err != nil {
		w.t.Fatalf("list: %v", err)
	}
	var ids []string
	for i := range page.Items {
		ids = append(ids, page.Items[i].ID)
	}
	return ids
}

var (
	take   = regexp.MustCompile(` text "\(take \d+\)"| \(take \d+\)`)
	callID = regexp.MustCompile(`call_[0-9a-f]+`)
)

// plain takes out of lines what may differ between two turns: a reply that was
// not committed is another take, and the ids of calls follow from those of runs.
func plain(lines []string) []string {
	var out []string
	known := map[string]string{}
	for _, line := range lines {
		line = callID.ReplaceAllStringFunc(take.ReplaceAllString(line, ""), func(id string) string {
			if known[id] == "" {
				known[id] = fmt.Sprintf("call %d", len(known)+1)
			}
			return known[id]
		})
		out = append(out, line)
	}
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

// readStream reads a stream to its end.
func (w *world) readStream(ctx context.Context, id string) []stream.Chunk {
	w.t.Helper()
	var chunks []stream.Chunk
	last := int64(0)
	for item, err := range w.streams().Read(ctx, id, 0, false) {
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
	return chunks
}

// checkState derives from the transcript what tools and hooks must have written.
func (w *world) checkState(state *session.State, messages []session.Message) {
	w.t.Helper()
	raw, err := state.Custom.MarshalJSON()
	if err != nil {
		w.t.Fatal(err)
	}
	var got memo
	if err := json.Unmarshal(raw, &got); err != nil {
		w.t.Fatal(err)
	}
	if want := expectedMemo(messages); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		w.t.Errorf("the state of %s is\n%+v\nwant\n%+v", state.ID, got, want)
	}
}

// once tells of the tools that leave a trace whether their calls may not run
// again.
var once = map[string]bool{"look": false, "send": false, "pay": true, "book": true, "sign": true, "seal": true}

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
			if _, traced := once[result.Tool]; result.Error != nil || !traced {
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
func (w *world) checkStarts(id string, messages []session.Message) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range messages {
		if messages[i].Role != session.RoleTool {
			continue
		}
		result := &messages[i].Parts[0]
		if result.Error != nil && (!once[result.Tool] || result.Error.Code != session.CodeToolOutcome) {
			w.t.Errorf("%s %s failed: %v", result.Tool, result.CallID, result.Error)
		}
		limited, traced := once[result.Tool]
		if !traced {
			continue
		}
		n := w.starts[result.Tool+" "+id+"/"+result.CallID]
		if limited && n > 1 {
			w.t.Errorf("%s %s was started %d times", result.Tool, result.CallID, n)
		}
		if result.Error == nil && n == 0 {
			w.t.Errorf("%s %s has a result but was never started", result.Tool, result.CallID)
		}
	}
}

// sameTurn compares two outcomes, but for what may differ: a call that was cut off
// has no result.
func (w *world) sameTurn(got, want outcome) {
	w.t.Helper()
	unknown, same := 0, len(got.sessions) == len(want.sessions)
	for id, wanted := range want.sessions {
		lines := got.sessions[id]
		same = same && len(lines) == len(wanted)
		for i := range min(len(lines), len(wanted)) {
			if strings.Contains(lines[i], string(session.CodeToolOutcome)) {
				unknown++
				continue
			}
			if lines[i] != wanted[i] {
				w.t.Errorf("message %d of %s is\n%s\nwant\n%s", i, id, lines[i], wanted[i])
			}
		}
	}
	if unknown > 1 {
		w.t.Errorf("%d calls were cut off by one crash", unknown)
	}
	// A FinishWith call that was cut off does not complete the turn.
	if unknown == 0 && (!same || got.status != want.status || got.output != want.output) {
		w.t.Errorf("the turn ended %s %s with the messages %v, want %s %s with %v",
			got.status, got.output, got.sessions, want.status, want.output, want.sessions)
	}
}

// prefix reads what was committed when the process died, and returns a check that
// none of it changed since.
func (w *world) prefix(ctx context.Context) func() {
	w.t.Helper()
	before := map[string][]session.Message{}
	for _, id := range w.family(ctx) {
		messages, err := w.sessions().AllMessages(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		before[id] = messages
	}
	return func() {
		w.t.Helper()
		for id, before := range before {
			after, err := w.sessions().AllMessages(ctx, id)
			if err != nil {
				w.t.Fatal(err)
			}
			for i := range before {
				if i >= len(after) || !before[i].Equal(&after[i]) {
					w.t.Errorf("message %d of %s was committed and then changed", i, id)
				}
			}
		}
	}
}
