package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/models"
	"github.com/helixagents/helix/session"
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
	offered := map[string]bool{}
	for i, name := range a.Tools {
		at := fmt.Sprintf("%s.tools[%d]", path, i)
		switch {
		case f.tool(name) == nil && !f.damaged("tools."+name):
			s.wrong(at, "there is no tool %q%s", name, f.hint(name, f.toolNames()))
		case offered[name]:
			s.wrong(at, "the tool %q is listed twice", name)
		}
		offered[name] = true
	}
	f.checkOpenState(a, path)
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
	switch {
	case a.Model == "" && f.defaultModel() == nil:
		f.missing(path, "model", ", and there is no model called default")
	case a.Model == "" || f.model(a.Model) != nil || f.damaged("models."+a.Model):
	case isReference(a.Model):
		f.checkReference(path+".model", a.Model)
	default:
		f.source.wrong(path+".model", "there is no model %q%s", a.Model, f.hint(a.Model, slices.Concat(f.modelNames(), []string{Demo, Auto})))
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

func (f *File) checkServer() {
	s := f.source
	f.checkHostPort("server.addr", f.Server.Addr, "127.0.0.1:4170")
	if f.Server.AllowUnauthenticated && len(f.Server.Tokens) > 0 {
		s.wrong("server.allowUnauthenticated", "the file also has tokens: choose one")
	}
	seen := map[string]bool{}
	for i, token := range f.Server.Tokens {
		path := fmt.Sprintf("server.tokens[%d]", i)
		switch {
		case token.Token == "": // which was noted
		case len(token.Token) < minToken:
			s.wrong(path+".token", "expected a token of at least %d characters", minToken)
		case strings.ContainsFunc(token.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
			s.wrong(path+".token", "a token has only visible ASCII characters")
		case seen[token.Token]:
			s.wrong(path+".token", "the token is given twice")
		}
		seen[token.Token] = true
		if token.User == "" && !token.Operator {
			f.missing(path, "user", ": only an operator's token may omit it")
		}
		f.checkID(path+".user", token.User)
		f.checkID(path+".tenant", token.Tenant)
	}
	for i, host := range f.Server.Hosts {
		if err := CheckHost(host); err != nil {
			s.wrong(fmt.Sprintf("server.hosts[%d]", i), "%v", err)
		}
	}
	if l := &f.Server.Limits; l.Buffered > 0 && l.Buffered < cmp.Or(l.Body, defaultBody) {
		s.wrong("server.limits.buffered", "expected at least the size of one body, which is %d", cmp.Or(l.Body, defaultBody))
	}
	for i, origin := range f.Server.CORS {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host != origin {
			s.wrong(fmt.Sprintf("server.cors[%d]", i), "expected an origin such as https://app.example.com")
		}
	}
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?$`)

// CheckHost returns an error if a text is not a valid host name of a server.
func CheckHost(host string) error {
	if host != "*" && net.ParseIP(host) == nil && !hostName.MatchString(host) {
		return errors.New("expected a name or an address without a port, such as agents.example.com, or * for any")
	}
	return nil
}

// minInterval is the shortest lease and cleanup interval.
const minInterval = time.Second

// defaultBody is the default maximum size of a request body, in bytes.
const defaultBody = 4 << 20

// minToken is the minimum length of a bearer token.
const minToken = 16

// checkHostPort checks an address, if it is set.
func (f *File) checkHostPort(path, address, example string) {
	if address == "" {
		return
	}
	if _, port, err := net.SplitHostPort(address); err != nil || !isPort(port) {
		f.source.wrong(path, "expected host:port, such as %s", example)
	}
}

func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0 && n <= 65535
}

func (f *File) checkID(path, id string) {
	if id == "" {
		return
	}
	if err := session.CheckID(id); err != nil {
		f.source.wrong(path, "%s", because(err))
	}
}

// checkAddress checks the scheme of a store's address.
func (f *File) checkAddress(path, address string) {
	scheme, _, ok := strings.Cut(address, "://")
	if ok && !slices.Contains([]string{"postgres", "postgresql", "redis", "rediss", "sqlite"}, scheme) {
		f.source.wrong(path, "expected a path or an address that begins with sqlite:, postgres://, redis:// or memory:")
	}
}

// because returns an error's message without its code.
func because(err error) string { return session.AsError(err).Message }

func (f *File) checkRuntime() {
	// gRPC also accepts an address with a resolver.
	f.checkHostPort("runtime.temporal.address", strings.TrimPrefix(f.Runtime.Temporal.Address, "dns:///"), "127.0.0.1:7233")
	d, path := &f.Runtime.DBOS, "runtime.dbos"
	if d.Database != "" && !slices.Contains([]string{"postgres", "postgresql", "sqlite"}, scheme(d.Database)) {
		f.source.wrong(path+".database", "expected an address that begins with postgres:// or sqlite:")
	}
	if d.Prefix != "" && !dbosPrefix.MatchString(d.Prefix) {
		f.source.wrong(path+".prefix", "expected 3 to 64 lower-case letters, digits, dashes and underscores")
	}
	q := d.Queue
	switch {
	case q == nil:
	case q.Concurrency > 0 && q.WorkerConcurrency > q.Concurrency:
		f.source.wrong(path+".queue.workerConcurrency", "expected no more than concurrency, which is %d", q.Concurrency)
	case q.RatePeriod != 0 && q.RateLimit == 0 && !f.damaged(path+".queue.rateLimit"):
		f.source.wrong(path+".queue.ratePeriod", "expected a rateLimit, too")
	}
}

// dbosPrefix matches what DBOS accepts as the name of an application.
var dbosPrefix = regexp.MustCompile(`^[a-z0-9_-]{3,64}$`)

func scheme(address string) string {
	before, _, _ := strings.Cut(address, ":")
	return before
}

func (f *File) checkTool(t *Tool) {
	s, path := f.source, "tools."+t.Name
	if err := helix.CheckToolName(t.Name); err != nil {
		s.wrongKey(path, "%s", because(err))
	}
	f.checkKeys(t, path)
	switch t.Type {
	case typeHTTP:
		f.checkHTTP(t, path)
	case typeBuiltin:
		if t.Builtin == "" {
			f.missing(path, "builtin", ": the name of the builtin tool")
		}
	}
	f.checkMentions(t, path)
	if t.ReadOnly != nil && *t.ReadOnly && t.Idempotent != nil && *t.Idempotent {
		s.wrong(path+".idempotent", "a readOnly tool has no side effect to repeat; choose one")
	}
	waits := t.Type == typeClient || t.Approval != "" && t.Approval != approveNever || t.Builtin == "forget" && t.Approval == ""
	if !waits && t.Approvers != "" {
		s.wrong(path+".approvers", "calls of the tool never wait: it has no approval and is not of type client")
	}
	if !waits && t.Deadline != 0 {
		s.wrong(path+".deadline", "calls of the tool never wait; use timeout to limit a request")
	}
}

// checkMentions finds arguments in expressions that no call can have or that have the wrong
// type: the expression would always fail.
func (f *File) checkMentions(t *Tool, path string) {
	has := f.arguments(t, path)
	if has == nil || t.Type == typeBuiltin {
		return
	}
	for policy, expression := range map[string]Expression{"approval": t.Approval, "approvers": t.Approvers} {
		if expression == "" || expression == approveAlways || expression == approveNever || f.damaged(path+"."+policy) {
			continue
		}
		if _, err := compile(policy, string(expression), t.Input); err != nil {
			f.source.wrong(path+"."+policy, "the expression does not match the input: %v", err)
		}
		for _, name := range mentions(policy, string(expression)) {
			if !has.Open && !slices.Contains(has.Known, name) {
				f.source.wrong(path+"."+policy, "there is no argument %q in the input%s", name, f.hint(name, has.Known))
			}
		}
	}
}

// The types of tools.
const (
	typeHTTP    = "http"
	typeClient  = "client"
	typeBuiltin = "builtin"
)

// only lists the keys that only some types of tools have.
var only = map[string][]string{
	"method": {typeHTTP}, "url": {typeHTTP}, "headers": {typeHTTP}, "body": {typeHTTP}, "timeout": {typeHTTP}, "retries": {typeHTTP},
	"maxResponse": {typeHTTP}, "allowPrivate": {typeHTTP}, "builtin": {typeBuiltin}, "input": {typeHTTP, typeClient},
	"readOnly": {typeHTTP}, "idempotent": {typeHTTP}, "approval": {typeHTTP, typeBuiltin},
}

func (f *File) checkKeys(t *Tool, path string) {
	if t.Type == "" || !slices.Contains([]string{typeHTTP, typeClient, typeBuiltin}, t.Type) {
		return
	}
	for key, types := range only {
		if f.given(path+"."+key) && !slices.Contains(types, t.Type) {
			f.source.wrongKey(path+"."+key, "a tool of type %s does not have this key; only %s does", t.Type, listed(types))
		}
	}
}

func (f *File) checkHTTP(t *Tool, path string) {
	s := f.source
	f.checkHeaders(path, t.Headers)
	if t.URL == "" {
		f.missing(path, "url", "")
	} else {
		f.checkTemplate(t, path)
	}
	if !t.mayRepeat() && t.Retries != nil && *t.Retries > 0 {
		s.wrong(path+".retries", "only a tool that is readOnly or idempotent may be retried")
	}
	if t.Method == http.MethodGet || t.Method == http.MethodHead || t.Method == "" {
		if t.Body != nil {
			s.wrongKey(path+".body", "a request with the method %s has no body", t.method())
		}
	}
	arguments := f.arguments(t, path)
	for _, name := range placeholders(string(t.Body)) {
		switch {
		case isIdentity(name):
			f.checkIdentity(path+".body", name)
		case arguments != nil && !slices.Contains(arguments.Known, name):
			s.wrong(path+".body", "there is no argument %q in the input%s", name, f.hint(name, arguments.Known))
		}
	}
	for header, value := range t.Headers {
		for _, name := range placeholders(value) {
			if isIdentity(name) {
				f.checkIdentity(path+".headers."+header, name)
			}
		}
	}
}

// checkIdentity checks the name of a placeholder that the server fills in.
func (f *File) checkIdentity(path, name string) {
	if !slices.Contains(identities, name) {
		f.source.wrong(path, "there is no {%s}%s", name, f.hint(name, identities))
	}
}

// checkTemplate checks an address with arguments. They must be required, and none may
// choose the server.
func (f *File) checkTemplate(t *Tool, path string) {
	s := f.source
	before := len(s.problems)
	f.checkURL(path+".url", placeholder.ReplaceAllString(t.URL, "x"))
	if len(s.problems) > before {
		return
	}
	authority, _, _ := strings.Cut(strings.SplitN(t.URL, "://", 2)[1], "/")
	authority, _, _ = strings.Cut(authority, "?")
	if placeholder.MatchString(authority) {
		s.wrong(path+".url", "an argument must not choose the server: it may only be in the path or the query")
	}
	fixed := queryNames(t.URL)
	if slices.ContainsFunc(fixed, placeholder.MatchString) {
		s.wrong(path+".url", "an argument must not choose the name of a parameter: it may only be its value")
	}
	arguments := f.arguments(t, path)
	if arguments == nil {
		return // the input is invalid, which was reported
	}
	used := placeholders(t.URL)
	for _, name := range used {
		switch {
		case isIdentity(name):
			f.checkIdentity(path+".url", name)
		case !slices.Contains(arguments.Known, name):
			s.wrong(path+".url", "there is no argument %q in the input%s", name, f.hint(name, arguments.Known))
		case !slices.Contains(arguments.Required, name):
			s.wrong(path+".url", "the argument %q must be required by the input", name)
		}
	}
	for _, name := range arguments.Known {
		if t.inQuery() && !slices.Contains(used, name) && inNames(fixed, name) {
			s.wrong(path+".url", "the query would contain the parameter %q twice: from the address and from the arguments", name)
		}
	}
}

// arguments returns the arguments that the tool's input declares, or nil if they cannot be
// determined.
func (f *File) arguments(t *Tool, path string) *helix.Arguments {
	if t.Input == nil {
		if f.given(path + ".input") {
			return nil // invalid, which was reported
		}
		return &helix.Arguments{}
	}
	schema, err := helix.ParseSchema(json.RawMessage(t.Input))
	if err != nil {
		return nil // which was reported
	}
	out, err := schema.Arguments()
	if err != nil {
		if !f.damaged(path + ".input") {
			f.source.wrong(path+".input", "not a usable JSON Schema: %v", err)
		}
		return nil
	}
	return &out
}
