package aisdk

import (
	"encoding/json"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/stream"
)

// showSkill emits a data part for a committed message with the content of a skill, as the
// event does while the run is under way.
func (e *Encoder) showSkill(m *session.Message) {
	name := loadedSkill(m)
	if name == "" {
		return
	}
	e.endText()
	e.data(Chunk{Type: DataPrefix + stream.SkillLoadedName, ID: m.ID, Data: encoded(map[string]string{"name": name})})
}

// loadedSkill returns the name of the skill whose content a message has, if it has one.
func loadedSkill(m *session.Message) string {
	var name string
	switch {
	case m.Role == session.RoleUser && m.Hidden():
		if json.Unmarshal(m.Metadata[session.MetaSkill], &name) != nil {
			return ""
		}
	case m.Role == session.RoleTool && len(m.Parts) == 1 && m.Parts[0].Tool == skill.LoadTool:
		name = skill.ContentName(m.Parts[0].Text)
	}
	return name
}
