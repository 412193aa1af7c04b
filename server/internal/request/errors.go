package request

import (
	"fmt"
	"strings"

	"github.com/helixagents/helix/session"
)

// maxPathName limits how much of a field's name an error repeats.
const maxPathName = 80

// Path returns the path of the current value: message[0].parts[3].url.
func (s *Scanner) Path() string {
	if len(s.path) == 0 {
		return "body"
	}
	var b strings.Builder
	for _, p := range s.path {
		if p.name == nil {
			fmt.Fprintf(&b, "[%d]", p.index)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(shorten(p.name))
	}
	return b.String()
}

// shorten returns a name for an error.
func shorten(raw []byte) string {
	if len(raw) > maxPathName {
		return strings.ToValidUTF8(string(raw[:maxPathName]), "") + "…"
	}
	text, err := unquote(raw)
	if err != nil {
		return strings.ToValidUTF8(string(raw), "")
	}
	return text
}

// Invalid returns a validation error about the current value.
func (s *Scanner) Invalid(format string, args ...any) *session.Error {
	return session.Invalid(s.Path(), format, args...)
}

// At is Invalid for a field of the current object.
func (s *Scanner) At(field, format string, args ...any) *session.Error {
	if len(s.path) > 0 {
		field = s.Path() + "." + field
	}
	return session.Invalid(field, format, args...)
}

func (s *Scanner) tooMany(limit int) error {
	return s.Invalid("has more than %d entries", limit)
}

func (s *Scanner) tooLarge(size, limit int) error {
	path := s.Path()
	out := session.ErrTooLarge.WithMessage("%s has %d bytes, at most %d are allowed", path, size, limit)
	out.Field = path
	return out
}

// mustBe reports a value of the wrong kind.
func (s *Scanner) mustBe(what string) error {
	c, ok := s.peek()
	var kind string
	switch {
	case !ok:
		return s.broken("it ends too early")
	case c == '{':
		kind = "an object"
	case c == '[':
		kind = "a list"
	case c == '"':
		kind = "a string"
	case c == 't' || c == 'f':
		kind = "true or false"
	case c == '-' || c >= '0' && c <= '9':
		kind = "a number"
	default:
		return s.broken("invalid value")
	}
	return s.Invalid("must be %s, not %s", what, kind)
}

// broken reports a syntax error.
func (s *Scanner) broken(format string, args ...any) error {
	return session.Invalid("body", "is not valid JSON: %s, at byte %d", fmt.Sprintf(format, args...), s.at)
}
