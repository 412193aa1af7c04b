package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func contextScenarios() []Scenario {
	return slices.Concat(askedScenarios(), contextEdges(), []Scenario{
		{"long", "a session of hundreds of steps fits into a small window: the prompt is a saw-tooth that breaks only at markers, and the history is whole", contextLong},
		{"long by overflow", "so does one with a model that does not know its window, and refuses what is too long", contextLongUnknown},
		{"summary", "a summary takes the place of all but the last messages, repeats what the user asked, and is fed into the next one", contextSummary},
		{"trim", "large results of earlier calls are cut before anything is summarised", contextTrim},
		{"in vain", "a summariser that fails, says nothing, repeats its input or is cut off costs no message, and is asked again only as the prompt grows", contextInVain},
		{"hanging", "a summariser that hangs is left behind, and the run goes on", contextHanging},
		{"takeover in vain", "a process that takes over does not ask a failed summariser again before the prompt has grown", contextTakeover},
		{"overflow", "a prompt that the provider refuses is made shorter and asked again", contextOverflow},
		{"too long", "a prompt that cannot be made shorter fails the run with the provider's error, which names the largest message", contextTooLong},
		{"tool output only", "a session that is nothing but tool output is compacted", contextToolOutput},
		{"stop", "a stop ends a summary, and the session can be resumed", contextStop},
		{"between runs", "a session is compacted and cleared between runs, and neither during a run nor while calls wait", contextBetween},
		{"refused calls", "what people refused is in the summary, and in those that follow, word for word", contextRefused},
		{"behind the prompt", "an agent that caches its prompt has the summary made behind it", contextBehind},
		{"preserved", "extensions add to the summary, and what they recalled is not part of it", contextPreserved},
		{"counted", "a provider is asked to count only where the estimate is close to the trigger, and need not answer", contextCounted},
	})
}

// narrow is a model with a script of its own that counts four bytes as a token and refuses
// prompts that are too long.
type narrow struct {
	limit  int // in tokens; 0 for none
	window int // what it says of itself
	file   int // tokens of a file
	reply  func(n int, r *llm.Request) []session.Part

	mu      sync.Mutex
	replies int
	sizes   []int // of all prompts
	refused int
	breaks  int      // prompts that do not begin with the one before
	last    []string // the messages of the prompt before
	sent    []llm.Request
	keep    bool // the requests
}

// Window implements [llm.Windowed].
func (m *narrow) Window() int { return m.window }

// Generate implements [llm.Model].
func (m *narrow) Generate(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := tokensOf(r) + m.file*filesOf(r)
	m.sizes = append(m.sizes, size)
	if m.keep {
		m.sent = append(m.sent, *r)
	}
	var now []string
	for i := range r.Messages {
		raw, err := r.Messages[i].AppendJSON(nil)
		if err != nil {
			return nil, err
		}
		now = append(now, string(raw))
	}
	if len(now) < len(m.last) || !slices.Equal(now[:len(m.last)], m.last) {
		m.breaks++
	}
	m.last = now
	if m.limit > 0 && size > m.limit {
		m.refused++
		return nil, llm.Error(session.CodeContextLength, false, "the prompt has %d tokens, at most %d are allowed", size, m.limit)
	}
	m.replies++
	parts := m.reply(m.replies, r)
	finish := llm.FinishStop
	if parts[len(parts)-1].Kind == session.PartToolCall {
		finish = llm.FinishToolCalls
	}
	return &llm.Response{Parts: parts, Finish: finish, Model: "narrow", Usage: session.Usage{InputTokens: int64(size), OutputTokens: 20}}, nil
}

// request returns the n-th request.
func (m *narrow) request(n int) llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent[n]
}

// tokensOf is the size of a prompt as the model counts it.
func tokensOf(r *llm.Request) int {
	n := len(r.Instructions)
	for i := range r.Tools {
		n += len(r.Tools[i].Description) + len(r.Tools[i].Schema)
	}
	for i := range r.Messages {
		n += 16
		for j := range r.Messages[i].Parts {
			p := &r.Messages[i].Parts[j]
			n += len(p.Text) + len(p.Input) + len(p.Output)
		}
	}
	return n / 4
}

// filesOf is how many files a prompt has.
func filesOf(r *llm.Request) (n int) {
	for i := range r.Messages {
		for j := range r.Messages[i].Parts {
			if r.Messages[i].Parts[j].Kind == session.PartFile {
				n++
			}
		}
	}
	return n
}

// calls has a model call a tool a number of times, each with a number.
func calls(tool string, numbers ...int) []session.Part {
	var parts []session.Part
	for _, n := range numbers {
		parts = append(parts, session.Part{Kind: session.PartToolCall, Tool: tool, Input: fmt.Appendf(nil, `{"n":%d}`, n)})
	}
	return parts
}

// says is a reply of a text.
func says(text string) []session.Part { return []session.Part{session.Text(text)} }

// fetching is a tool that returns so many bytes.
func fetching() helix.Tool {
	tool := newTool("fetch", func(_ context.Context, _ *helix.Call, n int) (string, error) { return strings.Repeat("x", n), nil })
	tool.ReadOnly = true
	return tool
}

// summariser is a model that makes summaries.
type summariser struct {
	make func(ctx context.Context, prompt string) (*llm.Response, error)
	mu   sync.Mutex
	sent []string // what it was asked
}

// summarising returns a summariser that says a text.
func summarising(text string) *summariser {
	return &summariser{make: func(context.Context, string) (*llm.Response, error) { return summarised(text), nil }}
}

func summarised(text string) *llm.Response {
	return &llm.Response{Parts: says(text), Finish: llm.FinishStop, Model: "summariser", Usage: session.Usage{InputTokens: 70, OutputTokens: 7}}
}

// Generate implements [llm.Model].
func (m *summariser) Generate(ctx context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	var text strings.Builder
	for i := range r.Messages {
		for _, p := range r.Messages[i].Parts {
			text.WriteString(p.Text + string(p.Output))
		}
	}
	prompt := text.String()
	m.mu.Lock()
	m.sent = append(m.sent, prompt)
	m.mu.Unlock()
	return m.make(ctx, prompt)
}

func (m *summariser) asked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sent)
}

// markers returns the places of the markers of a session.
func (s *Stage) markers(id string) (at []int, messages []session.Message) {
	s.Helper()
	messages = s.messages(id)
	for i := range messages {
		if messages[i].Compaction() != nil {
			at = append(at, i)
		}
	}
	return at, messages
}

// contextEvents returns the events of a session's stream about compactions.
func (s *Stage) contextEvents(id string) string {
	s.Helper()
	var out []string
	for _, c := range ofKind(s.chunks(id), stream.Custom) {
		if c.Name == helix.CompactingEvent || c.Name == helix.CompactedEvent {
			out = append(out, c.Name)
		}
	}
	return strings.Join(out, " ")
}

func contextLong(s *Stage) {
	steps := 120
	switch {
	case testshare.Soak():
		steps = 2_000
	case s.config.FakeTime:
		steps = 400
	case s.config.SlowSteps:
		steps = 40
	}
	s.goesOn(steps, longest, 0)
}

func contextLongUnknown(s *Stage) { s.goesOn(80, 0, 3) }

// longest is the window of the model in a long session.
const longest = 30_000

// goesOn runs a session of so many steps on a model that refuses prompts above longest, and at
// least so many of the session. window is what it says of itself.
func (s *Stage) goesOn(steps, window, refusals int) {
	const perRun, limit = 40, longest
	model := &narrow{limit: limit, window: window, reply: func(n int, _ *llm.Request) []session.Part {
		switch {
		case n%perRun == 0:
			return says(fmt.Sprint("part ", n/perRun))
		case n%29 == 0: // more at once than what is left of the window
			return calls("fetch", 6_000, 7_000, 8_000, 9_000)
		}
		return calls("fetch", 200+(n*997)%6_000)
	}}
	small := summarising(strings.Repeat("What was done so far. ", 20))
	agent := newAgent(model, fetching())
	agent.MaxSteps = helix.Unlimited
	agent.Context = &helix.ContextPolicy{TriggerMessages: helix.Unlimited, TriggerTokens: helix.Unlimited, KeepMessages: 10, Model: small}
	s.album = nil // snapshots are of the whole history
	x := s.Start(agent)
	results := 0
	for n := range steps / perRun {
		s.ended(s.Say(x, agent, "s-1", fmt.Sprint("part ", n)), helix.Completed)
	}
	at, messages := s.markers("s-1")
	model.mu.Lock()
	sizes, breaks, refused := model.sizes, model.breaks, model.refused
	model.mu.Unlock()
	s.same(breaks, len(at), "prompts that do not begin with the one before")
	if len(at) < max(steps/100, 1) || refused < refusals || refusals == 0 && refused > 0 || len(small.asked()) > len(at) {
		s.Fatalf("%d markers, %d prompts refused, %d summaries", len(at), refused, len(small.asked()))
	}
	falls := 0
	for i := range sizes[1:] {
		if sizes[i+1] < sizes[i] {
			falls++
		}
	}
	s.same(falls, len(at), "times that the prompt became shorter")
	if most := slices.Max(sizes); most > 2*limit {
		s.Fatalf("the longest prompt had %d tokens", most)
	}
	for i := range messages {
		if m := &messages[i]; m.Role == session.RoleTool {
			results++
			if text := m.Parts[0].Text; len(text) < 200 || strings.Trim(text, "x") != "" {
				s.Fatalf("result %d of the history is %.100q", i, text)
			}
		}
	}
	s.same(len(messages)-len(at), steps/perRun+steps+results, "messages of the whole history")
	s.branchesAt(x, agent, at, messages)
}

// branchesAt checks that a session can be branched before and behind each of its markers.
func (s *Stage) branchesAt(x Executor, agent *helix.Agent, at []int, messages []session.Message) {
	s.Helper()
	for n, i := range at {
		for _, count := range []int{i, i + 1} {
			id := fmt.Sprintf("copy-%d", count)
			state := session.State{ID: id, Agent: agent.Name, Status: session.Active, StreamID: id}
			_, err := s.store().Clone(s.ctx(), &session.Clone{From: "s-1", MessageCount: &count, To: state})
			s.ok(err, "copy the first %d messages", count)
			tail, err := session.ReadView(s.ctx(), s.store(), s.load(id))
			s.ok(err, "read the view of %s", id)
			s.same(render(session.View(tail.Messages)), render(session.View(messages[:count])), "view of the first %d messages", count)
			_, err = s.store().Delete(s.ctx(), id)
			s.ok(err, "delete")
		}
		if n != 0 && n != len(at)-1 {
			continue
		}
		for _, count := range []int{i, i + 1} {
			id := fmt.Sprintf("branch-%d", count)
			if len(session.OpenCalls(messages[:count])) > 0 {
				s.Fatalf("marker %d is between a call and its result", i)
			}
			s.loose[id] = true
			s.ended(s.Result(s.branch(x, agent, id, helix.Branch{From: "s-1", MessageIndex: &count}, "go on")), helix.Completed)
		}
	}
}

func contextSummary(s *Stage) {
	model := &narrow{keep: true, reply: func(n int, _ *llm.Request) []session.Part {
		if n == 10 {
			return says("done")
		}
		return calls("fetch", 400+n)
	}}
	small := summarising("First summary.")
	small.make = func(context.Context, string) (*llm.Response, error) {
		return summarised(fmt.Sprintf("Summary %d.", len(small.asked()))), nil
	}
	agent := newAgent(model, fetching())
	agent.Context = &helix.ContextPolicy{TriggerMessages: 9, KeepMessages: 4, Model: small}
	d := &diary{}
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Observers: []helix.Observer{d}})
	res := s.Say(x, agent, "s-1", "Please count, "+strings.Repeat("and count ", 40))
	s.ended(res, helix.Completed)
	at, messages := s.markers("s-1")
	s.same(at, []int{9, 16}, "places of the markers")
	s.same(res.Usage.ModelCalls, 12, "model calls of the run")
	s.same(res.Usage.OutputTokens, 10*20+2*7, "tokens of the run")
	asked := small.asked()
	s.same(len(asked), 2, "summaries")
	for n, words := range [][]string{
		{"Please count, and count", "(there is none)", "[result of fetch]\n  xxx", `{"n":402}`, "## Next steps"},
		{"Summary 1.", `{"n":403}`, `{"n":405}`},
	} {
		for _, word := range words {
			if !strings.Contains(asked[n], word) {
				s.Fatalf("summary %d was asked for with\n%s\nwhich has no %q", n+1, asked[n], word)
			}
		}
	}
	if strings.Contains(asked[0], `{"n":403}`) || strings.Contains(asked[1], `{"n":402}`) {
		s.Fatalf("the summaries overlap:\n%s\n%s", asked[0], asked[1])
	}
	last := model.request(9)
	text := last.Messages[0].Content()
	if !strings.Contains(text, "Summary 2.") || strings.Contains(text, "Summary 1.") || !strings.Contains(text, "Please count, and count") {
		s.Fatalf("the model was sent the summary\n%s", text)
	}
	s.same(len(last.Messages), 1+4+2*2, "messages that the model was sent last")
	c := messages[at[1]].Compaction()
	if c.Kind != session.CompactionSummary || c.Model != "summariser" || c.TokensAfter >= c.TokensBefore || c.TokensAfter == 0 {
		s.Fatalf("the second marker says %+v", c)
	}
	s.same(s.contextEvents("s-1"), "compacting compacted compacting compacted", "events")
	var sources []string
	for _, c := range s.checkpoints("s-1") {
		if c.Source == session.FromCompaction {
			sources = append(sources, fmt.Sprint(c.MessageCount))
		}
	}
	s.same(sources, []string{"10", "17"}, "message counts of the checkpoints behind the markers")
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, a := range d.all {
		if a.Kind == helix.ActivityCompaction {
			n++
			s.same(fmt.Sprintf("%s %d %s %d %v", a.Name, len(a.ends), a.ends[0].Model, a.ends[0].Usage.OutputTokens, a.ends[0].Error),
				"summary 1 summariser 7 <nil>", "the compaction's activity")
		}
	}
	s.same(n, 2, "activities")
}

func contextTrim(s *Stage) {
	model := &narrow{keep: true, reply: func(n int, _ *llm.Request) []session.Part {
		if n == 8 {
			return says("done")
		}
		return calls("fetch", 8_000)
	}}
	small := summarising("not wanted")
	agent := newAgent(model, fetching())
	agent.Context = &helix.ContextPolicy{TriggerMessages: helix.Unlimited, TriggerTokens: 11_000, KeepMessages: 4, TrimResults: 2_000, Model: small}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "go"), helix.Completed)
	s.same(len(small.asked()), 0, "summaries")
	at, messages := s.markers("s-1")
	s.same(len(at), 1, "markers")
	c := messages[at[0]].Compaction()
	s.same(fmt.Sprintf("%s %d %d %d", c.Kind, c.Kept, c.Arguments, c.Results), "trim 4 2000 2000", "the marker")
	var sizes []int
	for _, m := range model.request(7).Messages {
		if m.Role == session.RoleTool {
			sizes = append(sizes, len(m.Parts[0].Text))
		}
	}
	s.same(len(sizes), 7, "results that the model was sent")
	for i, n := range sizes {
		if cut := i < 4; cut != (n <= 2_000) || !cut && n != 8_000 {
			s.Fatalf("the model was sent results of %v bytes", sizes)
		}
	}
	s.same(s.contextEvents("s-1"), "compacted", "events")
}

// vainly runs an agent whose summaries lead to nothing, and checks that it is sent the whole
// conversation and that the number of summaries is bounded by the growth of the prompt. The
// summariser is asked so many times per summary.
func (s *Stage) vainly(small *summariser, steps, takeovers, per int, run func(agent *helix.Agent)) {
	s.Helper()
	const trigger = 1_000
	model := &narrow{keep: true, reply: func(n int, _ *llm.Request) []session.Part {
		if n == steps {
			return says("done")
		}
		return calls("fetch", 450)
	}}
	agent := newAgent(model, fetching())
	agent.Context = &helix.ContextPolicy{
		TriggerMessages: helix.Unlimited, TriggerTokens: trigger, KeepMessages: 4, TrimResults: helix.Unlimited, Model: small,
	}
	run(agent)
	at, messages := s.markers("s-1")
	s.same(len(at), 0, "markers")
	steps -= takeovers // the reply that is lost is asked for again
	s.same(len(messages), 2*steps, "messages")
	s.same(model.breaks, 0, "prompts that do not begin with the one before")
	last := model.request(len(model.sent) - 1)
	s.same(len(last.Messages), 2*steps-1, "messages that the model was sent last")
	grown := float64(tokensOf(&last)) * 1.2 / trigger
	most := per * (int(math.Log(grown)/math.Log(1.1)) + 2 + takeovers)
	if n := len(small.asked()); n == 0 || n > most || n%per != 0 {
		s.Fatalf("%d summaries were asked for while the prompt grew %f times, at most %d are expected", n, grown, most)
	}
	s.logged("compaction.failed")
}

func contextInVain(s *Stage) {
	for _, v := range vains() {
		n := s.inVain(v, 45, false)
		s.same(s.inVain(v, 45, true), v.behind*n, "%s: calls, if the agent caches its prompts", v.name)
	}
}

func contextHanging(s *Stage) {
	n := s.inVain(hanging(), 12, false)
	s.same(s.inVain(hanging(), 12, true), n, "calls, if the agent caches its prompts")
}

// inVain runs an agent whose summaries lead to nothing, deletes its session, and returns how
// often it was asked for a summary.
func (s *Stage) inVain(v vain, steps int, caches bool) int {
	s.Helper()
	small := &summariser{make: v.make}
	per := 1
	if caches {
		per = v.behind
	}
	s.vainly(small, steps, 0, per, func(agent *helix.Agent) {
		if caches {
			cachingWith(agent, small)
		}
		if v.name == hanging().name {
			agent.ModelTimeout = s.pace(400 * time.Millisecond)
		}
		x := s.Start(agent)
		s.ended(s.Say(x, agent, "s-1", "go"), helix.Completed)
		s.ok(x.Close(), "close")
	})
	_, err := s.store().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	if s.album != nil {
		clear(s.album.taken)
	}
	return len(small.asked())
}

func contextTakeover(s *Stage) {
	small := &summariser{make: func(context.Context, string) (*llm.Response, error) { return nil, errors.New("no") }}
	s.vainly(small, 30, 1, 1, func(agent *helix.Agent) {
		g := s.newGate()
		fetch := fetching()
		var ran tally
		agent.Tools = []helix.Tool{newTool("fetch", func(ctx context.Context, _ *helix.Call, n int) (string, error) {
			if ran.add("fetch") == 16 {
				g.enter()
				<-ctx.Done()
				return "", ctx.Err()
			}
			return strings.Repeat("x", n), nil
		})}
		agent.Tools[0].ReadOnly = fetch.ReadOnly
		x := s.mortal(agent)
		run := s.Begin(x, agent, "s-1", "go")
		s.receive("the tool runs", g.entered)
		x.Kill()
		s.takenOver(run, agent)
	})
}

func contextOverflow(s *Stage) {
	model := &narrow{limit: 4_000, keep: true, reply: func(n int, _ *llm.Request) []session.Part {
		if n == 12 {
			return says("done")
		}
		return calls("fetch", 2_000)
	}}
	small := summarising("Short.")
	agent := newAgent(model, fetching())
	agent.Context = &helix.ContextPolicy{Model: small} // whose triggers are far away
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Please go."), helix.Completed)
	at, messages := s.markers("s-1")
	if model.refused == 0 || model.refused != len(at) || model.breaks != len(at) {
		s.Fatalf("%d prompts were refused, %d do not begin with the one before, and there are %d markers", model.refused, model.breaks, len(at))
	}
	for _, i := range at {
		if c := messages[i].Compaction(); !c.Forced {
			s.Fatalf("a marker says %+v", c)
		}
	}
	s.same(len(messages)-len(at), 1+12+11, "messages of the whole history")
	s.logged("compaction.forced")
}

func contextTooLong(s *Stage) {
	model := &narrow{limit: 1_000, reply: func(int, *llm.Request) []session.Part { return says("hello") }}
	small := summarising("Short.")
	agent := newAgent(model)
	agent.Context = &helix.ContextPolicy{Model: small}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "hello"), helix.Completed)
	res := s.Say(x, agent, "s-1", strings.Repeat("too much ", 1_000))
	s.failed(res, code(session.CodeContextLength), "at most 1000 are allowed", "cannot be made shorter", res.RunID+"/in/0", "a message of the user")
	if model.refused > 3 {
		s.Fatalf("%d prompts were refused", model.refused)
	}
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{
		Checkpoint: s.checkpoints("s-1")[1].ID, Message: new(helix.UserText("less")),
	})), helix.Completed)

	plain := newAgent(model)
	plain.Name = "plain"
	s.ok(x.Register(plain), "register")
	res = s.Say(x, plain, "s-2", strings.Repeat("too much ", 1_000))
	s.failed(res, code(session.CodeContextLength), "at most 1000 are allowed")
	if strings.Contains(res.Error.Message, "shorter") {
		s.Fatalf("an agent without a policy fails with %v", res.Error)
	}
}

func contextToolOutput(s *Stage) {
	model := &narrow{limit: 12_000, reply: func(n int, _ *llm.Request) []session.Part {
		if n == 60 {
			return says("done")
		}
		return calls("fetch", 3_000)
	}}
	agent := newAgent(model, fetching())
	agent.MaxSteps = helix.Unlimited
	agent.Context = &helix.ContextPolicy{TriggerMessages: helix.Unlimited, TriggerTokens: 9_000, KeepMessages: 6, Model: summarising("Data was fetched.")}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Fetch all of it."), helix.Completed)
	at, _ := s.markers("s-1")
	if len(at) < 3 || model.refused > 0 || model.breaks != len(at) {
		s.Fatalf("%d markers, %d prompts refused, %d do not begin with the one before", len(at), model.refused, model.breaks)
	}
}

func contextStop(s *Stage) {
	g := s.newGate()
	small := summarising("")
	small.make = func(ctx context.Context, _ string) (*llm.Response, error) {
		if len(small.asked()) == 1 {
			g.enter()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return summarised("Short."), nil
	}
	model := &narrow{keep: true, reply: func(n int, _ *llm.Request) []session.Part {
		if n == 4 {
			return says("done")
		}
		return calls("fetch", 2_000)
	}}
	agent := newAgent(model, fetching())
	agent.Context = &helix.ContextPolicy{TriggerMessages: 6, KeepMessages: 2, Model: small}
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "go")
	s.receive("the summary is made", g.entered)
	s.ok(run.Interrupt(s.ctx(), "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	at, _ := s.markers("s-1")
	s.same(len(at), 0, "markers after the stop")
	s.ended(s.resumed(x), helix.Completed)
	at, _ = s.markers("s-1")
	s.same(len(at), 1, "markers after the resume")
	s.same(len(small.asked()), 2, "summaries")
}

func contextBetween(s *Stage) {
	g := s.newGate()
	model := &narrow{keep: true, reply: func(n int, r *llm.Request) []session.Part {
		switch {
		case r.Messages[len(r.Messages)-1].Content() == "sign":
			return calls("sign", 1)
		case r.Messages[len(r.Messages)-1].Content() == "wait":
			return calls("wait", 1)
		}
		return says(fmt.Sprintf("reply %d %s", n, strings.Repeat("and more ", 50)))
	}}
	var ran tally
	agent := newAgent(model, guarded(&ran, "sign"), blocking(g))
	small := summarising("Short.")
	agent.Context = &helix.ContextPolicy{KeepMessages: 2, Model: small}
	x := s.Start(agent)
	sessions := x.Sessions()
	_, err := sessions.Compact(s.ctx(), "nobody", false)
	s.refused(err, helix.ErrNotFound)
	_, err = sessions.Clear(s.ctx(), "a b")
	s.refused(err, code(session.CodeInvalid))

	s.loose["s-1"] = true // the stream does not have these markers
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	out, err := sessions.Compact(s.ctx(), "s-1", false)
	s.ok(err, "compact")
	s.same(fmt.Sprintf("%t: %s", out.Done(), out.Reason), "false: the conversation is too short to cut", "a session of one turn")
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	before := s.load("s-1")
	out, err = sessions.Compact(s.ctx(), "s-1", false)
	s.ok(err, "compact")
	s.same(fmt.Sprintf("%t %s %d", out.Done(), out.Kind, out.Kept), "true summary 2", "a session of two turns")
	if out.TokensAfter >= out.TokensBefore {
		s.Fatalf("the outcome is %+v", out)
	}
	s.same(s.load("s-1").Version, before.Version+1, "version after one edit")
	s.same(s.load("s-1").Status, session.Completed, "status")
	again, err := sessions.Compact(s.ctx(), "s-1", true)
	s.ok(err, "compact again")
	s.same(again.Done(), false, "compacted twice")
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	sent := model.request(2).Messages
	if len(sent) != 4 || !strings.Contains(sent[0].Content(), "Short.") || sent[1].Content() != "second" {
		s.Fatalf("after the compaction the model was sent\n%s", render(sent))
	}
	out, err = sessions.Compact(s.ctx(), "s-1", true)
	s.ok(err, "compact with force")
	s.same(fmt.Sprintf("%t %d", out.Done(), out.Kept), "true 1", "with force")

	run := s.Begin(x, agent, "s-1", "wait")
	s.receive("the tool runs", g.entered)
	_, err = sessions.Compact(s.ctx(), "s-1", true)
	s.refused(err, helix.ErrAlreadyRunning)
	_, err = sessions.Clear(s.ctx(), "s-1")
	s.refused(err, helix.ErrAlreadyRunning)
	g.release()
	s.ended(s.Result(run), helix.Completed)

	s.ended(s.Say(x, agent, "s-1", "sign"), helix.SuspendedClientTool)
	_, err = sessions.Compact(s.ctx(), "s-1", true)
	s.refused(err, helix.ErrAwaitingInput, "wait for answers")
	_, err = sessions.Clear(s.ctx(), "s-1")
	s.refused(err, helix.ErrAwaitingInput)
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)

	out, err = sessions.Clear(s.ctx(), "s-1")
	s.ok(err, "clear")
	s.same(fmt.Sprintf("%t %s", out.Done(), out.Kind), "true clear", "cleared")
	again, err = sessions.Clear(s.ctx(), "s-1")
	s.ok(err, "clear again")
	s.same(again.Done(), false, "cleared twice")
	s.ended(s.Say(x, agent, "s-1", "last"), helix.Completed)
	sent = model.request(len(model.sent) - 1).Messages
	if len(sent) != 2 || sent[0].Compaction() == nil || sent[1].Content() != "last" {
		s.Fatalf("after the clear the model was sent\n%s", render(sent))
	}
	at, messages := s.markers("s-1")
	s.same(len(at), 3, "markers")
	s.same(messages[0].Content(), "first", "the first message of the history")

	small.make = func(context.Context, string) (*llm.Response, error) {
		return nil, llm.Error(session.CodeAuth, false, "no key")
	}
	s.ended(s.Say(x, agent, "s-1", "more"), helix.Completed)
	_, err = sessions.Compact(s.ctx(), "s-1", true)
	s.refused(err, code(session.CodeAuth), "no key")
	s.ended(s.Say(x, agent, "s-1", "and more"), helix.Completed)
	small.make = func(context.Context, string) (*llm.Response, error) { // while the summary is made, the session changes
		s.ok(session.PatchMetadata(s.ctx(), s.store(), "s-1", map[string]*string{"a": new("b")}), "patch metadata")
		_, err := session.IncrementResumes(s.ctx(), s.store(), "s-1")
		s.ok(err, "edit")
		return summarised("Short."), nil
	}
	_, err = sessions.Compact(s.ctx(), "s-1", true)
	s.refused(err, session.ErrStale)
	now, _ := s.markers("s-1")
	s.same(len(now), 3, "markers after what was refused")
}

func contextRefused(s *Stage) {
	model := &narrow{keep: true, reply: func(n int, _ *llm.Request) []session.Part {
		switch {
		case n == 1:
			return calls("sign", 77)
		case n < 12:
			return calls("fetch", 1_000)
		}
		return says("done")
	}}
	var ran tally
	agent := newAgent(model, guarded(&ran, "sign"), fetching())
	agent.Context = &helix.ContextPolicy{TriggerMessages: 6, KeepMessages: 2, Model: summarising("Things happened.")}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "go"), helix.SuspendedClientTool)
	p := s.open(x, "sign")
	s.Submit(x, "s-1", helix.Deny(p, helix.User{}, "never sign 77"), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	at, _ := s.markers("s-1")
	if len(at) < 3 {
		s.Fatalf("%d markers", len(at))
	}
	last := model.request(len(model.sent) - 1).Messages[0].Content()
	for _, word := range []string{"Things happened.", `- sign{"n":77}: `, "never sign 77"} {
		if strings.Count(last, word) != 1 {
			s.Fatalf("the summary is\n%s\nwithout %q, or with more than one", last, word)
		}
	}
}

func contextBehind(s *Stage) {
	model := &narrow{keep: true}
	model.reply = func(_ int, r *llm.Request) []session.Part {
		last := r.Messages[len(r.Messages)-1].Content()
		switch {
		case strings.Contains(last, "## Next steps"):
			return says("What was done.")
		case len(model.sent) > 6:
			return says("done")
		}
		return calls("fetch", 2_000)
	}
	agent := newAgent(model, fetching())
	agent.Instructions = "Fetch."
	agent.Settings.Cache = llm.Cache{Prefix: true, LatestTurn: true}
	agent.Context = &helix.ContextPolicy{TriggerMessages: 9, KeepMessages: 2}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "go"), helix.Completed)
	at, _ := s.markers("s-1")
	s.same(at, []int{9}, "markers")
	before, question, behind := model.request(3), model.request(4), model.request(5)
	s.same(question.Instructions, before.Instructions, "instructions of the summary's request")
	s.same(fmt.Sprint(question.Tools), fmt.Sprint(before.Tools), "tools of the summary's request")
	s.same(question.ToolChoice, before.ToolChoice, "choice of tools of the summary's request")
	s.same(question.Settings.Cache, before.Settings.Cache, "cache of the summary's request")
	s.same(render(question.Messages[:len(before.Messages)]), render(before.Messages), "the beginning of the summary's request")
	s.same(len(question.Messages), 9+1, "messages of the summary's request")
	if text := behind.Messages[0].Content(); !strings.Contains(text, "What was done.") {
		s.Fatalf("the model was then sent\n%s", text)
	}
}

// rememberer is an extension that recalls something, and preserves something.
type rememberer struct {
	mu      sync.Mutex
	dropped [][]session.Message
	rooms   []int
}

// Name implements [helix.Extension].
func (r *rememberer) Name() string { return "rememberer" }

// Attach implements [helix.Extension].
func (r *rememberer) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) { return nil, nil }

// Prepare implements [helix.Preparer].
func (r *rememberer) Prepare(context.Context, *helix.Turn) ([]session.Message, error) {
	return []session.Message{session.UserText("Recalled: likes blue. " + strings.Repeat("Very much. ", 40))}, nil
}

// Preserve implements [helix.Preserver].
func (r *rememberer) Preserve(_ context.Context, _ *helix.Turn, dropped []session.Message, room int) (string, []session.Task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped, r.rooms = append(r.dropped, dropped), append(r.rooms, room)
	return "Keep to the skill.\n" + strings.Repeat("z", 300<<10), []session.Task{{Kind: "extract", DueAt: time.Now().Add(time.Hour)}}, nil
}

// TaskKinds implements [helix.TaskHandler].
func (r *rememberer) TaskKinds() []string { return []string{"extract"} }

// HandleTask implements [helix.TaskHandler].
func (r *rememberer) HandleTask(context.Context, *session.Task) error { return nil }

// footnote is an extension that preserves a little.
type footnote struct{ room int }

// Name implements [helix.Extension].
func (f *footnote) Name() string { return "footnote" }

// Attach implements [helix.Extension].
func (f *footnote) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) { return nil, nil }

// Preserve implements [helix.Preserver].
func (f *footnote) Preserve(_ context.Context, _ *helix.Turn, _ []session.Message, room int) (string, []session.Task, error) {
	f.room = room
	return " Behind it.\n", nil, nil
}

func contextPreserved(s *Stage) {
	model := &narrow{keep: true, reply: func(n int, _ *llm.Request) []session.Part {
		if n == 5 {
			return says("done")
		}
		return calls("fetch", 90_000)
	}}
	small := summarising("Things happened.")
	agent := newAgent(model, fetching())
	memory, second := &rememberer{}, &footnote{}
	agent.Extensions = []helix.Extension{memory, second}
	agent.Context = &helix.ContextPolicy{TriggerMessages: 7, TriggerTokens: 150_000, KeepMessages: 2, TrimResults: helix.Unlimited, Model: small}
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "go")
	s.ended(s.Result(run), helix.Completed)
	s.same(len(small.asked()), 1, "summaries")
	if strings.Contains(small.asked()[0], "likes blue") {
		s.Fatalf("what was recalled is part of what is summarised:\n%s", small.asked()[0])
	}
	sent := model.request(3).Messages
	text := sent[0].Preserved(memory.Name())
	if !strings.HasPrefix(text, "Keep to the skill.\nzzz") || !strings.HasSuffix(text, "z") || len(text) != 128<<10 {
		s.Fatalf("%d bytes are preserved, and begin with\n%.1000s", len(text), text)
	}
	s.same(sent[0].Preserved(second.Name()), "Behind it.", "what the second extension preserves")
	s.same(sent[0].Preserved("another"), "", "what an extension preserves that there is not")
	s.same(second.room, 37_500*36/10-128<<10, "room that the first extension leaves for the second")
	if said := sent[0].Parts[0].Text; !strings.Contains(said, "Things happened.") || strings.Contains(said, "zzz") || strings.Contains(said, "Behind") {
		s.Fatalf("the summary is\n%.1000s", said)
	}
	if last := sent[len(sent)-1]; !strings.Contains(last.Content(), "likes blue") {
		s.Fatalf("after the summary nothing is recalled:\n%.1000s", render(sent[1:]))
	}
	memory.mu.Lock()
	defer memory.mu.Unlock()
	s.same(memory.rooms, []int{128 << 10}, "room for what the first extension preserves")
	s.same(len(memory.dropped), 1, "times that the extension was asked what to preserve")
	s.same(len(memory.dropped[0]), 6, "messages that it was told are dropped") // the user's, what was recalled, and two steps
	tasks, err := s.store().ListTasks(s.ctx(), session.TaskQuery{})
	s.ok(err, "tasks")
	n := 0
	for _, task := range tasks.Items {
		if task.Kind == "extract" && task.SessionID == "s-1" && task.RunID == run.ID() && strings.HasPrefix(task.ID, run.ID()+"/c") {
			n++
		}
	}
	s.same(n, 1, "tasks that follow the summary")
	s.logged("extension.preserve_cut")
}

// counted is a model whose provider counts.
type counted struct {
	*narrow
	count func(r *llm.Request) (int, error)
	asked int
}

// Count implements [llm.Counter].
func (m *counted) Count(ctx context.Context, r *llm.Request) (int, error) {
	m.mu.Lock()
	m.asked++
	m.mu.Unlock()
	if m.count == nil {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return m.count(r)
}

func contextCounted(s *Stage) {
	for name, count := range map[string]func(*llm.Request) (int, error){
		"less": func(r *llm.Request) (int, error) { return tokensOf(r) / 2, nil },
		"more": func(r *llm.Request) (int, error) { return tokensOf(r) * 2, nil },
		"fail": func(*llm.Request) (int, error) { return 0, errors.New("no") },
		"hook": func(r *llm.Request) (int, error) { return tokensOf(r) / 2, nil },
	} {
		model := &counted{count: count, narrow: &narrow{reply: func(n int, _ *llm.Request) []session.Part {
			if n == 5 {
				return says("done")
			}
			return calls("fetch", 4_000)
		}}}
		agent := newAgent(model, fetching())
		agent.Name = "agent-" + name
		small := summarising("Short.")
		// The fourth prompt has about 3,060 tokens, the fifth 1,000 more.
		agent.Context = &helix.ContextPolicy{TriggerMessages: helix.Unlimited, TriggerTokens: 3_050, KeepMessages: 2, TrimResults: helix.Unlimited, Model: small}
		if name == "hook" { // which might refuse the request: it is not sent
			agent.Hooks.BeforeLLMCall = func(context.Context, *helix.HookContext, helix.BeforeLLMCallEvent) error { return nil }
		}
		x := s.Start(agent)
		s.ended(s.Say(x, agent, name, "go"), helix.Completed)
		at, _ := s.markers(name)
		want := map[string][]int{"less": {9}, "more": {7}, "fail": {7}, "hook": {7}}[name]
		asked := 1
		if name == "hook" {
			asked = 0
		}
		if model.asked != asked || !slices.Equal(at, want) {
			s.Fatalf("%s: the provider was asked %d times, and the markers are at %v, want %v", name, model.asked, at, want)
		}
	}
}
