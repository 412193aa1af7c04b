package skill

import (
	"fmt"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/helixagents/helix/session"
)

// CheckName returns an error if a name is not one of a skill: 1 to 64 of the letters a to
// z, digits and hyphens, without a hyphen at either end and without two in a row.
func CheckName(name string) error {
	bad := func(format string, args ...any) error {
		return session.Invalid("name", "%.80q "+format, append([]any{name}, args...)...)
	}
	switch {
	case name == "":
		return session.Invalid("name", "is missing")
	case len(name) > MaxName:
		return bad("has %d characters; at most %d are allowed", utf8.RuneCountInString(name), MaxName)
	case strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-"):
		return bad("begins or ends with a hyphen")
	case strings.Contains(name, "--"):
		return bad("has two hyphens in a row")
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return bad("contains %q; a name consists of the letters a to z, digits and hyphens", r)
		}
	}
	return nil
}

// CheckPath returns an error if path is not one of a file within a skill: relative, with
// slashes, and without "." and "..".
func CheckPath(path string) error {
	bad := func(why string) error { return session.Invalid("path", "%.100q %s", path, why) }
	switch {
	case path == "":
		return session.Invalid("path", "is missing")
	case len(path) > MaxPath:
		return bad(fmt.Sprintf("has %d bytes; at most %d are allowed", len(path), MaxPath))
	case !utf8.ValidString(path):
		return bad("is not valid UTF-8")
	case strings.ContainsRune(path, '\\'):
		return bad("contains a backslash; directories are separated by slashes")
	case strings.ContainsFunc(path, unicode.IsControl):
		return bad("contains a control character")
	case path == "." || !fs.ValidPath(path):
		return bad("does not lie within the skill; it must be relative, without . and ..")
	}
	return nil
}

// Check returns an error that names the field if the metadata breaks a rule of the format
// or exceeds a limit.
func (m *Metadata) Check() error {
	if err := CheckName(m.Name); err != nil {
		return err
	}
	if strings.TrimSpace(m.Description) == "" {
		return session.Invalid("description", "is missing; it says what the skill does and when to use it")
	}
	for _, f := range []struct {
		name, text string
		limit      int
	}{
		{"description", m.Description, MaxDescription},
		{"license", m.License, MaxLicense},
		{"compatibility", m.Compatibility, MaxCompatibility},
	} {
		if err := session.CheckText(f.name, f.text); err != nil {
			return err
		}
		if n := utf8.RuneCountInString(f.text); n > f.limit {
			return session.Invalid(f.name, "has %d characters; at most %d are allowed", n, f.limit)
		}
	}
	if err := m.checkTools(); err != nil {
		return err
	}
	return m.checkMetadata()
}

func (m *Metadata) checkTools() error {
	if len(m.AllowedTools) > MaxAllowedTools {
		return session.Invalid("allowed-tools", "lists %d tools; at most %d are allowed", len(m.AllowedTools), MaxAllowedTools)
	}
	for _, tool := range m.AllowedTools {
		if tool == "" || len(tool) > MaxAllowedTool {
			return session.Invalid("allowed-tools", "has %.40q with %d bytes; 1 to %d are allowed", tool, len(tool), MaxAllowedTool)
		}
		if err := session.CheckText("allowed-tools", tool); err != nil {
			return err
		}
	}
	return nil
}

func (m *Metadata) checkMetadata() error {
	if len(m.Metadata) > MaxMetadata {
		return session.Invalid("metadata", "has %d entries; at most %d are allowed", len(m.Metadata), MaxMetadata)
	}
	for key, value := range m.Metadata {
		for _, text := range []string{key, value} {
			if len(text) > MaxMetadataText {
				return session.Invalid("metadata", "has an entry %.40q of %d bytes; at most %d are allowed", key, len(text), MaxMetadataText)
			}
			if err := session.CheckText("metadata", text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Check returns an error if the skill's metadata, body or files are invalid.
func (s *Skill) Check() error {
	if err := s.Metadata.Check(); err != nil {
		return err
	}
	if len(s.Body) > MaxBody {
		return session.Invalid("body", "has %d bytes; at most %d are allowed", len(s.Body), MaxBody)
	}
	if err := session.CheckText("body", s.Body); err != nil {
		return err
	}
	if len(s.Files) > MaxFiles {
		return session.Invalid("files", "are %d; at most %d are allowed", len(s.Files), MaxFiles)
	}
	var total int64
	seen := map[string]bool{}
	for _, f := range s.Files {
		if err := CheckPath(f.Path); err != nil {
			return err
		}
		if f.Path == FileName || seen[f.Path] {
			return session.Invalid("files", "has %q twice; %s is the skill itself", f.Path, FileName)
		}
		seen[f.Path] = true
		total += max(f.Size, int64(len(f.Content)))
	}
	if total > MaxBytes {
		return session.Invalid("files", "have %d bytes together; at most %d are allowed", total, MaxBytes)
	}
	return nil
}

// notFound is the error for a skill that a provider does not have.
func notFound(name string) error {
	return session.ErrNotFound.WithMessage("there is no skill named %.80q", name)
}

// noFile is the error for a file that a skill does not have.
func noFile(name, path string) error {
	return session.ErrNotFound.WithMessage("skill %s has no file %.100q", name, path)
}
