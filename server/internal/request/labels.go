package request

import "github.com/helixagents/helix/session"

// Tags reads a session's tags, at most limit of them.
func (s *Scanner) Tags(limit int) ([]string, error) {
	var tags []string
	err := s.List(limit, func(int) error {
		tag, err := s.ID()
		if err != nil {
			return err
		}
		tags = append(tags, tag)
		return session.CheckTag(s.Path(), tag)
	})
	return tags, err
}

// Skills reads the names of skills that a message chooses.
func (s *Scanner) Skills() ([]string, error) {
	var names []string
	err := s.List(session.MaxSkills, func(int) error {
		name, err := s.ID()
		if err == nil && !session.IsSkillName(name) {
			err = s.Invalid("%.80q is not the name of a skill", name)
		}
		names = append(names, name)
		return err
	})
	return names, err
}

// Metadata reads a session's metadata, at most limit entries.
func (s *Scanner) Metadata(limit int) (map[string]string, error) {
	var out map[string]string
	err := s.Map(limit, session.MaxMetadataName, func(name string) error {
		value, err := s.text()
		switch {
		case err != nil:
			return err
		case len(value) > session.MaxMetadataValue:
			return s.Invalid("has %d bytes, at most %d are allowed", len(value), session.MaxMetadataValue)
		}
		if err := session.CheckText(s.Path(), name+value); err != nil {
			return err
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
		return nil
	})
	return out, err
}
