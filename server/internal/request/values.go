package request

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/helixagents/helix/session"
)

// ID reads an id of at most [session.MaxIDBytes].
func (s *Scanner) ID() (string, error) {
	text, err := s.text()
	if err == nil && len(text) > session.MaxIDBytes {
		err = s.Invalid("has %d bytes, at most %d are allowed", len(text), session.MaxIDBytes)
	}
	return text, err
}

// Text reads a string of at most limit bytes; a longer one is [session.ErrTooLarge].
func (s *Scanner) Text(limit int) (string, error) {
	text, err := s.text()
	if err == nil && len(text) > limit {
		err = s.tooLarge(len(text), limit)
	}
	return text, err
}

// AnyText reads a string of any length.
func (s *Scanner) AnyText() (string, error) { return s.text() }

func (s *Scanner) text() (string, error) {
	if s.Null() {
		return "", nil
	}
	if c, ok := s.peek(); !ok || c != '"' {
		return "", s.mustBe("a string")
	}
	raw, plain, err := s.quoted()
	if err != nil {
		return "", err
	}
	if plain {
		return string(raw), nil
	}
	return unquote(raw)
}

// Word reads a string for comparison, without a copy if possible. Any other value reads as
// nil.
func (s *Scanner) Word() ([]byte, error) {
	if !s.IsText() {
		return nil, s.Skip()
	}
	raw, plain, err := s.quoted()
	if err != nil {
		return nil, err
	}
	return textOf(raw, plain)
}

// Bool reads true or false.
func (s *Scanner) Bool() (bool, error) {
	if s.Null() {
		return false, nil
	}
	for _, value := range []bool{true, false} {
		if word := strconv.FormatBool(value); bytes.HasPrefix(s.data[s.at:], []byte(word)) {
			s.at += len(word)
			return value, nil
		}
	}
	return false, s.mustBe("true or false")
}

// Int reads a whole number.
func (s *Scanner) Int() (int, error) {
	c, ok := s.peek()
	if !ok || c != '-' && (c < '0' || c > '9') {
		return 0, s.mustBe("a whole number")
	}
	raw, err := s.Span()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0, s.Invalid("must be a whole number, not %.40s", raw)
	}
	return n, nil
}

// Time reads a time that every store can represent.
func (s *Scanner) Time() (time.Time, error) {
	var t time.Time
	if s.Null() {
		return t, nil
	}
	text, err := s.ID()
	if err != nil {
		return t, err
	}
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return t, s.Invalid("%.40q is not a time such as 2006-01-02T15:04:05Z", text)
	}
	return t, session.CheckTime(s.Path(), t)
}

// Raw reads any value as JSON of at most limit bytes; a longer one is
// [session.ErrTooLarge].
func (s *Scanner) Raw(limit int) (json.RawMessage, error) { return s.Bounded(limit, NoLimit) }

// AnyRaw is Raw for a value of any length.
func (s *Scanner) AnyRaw() (json.RawMessage, error) { return s.Bounded(len(s.data), NoLimit) }

// Bounded is Raw for JSON that is decoded later: it has at most this many values, at any
// depth, because each takes memory when it is decoded.
func (s *Scanner) Bounded(limit, values int) (json.RawMessage, error) {
	s.peek()
	from := s.at
	err := s.skip(values)
	raw := s.data[from:s.at]
	switch {
	case err != nil:
		return nil, err
	case len(raw) > limit:
		return nil, s.tooLarge(len(raw), limit)
	case !utf8.Valid(raw):
		return nil, s.Invalid("is not valid UTF-8")
	}
	return bytes.Clone(raw), nil
}

// Span reads any value and returns it as a slice of the body.
func (s *Scanner) Span() ([]byte, error) {
	s.peek()
	from := s.at
	err := s.Skip()
	return s.data[from:s.at], err
}
