package docs_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

const machine = "state-machine.md"

// section returns the text of the page between a heading and the next one.
func section(t *testing.T, heading string) string {
	t.Helper()
	raw, err := os.ReadFile(machine)
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut("\n"+string(raw), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", machine, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// cells is a table of the page: the text of each cell by row and column. The first
// cell of a row is its name, and the table's head names the columns.
type cells map[[2]string]string

// table reads the nth table of a section.
func table(t *testing.T, heading string, nth int) cells {
	t.Helper()
	out := cells{}
	var head []string
	seen := 0
	for line := range strings.Lines(section(t, heading)) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "|") {
			head = nil
			continue
		}
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.Trim(strings.TrimSpace(row[i]), "`")
		}
		switch {
		case head == nil:
			head = row
			seen++
		case strings.HasPrefix(row[0], "---"):
		case seen != nth:
		case len(row) != len(head):
			t.Errorf("%s, %q: row %q has %d cells, the head %d", machine, heading, row[0], len(row), len(head))
		default:
			for i := 1; i < len(row); i++ {
				at := [2]string{row[0], head[i]}
				if _, twice := out[at]; twice {
					t.Errorf("%s, %q: %q occurs twice", machine, heading, row[0])
				}
				out[at] = row[i]
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s, %q: no table %d", machine, heading, nth)
	}
	return out
}

// holds compares a table with the truth, cell by cell.
func (c cells) holds(t *testing.T, heading string, truth cells) {
	t.Helper()
	for at, want := range truth {
		if got, ok := c[at]; !ok {
			t.Errorf("%s, %q: no cell for %q, %q, want %q", machine, heading, at[0], at[1], want)
		} else if got != want {
			t.Errorf("%s, %q: cell %q, %q is %q, want %q", machine, heading, at[0], at[1], got, want)
		}
	}
	for at := range c {
		if _, ok := truth[at]; !ok {
			t.Errorf("%s, %q: superfluous cell %q, %q", machine, heading, at[0], at[1])
		}
	}
}

// named checks that the table has exactly one row for each name.
func (c cells) named(t *testing.T, heading string, names []string) {
	t.Helper()
	said := map[string]bool{}
	for at := range c {
		said[at[0]] = true
	}
	for _, name := range names {
		if !said[name] {
			t.Errorf("%s, %q: no row for %q", machine, heading, name)
		}
		delete(said, name)
	}
	for name := range said {
		t.Errorf("%s, %q: row %q is not one of %v", machine, heading, name, names)
	}
}

// drawn checks that the section's diagram has every name.
func drawn[S ~string](t *testing.T, heading string, names []S) {
	t.Helper()
	_, rest, _ := strings.Cut(section(t, heading), "```text\n")
	diagram, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatalf("%s, %q: no diagram", machine, heading)
	}
	words := strings.FieldsFunc(diagram, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz_", r) })
	for _, name := range names {
		if !slices.Contains(words, string(name)) {
			t.Errorf("%s, %q: the diagram has no %q", machine, heading, name)
		}
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

func TestSessionTransitions(t *testing.T) {
	t.Parallel()
	const heading = "Sessions"
	truth := cells{}
	for _, from := range session.Statuses() {
		for _, to := range session.Statuses() {
			truth[[2]string{string(from), string(to)}] = yes(from.CanBecome(to))
		}
	}
	table(t, heading, 1).holds(t, heading, truth)
	drawn(t, heading, session.Statuses())
}

func TestRunTransitions(t *testing.T) {
	t.Parallel()
	const heading = "Runs"
	truth, ends := cells{}, cells{}
	for _, from := range session.RunStatuses() {
		for _, to := range session.RunStatuses() {
			truth[[2]string{string(from), string(to)}] = yes(from.CanBecome(to))
		}
		if from.Ended() {
			ends[[2]string{string(from), "session"}] = string(from.SessionStatus())
		}
	}
	table(t, heading, 1).holds(t, heading, truth)
	table(t, heading, 2).holds(t, heading, ends)
	drawn(t, heading, session.RunStatuses())
}

func TestSuspensions(t *testing.T) {
	t.Parallel()
	const heading = "How a suspended run ends"
	truth := cells{}
	for _, waits := range []struct {
		name          string
		calls, agents bool
	}{{"its own calls", true, false}, {"agents", false, true}, {"both", true, true}} {
		for _, kept := range []bool{false, true} {
			column := map[bool]string{false: "nothing finished", true: "finished results kept"}[kept]
			truth[[2]string{waits.name, column}] = string(session.SuspensionStatus(waits.calls, waits.agents, kept))
		}
	}
	table(t, heading, 1).holds(t, heading, truth)
}

// values returns the constants of a type of package session.
func values(t *testing.T, typ string) []string {
	t.Helper()
	p, err := load("session")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.typed[typ]) == 0 {
		t.Fatalf("package session has no constants of type %s", typ)
	}
	return p.typed[typ]
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const heading = "Calls that wait for people"
	truth := cells{}
	states := values(t, "PendingState")
	for _, state := range states {
		p := session.Pending{CallID: "c", Kind: session.PendingClientTool, State: session.PendingState(state)}
		truth[[2]string{state, "blocks"}] = yes(p.Open())
		out, err := p.Accept(&session.Submission{CallID: "c", Response: session.Response{Kind: session.PendingClientTool}}, time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		truth[[2]string{state, "an answer is"}] = string(out)
		truth[[2]string{state, "and the call becomes"}] = string(p.State)
	}
	table(t, heading, 1).holds(t, heading, truth)
	drawn(t, heading, states)
}

// play brings a session into a certain state. Its agent asks a person and works at the
// same time, and then replies.
type play struct {
	*testing.T
	db      *memory.Backend
	rt      *local.Runtime
	agent   *helix.Agent
	run     helix.Run
	call    string        // the call that waits or waited
	working chan struct{} // receives a token when the work starts
	release func()        // ends the work
	fails   atomic.Bool   // whether model calls fail
}

const played = "s"

func newPlay(t *testing.T, deadline time.Duration) *play {
	t.Helper()
	gate := make(chan struct{})
	p := &play{T: t, working: make(chan struct{}, 100), release: sync.OnceFunc(func() { close(gate) })}
	p.agent = &helix.Agent{
		Name: "clerk",
		Tools: []helix.Tool{
			{Name: "ask", Description: "Ask the user.", Execute: helix.OnClient[struct{}](), Deadline: deadline},
			{Name: "work", Description: "Work.", Execute: helix.Func(func(ctx context.Context, _ *helix.Call, _ struct{}) (string, error) {
				p.working <- struct{}{}
				select {
				case <-gate:
					return "done", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})},
		},
		Model: scripted.New(
			scripted.Reply(scripted.Calling("ask", nil), scripted.Calling("work", nil)),
			scripted.Text("So be it."), scripted.Text("Indeed."), scripted.Text("Quite."),
		).ByPosition(),
		Hooks: helix.Hooks{BeforeLLMCall: func(_ context.Context, _ *helix.HookContext, e helix.BeforeLLMCallEvent) error {
			if p.fails.Load() {
				return errors.New("not now")
			}
			return nil
		}},
	}
	p.open(p.agent)
	t.Cleanup(p.release)
	return p
}

// open starts a runtime for this play only.
func (p *play) open(agents ...*helix.Agent) {
	p.Helper()
	p.db = memory.New(memory.Config{})
	rt, err := local.New(local.Config{Backend: p.db, Agents: agents, NoRecovery: true})
	p.must(err)
	p.rt = rt
	p.Cleanup(func() {
		ctx := eventually.Context(p)
		_ = rt.Shutdown(ctx)
		p.db.Close()
	})
}

func (p *play) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *play) started(run helix.Run, err error) *helix.Result {
	p.Helper()
	p.must(err)
	p.run = run
	return p.result()
}

func (p *play) result() *helix.Result {
	p.Helper()
	ctx := eventually.Context(p)
	res, err := p.run.Result(ctx)
	p.must(err)
	return res
}

// first is the oldest checkpoint.
func (p *play) first() string {
	p.Helper()
	page, err := p.db.Sessions().Checkpoints(p.Context(), played, session.PageRequest{})
	if errors.Is(err, session.ErrNotFound) {
		return "none"
	}
	p.must(err)
	return page.Items[len(page.Items)-1].ID
}

// entry is the state of the entry of the call that waits, or waited.
func (p *play) entry() session.PendingState {
	p.Helper()
	all, err := p.db.Sessions().PendingCalls(p.Context(), played, true)
	p.must(err)
	at := slices.IndexFunc(all, func(e session.Pending) bool { return p.call == "" || e.CallID == p.call })
	if at < 0 {
		p.Fatalf("nothing is known of the call: %+v", all)
	}
	p.call = all[at].CallID
	return all[at].State
}

func (p *play) pause(from session.Status) {
	p.Helper()
	done, err := p.db.Sessions().SetStatus(p.Context(), played, session.StatusChange{Expect: []session.Status{from}, To: session.Paused})
	p.must(err)
	if !done.OK {
		p.Fatalf("the session is %s, not %s", done.Status, from)
	}
}

func (p *play) answer() (*helix.Submitted, error) {
	return p.rt.Submit(p.Context(), played, helix.ToolResult(p.call, "yes"))
}

func (p *play) abort() {
	p.Helper()
	p.must(p.rt.Abort(p.Context(), played, ""))
	p.started(p.rt.Attach(p.Context(), played))
}

// states lists the states. Each is reached from another one or from nothing.
var states = []struct {
	name  string
	after string
	reach func(p *play)
}{
	{"new", "", func(p *play) { p.call = "c" }},
	{"running", "", func(p *play) {
		run, err := p.rt.Execute(p.Context(), p.agent, helix.Input{SessionID: played, Message: helix.UserText("Go.")})
		p.must(err)
		p.run = run
		<-p.working
		p.entry()
	}},
	{"waiting", "running", func(p *play) { p.release(); p.result() }},
	{"waiting, answered", "waiting", func(p *play) { _, err := p.answer(); p.must(err) }},
	{"completed", "waiting, answered", func(p *play) { p.started(p.rt.Resume(p.Context(), played, helix.ResumeOptions{})) }},
	{"failed", "waiting, answered", func(p *play) {
		p.fails.Store(true)
		p.started(p.rt.Resume(p.Context(), played, helix.ResumeOptions{}))
		p.fails.Store(false)
	}},
	{"aborted", "waiting", (*play).abort},
	{"interrupted", "running", func(p *play) { p.must(p.rt.Interrupt(p.Context(), played, "")); p.result() }},
	{"paused", "completed", func(p *play) { p.pause(session.Completed) }},
	{"paused, waiting", "waiting", func(p *play) { p.pause(session.Active) }},
}

func (p *play) reach(name string) {
	p.Helper()
	for _, s := range states {
		if s.name == name {
			if s.after != "" {
				p.reach(s.after)
			}
			s.reach(p)
			return
		}
	}
	p.Fatalf("unknown state %q", name)
}

// entries lists the operations. Each returns its outcome in the words of the page.
var entries = []struct {
	name string
	do   func(p *play) string
}{
	{"Execute", func(p *play) string { return p.start(p.rt.Execute(p.Context(), p.agent, p.input())) }},
	{"AbandonPending", func(p *play) string {
		in := p.input()
		in.AbandonPending = true
		return p.start(p.rt.Execute(p.Context(), p.agent, in))
	}},
	{"Resume", func(p *play) string { return p.resume(helix.ResumeOptions{}) }},
	{"with a message", func(p *play) string {
		more := helix.UserText("And?")
		return p.resume(helix.ResumeOptions{Message: &more})
	}},
	{"from a checkpoint", func(p *play) string { return p.resume(helix.ResumeOptions{Checkpoint: p.first()}) }},
	{"Retry", func(p *play) string { return p.start(p.rt.Retry(p.Context(), played, helix.RetryOptions{})) }},
	{"Submit", func(p *play) string {
		out, err := p.answer()
		if err != nil {
			return p.refusal(err)
		}
		said := string(out.Outcome)
		if out.Continuation != "" {
			said += ", " + string(out.Continuation)
		}
		return said
	}},
	{"Interrupt", func(p *play) string { return p.stopped(p.rt.Interrupt(p.Context(), played, "")) }},
	{"Abort", func(p *play) string { return p.stopped(p.rt.Abort(p.Context(), played, "")) }},
}

func (p *play) input() helix.Input {
	return helix.Input{SessionID: played, Message: helix.UserText("Continue.")}
}

func (p *play) resume(opts helix.ResumeOptions) string {
	p.Helper()
	return p.start(p.rt.Resume(p.Context(), played, opts))
}

// start returns how a started run ends, or the error that refused it.
func (p *play) start(run helix.Run, err error) string {
	p.Helper()
	if err != nil {
		return p.refusal(err)
	}
	res := p.started(run, nil)
	if res.Status.Suspended() {
		return "→ suspended"
	}
	return "→ " + string(res.Status)
}

// stopped returns the status of a session after a stop, or the error that refused it.
func (p *play) stopped(err error) string {
	p.Helper()
	if err != nil {
		return p.refusal(err)
	}
	p.started(p.rt.Attach(p.Context(), played))
	state, err := p.db.Sessions().Load(p.Context(), played)
	p.must(err)
	return "→ " + string(state.Status)
}

func (p *play) refusal(err error) string {
	p.Helper()
	for name, sentinel := range map[string]error{
		"ErrNotFound": helix.ErrNotFound, "ErrStale": helix.ErrStale, "ErrInvalid": helix.ErrInvalid, "ErrPaused": helix.ErrPaused,
		"ErrAlreadyRunning": helix.ErrAlreadyRunning, "ErrAwaitingInput": helix.ErrAwaitingInput, "ErrNotResumable": helix.ErrNotResumable,
	} {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	p.Fatalf("the page has no name for the error %v", err)
	return ""
}

// TestEntries tries every operation in every state.
func TestEntries(t *testing.T) {
	t.Parallel()
	const heading = "What each operation does in each state"
	truth := cells{}
	for _, s := range states {
		for _, e := range entries {
			p := newPlay(t, 0)
			p.reach(s.name)
			if s.name != "running" {
				p.release()
			}
			truth[[2]string{s.name, e.name}] = e.do(p)
			p.release()
		}
	}
	said := table(t, heading, 1)
	maps.Copy(said, table(t, heading, 2))
	said.holds(t, heading, truth)
	t.Logf("%d cells tried", len(truth))
}

// TestEntriesOfWaitingCalls makes every change of a waiting call's entry happen.
func TestEntriesOfWaitingCalls(t *testing.T) {
	t.Parallel()
	const heading = "Calls that wait for people"
	const overdue = time.Nanosecond
	changes := []struct {
		name     string
		deadline time.Duration
		from     string // a state of the session
		to       func(p *play)
	}{
		{"waiting → answered", 0, "waiting", func(p *play) { _, err := p.answer(); p.must(err) }},
		{"waiting → timed_out", overdue, "running", func(p *play) { p.release(); p.result() }},
		{"waiting → abandoned", 0, "waiting", (*play).abort},
		{"waiting → superseded", 0, "waiting", func(p *play) { p.resume(helix.ResumeOptions{Checkpoint: p.first()}) }},
		{"answered → consumed", 0, "waiting, answered", func(p *play) { p.resume(helix.ResumeOptions{}) }},
		{"answered → superseded", 0, "waiting, answered", func(p *play) { p.resume(helix.ResumeOptions{Checkpoint: p.first()}) }},
	}
	var names []string
	for _, c := range changes {
		names = append(names, c.name)
		p := newPlay(t, c.deadline)
		p.reach(c.from)
		from := p.entry()
		c.to(p)
		if got := string(from) + " → " + string(p.entry()); got != c.name {
			t.Errorf("the change is %q, want %q", got, c.name)
		}
	}
	table(t, heading, 2).named(t, heading, names)
}

// TestChildren makes every status of a called agent happen.
func TestChildren(t *testing.T) {
	t.Parallel()
	const heading = "Called agents"
	tests := map[session.ChildStatus]struct {
		companion bool
		caller    []scripted.Step
		child     scripted.Step
		then      func(p *play)
	}{
		session.ChildRunning:   {child: scripted.Reply(scripted.Until(nil)), then: func(p *play) { <-p.working }},
		session.ChildWaiting:   {child: scripted.Call("ask", nil)},
		session.ChildCompleted: {child: scripted.Text("Done.")},
		session.ChildFailed:    {child: scripted.Fail(session.CodeProvider, false, "no")},
		session.ChildTerminated: {companion: true, child: scripted.Text("Done."), caller: []scripted.Step{
			scripted.Call(helix.SpawnAgentTool, `{"agent":"child","name":"kim","initialMessage":"Go."}`),
			scripted.Call(helix.TerminateChildTool, `{"name":"kim"}`),
			scripted.Text("Gone."),
		}},
		session.ChildSuperseded: {
			child: scripted.Call("ask", nil),
			caller: []scripted.Step{scripted.Takes(
				scripted.Call("subagent__child", `{"task":"Go."}`), scripted.Text("No need to."),
			)},
			then: func(p *play) { p.resume(helix.ResumeOptions{Checkpoint: p.first()}) },
		},
	}
	for want, test := range tests {
		p := &play{T: t, working: make(chan struct{}, 1)}
		child := &helix.Agent{
			Name:  "child",
			Tools: []helix.Tool{{Name: "ask", Description: "Ask the user.", Execute: helix.OnClient[struct{}]()}},
			Model: scripted.New(test.child),
			Hooks: helix.Hooks{BeforeLLMCall: func(context.Context, *helix.HookContext, helix.BeforeLLMCallEvent) error {
				p.working <- struct{}{}
				return nil
			}},
		}
		if test.caller == nil {
			test.caller = []scripted.Step{scripted.Call("subagent__child", `{"task":"Go."}`), scripted.Text("I see.")}
		}
		p.agent = &helix.Agent{Name: "caller", Model: scripted.New(test.caller...).ByPosition()}
		if test.companion {
			p.agent.Companions = []helix.Companion{{Agent: child}}
		} else {
			p.agent.SubAgents = []helix.SubAgent{{Agent: child}}
		}
		p.open(p.agent)
		run, err := p.rt.Execute(t.Context(), p.agent, p.input())
		p.must(err)
		if p.run = run; want != session.ChildRunning {
			p.result()
		}
		if test.then != nil {
			test.then(p)
		}
		refs, err := p.db.Sessions().Children(t.Context(), played)
		p.must(err)
		if len(refs) != 1 || refs[0].Status != want {
			t.Errorf("the children are %+v, want one that is %s", refs, want)
		}
		if want == session.ChildRunning {
			p.abort()
		}
	}
	all := values(t, "ChildStatus")
	if len(all) != len(tests) {
		t.Errorf("%d statuses of children are tried, want %v", len(tests), all)
	}
	table(t, heading, 1).named(t, heading, all)
}
