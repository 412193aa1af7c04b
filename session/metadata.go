package session

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// PatchedMetadata returns the session's metadata with a patch applied, in a new
// map, or nil if no entry remains. If a patch adds entries, the result must
// satisfy [State.Check], so that no series of patches exceeds the limits of a
// document. Stores share this function so that they agree on every case.
func (s *State) PatchedMetadata(patch map[string]*string) (map[string]string, error) {
	out := make(map[string]string, len(s.Metadata)+len(patch))
	maps.Copy(out, s.Metadata)
	for name, value := range patch {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = *value
		}
	}
	if err := CheckMetadata(patch); err != nil {
		return nil, err
	}
	if len(out) > max(len(s.Metadata), MaxMetadata) { // a document above the limit may still be changed
		return nil, Invalid("metadata", "has %d entries, at most %d are allowed", len(out), MaxMetadata)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// CheckPublic returns an error if a caller's message has metadata that only the
// framework writes. Callers may hide a message from people with [MetaHidden], and choose
// skills with [MetaSkills].
func (m *Message) CheckPublic() error {
	for name, value := range m.Metadata {
		switch {
		case name == MetaSkills:
			if err := checkSkills(value); err != nil {
				return err
			}
		case strings.HasPrefix(name, reservedMetadata):
			return Invalid("message metadata", "%q is reserved for the framework", name)
		}
	}
	return nil
}

// MaxSkills is how many skills a message may choose.
const MaxSkills = 16

// Skills returns the names of the skills that the message chooses; see [MetaSkills].
func (m *Message) Skills() []string {
	var names []string
	if raw := m.Metadata[MetaSkills]; raw == nil || json.Unmarshal(raw, &names) != nil {
		return nil
	}
	return names
}

// WithSkills returns a copy of the message that chooses more skills.
func (m Message) WithSkills(names ...string) Message {
	if len(names) == 0 {
		return m
	}
	value, _ := Encode(slices.Concat(m.Skills(), names)) // strings only
	m.Metadata = maps.Clone(m.Metadata)
	if m.Metadata == nil {
		m.Metadata = map[string]json.RawMessage{}
	}
	m.Metadata[MetaSkills] = value
	return m
}

// checkSkills checks the value of [MetaSkills]. The names themselves are those of the
// agent's skills, and the agent tells which ones it does not have.
func checkSkills(value json.RawMessage) error {
	field := "message metadata " + MetaSkills
	var names []string
	if err := json.Unmarshal(value, &names); err != nil {
		return Invalid(field, "is not a list of names")
	}
	if len(names) > MaxSkills {
		return Invalid(field, "has %d names, at most %d are allowed", len(names), MaxSkills)
	}
	for _, name := range names {
		if !IsSkillName(name) {
			return Invalid(field, "has %.80q, which is not the name of a skill", name)
		}
	}
	return nil
}

// IsSkillName reports whether a message may choose a skill of that name: 1 to 64 of the
// letters a to z, digits and hyphens.
func IsSkillName(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// reservedMetadata begins the metadata keys of messages that only the framework
// writes.
const reservedMetadata = "helix"
