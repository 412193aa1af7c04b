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

// DefaultMaxSteps is the step limit of an agent that sets none.
const DefaultMaxSteps = 50

// DefaultModelTimeout bounds a model call of an agent that sets no timeout.
const DefaultModelTimeout = 10 * time.Minute

// Unlimited lifts a limit.
const Unlimited = -1

// Agent defines an agent. It is plain data, checked when it is registered or
// first run, and must not be changed after that.
type Agent struct {
	// Name identifies the agent: sessions record it, and a process recovers only
	// the sessions of agents it knows by name.
	Name        string
	Description string
	// Internal keeps the agent from users: only other agents may call it, and no user can
	// start, resume or branch its sessions.
	Internal bool
	// Instructions is the system prompt; InstructionsFunc makes one from the state
	// at each model call instead.
	Instructions     string
	InstructionsFunc func(ctx context.Context, prompt *Prompt) (string, error)
	// Model answers; ModelFunc chooses one from the state at each model call instead.
	Model     llm.Model
	ModelFunc func(ctx context.Context, prompt *Prompt) (llm.Model, error)
	// Settings are those of every model call; SettingsFunc makes them from the state at
	// each one instead.
	Settings     llm.Settings
	SettingsFunc func(ctx context.Context, prompt *Prompt) (llm.Settings, error)
	Tools        []Tool
	// SubAgents are agents that this one may call as tools.
	SubAgents []SubAgent
	// Companions are agents that live on between calls. They add the companion
	// tools.
	Companions []Companion
	// ModelTimeout bounds one attempt at a model call, which is then tried again.
	// Defaults to 10 minutes; [Unlimited] lifts it.
	ModelTimeout time.Duration
	// State declares typed custom state; see [StateOf].
	State *StateType
	// Output declares a typed result; see [OutputOf]. It adds the tool __finish__.
	Output *OutputType
	// MaxSteps limits the model calls of a turn. Defaults to 50; [Unlimited] lifts
	// it. At the limit an agent with an output type gets one last call in which it
	// can only finish; one without fails with [ErrMaxSteps].
	MaxSteps int
	// SessionExpiry is how long a session may wait for somebody, or stay interrupted,
	// before it is cleaned up: it counts from the end of the session's last run, unless
	// [Input.ExpiresAt] says when. Defaults to never.
	SessionExpiry time.Duration
	// StopWhen, if set, is asked after each step whether the turn is complete.
	StopWhen func(ctx context.Context, step *Step) (bool, error)
	Hooks    Hooks

	named bool // see [Named]
}

// Prompt is what the functions see that make a model call from the state:
// InstructionsFunc, ModelFunc and SettingsFunc.
type Prompt struct {
	Scope
	// MessageCount is the length of the transcript so far.
	MessageCount int
}

// Step is what StopWhen sees: a step that is about to be committed.
type Step struct {
	Scope
	Reply   session.Message
	Results []session.Message
}

var (
	agentName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
	toolName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	// agentToolName is an agent's name that fits into a tool's.
	agentToolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,50}$`)
)

// reservedPrefixes start the names of tools that the framework adds itself.
var reservedPrefixes = []string{CompanionPrefix, SubAgentPrefix, "workspace_"}

var reservedNames = []string{session.FinishTool, "load_skill", "read_skill_file"}

// Check reports what is wrong with the definition, naming agent, tool and field.
func (a *Agent) Check() error {
	if a == nil {
		return session.Invalid("agent", "must not be nil")
	}
	if err := CheckAgentName(a.Name); err != nil {
		return err
	}
	if a.named {
		return session.Invalid("agent "+a.Name, "is a name (helix.Named) where a definition is needed")
	}
	if a.Model == nil && a.ModelFunc == nil {
		return a.invalid("Model", "is not set")
	}
	if a.Model != nil && a.ModelFunc != nil {
		return a.invalid("Model", "is set, and so is ModelFunc: choose one")
	}
	if a.Instructions != "" && a.InstructionsFunc != nil {
		return a.invalid("Instructions", "is set, and so is InstructionsFunc: choose one")
	}
	if a.SessionExpiry < 0 {
		return a.invalid("SessionExpiry", "is negative")
	}
	if a.MaxSteps < Unlimited {
		return a.invalid("MaxSteps", "is %d; use helix.Unlimited for no limit", a.MaxSteps)
	}
	if a.ModelTimeout < Unlimited {
		return a.invalid("ModelTimeout", "is %s; use helix.Unlimited for no limit", a.ModelTimeout)
	}
	if a.State != nil && a.State.err != nil {
		return a.invalid("State", "cannot be used: %v", a.State.err)
	}
	if a.Output != nil && a.Output.err != nil {
		return a.invalid("Output", "cannot be used: %v", a.Output.err)
	}
	if err := a.checkTools(); err != nil {
		return err
	}
	return a.checkChildren()
}

// CheckAgentName reports why a name cannot be an agent's.
func CheckAgentName(name string) error {
	if !agentName.MatchString(name) {
		return session.Invalid("agent name", "%q must be a letter followed by up to 63 letters, digits or _.-", name)
	}
	return nil
}

// CheckToolName reports why a name cannot be a tool's.
func CheckToolName(name string) error {
	switch {
	case !toolName.MatchString(name):
		return session.Invalid("tool name", "%q must be a letter or _ followed by up to 63 letters, digits, _ or -", name)
	case reservedToolName(name):
		return session.Invalid("tool name", "%q is reserved for the framework", name)
	}
	return nil
}

func (a *Agent) checkTools() error {
	seen := map[string]bool{}
	for i := range a.Tools {
		t := &a.Tools[i]
		if err := t.check(a); err != nil {
			return err
		}
		if seen[t.Name] {
			return a.invalid("Tools", "holds %q twice", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

func (a *Agent) invalid(field, format string, args ...any) error {
	return session.Invalid("agent "+a.Name+": "+field, format, args...)
}

// StepLimit is the agent's limit of model calls per turn, or [Unlimited].
func (a *Agent) StepLimit() int {
	if a.MaxSteps == 0 {
		return DefaultMaxSteps
	}
	return a.MaxSteps
}

// ModelCallTimeout is the bound of one attempt at a model call, or 0 for none.
func (a *Agent) ModelCallTimeout() time.Duration { return bound(a.ModelTimeout, DefaultModelTimeout) }

// bound is a limit that is the default when 0 and none, 0, when negative.
func bound(limit, byDefault time.Duration) time.Duration {
	if limit == 0 {
		return byDefault
	}
	return max(limit, 0)
}

// Tool finds a tool by name.
func (a *Agent) Tool(name string) (*Tool, bool) {
	for i := range a.Tools {
		if a.Tools[i].Name == name {
			return &a.Tools[i], true
		}
	}
	return nil, false
}

func reservedToolName(name string) bool {
	for _, prefix := range reservedPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(reservedNames, name)
}
