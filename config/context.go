package config

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/models"
	"github.com/helixagents/helix/session"
)

// policy returns what the mapping says, without the model.
func (c *Context) policy() *helix.ContextPolicy {
	return &helix.ContextPolicy{
		TriggerMessages: c.Messages.Int(), TriggerTokens: c.Tokens.Int(), TriggerFraction: float64(c.Fraction),
		KeepMessages: c.Keep, KeepTokens: c.KeepTokens, Prompt: c.Prompt,
		TrimArguments: c.Trim.Arguments.Int(), TrimResults: c.Trim.Results.Int(),
		EvictOver: c.Evict, EvictExcept: c.EvictExcept,
	}
}

// contextKeys are the keys of the fields of a [helix.ContextPolicy], and words for what its
// errors say.
var contextKeys = map[string]string{
	"TriggerMessages": "messages", "TriggerTokens": "tokens", "TriggerFraction": "fraction", "KeepMessages": "keep",
	"KeepTokens": "keepTokens", "Prompt": "prompt", "TrimArguments": "trim.arguments", "TrimResults": "trim.results",
	"EvictOver": "evict", "EvictExcept": "evictExcept",
}

// checkContext checks how an agent's conversation is kept short.
func (f *File) checkContext(a *Agent, path string) {
	if a.Context == nil {
		return
	}
	c := a.Context
	path += ".context"
	f.checkModelName(path+".model", c.Model)
	for _, key := range contextKeys {
		if f.damaged(path + "." + key) { // what follows from a value that was refused says nothing
			return
		}
	}
	for _, key := range []string{".tools", ".subAgents", ".remotes", ".companions"} {
		if f.damaged("agents." + a.Name + key) { // it is not known which tools the agent has
			return
		}
	}
	if !f.checkEvictExcept(a, path) {
		return
	}
	if err := c.policy().Check(); err != nil {
		f.wrongContext(path, err)
		return
	}
	f.checkShare(a, path)
}

// checkShare checks what depends on the window of the model.
func (f *File) checkShare(a *Agent, path string) {
	all := a.Context.policy().WithDefaults()
	if all.TriggerFraction == helix.Unlimited {
		return
	}
	window, fixed := f.window(a)
	switch {
	case window == 0 && fixed && all.TriggerMessages == helix.Unlimited && all.TriggerTokens == helix.Unlimited:
		f.source.wrongKey(path, "nothing would trigger a compaction, because the window of the model is not known: set window of the model or tokens, or fraction: never")
	case window > 0 && float64(all.KeepTokens) >= all.TriggerFraction*float64(window):
		f.source.wrong(path+".keepTokens", "is %d, but the conversation is compacted at %v of the model's window, which has %d tokens: a compaction must keep less than what triggers it",
			all.KeepTokens, all.TriggerFraction, window)
	}
}

// wrongContext reports an error of a policy where the file has what it is about.
func (f *File) wrongContext(path string, err error) {
	refused := session.AsError(err)
	message := refused.Message
	words := []string{"helix.Unlimited", wordNever}
	for field, key := range contextKeys {
		words = append(words, field, key)
	}
	message = strings.NewReplacer(words...).Replace(message)
	at := path + "." + contextKeys[refused.Field]
	for _, key := range []string{contextKeys[refused.Field], "messages", "tokens"} {
		if f.given(path + "." + key) { // not what only has a default
			at = path + "." + key
			break
		}
	}
	f.source.wrong(at, "%s", message)
}

// checkEvictExcept finds names that no tool of the agent has, and reports whether there are
// none.
func (f *File) checkEvictExcept(a *Agent, path string) (fine bool) {
	fine = true
	known := slices.Clone(a.Tools)
	for i := range a.SubAgents {
		known = append(known, helix.SubAgentPrefix+a.SubAgents[i].Agent)
	}
	for i := range a.Remotes {
		known = append(known, helix.SubAgentPrefix+a.Remotes[i].Name)
	}
	if len(a.Companions) > 0 {
		known = append(known, helix.SpawnAgentTool, helix.WaitForResultTool)
	}
	for i, name := range a.Context.EvictExcept {
		at := fmt.Sprintf("%s.evictExcept[%d]", path, i)
		switch {
		case !slices.Contains(known, name):
			f.source.wrong(at, "the agent has no tool %q%s", name, didYouMean(name, known))
		case slices.Index(a.Context.EvictExcept, name) < i:
			f.source.wrong(at, "the tool %q is listed twice", name)
		default:
			continue
		}
		fine = false
	}
	return fine
}

// window returns the context window of an agent's model, or 0: the smallest one that is known
// of it and of its fallbacks, as package router has it. fixed is false if the model is chosen
// only when the file is built.
func (f *File) window(a *Agent) (window int, fixed bool) {
	m, at := f.modelOf(a.Model, "agents."+a.Name+".model")
	if m == nil || f.damaged(at) || f.damaged(at+".model") || f.damaged(at+".window") || f.damaged("agents."+a.Name+".model") {
		return 0, false
	}
	window = m.Window
	if window == 0 {
		window = models.Window(m.Model)
	}
	for _, reference := range m.Fallbacks {
		if other := models.Window(reference); other > 0 && (window == 0 || other < window) {
			window = other
		}
	}
	return window, m.Model != Auto && m.Model != "" && !slices.Contains(m.Fallbacks, Auto)
}

// context builds the policy of an agent.
func (b *builder) context(c *Context, path string) *helix.ContextPolicy {
	out := c.policy()
	if c.Model == "" {
		return out
	}
	definition, at := b.file.modelOf(c.Model, path+".model")
	out.Model = summariser{b.model(definition, at), definition.settings(), definition.Timeout.Std()}
	return out
}

// summariser calls a model with the settings of its definition: requests for summaries have
// none, because those of the agent are for the agent's model.
type summariser struct {
	llm.Model
	settings llm.Settings
	timeout  time.Duration
}

func (s summariser) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	if s.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		ctx = limited
	}
	own := *request
	own.Settings = s.settings
	own.Settings.Cache = llm.Cache{} // the text is read once
	return s.Model.Generate(ctx, &own, emit)
}

// Unwrap implements [llm.Unwrapper].
func (s summariser) Unwrap() llm.Model { return s.Model }

// sized is a model whose context window the file says.
type sized struct {
	llm.Model
	window int
}

// Window implements [llm.Windowed].
func (s sized) Window() int { return s.window }

// Unwrap implements [llm.Unwrapper].
func (s sized) Unwrap() llm.Model { return s.Model }
