package request

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/helixagents/helix/session"
)

// Scanner reads a JSON text from left to right. Each method reads one value, the
// next one, and moves behind it. A value of null is as good as none: it reads as an
// empty text, an empty list and so on.
//
// A Scanner keeps no memory of what it has read, but for where it is. What its
// methods return is the caller's own, except where they say otherwise.
type Scanner struct {
	data []byte
	at   int
	// path is the path of the current value.
	path []step
	// entries counts the fields and elements that were passed to a decoder.
	entries int
}

// step is a field's name, as it is between its quotes, or an element's index if name is
// nil.
type step struct {
	name  []byte
	index int
}

// NewScanner returns a scanner of data, which must not change while it is used.
func NewScanner(data []byte) *Scanner { return &Scanner{data: data} }

// Within returns a scanner of a part of s, an element of a list field. Its errors use the
// same paths as s.
func (s *Scanner) Within(part []byte, field string, index int) *Scanner {
	return &Scanner{data: part, path: []step{{name: []byte(field)}, {index: index}}}
}

// Entries returns the number of fields and elements that were passed to a decoder so far. A
// refused body has at most one more than its limits allow.
func (s *Scanner) Entries() int { return s.entries }

// maxDepth limits the nesting of values, as in encoding/json.
const maxDepth = 10_000

// Object checks that the body is an object. It reads nothing yet.
func (s *Scanner) Object() error {
	if c, ok := s.peek(); !ok || c != '{' {
		return session.Invalid("body", "must be a JSON object")
	}
	return nil
}

// End returns an error if anything follows the value.
func (s *Scanner) End() error {
	if _, more := s.peek(); more {
		return session.Invalid("body", "has trailing data")
	}
	return nil
}

// Fields reads an object with known fields. It calls read for each field that is present; a
// value that read does not consume is skipped. A duplicate field is refused. An unknown
// field is skipped if open is set, and refused otherwise.
func (s *Scanner) Fields(known []string, open bool, read func(name string) error) error {
	var seen uint64 // by index in known
	return s.object(func(raw []byte, plain bool) error {
		name, err := textOf(raw, plain)
		if err != nil {
			return err
		}
		for i, k := range known {
			if string(name) != k {
				continue
			}
			if seen&(uint64(1)<<i) != 0 {
				return s.Invalid("is given twice")
			}
			seen |= uint64(1) << i
			s.entries++
			return read(k)
		}
		switch {
		case open:
			return nil
		case len(name) == 0:
			s.path = s.path[:len(s.path)-1]
			return s.Invalid("has a field without a name")
		}
		return s.Invalid("is not a field of this request")
	})
}

// Map reads an object with arbitrary names of 1 to maxName bytes. It refuses more than
// limit entries and duplicate names.
func (s *Scanner) Map(limit, maxName int, read func(name string) error) error {
	seen := map[string]bool{}
	count := 0
	return s.object(func(raw []byte, _ bool) error {
		if count++; count > limit {
			s.path = s.path[:len(s.path)-1]
			return s.tooMany(limit)
		}
		s.entries++
		name, err := unquote(raw)
		switch {
		case err != nil:
			return err
		case name == "":
			s.path = s.path[:len(s.path)-1]
			return s.Invalid("has an entry without a name")
		case len(name) > maxName:
			return s.Invalid("has a name of %d bytes, at most %d are allowed", len(name), maxName)
		case seen[name]:
			return s.Invalid("is given twice")
		}
		seen[name] = true
		return read(name)
	})
}

// NoLimit is the limit of a list that is as long as the body allows.
const NoLimit = -1

// List reads a list. It calls read for each element; an element that read does not consume
// is skipped. More than limit elements are refused.
func (s *Scanner) List(limit int, read func(i int) error) error {
	if s.Null() {
		return nil
	}
	if c, ok := s.peek(); !ok || c != '[' {
		return s.mustBe("a list")
	}
	s.at++
	if c, ok := s.peek(); ok && c == ']' {
		s.at++
		return nil
	}
	for i := 0; ; i++ {
		if i == limit {
			return s.tooMany(limit)
		}
		s.path = append(s.path, step{index: i})
		s.entries++
		if err := s.value(func() error { return read(i) }); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
		if done, err := s.next(']'); err != nil || done {
			return err
		}
	}
}

// object calls read with each name of an object, as it is between its quotes, and with
// plain set if it has no escapes.
func (s *Scanner) object(read func(raw []byte, plain bool) error) error {
	if s.Null() {
		return nil
	}
	if c, ok := s.peek(); !ok || c != '{' {
		return s.mustBe("an object")
	}
	s.at++
	if c, ok := s.peek(); ok && c == '}' {
		s.at++
		return nil
	}
	for {
		raw, plain, err := s.name()
		if err != nil {
			return err
		}
		s.path = append(s.path, step{name: raw})
		if err := s.value(func() error { return read(raw, plain) }); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
		if done, err := s.next('}'); err != nil || done {
			return err
		}
	}
}

// value calls read for a value, or skips it.
func (s *Scanner) value(read func() error) error {
	if _, ok := s.peek(); !ok {
		return s.broken("it ends too early")
	}
	before := s.at
	if err := read(); err != nil || s.at > before {
		return err
	}
	return s.Skip()
}

// next moves past a value, to the next one or past the closing bracket.
func (s *Scanner) next(closing byte) (done bool, err error) {
	c, ok := s.peek()
	switch {
	case !ok:
		return false, s.broken("it ends too early")
	case c == closing:
		s.at++
		return true, nil
	case c != ',':
		return false, s.broken("a comma or %q is missing", closing)
	}
	s.at++
	return false, nil
}

// name reads a field's name and the colon after it.
func (s *Scanner) name() (raw []byte, plain bool, err error) {
	if c, ok := s.peek(); !ok || c != '"' {
		return nil, false, s.broken("the name of a field is missing")
	}
	if raw, plain, err = s.quoted(); err != nil {
		return nil, false, err
	}
	if c, ok := s.peek(); !ok || c != ':' {
		return nil, false, s.broken("a colon is missing")
	}
	s.at++
	return raw, plain, nil
}

// Null skips the value if it is null.
func (s *Scanner) Null() bool {
	s.peek()
	if !bytes.HasPrefix(s.data[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// Mark returns the scanner's position, for [Scanner.Rewind].
func (s *Scanner) Mark() int { return s.at }

// Rewind returns to a mark, which must have been set within the same value.
func (s *Scanner) Rewind(mark int) { s.at = mark }

// IsObject reports whether the value is an object, without reading it.
func (s *Scanner) IsObject() bool { c, ok := s.peek(); return ok && c == '{' }

// IsText reports whether the value is a text, without reading it.
func (s *Scanner) IsText() bool { c, ok := s.peek(); return ok && c == '"' }

// IsList is IsText for a list.
func (s *Scanner) IsList() bool { c, ok := s.peek(); return ok && c == '[' }

// Skip moves past any valid value.
func (s *Scanner) Skip() error { return s.skip(NoLimit) }

// skip is Skip for a value that consists of at most limit values.
func (s *Scanner) skip(limit int) (err error) {
	var room [64]byte
	open := room[:0] // open brackets
	for values := 1; ; values++ {
		if limit != NoLimit && values > limit {
			return s.Invalid("has more than %d values", limit)
		}
		c, ok := s.peek()
		switch {
		case !ok:
			return s.broken("it ends too early")
		case c == '{' || c == '[':
			s.at++
			if len(open)+len(s.path) >= maxDepth {
				return s.broken("it is nested too deep")
			}
			if end, ok := s.peek(); ok && end == c+2 { // the closing bracket of both
				s.at++
				break
			}
			open = append(open, c)
			if c == '{' {
				if _, _, err := s.name(); err != nil {
					return err
				}
			}
			continue
		case c == '"':
			_, _, err = s.quoted()
		default:
			err = s.scalar(c)
		}
		if err != nil {
			return err
		}
		if open, err = s.closed(open); err != nil || len(open) == 0 {
			return err
		}
	}
}

// closed moves past a value within open brackets, and closes those that end.
func (s *Scanner) closed(open []byte) ([]byte, error) {
	for len(open) > 0 {
		innermost := open[len(open)-1]
		done, err := s.next(innermost + 2)
		if err != nil {
			return open, err
		}
		if done {
			open = open[:len(open)-1]
			continue
		}
		if innermost == '{' {
			_, _, err = s.name()
		}
		return open, err
	}
	return open, nil
}

// scalar moves past a number, true, false or null.
func (s *Scanner) scalar(first byte) error {
	for _, word := range [...]string{"true", "false", "null"} {
		if first == word[0] {
			if !bytes.HasPrefix(s.data[s.at:], []byte(word)) {
				return s.broken("invalid value")
			}
			s.at += len(word)
			return nil
		}
	}
	return s.number()
}

func (s *Scanner) number() error {
	if s.is('-') {
		s.at++
	}
	switch {
	case s.is('0'):
		s.at++
	case !s.digits():
		return s.broken("invalid value")
	}
	if s.is('.') {
		s.at++
		if !s.digits() {
			return s.broken("a number ends in its point")
		}
	}
	if s.is('e') || s.is('E') {
		s.at++
		if s.is('+') || s.is('-') {
			s.at++
		}
		if !s.digits() {
			return s.broken("a number has no exponent")
		}
	}
	return nil
}

func (s *Scanner) is(c byte) bool { return s.at < len(s.data) && s.data[s.at] == c }

// digits moves past digits and reports whether there are any.
func (s *Scanner) digits() bool {
	from := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}

// quoted moves past a string and returns the bytes between its quotes; plain is set if they
// are ASCII without escapes.
func (s *Scanner) quoted() (raw []byte, plain bool, err error) {
	s.at++
	from := s.at
	plain = true
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return s.data[from : s.at-1], plain, nil
		case c == '\\':
			plain = false
			if err := s.escape(); err != nil {
				return nil, false, err
			}
		case c < ' ':
			return nil, false, s.broken("a text holds a control character")
		default:
			plain = plain && c < utf8.RuneSelf
			s.at++
		}
	}
	return nil, false, s.broken("it ends within a text")
}

// escape moves past an escape.
func (s *Scanner) escape() error {
	if s.at+1 >= len(s.data) {
		return s.broken("it ends within a text")
	}
	c := s.data[s.at+1]
	s.at += 2
	if c != 'u' {
		if strings.IndexByte(`"\/bfnrt`, c) < 0 {
			return s.broken("invalid escape sequence")
		}
		return nil
	}
	if s.at+4 > len(s.data) {
		return s.broken("it ends within a text")
	}
	for _, c := range s.data[s.at : s.at+4] {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return s.broken("invalid escape sequence")
		}
	}
	s.at += 4
	return nil
}

// unquote decodes the valid bytes between quotes.
func unquote(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw), nil
	}
	var text string
	quoted := append(append(append(make([]byte, 0, len(raw)+2), '"'), raw...), '"')
	if err := json.Unmarshal(quoted, &text); err != nil {
		return "", session.Invalid("body", "is not valid JSON: %v", err)
	}
	return text, nil
}

// textOf returns the text of the valid bytes between quotes, without a copy if they are plain.
func textOf(raw []byte, plain bool) ([]byte, error) {
	if plain {
		return raw, nil
	}
	text, err := unquote(raw)
	return []byte(text), err
}

// peek skips white space and returns the next byte.
func (s *Scanner) peek() (byte, bool) {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c, true
		}
	}
	return 0, false
}
