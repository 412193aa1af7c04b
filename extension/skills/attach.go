package skills

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// Bounds of what is remembered. What does not fit is made again.
const (
	maxKnown  = 4096
	maxOffers = 64
)

// maxWarnings is how many warnings an attachment has at most.
const maxWarnings = 16

// offer is what an agent is offered of a list of skills. It never changes.
type offer struct {
	list []skill.Metadata
	// preloaded has the digests of the skills that are part of the instructions.
	preloaded    map[string]string
	instructions string
	tools        []helix.Tool
	warnings     []string
	// partial says that a skill could not be preloaded as it was listed, so that the next turn
	// must try again.
	partial bool
}

// Attach implements [helix.Extension]. If the provider is away, the agent is offered what it
// was offered last, with a warning.
func (x *Extension) Attach(ctx context.Context, turn *helix.Turn) (*helix.Attachment, error) {
	scope := scopeOf(&turn.Scope)
	o, err := x.offered(ctx, scope, false, attachLimit)
	if o == nil {
		return nil, fmt.Errorf("list the skills: %w", err)
	}
	var warnings []string
	if err != nil {
		warnings = append(warnings, "The skills could not be listed. Those that were known before are offered.")
	}
	warnings = append(warnings, o.warnings...)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, problemsLimit)
		defer cancel()
		for _, p := range skill.Problems(limited, x.cfg.Provider, scope) {
			warnings = append(warnings, x.warning(ctx, p))
		}
	}
	if n := len(warnings); n > maxWarnings {
		warnings = append(warnings[:maxWarnings-1:maxWarnings-1], fmt.Sprintf("There are %d further warnings.", n-maxWarnings+1))
	}
	if len(o.list) == 0 {
		return &helix.Attachment{Warnings: warnings}, nil
	}
	return &helix.Attachment{Instructions: o.instructions, Tools: o.tools, Warnings: warnings}, nil
}

// list returns the skills that a provider lists for a scope, sorted, without those that are
// invalid, and says what is wrong with these.
func (x *Extension) list(ctx context.Context, scope skill.Scope) (list []skill.Metadata, warnings []string, err error) {
	given, err := x.cfg.Provider.List(ctx, scope)
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for i := range given {
		m := &given[i]
		switch err := m.Check(); {
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("A skill is left out: %v.", err))
		case seen[m.Name]:
			warnings = append(warnings, fmt.Sprintf("The skill %s is listed twice; the first one counts.", m.Name))
		default:
			seen[m.Name] = true
			list = append(list, *m)
		}
	}
	slices.SortFunc(list, func(a, b skill.Metadata) int { return cmp.Compare(a.Name, b.Name) })
	if n := len(list); n > MaxOffered {
		list = list[:MaxOffered:MaxOffered]
		warnings = append(warnings, fmt.Sprintf("There are %d skills; the first %d by name are offered.", n, MaxOffered))
	}
	return list, warnings, nil
}

// fetch loads a skill, checked, and with a digest.
func (x *Extension) fetch(ctx context.Context, scope skill.Scope, name string) (*skill.Skill, error) {
	if skill.CheckName(name) != nil {
		return nil, noSkill(name)
	}
	s, err := x.cfg.Provider.Load(ctx, scope, name)
	switch {
	case err != nil:
		return nil, err
	case s == nil || s.Name != name:
		return nil, noSkill(name)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if s.Digest == "" {
		own := *s
		own.Digest = skill.Digest([]skill.FileSum{skill.Sum(skill.FileName, false, []byte(s.Body))})
		s = &own
	}
	return s, nil
}

// noSkill is the error for a skill that does not exist.
func noSkill(name string) error {
	return session.ErrNotFound.WithMessage("there is no skill named %.80q", name)
}

// How long a provider may take to list its skills. The framework gives an extension a little
// more time: what was known before is of use only if it is returned in time.
const (
	attachLimit = 6 * time.Second
	// problemsLimit is how long a provider may take to say what is wrong with its skills.
	problemsLimit = time.Second
	prepareLimit  = time.Second
	checkLimit    = 3 * time.Second
)

// offered returns what the agent is offered. If the provider is away, it returns the error
// and what the agent was offered last, or nil.
func (x *Extension) offered(ctx context.Context, scope skill.Scope, again bool, limit time.Duration) (*offer, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o, err := x.offer(ctx, scope, again)
	if err != nil {
		return x.lastKnown(scope), err
	}
	return o, nil
}

// offer lists the skills of a scope and returns what the agent is offered of them. Within a
// turn, what the turn began with can be used again.
func (x *Extension) offer(ctx context.Context, scope skill.Scope, again bool) (*offer, error) {
	list, warnings, err := x.list(ctx, scope)
	if err != nil {
		return nil, err
	}
	// Without digests nothing says whether equal entries have equal instructions: those of a
	// scope may differ from those of another, and from those of an hour ago.
	identified := !slices.ContainsFunc(list, func(m skill.Metadata) bool { return m.Digest == "" })
	of := scope
	if identified {
		of = skill.Scope{}
	}
	key, err := keyOf(of, list, warnings)
	if err != nil {
		return nil, err
	}
	var o *offer
	if identified || again {
		x.mu.Lock()
		o = x.offers[key]
		x.mu.Unlock()
	}
	if o == nil {
		o = x.newOffer(ctx, scope, list, warnings)
	}
	if o.partial {
		return o, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.known[scope]; !ok && len(x.known) >= maxKnown {
		clear(x.known)
	}
	if _, ok := x.offers[key]; !ok && len(x.offers) >= maxOffers {
		clear(x.offers)
	}
	x.known[scope], x.offers[key] = key, o
	return o, nil
}

// keyOf identifies a list of skills.
func keyOf(scope skill.Scope, list []skill.Metadata, warnings []string) (string, error) {
	raw, err := json.Marshal([]any{scope, list, warnings})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// lastKnown returns what a scope was offered last, or nil.
func (x *Extension) lastKnown(scope skill.Scope) *offer {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.offers[x.known[scope]]
}

// lists reports whether a skill is one of those that are offered.
func (o *offer) lists(name string) bool {
	return slices.ContainsFunc(o.list, func(m skill.Metadata) bool { return m.Name == name })
}

// digest returns the digest with which a skill was listed.
func (o *offer) digest(name string) string {
	for i := range o.list {
		if o.list[i].Name == name {
			return o.list[i].Digest
		}
	}
	return ""
}

// newOffer makes the instructions and tools for a list of skills.
func (x *Extension) newOffer(ctx context.Context, scope skill.Scope, list []skill.Metadata, warnings []string) *offer {
	o := &offer{list: list, preloaded: map[string]string{}, warnings: warnings}
	warn := func(format string, args ...any) { o.warnings = append(o.warnings, fmt.Sprintf(format, args...)) }
	var active strings.Builder
	for _, name := range x.preload() {
		if !o.lists(name) {
			warn("The skill %q is to be preloaded, but does not exist.", name)
			continue
		}
		s, err := x.fetch(ctx, scope, name)
		if err != nil {
			warn("The skill %s could not be preloaded.", name)
			o.partial = true
			continue
		}
		text := x.content(s)
		if active.Len()+len(text) > MaxPreload {
			warn("The skill %s is not preloaded: more than %d bytes would be.", name, MaxPreload)
			continue
		}
		active.WriteString("\n\n" + text)
		o.preloaded[name] = s.Digest
		// If it was edited since it was listed, the offer is not that of the list.
		if listed := o.digest(name); listed != "" && listed != s.Digest {
			o.partial = true
		}
	}
	catalogue, undescribed := skill.Catalogue(o.list, slices.Collect(maps.Keys(o.preloaded))...)
	if undescribed > 0 {
		warn("The descriptions of %d skills are left out: all together are too long.", undescribed)
	}
	o.instructions = catalogue
	if active.Len() > 0 {
		o.instructions += "\n\n### Active Skills\n\nThese skills are loaded. Follow them where they apply." + active.String()
	}
	o.tools = x.tools(o)
	return o
}

// preload returns the names of skills to preload, sorted and each once.
func (x *Extension) preload() []string {
	names := slices.Clone(x.cfg.Preload)
	slices.Sort(names)
	return slices.Compact(names)
}
