package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/models"
)

// check checks values that are well-formed by themselves.
func (f *File) check() {
	s := f.source
	if p, ok := s.places["version"]; ok && f.Version != 1 && !f.damaged("version") {
		s.problem(p.value, "version", "expected 1, the only version")
	}
	if _, ok := s.places["agents"]; ok && len(f.Agents) == 0 && len(s.problems) == 0 {
		s.wrong("agents", "expected at least one agent")
	}
	if len(f.Agents) > 0 && !slices.ContainsFunc(f.Agents, func(a Agent) bool { return !a.Internal }) {
		s.wrong("agents", "expected at least one agent that is not internal: users could not talk to any of them")
	}
	for i := range f.Models {
		f.checkModel(&f.Models[i])
	}
	for i := range f.Tools {
		f.checkTool(&f.Tools[i])
	}
	for i := range f.Agents {
		f.checkAgent(&f.Agents[i])
	}
	f.checkRemotes()
	f.checkSkillDirs()
	f.checkCycles()
	f.checkServer()
	f.checkAddress("store", f.Store)
	f.checkAddress("streams", f.Streams)
	f.checkRuntime()
	for path, value := range map[string]Duration{
		"runtime.leaseTTL": f.Runtime.LeaseTTL, "runtime.temporal.workerTimeout": f.Runtime.Temporal.WorkerTimeout,
		"cleanup.every": f.Cleanup.Every,
	} {
		if value != 0 && value.Std() < minInterval {
			s.wrong(path, "expected at least %s", minInterval)
		}
	}
}

// modelName matches the names of models. A name cannot be confused with a reference.
var modelName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)

func (f *File) checkModel(m *Model) {
	path := "models." + m.Name
	if !modelName.MatchString(m.Name) || m.Name == Demo || m.Name == Auto {
		f.source.wrongKey(path, "a model's name is a letter followed by up to 63 letters, digits or _.-, and neither %s nor %s", Demo, Auto)
	}
	f.checkReference(path+".model", m.Model)
	for i, fallback := range m.Fallbacks {
		f.checkReference(fmt.Sprintf("%s.fallbacks[%d]", path, i), fallback)
	}
	f.checkHeaders(path, m.Headers)
}

// checkReference checks the reference of a model. The error shows the text of the file,
// because an address may contain a secret.
func (f *File) checkReference(path, reference string) {
	if reference == "" || reference == Demo || reference == Auto {
		return
	}
	if err := models.Check(reference); err != nil {
		f.source.wrong(path, "expected provider/model, %s or %s; the providers are %s", Demo, Auto, listed(models.Providers()))
	}
}

var (
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	// headerBreaks matches characters that a header's value must not contain.
	headerBreaks = regexp.MustCompile(`[\x00-\x08\x0a-\x1f\x7f]`)
)

func (f *File) checkHeaders(path string, headers map[string]string) {
	for name, value := range headers {
		below := path + ".headers." + name
		if !headerName.MatchString(name) {
			f.source.wrongKey(below, "not a valid name of a header")
		}
		if headerBreaks.MatchString(value) {
			f.source.wrong(below, "the value contains characters that a header must not have")
		}
	}
}

func (f *File) checkAgent(a *Agent) {
	s, path := f.source, "agents."+a.Name
	if err := helix.CheckAgentName(a.Name); err != nil {
		s.wrongKey(path, "%s", because(err))
	}
	f.checkAgentModel(a, path)
	f.checkContext(a, path)
	offered := map[string]bool{}
	for i, name := range a.Tools {
		at := fmt.Sprintf("%s.tools[%d]", path, i)
		switch {
		case f.tool(name) == nil && !f.damaged("tools."+name):
			hint := f.hint(name, f.toolNames())
			if len(f.Tools) == 0 {
				hint = "; define it in the section tools, which the file does not have"
			}
			s.wrong(at, "there is no tool %q%s", name, hint)
		case offered[name]:
			s.wrong(at, "the tool %q is listed twice", name)
		}
		offered[name] = true
	}
	f.checkOpenState(a, path)
	f.checkSkills(a, path+".skills")
	f.checkChildren(a, path)
}

// checkOpenState finds keys that users could set without effect.
func (f *File) checkOpenState(a *Agent, path string) {
	if f.damaged(path + ".state") {
		return
	}
	var state map[string]json.RawMessage
	_ = json.Unmarshal(a.State, &state) // made from a mapping, or empty
	names := slices.Sorted(maps.Keys(state))
	for i, key := range a.OpenState {
		at := fmt.Sprintf("%s.openState[%d]", path, i)
		switch _, ok := state[key]; {
		case len(state) == 0:
			f.source.wrong(at, "the agent has no state")
		case !ok:
			f.source.wrong(at, "there is no key %q in the state%s", key, f.hint(key, names))
		case slices.Index(a.OpenState, key) < i:
			f.source.wrong(at, "the key %q is listed twice", key)
		}
	}
}

// damaged reports whether this very path has a problem: a key that could not be read is not
// reported as missing, too.
func (f *File) damaged(path string) bool { return f.source.noted[path] }

// given reports whether the file has a key, whatever its value.
func (f *File) given(path string) bool { _, ok := f.source.places[path]; return ok }

// missing reports a key that is absent or empty.
func (f *File) missing(path, key, why string) {
	switch below := path + "." + key; {
	case f.damaged(below):
	case f.given(below):
		f.source.wrong(below, "expected a text, found none%s", why)
	default:
		f.source.wrongKey(path, "the key %s is missing%s", key, why)
	}
}

// hint suggests the name that was probably meant, or lists all names.
func (f *File) hint(name string, all []string) string {
	if hint := didYouMean(name, all); hint != "" {
		return hint
	}
	return "; there is " + listed(all)
}

func (f *File) checkAgentModel(a *Agent, path string) {
	if a.Model == "" && f.defaultModel() == nil {
		f.missing(path, "model", ", and there is no model called default")
		return
	}
	f.checkModelName(path+".model", a.Model)
}

// checkModelName checks the name of a model, or a reference in its place.
func (f *File) checkModelName(path, name string) {
	switch {
	case name == "" || f.model(name) != nil || f.damaged("models."+name):
	case isReference(name):
		f.checkReference(path, name)
	default:
		f.source.wrong(path, "there is no model %q%s; a model of a provider is written as in openai/gpt-5", name,
			f.hint(name, slices.Concat(f.modelNames(), []string{Demo, Auto})))
	}
}

// defaultModel returns the model of agents that name none.
func (f *File) defaultModel() *Model {
	if len(f.Models) == 1 {
		return &f.Models[0]
	}
	return f.model("default")
}

func (f *File) checkChildren(a *Agent, path string) {
	s := f.source
	called := map[string]bool{}
	for i := range a.SubAgents {
		f.checkChild(fmt.Sprintf("%s.subAgents[%d]", path, i), a.SubAgents[i].Agent, called)
	}
	for i := range a.Remotes {
		r := &a.Remotes[i]
		at := fmt.Sprintf("%s.remotes[%d]", path, i)
		switch err := helix.CheckAgentName(r.Name); {
		case r.Name == "": // it is missing, which was noted
		case err != nil:
			s.wrong(at+".name", "%s", because(err))
		case !callable.MatchString(r.Name):
			s.wrong(at+".name", "%s", notCallable)
		case called[r.Name]:
			s.wrong(at+".name", "another sub-agent is called %q, too", r.Name)
		}
		called[r.Name] = true
		if r.URL != "" {
			f.checkURL(at+".url", r.URL)
		}
		if r.Agent != "" {
			if err := helix.CheckAgentName(r.Agent); err != nil {
				s.wrong(at+".agent", "%s", because(err))
			}
		}
		if headerBreaks.MatchString(r.Token) {
			s.wrong(at+".token", "the value contains characters that a header must not have")
		}
	}
	live := map[string]bool{}
	for i := range a.Companions {
		f.checkChild(fmt.Sprintf("%s.companions[%d]", path, i), a.Companions[i].Agent, live)
	}
}

// checkRemotes finds names of remotes that stand for something else, too: sessions
// know agents by name, whoever calls them.
func (f *File) checkRemotes() {
	known := map[string]*Remote{}
	for i := range f.Agents {
		a := &f.Agents[i]
		for j := range a.Remotes {
			r := &a.Remotes[j]
			path := fmt.Sprintf("agents.%s.remotes[%d].name", a.Name, j)
			first, ok := known[r.Name]
			_, here := f.Agent(r.Name)
			switch {
			case r.Name == "" || f.damaged(path): // which was noted
			case here:
				f.source.wrong(path, "an agent of this file is called %q, too", r.Name)
			case ok && !first.same(r):
				f.source.wrong(path, "another remote is called %q, too, with another url, agent, token or reach", r.Name)
			}
			if !ok {
				known[r.Name] = r
			}
		}
	}
}

// same reports whether two remotes are one agent, reached in one way.
func (r *Remote) same(other *Remote) bool {
	return r.URL == other.URL && r.Token == other.Token && r.Reach == other.Reach &&
		cmp.Or(r.Agent, r.Name) == cmp.Or(other.Agent, other.Name)
}

// callable is an agent's name that fits into a tool's.
var callable = regexp.MustCompile(`^[A-Za-z0-9_-]{1,50}$`)

const notCallable = "an agent that is called as a tool has a name of up to 50 letters, digits, _ or -"

func (f *File) checkChild(path, name string, seen map[string]bool) {
	at := f.source.place(path + ".agent").value
	switch _, ok := f.Agent(name); {
	case name == "":
	case !ok && !f.damaged("agents."+name):
		f.source.problem(at, path, "there is no agent %q%s", name, f.hint(name, f.agentNames()))
	case seen[name]:
		f.source.problem(at, path, "the agent %q is listed twice", name)
	case !callable.MatchString(name):
		f.source.problem(at, path, "%s", notCallable)
	}
	seen[name] = true
}

// checkCycles finds agents that would call themselves, by way of others.
func (f *File) checkCycles() {
	const open, done = 1, 2
	state := map[string]int{}
	var visit func(a *Agent, trail []string)
	visit = func(a *Agent, trail []string) {
		state[a.Name] = open
		trail = append(trail, a.Name)
		for _, c := range a.calls() {
			next, ok := f.Agent(c.name)
			switch {
			case !ok || state[c.name] == done:
			case state[c.name] == open:
				round := append(slices.Clone(trail[slices.Index(trail, c.name):]), c.name)
				path := "agents." + a.Name + "." + c.path
				f.source.problem(f.source.place(path+".agent").value, path, "the agents call each other in a circle: %s", strings.Join(round, " → "))
			default:
				visit(next, trail)
			}
		}
		state[a.Name] = done
	}
	for i := range f.Agents {
		if state[f.Agents[i].Name] == 0 {
			visit(&f.Agents[i], nil)
		}
	}
}

// called is an agent that another one calls, and the path that says so.
type called struct{ name, path string }

func (a *Agent) calls() []called {
	var out []called
	for i := range a.SubAgents {
		out = append(out, called{a.SubAgents[i].Agent, fmt.Sprintf("subAgents[%d]", i)})
	}
	for i := range a.Companions {
		out = append(out, called{a.Companions[i].Agent, fmt.Sprintf("companions[%d]", i)})
	}
	return out
}

func (f *File) checkURL(path, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		f.source.wrong(path, "expected a web address that begins with http:// or https://")
	case u.User != nil:
		f.source.wrong(path, "the address must not contain a user or password")
	case u.Fragment != "":
		f.source.wrong(path, "the address must not have a part after #")
	}
}
