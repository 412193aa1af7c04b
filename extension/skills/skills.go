// Package skills gives an agent skills: instructions that it reads when a task needs them.
// The agent's own instructions have a catalogue with the name and description of each
// skill; the tool load_skill returns the instructions of one, and read_skill_file a file
// that they refer to.
//
// What was loaded is part of the conversation, as the result of a call: it survives a crash
// and a restart, a branch has it, and a rewind undoes it. The catalogue does not say what
// was loaded, so loading a skill leaves the beginning of the prompt, which providers cache,
// as it was.
package skills

import (
	"context"
	"log/slog"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/stream"
)

// Policy says what the tools that a skill lists mean. None lets an agent call a tool that it
// does not have, or without an approval that the tool needs.
type Policy int

// The policies.
const (
	// Tell tells the model which tools the skill is made for.
	Tell Policy = iota
	// Restrict refuses calls of other tools while a skill that lists tools is loaded: from the
	// call that loads it until the next message of the user, also if the call finds that it
	// was loaded before. If several are loaded, the tools of all count. Which tools the model
	// is offered does not change.
	Restrict
)

// Names of the tools.
const (
	LoadTool = skill.LoadTool
	ReadTool = skill.ReadTool
)

// LoadedEvent is the name of the custom event that tells the readers of the stream that a
// skill was loaded; its data is a [Loaded].
const LoadedEvent = stream.SkillLoadedName

// Loaded is the data of a [LoadedEvent].
type Loaded struct {
	Name string `json:"name"`
}

// Limits of what an agent is given.
const (
	// MaxOffered is how many skills an agent is offered. The others are left out with a
	// warning.
	MaxOffered = 500
	// MaxPreload is how many bytes the skills have together that are part of the instructions.
	// Those that do not fit are left out with a warning, and can be loaded.
	MaxPreload = 128 << 10
)

// Config configures the extension.
type Config struct {
	// Provider has the skills. It is asked on behalf of the session's tenant and user and of
	// the agent.
	Provider skill.Provider
	// Preload are the names of skills that are part of the agent's instructions from the start.
	// Names that the provider does not have are left out with a warning.
	Preload []string
	// AllowedTools says what the tools that a skill lists mean. Defaults to Tell.
	AllowedTools Policy
	// MaxBody is how many bytes of a skill's instructions are loaded. The rest can be read
	// with read_skill_file. Defaults to 64 KiB.
	MaxBody int
	// MaxFile is how many bytes one call of read_skill_file returns. Defaults to 256 KiB.
	MaxFile int
	// Logger receives what is wrong with skills, with the places on the machine, which the
	// users of the agent are not told. Defaults to none.
	Logger *slog.Logger
}

// Extension is a [helix.Extension] that gives an agent skills.
type Extension struct {
	access.Framework
	cfg Config

	mu sync.Mutex
	// known is what was last listed for a scope, in case the provider is away, and offers what
	// was made of it. Many scopes have the same.
	known  map[skill.Scope]string
	offers map[string]*offer
	logged map[string]bool // problems
}

var (
	_ helix.Extension  = (*Extension)(nil)
	_ helix.Preparer   = (*Extension)(nil)
	_ helix.Preserver  = (*Extension)(nil)
	_ helix.Gate       = (*Extension)(nil)
	_ helix.ToolFinder = (*Extension)(nil)
	_ helix.ToolLister = (*Extension)(nil)
	_ skill.Lister     = (*Extension)(nil)
)

// New returns an extension for an agent. Sub-agents do not inherit it.
func New(cfg Config) *Extension {
	if cfg.Provider == nil {
		cfg.Provider = skill.Static()
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 64 << 10
	}
	if cfg.MaxFile <= 0 {
		cfg.MaxFile = 256 << 10
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Extension{cfg: cfg, known: map[skill.Scope]string{}, offers: map[string]*offer{}, logged: map[string]bool{}}
}

// extensionName is the name of the extension, under which summaries keep its text.
const extensionName = "skills"

// Name implements [helix.Extension].
func (x *Extension) Name() string { return extensionName }

// Skills implements [skill.Lister]: the skills that the agent has for a scope.
func (x *Extension) Skills(ctx context.Context, scope skill.Scope) ([]skill.Metadata, error) {
	list, _, err := x.list(ctx, scope)
	if err != nil && ctx.Err() == nil { // who asks need not know where the skills are
		x.cfg.Logger.WarnContext(ctx, "skill.failed", "error", err)
		err = session.ErrUnavailable.WithMessage("the skills cannot be listed at the moment")
	}
	return list, err
}

// scopeOf returns on whose behalf the provider is asked.
func scopeOf(s *helix.Scope) skill.Scope {
	return skill.Scope{Tenant: s.Tenant, UserID: s.UserID, Agent: s.Agent}
}

// FindTool implements [helix.ToolFinder].
func (x *Extension) FindTool(_ context.Context, name string) (*helix.Tool, bool) {
	for _, tool := range x.tools(&offer{}) {
		if tool.Name == name {
			return &tool, true
		}
	}
	return nil, false
}

// ListTools implements [helix.ToolLister]. Which skills there are depends on who asks, so
// the tools do not name them.
func (x *Extension) ListTools(context.Context) []helix.Tool { return x.tools(&offer{}) }

// tools returns the tools for an offer.
func (x *Extension) tools(o *offer) []helix.Tool { return []helix.Tool{x.loadTool(o), x.readTool(o)} }
