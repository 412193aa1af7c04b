package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// extensionScenarios are about what extensions add to a turn.
func extensionScenarios() []Scenario {
	return []Scenario{
		{"instructions and tools", "the agent's own come first, then those of its extensions in their order, then sub-agents, companions and __finish__", extensionOrder},
		{"tool", "a tool of an extension runs, and sees the conversation", extensionTool},
		{"attached once", "an extension is attached once per run, however many steps and calls it has", extensionOnce},
		{"taken over", "a process that takes a run over attaches again, and finds the tools of the calls in flight", extensionTakenOver},
		{"stable bytes", "instructions and tools are the same bytes in every step, after a takeover and after an approval", extensionStable},
		{"approval elsewhere", "an approval of an extension's tool is answered in a second process and carried out in a third", extensionApproval},
		{"approver elsewhere", "the policy of an extension's tool decides in a process that does not run the turn", extensionApprover},
		{"sub-agent", "a sub-agent has its own extensions and inherits none: no instructions, tools, messages, gates, filters or tasks", extensionSubAgent},
		{"fails", "an extension that fails, panics or returns nonsense is left out with a warning; the turn goes on", extensionFails},
		{"hangs", "a stop does not wait for an extension that hangs", extensionHangs},
		{"name taken", "a tool whose name is taken is refused, and both origins are named", extensionNameTaken},
		{"required", "a run whose required extension cannot be attached fails, and the session stays usable", extensionRequired},
		{"required panics", "an extension that panics when it is asked whether it is required counts as required", extensionRequiredPanics},
		{"required later", "a required extension that is unavailable for a moment is asked again", extensionRequiredLater},
		{"warnings", "warnings of an extension are logged and shown to readers of the stream", extensionWarnings},
		{"serial", "serial calls of a reply run one after another in call order, beside the others, and see each other's state", extensionSerial},
		{"serial behind an approval", "a serial call runs after an earlier one that waits for approval, in whichever process that is", extensionSerialApproval},
		{"serial behind a denial", "a serial call runs when an earlier one was denied, while another call still waits", extensionSerialDenial},
		{"serial taken over", "a serial call that cannot have begun is run by the process that takes over", extensionSerialTakenOver},
		{"gate", "a gate refuses calls of every kind when they are made, before people, clients and agents see them", extensionGate},
		{"gate fails", "a gate that panics or fails refuses the call", extensionGateFails},
		{"result filter", "filters replace results and errors of tools, agents and people before they are stored, in their order", extensionFilter},
		{"result filter fails", "a filter that fails, panics or returns nonsense withholds the result", extensionFilterFails},
		{"prepared", "a message that an extension adds follows the user's, is hidden from people, and is stored with the reply", extensionPrepared},
		{"prepared again", "a process that takes over before the reply asks again, and watchers do not keep the lost message", extensionPreparedAgain},
		{"prepared once", "messages are added once per message of the user, not when answers are taken in or a turn is continued", extensionPreparedOnce},
		{"prepared in vain", "what was added is withdrawn if no reply follows: after a stop, and after a failure", extensionPreparedInVain},
		{"prepared in a branch", "a branch has a copy of what was added before it, and adds for its own message; a rewind undoes what was added", extensionPreparedBranch},
		{"prepared behind a marker", "a marker between two runs does not have extensions asked twice", extensionPreparedMarker},
		{"prepared badly", "an extension that fails, hangs, panics or returns what cannot be added is left out", extensionPreparedBadly},
		{"reserved names", "only the framework's own extensions may use reserved names", extensionReserved},
	}
}

// extension is an extension that does what a scenario says.
type extension struct {
	name     string
	required bool
	attach   func(ctx context.Context, turn *helix.Turn) (*helix.Attachment, error)
}

func (e *extension) Name() string   { return e.name }
func (e *extension) Required() bool { return e.required }

func (e *extension) Attach(ctx context.Context, turn *helix.Turn) (*helix.Attachment, error) {
	if e.attach == nil {
		return &helix.Attachment{}, nil
	}
	return e.attach(ctx, turn)
}

// finder is an extension that finds its tools outside of turns.
type finder struct {
	extension
	tools []helix.Tool
}

func (f *finder) FindTool(_ context.Context, name string) (*helix.Tool, bool) {
	if at := slices.IndexFunc(f.tools, func(t helix.Tool) bool { return t.Name == name }); at >= 0 {
		return &f.tools[at], true
	}
	return nil, false
}

// adding is an extension with tools and instructions.
func adding(name, instructions string, tools ...helix.Tool) *finder {
	return &finder{tools: tools, extension: extension{name: name, attach: func(context.Context, *helix.Turn) (*helix.Attachment, error) {
		return &helix.Attachment{Instructions: instructions, Tools: tools}, nil
	}}}
}

func extending(agent *helix.Agent, list ...helix.Extension) *helix.Agent {
	agent.Extensions = list
	return agent
}

func offered(request llm.Request) string {
	var names []string
	for i := range request.Tools {
		names = append(names, request.Tools[i].Name)
	}
	return strings.Join(names, " ")
}

func extensionOrder(s *Stage) {
	model := scripted.New(scripted.Finish(map[string]int{"total": 1}))
	other := func(name string) *helix.Agent { return &helix.Agent{Name: name, Model: scripted.New()} }
	agent := newAgent(model, double())
	agent.Instructions = "Own."
	agent.SubAgents = []helix.SubAgent{{Agent: other("sub")}}
	agent.Companions = []helix.Companion{{Agent: other("pal"), Mode: helix.NonBlocking}}
	agent.Output = helix.OutputOf[map[string]int]()
	tool := func(name string) helix.Tool { t := double(); t.Name = name; return t }
	extending(agent, adding("one", "First.", tool("b"), tool("a")), adding("two", ""), adding("three", "Last.", tool("c")))
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	request := model.Requests()[0]
	s.same(request.Instructions, "Own.\n\nFirst.\n\nLast.", "instructions")
	s.same(offered(request), "double b a c subagent__sub companion__spawnAgent companion__sendMessage companion__listChildren "+
		"companion__getChildStatus companion__terminateChild __finish__", "tools")
}

func extensionTool(s *Stage) {
	var seen, asked journal
	tool := newTool("peek", func(_ context.Context, call *helix.Call, n int) (int, error) {
		seen.add("%s %s\n%s", call.Tool, call.Input, render(call.View()))
		return n + 1, nil
	})
	x := adding("eyes", "", tool)
	inner := x.attach
	x.attach = func(ctx context.Context, turn *helix.Turn) (*helix.Attachment, error) {
		asked.add("%s %s of %s in %s\n%s\n%s", turn.Agent, turn.UserID, turn.RunID, turn.SessionID, render(turn.Input), render(turn.View))
		return inner(ctx, turn)
	}
	agent := extending(newAgent(scripted.New(scripted.Call("peek", num{1}), scripted.Call("peek", num{2}), scripted.Text("Done."))), x)
	rt := s.Start(agent)
	run := s.Execute(rt, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "u-1"}})
	s.ended(s.Result(run), helix.Completed)
	s.same(asked.String(), "agent u-1 of "+run.ID()+" in s-1\nuser: Hi!\nuser: Hi!", "what Attach saw")
	s.same(seen.String(), "peek {\"n\":1}\nuser: Hi!\npeek {\"n\":2}\nuser: Hi!\nassistant: peek({\"n\":1})\ntool peek: 2", "what the tool saw")
	s.transcript("s-1", "user: Hi!", `assistant: peek({"n":1})`, "tool peek: 2", `assistant: peek({"n":2})`, "tool peek: 3", "assistant: Done.")
}

func extensionOnce(s *Stage) {
	var n atomic.Int64
	x := adding("many", "", double())
	inner := x.attach
	x.attach = func(ctx context.Context, turn *helix.Turn) (*helix.Attachment, error) {
		n.Add(1)
		return inner(ctx, turn)
	}
	wave := scripted.Reply(scripted.Calling("double", num{1}), scripted.Calling("double", num{2}), scripted.Calling("double", num{3}))
	agent := extending(newAgent(scripted.New(wave, wave, scripted.Text("Done."), scripted.Text("Again."))), x)
	rt := s.Start(agent)
	s.ended(s.Say(rt, agent, "s-1", "Hi!"), helix.Completed)
	s.same(n.Load(), 1, "attachments in one run")
	s.ended(s.Say(rt, agent, "s-1", "More!"), helix.Completed)
	s.same(n.Load(), 2, "attachments in two runs")
}

func extensionTakenOver(s *Stage) {
	g := s.newGate()
	var ran tally
	var keys journal
	tool := countingTool(g, &ran, &keys)
	tool.Idempotent = true
	agent := func() *helix.Agent {
		return extending(newAgent(scripted.New(scripted.Call("pay", num{4}), scripted.Text("Paid.")).ByPosition()), adding("purse", "Pay.", tool))
	}
	first := agent()
	run := s.orphan(first, g)
	s.takenOver(run, agent())
	s.same(ran.of("pay"), 2, "runs of the tool")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":4})`, "tool pay: 4", "assistant: Paid.")
}

// shuffled is an extension that keeps its tools in a map.
func shuffled(tools ...helix.Tool) *finder {
	byName := map[string]helix.Tool{}
	for _, tool := range tools {
		byName[tool.Name] = tool
	}
	x := adding("shuffled", "", tools...)
	x.attach = func(context.Context, *helix.Turn) (*helix.Attachment, error) {
		out := &helix.Attachment{Instructions: "Tools:"}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			out.Instructions += " " + name
			out.Tools = append(out.Tools, byName[name])
		}
		return out, nil
	}
	return x
}

func extensionStable(s *Stage) {
	var ran tally
	g := s.newGate()
	steps := make([]scripted.Step, 0, 12)
	for range 10 {
		steps = append(steps, scripted.Call("double", num{1}))
	}
	steps = append(steps, scripted.Call("sign", num{2}), scripted.Text("Done."))
	model := scripted.New(steps...).ByPosition()
	var calls atomic.Int64
	slow := newTool("double", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
		if calls.Add(1) == 5 {
			g.enter()
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return 2 * n, nil
	})
	slow.Idempotent = true
	agent := func() *helix.Agent {
		return extending(newAgent(model), shuffled(slow, guarded(&ran, "sign"), double2("x"), double2("y"), double2("z")))
	}
	s.orphan(agent(), g)
	second := agent()
	y, run := s.heir(second)
	res := s.Result(run)
	s.ended(res, helix.SuspendedClientTool)
	s.Submit(y, "s-1", helix.Approve(s.waiting(res, "sign"), helix.User{}), session.SubmitAccepted)
	y.Kill()
	z := s.StartOther(Options{Agents: []*helix.Agent{agent()}, LeaseTTL: lease})
	s.ended(s.Result(s.Resume(z, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.same(ran.of("sign"), 1, "runs of the approved call")
	requests := model.Requests()
	if len(requests) < 12 {
		s.Fatalf("the model was asked %d times", len(requests))
	}
	fixed := func(r llm.Request) string {
		raw, err := json.Marshal(struct {
			Instructions string
			Tools        []llm.Tool
		}{r.Instructions, r.Tools})
		s.ok(err, "encode the request")
		return string(raw)
	}
	for i := range requests {
		s.same(fixed(requests[i]), fixed(requests[0]), "instructions and tools of request %d", i+1)
	}
}

func double2(name string) helix.Tool { t := double(); t.Name = name; return t }

func extensionApproval(s *Stage) {
	var ran tally
	agent := func() *helix.Agent {
		return extending(newAgent(scripted.New(scripted.Call("sign", num{2}), scripted.Text("Signed.")).ByPosition()),
			adding("desk", "", guarded(&ran, "sign")))
	}
	first := agent()
	x := s.Start(first)
	res := s.Say(x, first, "s-1", "Hi!")
	s.ended(res, helix.SuspendedClientTool)
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent()}})
	s.Submit(y, "s-1", helix.Approve(s.waiting(res, "sign"), helix.User{}), session.SubmitAccepted)
	y.Kill()
	z := s.StartOther(Options{Agents: []*helix.Agent{agent()}})
	s.ended(s.Result(s.Resume(z, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.same(ran.of("sign"), 1, "runs of the approved call")
	s.transcript("s-1", "user: Hi!", `assistant: sign({"n":2})`, "tool sign: 4", "assistant: Signed.")
}

func extensionApprover(s *Stage) {
	var ran tally
	tool := guarded(&ran, "sign")
	tool.Approver = func(_ context.Context, a *helix.Answer) error {
		if a.By.ID != "boss" {
			return errors.New("only the boss")
		}
		return nil
	}
	agent := func() *helix.Agent {
		return extending(newAgent(scripted.New(scripted.Call("sign", num{2}), scripted.Text("Signed.")).ByPosition()), adding("desk", "", tool))
	}
	first := agent()
	res := s.Say(s.Start(first), first, "s-1", "Hi!")
	s.ended(res, helix.SuspendedClientTool)
	p := s.waiting(res, "sign")
	y := s.StartOther(Options{Agents: []*helix.Agent{agent()}})
	_, err := y.Submit(s.ctx(), "s-1", helix.Approve(p, helix.User{ID: "clerk"}))
	s.refused(err, session.ErrNotAllowed, "only the boss")
	s.Submit(y, "s-1", helix.Approve(p, helix.User{ID: "boss"}), session.SubmitAccepted)
	s.ended(s.Result(s.Resume(y, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.same(ran.of("sign"), 1, "runs of the approved call")
}

func extensionSubAgent(s *Stage) {
	model := scripted.New(scripted.Call("subagent__helper", map[string]string{"task": "Help."}), scripted.Text("Done.")).
		For("helper", scripted.Call("small", num{3}), scripted.Text("Helped."))
	helper := extending(&helix.Agent{Name: "helper", Model: model, Instructions: "Help."}, adding("small", "Small.", double2("small")))
	var asked tally
	var gated, filtered, ended journal
	agent := extending(newAgent(model), adding("large", "Large.", double2("large")), recalling("old", &asked),
		&gating{extension: extension{name: "gate"}, check: func(call *helix.Call) error {
			gated.add("%s", call.Tool)
			return nil
		}},
		&filtering{extension: extension{name: "filter"}, filter: func(call *helix.Call, r helix.CallResult) (helix.CallResult, error) {
			filtered.add("%s", call.Tool)
			return r, nil
		}},
		&working{extension: extension{name: "tasks"}, finish: func(turn *helix.Turn, _ *session.Outcome) ([]session.Task, error) {
			ended.add("%s", turn.Agent)
			return nil, nil
		}})
	agent.SubAgents = []helix.SubAgent{{Agent: helper}}
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.same(asked.of("old"), 1, "how often messages were added")
	s.same([]string{gated.String(), filtered.String(), ended.String()}, []string{"subagent__helper", "subagent__helper", "agent"}, "gate, filter and tasks")
	for _, request := range model.Requests() {
		want, tools := "Large.", "large subagent__helper"
		if request.Agent == "helper" {
			want, tools = "Help.\n\nSmall.", "small"
		}
		s.same(request.Instructions, want, "instructions of %s", request.Agent)
		s.same(offered(request), tools, "tools of %s", request.Agent)
	}
}

// warnings lists the warnings that readers of a stream saw.
func (s *Stage) warnings(id string) string {
	s.Helper()
	var out []string
	for _, c := range ofKind(s.chunks(id), stream.Custom) {
		var w helix.Warning
		if c.Name == helix.WarningEvent {
			s.ok(json.Unmarshal(c.Data, &w), "warning")
			out = append(out, w.Extension+": "+w.Message)
		}
	}
	return strings.Join(out, "\n")
}

func extensionFails(s *Stage) {
	returns := func(name string, a *helix.Attachment, err error) *extension {
		return &extension{name: name, attach: func(context.Context, *helix.Turn) (*helix.Attachment, error) { return a, err }}
	}
	noObject := helix.Tool{Name: "odd", Description: "odd", Execute: helix.RawFunc(json.RawMessage(`{"type":"string"}`),
		func(context.Context, *helix.Call, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage("1"), nil
		})}
	model := scripted.New(scripted.Reply(scripted.Calling("odd", num{1}), scripted.Calling("double", num{2})), scripted.Text("Done."), scripted.Text("Again."))
	agent := extending(newAgent(model),
		returns("failing", nil, errors.New("the password of the server is wrong")),
		&extension{name: "panicking", attach: func(context.Context, *helix.Turn) (*helix.Attachment, error) { panic("boom") }},
		returns("twice", &helix.Attachment{Tools: []helix.Tool{double(), double()}}, nil),
		returns("huge", &helix.Attachment{Instructions: strings.Repeat("x", 10<<20)}, nil),
		returns("untyped", &helix.Attachment{Tools: []helix.Tool{noObject}}, nil),
		returns("inexecutable", &helix.Attachment{Tools: []helix.Tool{{Name: "none"}}}, nil),
		returns("nil", nil, nil),
		adding("fine", "Fine.", double()))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(model.Requests()[0].Instructions, "Fine.", "instructions")
	s.same(offered(model.Requests()[0]), "double", "tools")
	s.transcript("s-1", "user: Hi!", `assistant: odd({"n":1}), double({"n":2})`, "tool odd failed: tool_not_found", "tool double: 4", "assistant: Done.")
	s.refused(s.result("odd").Error, code(session.CodeToolUnknown), "failing, panicking, twice, huge, untyped, inexecutable")
	shown := s.warnings("s-1")
	for name, words := range map[string]string{
		"failing": "could not be attached", "panicking": "could not be attached", "twice": `contains "double" twice`, "huge": "10485760 bytes",
		"untyped": "tool odd", "inexecutable": "tool none",
	} {
		if !slices.ContainsFunc(strings.Split(shown, "\n"), func(line string) bool {
			return strings.HasPrefix(line, name+": ") && strings.Contains(line, words)
		}) {
			s.Errorf("no warning of %s says %q:\n%s", name, words, shown)
		}
		s.logged("extension.not_attached", "extension="+name)
	}
	if strings.Contains(shown, "password") {
		s.Errorf("readers of the stream see what is for operators:\n%s", shown)
	}
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
}

func extensionHangs(s *Stage) {
	g := s.newGate()
	hanging := &extension{name: "hanging", attach: func(context.Context, *helix.Turn) (*helix.Attachment, error) {
		g.enter()
		<-g.open // whatever becomes of the context
		return &helix.Attachment{Instructions: "Late."}, nil
	}}
	model := scripted.New(scripted.Text("Done."))
	agent := extending(newAgent(model), hanging, adding("fine", "Fine.", double()))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the extension hangs", g.entered)
	began := time.Now()
	s.ok(run.Interrupt(s.ctx(), "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	// waits: an attachment may take 10 seconds; a bubble's time is exact
	if took := time.Since(began); s.config.FakeTime && took > 8*time.Second {
		s.Errorf("the stop took %s", took)
	}
	g.release()
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(model.Requests()[0].Instructions, "Late.\n\nFine.", "instructions once it returns")
}

func extensionNameTaken(s *Stage) {
	model := scripted.New(scripted.Text("Done."))
	agent := extending(newAgent(model, double()), adding("first", "First.", double2("twin")), adding("own", "Own.", double()),
		adding("second", "Second.", double2("fine"), double2("twin")), adding("third", "Third.", double2("third")))
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.same(offered(model.Requests()[0]), "double twin third", "tools")
	s.same(model.Requests()[0].Instructions, "First.\n\nThird.", "instructions")
	shown := s.warnings("s-1")
	for _, words := range []string{`own: `, `"double", which is a tool of agent agent, too`, `second: `, `"twin", which is a tool of extension first, too`} {
		if !strings.Contains(shown, words) {
			s.Errorf("the warnings do not say %q:\n%s", words, shown)
		}
	}
}

func extensionRequired(s *Stage) {
	var broken atomic.Bool
	broken.Store(true)
	x := &extension{name: "vault", required: true, attach: func(context.Context, *helix.Turn) (*helix.Attachment, error) {
		if broken.Load() {
			return nil, errors.New("it is locked")
		}
		return &helix.Attachment{Instructions: "Open."}, nil
	}}
	model := scripted.New(scripted.Text("Done."))
	agent := extending(newAgent(model), x)
	rt := s.Start(agent)
	s.failed(s.Say(rt, agent, "s-1", "Hi!"), code(session.CodeExtension), "vault", "locked")
	s.same(len(model.Requests()), 0, "model calls")
	broken.Store(false)
	s.ended(s.Result(s.Retry(rt, "s-1")), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: Done.")
	s.same(model.Requests()[0].Instructions, "Open.", "instructions")
}

// doubtful is an extension that panics when it is asked whether it is required.
type doubtful struct{ extension }

func (*doubtful) Required() bool { panic("who knows") }

func extensionRequiredPanics(s *Stage) {
	var n atomic.Int64
	x := &doubtful{extension{name: "vault", attach: func(context.Context, *helix.Turn) (*helix.Attachment, error) {
		if n.Add(1) <= 10 {
			return nil, session.ErrUnavailable.WithMessage("it is locked")
		}
		return &helix.Attachment{Instructions: "Open."}, nil
	}}}
	agent := extending(newAgent(scripted.New(scripted.Text("Done."))), x)
	rt := s.Start(agent)
	s.failed(s.Say(rt, agent, "s-1", "Hi!"), code(session.CodeExtension), "vault", "locked")
	n.Store(10)
	s.ended(s.Say(rt, agent, "s-1", "Again!"), helix.Completed)
}

func extensionRequiredLater(s *Stage) {
	var n atomic.Int64
	x := &extension{name: "vault", required: true, attach: func(context.Context, *helix.Turn) (*helix.Attachment, error) {
		if n.Add(1) < 3 {
			return nil, session.ErrUnavailable.WithMessage("one moment")
		}
		return &helix.Attachment{Instructions: "Open."}, nil
	}}
	agent := extending(newAgent(scripted.New(scripted.Text("Done."))), x)
	rt := s.Start(agent)
	s.ended(s.Say(rt, agent, "s-1", "Hi!"), helix.Completed)
	s.same(n.Load(), 3, "attempts")
	never := &extension{name: "never", required: true, attach: func(context.Context, *helix.Turn) (*helix.Attachment, error) {
		return nil, session.ErrUnavailable.WithMessage("never")
	}}
	other := extending(newAgent(scripted.New()), never)
	other.Name = "other"
	s.failed(s.Say(rt, other, "s-2", "Hi!"), code(session.CodeExtension), "never")
}

func extensionWarnings(s *Stage) {
	x := &extension{name: "old", attach: func(context.Context, *helix.Turn) (*helix.Attachment, error) {
		return &helix.Attachment{Warnings: []string{"the list is from yesterday", strings.Repeat("y", 2000)}}, nil
	}}
	agent := extending(newAgent(scripted.New(scripted.Text("Done."))), x)
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.same(s.warnings("s-1"), "old: the list is from yesterday\nold: "+strings.Repeat("y", 1024), "warnings")
	s.logged("extension.warning", "extension=old", "yesterday")
}

// builtIn is one of the framework's own extensions.
type builtIn struct {
	access.Framework
	*finder
}

func extensionReserved(s *Stage) {
	model := scripted.New(scripted.Call("load_skill", num{1}), scripted.Text("Done."))
	agent := extending(newAgent(model), adding("stranger", "", double2("workspace_read")), builtIn{finder: adding("skills", "", double2("load_skill"))},
		builtIn{finder: adding("greedy", "", double2("subagent__x"))}, adding("thief", "", double2("read_skill_file")))
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.same(offered(model.Requests()[0]), "load_skill", "tools")
	s.transcript("s-1", "user: Hi!", `assistant: load_skill({"n":1})`, "tool load_skill: 2", "assistant: Done.")
	s.logged("extension.not_attached", "extension=stranger", "reserved")
	s.logged("extension.not_attached", "extension=greedy", "reserved")
	s.logged("extension.not_attached", "extension=thief", "reserved")
}

// stacking is a serial tool that notes when it begins and ends.
func stacking(j *journal, name string) helix.Tool {
	tool := newTool(name, func(_ context.Context, call *helix.Call, n int) (int, error) {
		j.add("%s %d begins", name, n)
		seen := len(helix.State[stacked](call).Items)
		helix.Append(call, "items", n)
		j.add("%s %d ends", name, n)
		return seen, nil
	})
	tool.Serial = true
	return tool
}

type stacked struct {
	Items []int `json:"items"`
}

func extensionSerial(s *Stage) {
	var j journal
	g := s.newGate()
	slow := stacking(&j, "slow")
	inner := slow.Execute
	slow.Execute = helix.Func(func(ctx context.Context, call *helix.Call, in num) (json.RawMessage, error) {
		if err := g.pass(ctx); err != nil {
			return nil, err
		}
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		return inner.Call(ctx, call, raw)
	})
	beside := newTool("beside", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
		<-g.entered // it runs while the first serial call does
		g.release()
		return n, nil
	})
	model := scripted.New(scripted.Reply(scripted.Calling("slow", num{1}), scripted.Calling("quick", num{2}), scripted.Calling("beside", num{3}),
		scripted.Calling("quick", num{4}), scripted.Calling("slow", num{5})), scripted.Text("Done."))
	agent := extending(newAgent(model, beside, slow), adding("stack", "", stacking(&j, "quick")))
	agent.State = helix.StateOf(stacked{})
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.same(j.String(), "slow 1 begins\nslow 1 ends\nquick 2 begins\nquick 2 ends\nquick 4 begins\nquick 4 ends\nslow 5 begins\nslow 5 ends", "order")
	s.transcript("s-1", "user: Hi!", `assistant: slow({"n":1}), quick({"n":2}), beside({"n":3}), quick({"n":4}), slow({"n":5})`,
		"tool slow: 0", "tool quick: 1", "tool beside: 3", "tool quick: 2", "tool slow: 3", "assistant: Done.")
	s.sameJSON(s.state("s-1"), `{"items":[1,2,4,5]}`, "state")
}

// serialAgent is an agent with a serial tool that needs approval, and one that does not.
func serialAgent(j *journal, more ...scripted.Part) *helix.Agent {
	sign := stacking(j, "sign")
	sign.Approval = helix.RequireApproval
	parts := append([]scripted.Part{
		scripted.Calling("push", num{1}), scripted.Calling("sign", num{2}), scripted.Calling("push", num{3}), scripted.Calling("double", num{4}),
	}, more...)
	agent := newAgent(scripted.New(scripted.Reply(parts...), scripted.Text("Done.")).ByPosition(), stacking(j, "push"), sign, double(), onClient("choose"))
	agent.State = helix.StateOf(stacked{})
	return agent
}

func extensionSerialApproval(s *Stage) {
	var j journal
	first := serialAgent(&j)
	x := s.Start(first)
	res := s.Say(x, first, "s-1", "Hi!")
	s.ended(res, helix.SuspendedStepPartial)
	s.same(j.String(), "push 1 begins\npush 1 ends", "what ran before the approval")
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{serialAgent(&j)}})
	s.Submit(y, "s-1", helix.Approve(s.waiting(res, "sign"), helix.User{}), session.SubmitAccepted)
	s.ended(s.Result(s.Resume(y, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.same(j.String(), "push 1 begins\npush 1 ends\nsign 2 begins\nsign 2 ends\npush 3 begins\npush 3 ends", "order")
	s.sameJSON(s.state("s-1"), `{"items":[1,2,3]}`, "state")
	s.same(s.result("push").Error, (*session.Error)(nil), "the error of the last call")
}

func extensionSerialDenial(s *Stage) {
	var j journal
	agent := serialAgent(&j, scripted.Calling("choose", num{5}))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedStepPartial)
	s.Submit(x, "s-1", helix.Deny(s.waiting(res, "sign"), helix.User{}, "no"), session.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.SuspendedStepPartial)
	s.same(j.String(), "push 1 begins\npush 1 ends\npush 3 begins\npush 3 ends", "what ran after the denial")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "choose").CallID, "blue"), session.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.same(j.String(), "push 1 begins\npush 1 ends\npush 3 begins\npush 3 ends", "what ran in all")
}

func extensionSerialTakenOver(s *Stage) {
	g := s.newGate()
	var ran tally
	var keys journal
	pay := countingTool(g, &ran, &keys)
	pay.Serial = true
	agent := func() *helix.Agent {
		return newAgent(scripted.New(scripted.Reply(scripted.Calling("pay", num{1}), scripted.Calling("pay", num{2})), scripted.Text("Done.")).ByPosition(), pay)
	}
	run := s.orphan(agent(), g)
	s.takenOver(run, agent())
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1}), pay({"n":2})`, "tool pay failed: tool_outcome_unknown", "tool pay: 2", "assistant: Done.")
}

// gating is an extension that refuses calls.
type gating struct {
	extension
	check func(call *helix.Call) error
}

func (g *gating) Check(_ context.Context, call *helix.Call) error { return g.check(call) }

func extensionGate(s *Stage) {
	var asked journal
	var ran tally
	gate := func(name, refuses string) *gating {
		return &gating{extension: extension{name: name}, check: func(call *helix.Call) error {
			asked.add("%s %s %s", name, call.Tool, call.Input)
			if strings.HasPrefix(call.Tool, refuses) {
				return errors.New(name + " forbids it")
			}
			return nil
		}}
	}
	helper := &helix.Agent{Name: "helper", Model: scripted.New()}
	model := scripted.New(scripted.Reply(scripted.Calling("double", num{1}), scripted.Calling("sign", num{2}), scripted.Calling("choose", num{3}),
		scripted.Calling("subagent__helper", map[string]string{"task": "Help."}), scripted.Calling("gone", num{4})), scripted.Text("Done."))
	agent := extending(newAgent(model, double(), guarded(&ran, "sign"), onClient("choose")), gate("one", "sign"), gate("two", "choose"), gate("three", "subagent__"))
	agent.SubAgents = []helix.SubAgent{{Agent: helper}}
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!",
		`assistant: double({"n":1}), sign({"n":2}), choose({"n":3}), subagent__helper({"task":"Help."}), gone({"n":4})`,
		"tool double: 2", "tool sign failed: tool_vetoed", "tool choose failed: tool_vetoed", "tool subagent__helper failed: tool_vetoed",
		"tool gone failed: tool_not_found", "assistant: Done.")
	s.refused(s.result("sign").Error, code(session.CodeToolVetoed), "one forbids it")
	s.same(len(s.sessions()), 1, "sessions")
	s.same(asked.String(), strings.Join([]string{
		`one double {"n":1}`, `one sign {"n":2}`, `one choose {"n":3}`, `one subagent__helper {"task":"Help."}`,
		`two double {"n":1}`, `two choose {"n":3}`, `two subagent__helper {"task":"Help."}`,
		`three double {"n":1}`, `three subagent__helper {"task":"Help."}`,
	}, "\n"), "what the gates were asked")
}

func extensionGateFails(s *Stage) {
	gate := &gating{extension: extension{name: "guard"}, check: func(call *helix.Call) error {
		if string(call.Input) == `{"n":1}` {
			panic("a secret")
		}
		return nil
	}}
	model := scripted.New(scripted.Reply(scripted.Calling("double", num{1}), scripted.Calling("double", num{2})), scripted.Text("Done."))
	agent := extending(newAgent(model, double()), gate)
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: double({"n":1}), double({"n":2})`, "tool double failed: tool_vetoed", "tool double: 4", "assistant: Done.")
	s.logged("extension.gate_failed", "extension=guard", "a secret")
	for _, m := range s.messages("s-1") {
		if m.Role == session.RoleTool && m.Parts[0].Error != nil && strings.Contains(m.Parts[0].Error.Error(), "secret") {
			s.Errorf("the model is told %v", m.Parts[0].Error)
		}
	}
}

// filtering is an extension that replaces results.
type filtering struct {
	extension
	filter func(call *helix.Call, result helix.CallResult) (helix.CallResult, error)
}

func (f *filtering) Filter(_ context.Context, call *helix.Call, result helix.CallResult) (helix.CallResult, error) {
	return f.filter(call, result)
}

func extensionFilter(s *Stage) {
	wrap := func(name string) *filtering {
		return &filtering{extension: extension{name: name}, filter: func(call *helix.Call, r helix.CallResult) (helix.CallResult, error) {
			if r.Error != nil {
				return helix.CallResult{Error: &helix.Error{Code: r.Error.Code, Message: name + "(" + r.Error.Message + ")"}}, nil //nolint:nilerr // the filter does not fail
			}
			r.Output = json.RawMessage(`{"` + name + `":` + string(r.Output) + `}`)
			return r, nil
		}}
	}
	broken := newTool("broken", func(context.Context, *helix.Call, int) (int, error) { return 0, errors.New("no") })
	model := scripted.New(scripted.Reply(scripted.Calling("double", num{1}), scripted.Calling("broken", num{2}), scripted.Calling("choose", num{3}),
		scripted.Calling("subagent__helper", map[string]string{"task": "Help."}), scripted.Calling("gone", num{4})), scripted.Text("Done.")).
		For("helper", scripted.Text("Helped."))
	agent := extending(newAgent(model, double(), broken, onClient("choose")), wrap("a"), wrap("b"))
	agent.SubAgents = []helix.SubAgent{{Agent: &helix.Agent{Name: "helper", Model: model}}}
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedStepPartial)
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "choose").CallID, "blue"), session.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.transcript("s-1", "user: Hi!",
		`assistant: double({"n":1}), broken({"n":2}), choose({"n":3}), subagent__helper({"task":"Help."}), gone({"n":4})`,
		`tool double: {"b":{"a":2}}`, "tool broken failed: tool_execution_failed", `tool choose: {"b":{"a":"blue"}}`,
		`tool subagent__helper: {"b":{"a":"Helped."}}`, "tool gone failed: tool_not_found", "assistant: Done.")
	s.refused(s.result("broken").Error, code(session.CodeToolFailed), "b(a(no))")
}

func extensionFilterFails(s *Stage) {
	filter := &filtering{extension: extension{name: "censor"}, filter: func(call *helix.Call, r helix.CallResult) (helix.CallResult, error) {
		switch string(call.Input) {
		case `{"n":1}`:
			panic("boom")
		case `{"n":2}`:
			return r, errors.New("no")
		case `{"n":3}`:
			return helix.CallResult{Output: json.RawMessage("{")}, nil
		case `{"n":4}`:
			return helix.CallResult{}, nil
		case `{"n":5}`:
			return helix.CallResult{Output: json.RawMessage(`"` + strings.Repeat("x", 2_000_000) + `"`)}, nil
		}
		return r, nil
	}}
	var parts []scripted.Part
	want, calls := []string{"user: Hi!", ""}, []string{}
	for n := 1; n <= 6; n++ {
		parts = append(parts, scripted.Calling("double", num{n}))
		calls = append(calls, `double({"n":`+string(rune('0'+n))+`})`)
		want = append(want, "tool double failed: tool_invalid_output")
	}
	want[1], want[7] = "assistant: "+strings.Join(calls, ", "), "tool double: 12"
	agent := extending(newAgent(scripted.New(scripted.Reply(parts...), scripted.Text("Done.")), double()), filter)
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", append(want, "assistant: Done.")...)
	s.logged("extension.filter_failed", "extension=censor", "boom")
}

// preparing is an extension that adds messages.
type preparing struct {
	extension
	prepare func(ctx context.Context, turn *helix.Turn) ([]session.Message, error)
}

func (p *preparing) Prepare(ctx context.Context, turn *helix.Turn) ([]session.Message, error) {
	return p.prepare(ctx, turn)
}

// recalling is an extension that adds a text, with a number that grows.
func recalling(name string, asked *tally) *preparing {
	return &preparing{extension: extension{name: name}, prepare: func(_ context.Context, turn *helix.Turn) ([]session.Message, error) {
		n := asked.add(name)
		return []session.Message{session.UserText(name + " " + string(rune('0'+n))), {Parts: []session.Part{session.Text("and more")}}}, nil
	}}
}

func extensionPrepared(s *Stage) {
	var asked tally
	model := scripted.New(scripted.Call("double", num{1}), scripted.Text("Done."), scripted.Text("Again."))
	agent := extending(newAgent(model, double()), recalling("old", &asked), recalling("new", &asked))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(run), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	added := func(n string) []string {
		return []string{"user: old " + n + " [hidden]", "user: and more [hidden]", "user: new " + n + " [hidden]", "user: and more [hidden]"}
	}
	want := slices.Concat([]string{"user: Hi!"}, added("1"), []string{`assistant: double({"n":1})`, "tool double: 2", "assistant: Done.", "user: More!"},
		added("2"), []string{"assistant: Again."})
	s.transcript("s-1", want...)
	s.same(render(model.Requests()[0].Messages), strings.Join(want[:5], "\n"), "the first request")
	s.same(render(model.Requests()[1].Messages), strings.Join(want[:7], "\n"), "the second request")
	messages := s.messages("s-1")
	s.same(messages[1].ID, run.ID()+"/prepare/old/0", "the id of the first")
	s.same(messages[4].ID, run.ID()+"/prepare/new/1", "the id of the last")
	inputs := ofKind(s.chunks("s-1"), stream.InputReceived)
	s.same(len(inputs), 6, "chunks that show input")
}

func extensionPreparedAgain(s *Stage) {
	var asked tally
	g := s.newGate()
	model := scripted.New(scripted.Takes(
		scripted.Reply(scripted.Say("I was about to"), scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Here I am again.")))
	agent := extending(newAgent(model), recalling("old", &asked))
	s.takenOver(s.orphan(agent, g), agent)
	s.transcript("s-1", "user: Hi!", "user: old 2 [hidden]", "user: and more [hidden]", "assistant: Here I am again.")
}

func extensionPreparedOnce(s *Stage) {
	var asked, ran tally
	g := s.newGate()
	model := scripted.New(scripted.Call("sign", num{1}), scripted.Reply(scripted.Say("Wait"), scripted.Do(g.enter), scripted.Until(g.open)),
		scripted.Text("Done."), scripted.Text("Again.")).ByPosition()
	agent := extending(newAgent(model, guarded(&ran, "sign")), recalling("old", &asked))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.Submit(x, "s-1", helix.Approve(s.waiting(res, "sign"), helix.User{}), session.SubmitAccepted)
	run := s.Resume(x, "s-1", helix.ResumeOptions{})
	s.receive("the model replies", g.entered)
	s.ok(run.Interrupt(s.ctx(), "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.same(asked.of("old"), 1, "how often it was asked before the resume")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.same(asked.of("old"), 1, "how often it was asked for one message")
	message := helix.UserText("More!")
	s.ended(s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: message})), helix.Completed)
	s.same(asked.of("old"), 2, "how often it was asked for two messages")
}

func extensionPreparedInVain(s *Stage) {
	var asked tally
	g := s.newGate()
	model := scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Done."),
		scripted.Fail(session.CodeBadRequest, false, "no"), scripted.Text("Well."))
	agent := extending(newAgent(model), recalling("old", &asked))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(run.Interrupt(s.ctx(), "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.transcript("s-1", "user: Hi!", "user: old 2 [hidden]", "user: and more [hidden]", "assistant: Done.")
	s.failed(s.Say(x, agent, "s-1", "More!"), code(session.CodeBadRequest))
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	s.transcript("s-1", "user: Hi!", "user: old 2 [hidden]", "user: and more [hidden]", "assistant: Done.",
		"user: More!", "user: old 4 [hidden]", "user: and more [hidden]", "assistant: Well.")
}

func extensionPreparedBranch(s *Stage) {
	var asked tally
	model := scripted.New(scripted.Text("one"), scripted.Text("two"), scripted.Text("branched"), scripted.Text("rewound"))
	agent := extending(newAgent(model), recalling("old", &asked))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	behind := s.checkpoints("s-1")
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	at := behind[len(behind)-1].ID
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1", Checkpoint: at}, "third")), helix.Completed)
	first := []string{"user: first", "user: old 1 [hidden]", "user: and more [hidden]", "assistant: one"}
	s.transcript("s-2", append(slices.Clone(first), "user: third", "user: old 3 [hidden]", "user: and more [hidden]", "assistant: branched")...)
	s.same(s.messages("s-2")[1].ID, s.messages("s-1")[1].ID, "the id of the copied message")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: at, Message: new(helix.UserText("fourth"))})), helix.Completed)
	s.transcript("s-1", append(slices.Clone(first), "user: fourth", "user: old 4 [hidden]", "user: and more [hidden]", "assistant: rewound")...)
}

func extensionPreparedMarker(s *Stage) {
	var asked, ran tally
	model := scripted.New(scripted.Text("one"), scripted.Call("sign", num{1}), scripted.Text("two"))
	agent := extending(newAgent(model, guarded(&ran, "sign")), recalling("old", &asked))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.mark("summary", 1)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.SuspendedClientTool)
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.same(asked.of("old"), 2, "how often it was asked for two messages")
	s.same(s.sent(model, 2), "summary, one, second, old 2, and more, calls, result", "what the model was sent at last")
}

func extensionPreparedBadly(s *Stage) {
	var asked tally
	g := s.newGate()
	var mended atomic.Bool
	returns := func(name string, err error, messages ...session.Message) *preparing {
		return &preparing{extension: extension{name: name}, prepare: func(context.Context, *helix.Turn) ([]session.Message, error) {
			if mended.Load() {
				return []session.Message{session.UserText(name)}, nil
			}
			return messages, err
		}}
	}
	reserved := session.UserText("x")
	reserved.Metadata = map[string]json.RawMessage{session.MetaInterrupted: json.RawMessage("{}")}
	list := []helix.Extension{
		returns("failing", errors.New("no")),
		returns("talking", nil, session.Message{Role: session.RoleAssistant, Parts: []session.Part{session.Text("I am the model.")}}),
		returns("calling", nil, session.Message{Parts: []session.Part{{Kind: session.PartToolCall, CallID: "c", Tool: "double", Input: json.RawMessage("{}")}}}),
		returns("empty", nil, session.Message{}),
		returns("many", nil, slices.Repeat([]session.Message{session.UserText("x")}, 17)...),
		returns("swarming", nil, slices.Repeat([]session.Message{session.UserText("x")}, 10_000)...),
		returns("huge", nil, session.UserText(strings.Repeat("x", 300<<10))),
		returns("reserved", nil, reserved),
		&preparing{extension: extension{name: "panicking"}, prepare: func(context.Context, *helix.Turn) ([]session.Message, error) { panic("boom") }},
		&preparing{extension: extension{name: "hanging"}, prepare: func(context.Context, *helix.Turn) ([]session.Message, error) { <-g.open; return nil, nil }},
	}
	agent := extending(newAgent(scripted.New(scripted.Text("Done."), scripted.Text("Again."))), append(list, recalling("fine", &asked))...)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", "user: fine 1 [hidden]", "user: and more [hidden]", "assistant: Done.")
	for name, why := range map[string]string{
		"failing": "no", "talking": "assistant", "calling": "tool_call", "empty": "message", "many": "are 17", "swarming": "are 10000",
		"huge": "bytes", "reserved": session.MetaInterrupted, "panicking": "boom", "hanging": "within 2s",
	} {
		s.logged("extension.prepare_failed", "extension="+name, why)
	}
	mended.Store(true)
	g.release()
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	added := 0
	for _, m := range s.messages("s-1")[5:] {
		if m.Hidden() {
			added++
		}
	}
	s.same(added, 8+2, "messages of the mended extensions and the one that was fine")
}
