package helix

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// DefaultMaxSteps is the step limit of an agent whose MaxSteps is 0.
const DefaultMaxSteps = 50

// DefaultModelTimeout is the timeout of an agent whose ModelTimeout is 0.
const DefaultModelTimeout = 10 * time.Minute

// Unlimited disables a limit.
const Unlimited = -1

// Agent defines an agent. It is plain data. A runtime checks it when it is registered or
// first executed; do not change it after that.
type Agent struct {
	// Name identifies the agent. Sessions record it, and a process recovers only sessions
	// whose agent it knows by name.
	Name        string
	Description string
	// Internal hides the agent from users: only other agents may call it, and no user can
	// start, resume or branch its sessions.
	Internal bool
	// Instructions is the system prompt. InstructionsFunc, if set instead, builds the prompt
	// from the state before each model call.
	Instructions     string
	InstructionsFunc func(ctx context.Context, prompt *Prompt) (string, error)
	// Model is the model to call. ModelFunc, if set instead, chooses it from the state
	// before each model call.
	Model     llm.Model
	ModelFunc func(ctx context.Context, prompt *Prompt) (llm.Model, error)
	// Settings apply to every model call. SettingsFunc, if set instead, builds them from the
	// state before each model call.
	Settings     llm.Settings
	SettingsFunc func(ctx context.Context, prompt *Prompt) (llm.Settings, error)
	Tools        []Tool
	// SubAgents are the agents that this agent may call as tools.
	SubAgents []SubAgent
	// Companions are agents whose sessions outlive a call. They add the companion tools.
	Companions []Companion
	// Extensions add instructions, tools and messages when a turn begins, and tasks that
	// follow it. Their instructions follow the agent's own, in this order; put the most
	// stable first, because a change invalidates the provider's prompt cache from there on.
	Extensions []Extension
	// Context keeps the conversation within the model's context window. Sub-agents have their
	// own. Defaults to nil: the model is sent the whole conversation, however long.
	Context *ContextPolicy
	// ModelTimeout limits one attempt of a model call; an attempt that times out is retried.
	// Defaults to 10 minutes; [Unlimited] disables it.
	ModelTimeout time.Duration
	// State declares typed custom state; see [StateOf].
	State *StateType
	// Output declares a typed result; see [OutputOf]. It adds the tool __finish__.
	Output *OutputType
	// MaxSteps limits the model calls of a turn. Defaults to 50; [Unlimited] disables it. At
	// the limit, an agent with an output type gets one last call in which it can only
	// finish; an agent without one fails with [ErrMaxSteps].
	MaxSteps int
	// SessionExpiry is how long a session may wait for an answer, or stay interrupted,
	// before cleanup fails it. It counts from the end of the session's last run, unless
	// [Input.ExpiresAt] is set, and anew from an answer that was accepted. Defaults to never.
	SessionExpiry time.Duration
	// StopWhen, if set, is called after each step and reports whether the turn is complete.
	StopWhen func(ctx context.Context, step *Step) (bool, error)
	Hooks    Hooks

	named bool // see [Named]
}

// Prompt is the argument of InstructionsFunc, ModelFunc and SettingsFunc.
type Prompt struct {
	Scope
	// MessageCount is the length of the transcript so far.
	MessageCount int
}

// Step is the argument of StopWhen: a step that is about to be committed.
type Step struct {
	Scope
	Reply   session.Message
	Results []session.Message
}

var (
	agentName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
	toolName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	// agentToolName matches agent names that can be part of a tool's name.
	agentToolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,50}$`)
)

// Names of tools that the engine adds, and that the framework's own extensions add.
var (
	enginePrefixes    = []string{CompanionPrefix, SubAgentPrefix}
	engineNames       = []string{session.FinishTool, ReadResultTool}
	extensionPrefixes = []string{"workspace_"}
	extensionNames    = []string{"load_skill", "read_skill_file"}
)

// Check returns an error that names the agent, the tool and the field if the definition is
// invalid.
func (a *Agent) Check() error {
	if a == nil {
		return session.Invalid("agent", "must not be nil")
	}
	if err := CheckAgentName(a.Name); err != nil {
		return err
	}
	if a.named {
		return session.Invalid("agent "+a.Name, "is only a name (helix.Named); a definition is required")
	}
	if a.Model == nil && a.ModelFunc == nil {
		return a.invalid("Model", "is not set")
	}
	if a.Model != nil && a.ModelFunc != nil {
		return a.invalid("Model", "and ModelFunc are both set: choose one")
	}
	if a.Instructions != "" && a.InstructionsFunc != nil {
		return a.invalid("Instructions", "and InstructionsFunc are both set: choose one")
	}
	if a.SessionExpiry < 0 {
		return a.invalid("SessionExpiry", "must not be negative")
	}
	if a.MaxSteps < Unlimited {
		return a.invalid("MaxSteps", "is %d; use helix.Unlimited for no limit", a.MaxSteps)
	}
	if a.ModelTimeout < Unlimited {
		return a.invalid("ModelTimeout", "is %s; use helix.Unlimited for no limit", a.ModelTimeout)
	}
	if a.State != nil && a.State.err != nil {
		return a.invalid("State", "is invalid: %v", a.State.err)
	}
	if a.Output != nil && a.Output.err != nil {
		return a.invalid("Output", "is invalid: %v", a.Output.err)
	}
	for _, part := range []func() error{a.checkTools, a.checkChildren, a.checkExtensions, a.checkContext} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// CheckAgentName returns an error if name is not a valid agent name.
func CheckAgentName(name string) error {
	if !agentName.MatchString(name) {
		return session.Invalid("agent name", "%q must be a letter followed by up to 63 letters, digits or _.-", name)
	}
	return nil
}

// CheckToolName returns an error if name is not a valid tool name or is reserved.
func CheckToolName(name string) error { return checkToolName(name, false) }

// checkToolName is [CheckToolName], for a tool of the framework's own extensions if
// framework is set.
func checkToolName(name string, framework bool) error {
	switch {
	case !toolName.MatchString(name):
		return session.Invalid("tool name", "%q must be a letter or _ followed by up to 63 letters, digits, _ or -", name)
	case oneOf(name, enginePrefixes, engineNames), !framework && oneOf(name, extensionPrefixes, extensionNames):
		return session.Invalid("tool name", "%q is reserved for the framework", name)
	}
	return nil
}

func (a *Agent) checkTools() error {
	seen := map[string]bool{}
	for i := range a.Tools {
		t := &a.Tools[i]
		if err := t.check("agent "+a.Name, false); err != nil {
			return err
		}
		if seen[t.Name] {
			return a.invalid("Tools", "contains %q twice", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

func (a *Agent) invalid(field, format string, args ...any) error {
	return session.Invalid("agent "+a.Name+": "+field, format, args...)
}

// oneOf reports whether a name is one of names, or has one of the prefixes.
func oneOf(name string, prefixes, names []string) bool {
	return slices.Contains(names, name) ||
		slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
