package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/builtin"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/models"
	"github.com/helixagents/helix/llm/router"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/skill"
)

// References of models other than provider/model.
const (
	// Demo is the scripted model, which needs no key.
	Demo = "demo"
	// Auto is a model of the first provider whose key is in the environment, or Demo.
	Auto = "auto"
)

// defaultPace is the pause of the demo model before each word.
const defaultPace = 30 * time.Millisecond

// BuildOptions configure [File.Build]. The zero value works for a file without remotes.
type BuildOptions struct {
	// OpenModel opens the models. Defaults to [OpenModel].
	OpenModel func(Model) (llm.Model, error)
	// Remote makes a sub-agent from an agent on another server. A file with remotes requires
	// it.
	Remote func(Remote) (helix.SubAgent, error)
	// Skills are the skills that are part of the program. A file with skills.embed requires
	// them.
	Skills skill.Provider
	// Logger receives the reasons for failed requests of http tools, including network
	// addresses, which the model does not see. Defaults to none.
	Logger *slog.Logger
}

// Build builds the file's agents, in the order of the file but with internal ones last: a
// chat gets the first. If something cannot be built, such as a model without a key, it
// returns an [*Error].
func (f *File) Build(opts BuildOptions) ([]*helix.Agent, error) {
	if opts.OpenModel == nil {
		opts.OpenModel = OpenModel
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := f.source.anew() // a second Build may succeed
	b := &builder{
		file: f, source: s, opts: opts,
		models: map[string]llm.Model{}, tools: map[string]helix.Tool{}, agents: map[string]*helix.Agent{},
	}
	agents := make([]*helix.Agent, len(f.Agents))
	for i := range f.Agents {
		agents[i] = b.agent(&f.Agents[i])
	}
	for i := range f.Agents {
		b.link(&f.Agents[i], agents[i])
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	for _, agent := range agents {
		if err := agent.Check(); err != nil {
			s.wrongKey("agents."+agent.Name, "%v", err)
		}
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(agents, func(a, b *helix.Agent) int {
		switch {
		case a.Internal == b.Internal:
			return 0
		case b.Internal:
			return -1
		}
		return 1
	})
	return agents, nil
}

type builder struct {
	file   *File
	source *source
	opts   BuildOptions
	models map[string]llm.Model // by the paths of their definitions
	tools  map[string]helix.Tool
	agents map[string]*helix.Agent
	found  *foundSkills // nil before it is needed
}

// agent builds an agent without the agents it calls.
func (b *builder) agent(a *Agent) *helix.Agent {
	path := "agents." + a.Name
	out := &helix.Agent{
		Name: a.Name, Description: a.Description, Instructions: a.Instructions, Internal: a.Internal,
		MaxSteps: a.MaxSteps.Int(), SessionExpiry: a.SessionExpiry.Std(),
	}
	if definition, at := b.file.modelOf(a.Model, path+".model"); definition == nil {
		b.source.wrongKey(path, "there is no model for the agent")
	} else {
		out.Model = b.model(definition, at)
		out.Settings = definition.settings()
		out.ModelTimeout = definition.Timeout.Std()
	}
	if a.Context != nil {
		out.Context = b.context(a.Context, path+".context")
	}
	if a.Output != nil {
		out.Output = helix.RawOutput(json.RawMessage(a.Output))
	}
	if a.State != nil {
		var defaults map[string]json.RawMessage
		if err := json.Unmarshal(a.State, &defaults); err != nil {
			b.source.wrong(path+".state", "%v", err)
		}
		out.State = helix.StateOf(defaults).Open(a.OpenState...)
	}
	for _, name := range a.Tools {
		out.Tools = append(out.Tools, b.tool(name))
	}
	if skills := b.skills(a, path+".skills"); skills != nil {
		out.Extensions = append(out.Extensions, skills)
	}
	b.agents[a.Name] = out
	return out
}

// tool builds a tool once, for all agents that have it.
func (b *builder) tool(name string) helix.Tool {
	if built, ok := b.tools[name]; ok {
		return built
	}
	definition := b.file.tool(name)
	if definition == nil {
		b.source.wrongKey("tools."+name, "there is no tool %q", name)
		return helix.Tool{}
	}
	built, err := definition.build(b.source.secrets, b.opts.Logger)
	if err != nil {
		b.source.wrongKey("tools."+name, "%v", err)
	}
	b.tools[name] = built
	return built
}

// link adds the agents that an agent calls.
func (b *builder) link(a *Agent, out *helix.Agent) {
	for i := range a.SubAgents {
		s := &a.SubAgents[i]
		out.SubAgents = append(out.SubAgents, helix.SubAgent{
			Agent: b.agents[s.Agent], Description: s.Description, Input: s.Input.Type(),
		})
	}
	for i := range a.Companions {
		c := &a.Companions[i]
		out.Companions = append(out.Companions, helix.Companion{
			Agent: b.agents[c.Agent], Mode: helix.CompanionMode(c.Mode), Description: c.Description,
		})
	}
	for i := range a.Remotes {
		path := fmt.Sprintf("agents.%s.remotes[%d]", a.Name, i)
		if b.opts.Remote == nil {
			b.source.wrong(path, "agents on other servers are not supported here")
			continue
		}
		sub, err := b.opts.Remote(a.Remotes[i])
		if err != nil {
			b.source.wrong(path, "%v", err)
			continue
		}
		out.SubAgents = append(out.SubAgents, sub)
	}
}

// Type returns the schema as the type of a call's arguments, or nil if there is none.
func (s Schema) Type() *helix.InputType {
	if s == nil {
		return nil
	}
	return helix.RawInput(json.RawMessage(s))
}

// modelOf returns the model that a key of the file names, or the default one, and the path
// of its definition. It is nil if there is none.
func (f *File) modelOf(name, path string) (*Model, string) {
	m := f.model(name)
	if name == "" {
		m = f.defaultModel()
	}
	switch {
	case m != nil:
		return m, "models." + m.Name
	case name == "":
		return nil, ""
	}
	return &Model{Model: name}, path
}

// model opens a model once, for all agents that use it.
func (b *builder) model(m *Model, path string) llm.Model {
	if opened, ok := b.models[path]; ok {
		return opened
	}
	opened, err := b.opts.OpenModel(*m)
	if err != nil {
		b.source.wrong(path, "%s", because(err))
	}
	b.models[path] = opened
	return opened
}

// OpenModel opens a model and its fallbacks.
func OpenModel(m Model) (llm.Model, error) {
	first, err := m.open(m.Model, m.Key)
	if err != nil {
		return nil, err
	}
	if m.Window > 0 {
		first = sized{first, m.Window}
	}
	others := make([]llm.Model, len(m.Fallbacks))
	for i, reference := range m.Fallbacks {
		other, err := m.open(reference, "")
		if err != nil {
			return nil, err
		}
		others[i] = plainly{other}
	}
	if len(others) == 0 {
		return first, nil
	}
	return router.New(first, others...), nil
}

// plainly calls a model without the headers and options that are meant for another
// provider's server. Headers may contain its key.
type plainly struct{ llm.Model }

func (p plainly) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	return p.Model.Generate(ctx, withoutOptions(request), emit)
}

// Window implements [llm.Windowed].
func (p plainly) Window() int { return llm.WindowOf(p.Model) }

// Count implements [llm.Counter].
func (p plainly) Count(ctx context.Context, request *llm.Request) (int, error) {
	return llm.CountTokens(ctx, p.Model, withoutOptions(request))
}

func withoutOptions(request *llm.Request) *llm.Request {
	own := *request
	own.Settings.Headers, own.Settings.ProviderOptions = nil, nil
	return &own
}

func (m *Model) open(reference, key string) (llm.Model, error) {
	if reference == Auto {
		reference = Demo
		if found, ok := models.Suggest(); ok {
			reference = found
		}
	}
	if reference != Demo {
		return models.OpenWithKey(reference, key)
	}
	pace := defaultPace
	if m.Pace != nil {
		pace = m.Pace.Std()
	}
	return scripted.Demo(scripted.DemoConfig{Delay: pace}), nil
}

// settings returns the settings of requests to the model.
func (m *Model) settings() llm.Settings {
	return llm.Settings{
		MaxOutputTokens: m.MaxTokens, Temperature: m.Temperature, TopP: m.TopP, TopK: m.TopK,
		PresencePenalty: m.PresencePenalty, FrequencyPenalty: m.FrequencyPenalty, StopSequences: m.Stop, Seed: m.Seed,
		Headers: m.Headers, ProviderOptions: json.RawMessage(m.Options), Cache: llm.Cache{Prefix: m.Cache, LatestTurn: m.Cache},
	}
}

// build builds a tool. secrets must not appear in its errors and results.
func (t *Tool) build(secrets []string, log *slog.Logger) (helix.Tool, error) {
	tool := helix.Tool{Name: t.Name, Description: t.Description}
	schema := json.RawMessage(t.Input)
	if schema == nil {
		schema = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	switch t.Type {
	case typeHTTP:
		input, err := helix.ParseSchema(schema)
		if err != nil {
			return tool, err
		}
		service := newService(t, input, secrets, log)
		tool.Execute = helix.RawFunc(schema, service.call)
		tool.Timeout = service.limit()
		tool.ReadOnly, tool.Idempotent = t.readOnly(), t.idempotent()
	case typeClient:
		tool.Execute = helix.RawOnClient(schema)
	case typeBuiltin:
		own, ok := builtin.Named(t.Builtin)
		if !ok {
			return tool, fmt.Errorf("there is no builtin tool %q", t.Builtin)
		}
		own.Name = t.Name
		if t.Description != "" {
			own.Description = t.Description
		}
		tool = own
	}
	policy, err := approval(t.Approval, t.Input)
	if err != nil {
		return tool, err
	}
	if t.Approval != "" {
		tool.Approval = policy
	}
	if tool.Approver, err = approver(t.Name, t.Approvers, t.Input); err != nil {
		return tool, err
	}
	switch t.Deadline {
	case never:
		tool.Deadline = helix.NoDeadline
	default:
		tool.Deadline = t.Deadline.Std()
	}
	if tool.Execute == nil {
		return tool, errors.New("the tool has no type")
	}
	return tool, nil
}
