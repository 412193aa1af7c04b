package skills

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
)

// maxActivated is how many bytes of skills one message loads. The others are named.
const maxActivated = 160 << 10

// Activate returns a user's message that chooses skills: they are loaded before the agent
// replies to it. A message may choose up to 16.
func Activate(m session.Message, names ...string) session.Message { return m.WithSkills(names...) }

// Prepare implements [helix.Preparer]: it adds the skills that the user's messages choose.
func (x *Extension) Prepare(ctx context.Context, turn *helix.Turn) ([]session.Message, error) {
	var names []string
	for i := range turn.Input {
		for _, name := range turn.Input[i].Skills() {
			if !slices.Contains(names, name) && len(names) < session.MaxSkills {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	scope := scopeOf(&turn.Scope)
	o, err := x.offered(ctx, scope, false, prepareLimit)
	missing := "does not exist"
	if err != nil {
		missing = unreadable
	}
	if o == nil {
		o = &offer{}
	}
	room := maxActivated
	var out []session.Message
	for _, name := range names {
		text, loaded := x.activated(ctx, o, turn, name, missing, &room)
		m := session.UserText(text)
		if loaded {
			value, _ := session.Encode(name) // a string
			m.Metadata = map[string]json.RawMessage{session.MetaSkill: value}
			access.EmitOwn(&turn.Scope, LoadedEvent, Loaded{name})
		}
		out = append(out, m)
	}
	return out, nil
}

// unreadable is what the model is told about a skill that is there, or may be.
const unreadable = "cannot be loaded at the moment"

// activated returns what the model is told about a skill that the user chose, and whether
// that is its content. missing is what it is told about one that is not offered.
func (x *Extension) activated(ctx context.Context, o *offer, turn *helix.Turn, name, missing string, room *int) (text string, loaded bool) {
	failed := func(why string) (string, bool) {
		return fmt.Sprintf("The user chose the skill %q, which %s. Tell the user so.", name, why), false
	}
	if !o.lists(name) {
		return failed(missing)
	}
	s, err := x.fetch(ctx, scopeOf(&turn.Scope), name)
	switch {
	case isNotFound(err):
		return failed("does not exist")
	case err != nil:
		x.cfg.Logger.WarnContext(ctx, "skill.failed", "skill", name, "error", err)
		return failed(unreadable)
	}
	if where, ok := o.has(turn.View, s); ok {
		return fmt.Sprintf("The user chose the skill %s. Its instructions are %s: follow them.", name, where), false
	}
	if shortened(turn.View, s, turn.RunID) { // a summary would cut it again and again
		return fmt.Sprintf("The user chose the skill %s. Its instructions are not complete any more. Call %s if you need all of them.", name, LoadTool), false
	}
	content := x.content(s)
	if len(content) > *room {
		return fmt.Sprintf("The user chose the skill %s. Call %s to load it.", name, LoadTool), false
	}
	*room -= len(content)
	return "The user chose this skill. Follow its instructions.\n\n" + content, true
}
