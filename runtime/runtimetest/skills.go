package runtimetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
	"github.com/helixagents/helix/stream"
)

// skillScenarios are about skills: instructions that an agent loads when it needs them.
func skillScenarios() []Scenario {
	return []Scenario{
		{"load", "a skill is loaded, one of its files is read, and the beginning of the prompt stays the same", skillLoad},
		{"load again", "a skill that the model has is not sent again, in the same turn and in later ones", skillAgain},
		{"edited", "a skill whose files were edited between two runs is loaded anew", skillEdited},
		{"killed", "a skill whose load is cut off by a crash is loaded once by the process that takes over", skillKilled},
		{"killed behind it", "readers of the stream see a skill loaded once, although the process dies between the load and the end of the step", skillKilledBehind},
		{"compacted", "two skills loaded, then a compaction, then a takeover: the model still has them, once", skillCompacted},
		{"evicting", "a policy that evicts large results leaves skills in the conversation, where they count as loaded and restrict", skillEvicting},
		{"chosen", "a skill that the user's message chooses is loaded before the reply, once", skillChosen},
		{"chosen again", "a process that takes over before the reply loads the chosen skill again, once", skillChosenAgain},
		{"preloaded and edited", "a preloaded skill that was edited between two runs is part of the instructions of the second as it is now", skillPreloadedEdited},
		{"preloaded", "a preloaded skill is part of the instructions; names that do not exist are left out with a warning", skillPreloaded},
		{"restricted", "a loaded skill restricts which tools can be called until the user's next message, and lifts no approval", skillRestricted},
		{"away", "an agent whose skills cannot be listed has those that were known, with a warning", skillAway},
		{"scoped", "skills are those of the session's tenant and user, and of the agent", skillScoped},
		{"sub-agent", "a sub-agent inherits no skills", skillSubAgent},
		{"branch", "a branch has the skills that were loaded before it, and no others", skillBranch},
		{"summary", "a skill that a summary kept is not loaded again, and one that it dropped is", skillSummary},
		{"stable bytes", "with twenty skills, loading some and a takeover leave the beginning of the prompt as it was", skillStable},
	}
}

// shelf is a provider that scenarios can watch and disturb.
type shelf struct {
	skill.Provider
	mu     sync.Mutex
	scopes []skill.Scope
	away   atomic.Bool
	loads  atomic.Int64
	load   func(ctx context.Context) error // called before each load
}

func newShelf(list ...skill.Skill) *shelf { return &shelf{Provider: skill.Static(list...)} }

func (p *shelf) List(ctx context.Context, scope skill.Scope) ([]skill.Metadata, error) {
	p.mu.Lock()
	p.scopes = append(p.scopes, scope)
	p.mu.Unlock()
	if p.away.Load() {
		return nil, session.ErrUnavailable.WithMessage("the shelf is away")
	}
	return p.Provider.List(ctx, scope)
}

func (p *shelf) Load(ctx context.Context, scope skill.Scope, name string) (*skill.Skill, error) {
	p.loads.Add(1)
	if p.load != nil {
		if err := p.load(ctx); err != nil {
			return nil, err
		}
	}
	return p.Provider.Load(ctx, scope, name)
}

func aSkill(name, body string, tools ...string) skill.Skill {
	return skill.Skill{
		Metadata: skill.Metadata{Name: name, Description: "About " + name + ".", AllowedTools: tools}, Body: body,
		Files: []skill.File{{Path: "notes.md", Content: []byte("one\ntwo\nthree\n")}},
	}
}

// loading is a call of load_skill.
func loading(name string) scripted.Part {
	return scripted.Calling(skills.LoadTool, map[string]string{"name": name})
}

// results returns the results of the calls of a session, in order.
func (s *Stage) results(id string) []string {
	s.Helper()
	var out []string
	for _, m := range s.messages(id) {
		if m.Role == session.RoleTool {
			var text string
			if json.Unmarshal(m.Parts[0].ResultJSON(), &text) != nil {
				text = string(m.Parts[0].ResultJSON())
			}
			out = append(out, text)
		}
	}
	return out
}

// has checks that the texts contain words, one by one.
func (s *Stage) has(texts []string, words ...string) {
	s.Helper()
	if len(texts) != len(words) {
		s.Fatalf("there are %d texts, want %d:\n%s", len(texts), len(words), strings.Join(texts, "\n\n"))
	}
	for i := range texts {
		if !strings.Contains(texts[i], words[i]) {
			s.Fatalf("text %d does not contain %q:\n%s", i, words[i], texts[i])
		}
	}
}

// loaded lists the skills that readers of the stream saw being loaded, without what was
// withdrawn.
func (s *Stage) loaded(id string) string {
	s.Helper()
	var out []string
	committed := 0
	for _, c := range s.chunks(id) {
		switch {
		case c.Kind == stream.Custom && c.Name == skills.LoadedEvent:
			out = append(out, string(c.Data))
		case c.Kind == stream.StepCommitted || c.Kind == stream.Suspended:
			committed = len(out)
		case c.Kind == stream.StepDiscarded:
			out = out[:committed]
		}
	}
	return strings.Join(out, " ")
}

// told reports whether the stream of a session has an event about a skill.
func (s *Stage) told(id string) bool {
	s.Helper()
	return slices.ContainsFunc(s.chunks(id), func(c stream.Chunk) bool { return c.Kind == stream.Custom && c.Name == skills.LoadedEvent })
}

// fixedPart is what is the same in all requests of a turn.
func (s *Stage) fixedPart(r *llm.Request) string {
	s.Helper()
	raw, err := json.Marshal([]any{r.Instructions, r.Tools})
	s.ok(err, "encode the request")
	return string(raw)
}

// samePrefix checks that each request begins with the one before.
func (s *Stage) samePrefix(requests []llm.Request) {
	s.Helper()
	before := ""
	for i := range requests {
		s.same(s.fixedPart(&requests[i]), s.fixedPart(&requests[0]), "instructions and tools of request %d", i+1)
		var now strings.Builder
		for j := range requests[i].Messages {
			raw, err := requests[i].Messages[j].AppendJSON(nil)
			s.ok(err, "encode")
			now.Write(raw)
		}
		if !strings.HasPrefix(now.String(), before) {
			s.Fatalf("request %d does not begin with the one before", i+1)
		}
		before = now.String()
	}
}

func skillLoad(s *Stage) {
	model := scripted.New(
		scripted.Reply(loading("pdf")),
		scripted.Call(skills.ReadTool, map[string]any{"name": "pdf", "path": "notes.md", "startLine": 2, "endLine": 2}),
		scripted.Call(skills.ReadTool, map[string]any{"name": "pdf", "path": "../secret"}),
		scripted.Call(skills.LoadTool, map[string]any{"name": "none"}),
		scripted.Text("Done."),
	)
	agent := extending(newAgent(model, double()), skills.New(skills.Config{Provider: newShelf(aSkill("pdf", "Read it."), aSkill("csv", "Count it."))}))
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.has(s.results("s-1"), "Read it.", ">\ntwo\n</skill_file>", "does not lie within the skill", "name")
	request := model.Requests()[0]
	for _, want := range []string{"## Skills", "NOT a tool", `<skill name="csv">About csv.</skill>`, `<skill name="pdf">About pdf.</skill>`} {
		if !strings.Contains(request.Instructions, want) {
			s.Fatalf("no %q in the instructions:\n%s", want, request.Instructions)
		}
	}
	s.same(offered(request), "double load_skill read_skill_file", "tools")
	if !strings.Contains(string(request.Tools[1].Schema), `"enum":["csv","pdf"]`) {
		s.Fatalf("the names are not in the schema: %s", request.Tools[1].Schema)
	}
	s.same(s.loaded("s-1"), `{"name":"pdf"}`, "events")
	s.samePrefix(model.Requests())
}

func skillAgain(s *Stage) {
	model := scripted.New(scripted.Reply(loading("pdf")), scripted.Reply(loading("pdf")), scripted.Text("Done."), scripted.Reply(loading("pdf")), scripted.Text("Again."))
	agent := extending(newAgent(model), skills.New(skills.Config{Provider: newShelf(aSkill("pdf", "Read it."))}))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	s.has(s.results("s-1"), "Read it.", "loaded already", "loaded already")
	s.same(s.loaded("s-1"), `{"name":"pdf"}`, "events")
}

func skillEdited(s *Stage) {
	dir := s.TempDir()
	write := func(body string) {
		s.ok(os.MkdirAll(filepath.Join(dir, "pdf"), 0o700), "make a directory")
		s.ok(os.WriteFile(filepath.Join(dir, "pdf", "SKILL.md"), []byte("---\nname: pdf\ndescription: Reads.\n---\n"+body+"\n"), 0o600), "write a skill")
	}
	write("Read it.")
	steps := []scripted.Step{scripted.Reply(loading("pdf")), scripted.Text("Done.")}
	model := scripted.New(steps[0], steps[1], steps[0], steps[1], steps[0], steps[1])
	agent := extending(newAgent(model), skills.New(skills.Config{Provider: files.Dir(dir)}))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	write("Read on.")
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.Completed)
	s.has(s.results("s-1"), "Read it.", "Read on.", "loaded already")
}

func skillKilled(s *Stage) {
	g := s.newGate()
	shelves := []*shelf{}
	agent := func() *helix.Agent {
		p := newShelf(aSkill("pdf", "Read it."))
		p.load = g.pass
		shelves = append(shelves, p)
		return extending(newAgent(scripted.New(scripted.Reply(loading("pdf")), scripted.Reply(loading("pdf")), scripted.Text("Done.")).ByPosition()),
			skills.New(skills.Config{Provider: p}))
	}
	run := s.orphan(agent(), g)
	g.release()
	s.takenOver(run, agent())
	s.has(s.results("s-1"), "Read it.", "loaded already")
	s.same(s.loaded("s-1"), `{"name":"pdf"}`, "events")
	s.same(shelves[1].loads.Load(), 2, "times that the second process asked for the skill")
}

func skillKilledBehind(s *Stage) {
	g := s.newGate()
	tool := blocking(g)
	tool.Idempotent = true
	agent := func() *helix.Agent {
		model := scripted.New(scripted.Reply(loading("pdf"), scripted.Calling("wait", num{1})), scripted.Reply(loading("pdf")), scripted.Text("Done.")).ByPosition()
		return extending(newAgent(model, tool), skills.New(skills.Config{Provider: newShelf(aSkill("pdf", "Read it."))}))
	}
	first := agent()
	x := s.mortal(first)
	run := s.Begin(x, first, "s-1", "Hi!")
	s.receive("the other call runs", g.entered)
	s.until("the skill is loaded", func() bool { return s.told("s-1") })
	x.Kill()
	g.release()
	s.takenOver(run, agent())
	s.has(s.results("s-1"), "Read it.", "1", "loaded already")
	s.same(s.loaded("s-1"), `{"name":"pdf"}`, "events that were not withdrawn")
}

// wide is a skill of about 12 KB.
func wide(name string) skill.Skill {
	return aSkill(name, "# The way of "+name+"\n"+strings.Repeat("Do this, and then do that. ", 450))
}

// timesSent is how often a request has the content of a skill.
func timesSent(r *llm.Request, name string) int {
	n := strings.Count(r.Instructions, "# The way of "+name+"\n")
	for i := range r.Messages {
		for j := range r.Messages[i].Parts {
			n += strings.Count(r.Messages[i].Parts[j].Text, "# The way of "+name+"\n")
		}
	}
	return n
}

func skillCompacted(s *Stage) {
	g := s.newGate()
	tool := blocking(g)
	tool.Idempotent = true
	loads := func(names ...string) (parts []session.Part) {
		for _, name := range names {
			parts = append(parts, session.Part{Kind: session.PartToolCall, Tool: skills.LoadTool, Input: fmt.Appendf(nil, `{"name":%q}`, name)})
		}
		return parts
	}
	model := &narrow{keep: true, reply: func(n int, _ *llm.Request) []session.Part {
		switch n {
		case 1:
			return loads("pdf", "csv")
		case 2, 3:
			return calls("fetch", 6_000)
		case 4:
			return calls("wait", 1)
		case 5:
			return loads("csv", "pdf")
		}
		return says("Done.")
	}}
	agent := func() *helix.Agent {
		out := extending(newAgent(model, fetching(), tool), skills.New(skills.Config{Provider: newShelf(wide("pdf"), wide("csv"))}))
		out.Context = &helix.ContextPolicy{TriggerMessages: 8, KeepMessages: 2, Model: summarising("They loaded two skills.")}
		return out
	}
	run := s.orphan(agent(), g)
	at, messages := s.markers("s-1")
	s.same(at, []int{8}, "places of the markers before the takeover")
	s.same(len(skills.LoadedNames(messages[8:9])), 2, "skills that the summary keeps")
	g.release()
	s.takenOver(run, agent())
	at, _ = s.markers("s-1")
	s.same(at, []int{8}, "places of the markers")
	for n := 1; n < 6; n++ {
		request := model.request(n)
		for _, name := range []string{"pdf", "csv"} {
			s.same(timesSent(&request, name), 1, "times that request %d has the skill %s", n+1, name)
		}
	}
	s.same(model.request(5).Messages[0].Compaction() != nil, true, "the last request begins with the summary")
	s.has(s.results("s-1"), "# The way of pdf", "# The way of csv", "xxx", "xxx", "1", "csv is loaded already", "pdf is loaded already")
	events := strings.Fields(s.loaded("s-1")) // the calls of a step run at the same time
	slices.Sort(events)
	s.same(events, []string{`{"name":"csv"}`, `{"name":"pdf"}`}, "events")
}

func skillEvicting(s *Stage) {
	model := scripted.New(scripted.Reply(loading("pdf")), scripted.Reply(loading("pdf")), scripted.Call("double", num{2}), scripted.Text("Done."))
	body := "# The way of pdf\n" + strings.Repeat("Do this. ", 6_000)
	agent := evicting(extending(newAgent(model, double()), skills.New(skills.Config{
		Provider: newShelf(aSkill("pdf", body, "sign")), AllowedTools: skills.Restrict,
	})), 50_000)
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	s.has(s.results("s-1"), body, "loaded already", "allows only these tools: sign")
	for _, m := range s.messages("s-1") {
		if m.Evicted() != nil {
			s.Fatalf("a result was evicted: %.200s", m.Content())
		}
	}
}

func skillPreloadedEdited(s *Stage) {
	dir := s.TempDir()
	write := func(body string) {
		s.ok(os.MkdirAll(filepath.Join(dir, "pdf"), 0o700), "make a directory")
		s.ok(os.WriteFile(filepath.Join(dir, "pdf", "SKILL.md"), []byte("---\nname: pdf\ndescription: Reads.\n---\n"+body+"\n"), 0o600), "write a skill")
	}
	write("Read it.")
	model := scripted.New(scripted.Text("One."), scripted.Reply(loading("pdf")), scripted.Text("Two."))
	agent := extending(newAgent(model), skills.New(skills.Config{Provider: files.Dir(dir), Preload: []string{"pdf"}}))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	write("Read on.")
	s.idle(files.ScanInterval + 100*time.Millisecond)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	for i, want := range []string{"Read it.", "Read on.", "Read on."} {
		if got := model.Requests()[i].Instructions; !strings.Contains(got, want) || strings.Count(got, "Read ") != 1 {
			s.Fatalf("the instructions of request %d are\n%s", i+1, got)
		}
	}
	s.has(s.results("s-1"), "among the active skills")
}

func skillChosen(s *Stage) {
	model := scripted.New(scripted.Text("One."), scripted.Reply(loading("pdf")), scripted.Text("Two."))
	agent := extending(newAgent(model), skills.New(skills.Config{Provider: newShelf(aSkill("pdf", "Read it."), aSkill("csv", "Count it."))}))
	x := s.Start(agent)
	say := func(text string, names ...string) {
		run := s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: skills.Activate(helix.UserText(text), names...)})
		s.ended(s.Result(run), helix.Completed)
	}
	say("Hi!", "pdf", "none")
	s.has(texts(model.Requests()[0].Messages), "Hi!", "Read it.", `"none", which does not exist`)
	s.same(s.loaded("s-1"), `{"name":"pdf"}`, "events")
	say("More!", "pdf", "csv")
	s.has(texts(model.Requests()[1].Messages)[4:], "More!", "above: follow them", "Count it.")
	s.has(s.results("s-1"), "loaded already")
	for _, m := range s.messages("s-1") {
		if strings.Contains(m.Content(), "skill_content") != (m.Hidden() && m.Metadata[session.MetaSkill] != nil) {
			s.Fatalf("a message with a skill is not hidden: %s", m.Content())
		}
	}
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: skills.Activate(helix.UserText("x"), "a/b")})
	s.refused(err, session.ErrInvalid, session.MetaSkills, "a/b")
}

func texts(messages []session.Message) []string {
	out := make([]string, len(messages))
	for i := range messages {
		out[i] = messages[i].Content()
	}
	return out
}

func skillChosenAgain(s *Stage) {
	g := s.newGate()
	var shelves []*shelf
	var models []*scripted.Model
	agent := func() *helix.Agent {
		shelves = append(shelves, newShelf(aSkill("pdf", "Read it.")))
		models = append(models, scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("Done."))))
		return extending(newAgent(models[len(models)-1]), skills.New(skills.Config{Provider: shelves[len(shelves)-1]}))
	}
	first := agent()
	x := s.mortal(first)
	run := s.Execute(x, first, helix.Input{SessionID: "s-1", Message: skills.Activate(helix.UserText("Hi!"), "pdf")})
	s.receive("the model is asked", g.entered)
	s.until("the skill is loaded", func() bool { return s.told("s-1") })
	x.Kill()
	g.release()
	s.takenOver(run, agent())
	s.has(texts(s.messages("s-1")), "Hi!", "Read it.", "Done.")
	for i := range 2 {
		s.same(shelves[i].loads.Load(), 1, "times that process %d loaded the skill", i+1)
		s.has(texts(models[i].Requests()[0].Messages), "Hi!", "Read it.")
	}
	s.same(s.loaded("s-1"), `{"name":"pdf"}`, "events that were not withdrawn")
}

func skillPreloaded(s *Stage) {
	model := scripted.New(scripted.Reply(loading("pdf")), scripted.Reply(loading("csv")), scripted.Text("Done."))
	agent := extending(newAgent(model), skills.New(skills.Config{
		Provider: newShelf(aSkill("pdf", "Read it."), aSkill("csv", "Count it.")), Preload: []string{"pdf", "none"},
	}))
	s.ended(s.Say(s.Start(agent), agent, "s-2", "Hi!"), helix.Completed)
	instructions := model.Requests()[0].Instructions
	for _, want := range []string{`<skill name="pdf" loaded="true">`, `<skill name="csv">`, "### Active Skills", "Read it."} {
		if !strings.Contains(instructions, want) {
			s.Fatalf("no %q in the instructions:\n%s", want, instructions)
		}
	}
	s.has(s.results("s-2"), "among the active skills", "Count it.")
	s.same(s.loaded("s-2"), `{"name":"csv"}`, "events")
	if !strings.Contains(s.warnings("s-2"), `"none" is to be preloaded`) {
		s.Fatalf("the warnings are %s", s.warnings("s-2"))
	}
	s.samePrefix(model.Requests())
}

func skillRestricted(s *Stage) {
	var ran tally
	model := scripted.New(
		scripted.Call("double", num{1}), scripted.Reply(loading("pdf")), scripted.Call("double", num{2}), scripted.Call("sign", num{3}), scripted.Text("Done."),
		scripted.Call("double", num{4}), scripted.Text("Again."),
	)
	agent := extending(newAgent(model, double(), guarded(&ran, "sign")), skills.New(skills.Config{
		Provider: newShelf(aSkill("pdf", "Read it.", "sign", "Bash(git:*)")), AllowedTools: skills.Restrict,
	}))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedClientTool)
	s.same(ran.of("sign"), 0, "calls that ran without an approval")
	s.Submit(x, "s-1", helix.Approve(s.waiting(res, "sign"), helix.User{}), session.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	s.has(s.results("s-1"), "2", "Read it.", "the loaded skill pdf allows only these tools: sign, Bash(git:*)", "6", "8")
	s.same(ran.of("sign"), 1, "calls that ran")
	s.samePrefix(model.Requests())
}

func skillAway(s *Stage) {
	p := newShelf(aSkill("pdf", "Read it."))
	model := scripted.New(scripted.Text("One."), scripted.Reply(loading("pdf")), scripted.Text("Two."))
	agent := extending(newAgent(model), skills.New(skills.Config{Provider: p}))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	p.away.Store(true)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	s.has(s.results("s-1"), "Read it.")
	s.samePrefix(model.Requests())
	if got := s.warnings("s-1"); !strings.Contains(got, "could not be listed") {
		s.Fatalf("the warnings are %s", got)
	}
}

func skillScoped(s *Stage) {
	p := newShelf(aSkill("pdf", "Read it."))
	agent := extending(newAgent(scripted.New(scripted.Text("Done."))), skills.New(skills.Config{Provider: p}))
	run := s.Execute(s.Start(agent), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "u-1"}})
	s.ended(s.Result(run), helix.Completed)
	s.same(p.scopes, []skill.Scope{{Tenant: session.DefaultTenant, UserID: "u-1", Agent: "agent"}}, "scopes")
}

func skillSubAgent(s *Stage) {
	model := scripted.New(scripted.Call("subagent__helper", map[string]string{"task": "Help."}), scripted.Text("Done.")).
		For("helper", scripted.Text("Helped."))
	helper := &helix.Agent{Name: "helper", Model: model, Instructions: "Help."}
	agent := extending(newAgent(model), skills.New(skills.Config{Provider: newShelf(aSkill("pdf", "Read it.")), Preload: []string{"pdf"}}))
	agent.SubAgents = []helix.SubAgent{{Agent: helper}}
	s.ended(s.Say(s.Start(agent), agent, "s-1", "Hi!"), helix.Completed)
	asked := 0
	for _, request := range model.Requests() {
		if request.Agent == "helper" {
			asked++
			s.same(request.Instructions, "Help.", "instructions of the sub-agent")
			s.same(offered(request), "", "tools of the sub-agent")
		}
	}
	s.same(asked, 1, "requests of the sub-agent")
}

func skillBranch(s *Stage) {
	load := scripted.Reply(loading("pdf"))
	model := scripted.New(scripted.Text("One."), load, scripted.Text("Two."), load, scripted.Text("Three."), load, scripted.Text("Four."))
	agent := extending(newAgent(model), skills.New(skills.Config{Provider: newShelf(aSkill("pdf", "Read it."))}))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	all := s.checkpoints("s-1")
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1", Checkpoint: all[len(all)-1].ID}, "After!")), helix.Completed)
	s.has(s.results("s-2"), "Read it.", "loaded already")
	before := 2
	s.ended(s.Result(s.branch(x, agent, "s-3", helix.Branch{From: "s-1", MessageIndex: &before}, "Before!")), helix.Completed)
	s.has(s.results("s-3"), "Read it.")
}

func skillSummary(s *Stage) {
	load := scripted.Reply(loading("pdf"), loading("csv"))
	model := scripted.New(load, scripted.Text("One."), load, scripted.Text("Two."), load, scripted.Text("Three."))
	x := skills.New(skills.Config{Provider: newShelf(aSkill("pdf", "Read it."), aSkill("csv", "Count it."))})
	agent := extending(newAgent(model), x)
	rt := s.Start(agent)
	s.ended(s.Say(rt, agent, "s-1", "Hi!"), helix.Completed)
	kept, tasks, err := x.Preserve(s.ctx(), &helix.Turn{View: s.messages("s-1")}, s.messages("s-1"), 128<<10)
	s.ok(err, "preserve")
	s.same(len(tasks), 0, "tasks")
	s.markWith("kept", "They spoke.", session.Text(kept))
	s.ended(s.Say(rt, agent, "s-1", "More!"), helix.Completed)
	s.has(s.results("s-1")[2:], "loaded already", "loaded already")
	s.markWith("dropped", "They spoke.\n\n"+kept) // a model could write this
	s.ended(s.Say(rt, agent, "s-1", "And?"), helix.Completed)
	s.has(s.results("s-1")[4:], "Read it.", "Count it.")
}

// markWith appends a summary that keeps no message, with what extensions kept.
func (s *Stage) markWith(id, text string, kept ...session.Part) {
	s.Helper()
	c := session.Compaction{Kind: session.CompactionSummary}
	if len(kept) > 0 {
		c.Preserved = []string{"skills"}
	}
	m, err := c.Marker(text, kept...)
	s.ok(err, "make a marker")
	m.ID = id
	_, err = session.AppendMessages(s.ctx(), s.store(), "s-1", []session.Message{m})
	s.ok(err, "append a marker")
	s.loose["s-1"] = true
}

func skillStable(s *Stage) {
	g := s.newGate()
	var list []skill.Skill
	for i := range 20 {
		list = append(list, aSkill(fmt.Sprintf("skill-%02d", i), fmt.Sprintf("Do number %d.", i)))
	}
	model := scripted.New(
		scripted.Reply(loading("skill-03")), scripted.Reply(loading("skill-17"), loading("skill-00")), scripted.Call("wait", num{1}),
		scripted.Reply(loading("skill-03")), scripted.Call(skills.ReadTool, map[string]string{"name": "skill-17", "path": "notes.md"}), scripted.Text("Done."),
	).ByPosition()
	tool := blocking(g)
	tool.Idempotent = true
	agent := func() *helix.Agent {
		return extending(newAgent(model, tool), skills.New(skills.Config{Provider: newShelf(list...), Preload: []string{"skill-05"}}))
	}
	run := s.orphan(agent(), g)
	g.release()
	s.takenOver(run, agent())
	s.samePrefix(model.Requests())
	s.has(s.results("s-1"), "Do number 3.", "Do number 17.", "Do number 0.", "1", "loaded already", "three")
}
