package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ambiguity is a place in valid JSON that programs read in different ways. If an
// object has a key twice, some programs use the first value and some the last; half
// of a surrogate pair means whatever the parser makes of it. What a policy judges and
// a person approves could then differ from what the tool gets.
type ambiguity struct {
	path []string // from the innermost step outwards
	what string
}

func (a *ambiguity) Error() string {
	var path strings.Builder
	for _, step := range slices.Backward(a.path) {
		if path.Len() > 0 && !strings.HasPrefix(step, "[") {
			path.WriteByte('.')
		}
		path.WriteString(step)
	}
	if len(a.path) == 0 {
		return "it " + a.what
	}
	return fmt.Sprintf("the argument %.200q %s", path.String(), a.what)
}

// within adds the step that leads to the value which contains the place.
func (a *ambiguity) within(step string) *ambiguity {
	a.path = append(a.path, step)
	return a
}

// ambiguous returns the first ambiguity of a value, which must be valid JSON. It
// builds no values: it reads the bytes once and keeps the keys of the objects that
// are open.
func ambiguous(value []byte) error {
	s := scan{in: value}
	if found := s.value(); found != nil {
		return found
	}
	return nil
}

// scan is the position of a pass over a value.
type scan struct {
	in   []byte
	at   int
	keys [][]byte // of the objects that are open, the innermost last
}

// fewKeys is up to how many keys of an object are compared one by one.
const fewKeys = 16

// next returns the next byte that is no space, or 0 at the end.
func (s *scan) next() byte {
	for ; s.at < len(s.in); s.at++ {
		switch s.in[s.at] {
		case ' ', '\t', '\r', '\n':
		default:
			return s.in[s.at]
		}
	}
	return 0
}

func (s *scan) value() *ambiguity {
	switch s.next() {
	case '{':
		return s.object()
	case '[':
		return s.array()
	case '"':
		if _, _, whole := s.text(); !whole {
			return &ambiguity{what: "holds half of a surrogate pair"}
		}
		return nil
	}
	for ; s.at < len(s.in); s.at++ { // a number, true, false or null
		switch s.in[s.at] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return nil
		}
	}
	return nil
}

func (s *scan) object() *ambiguity {
	s.at++
	first := len(s.keys)
	var many map[string]bool // the keys, where there are more than a few
	for s.next() == '"' {
		key, whole := s.key()
		if !whole {
			return &ambiguity{what: "has a key with half of a surrogate pair"}
		}
		if many == nil && len(s.keys)-first == fewKeys {
			many = make(map[string]bool, 4*fewKeys)
			for _, known := range s.keys[first:] {
				many[string(known)] = true
			}
		}
		switch {
		case many != nil && many[string(key)], many == nil && contains(s.keys[first:], key):
			return (&ambiguity{what: "is given twice"}).within(string(key))
		case many != nil:
			many[string(key)] = true
		default:
			s.keys = append(s.keys, key)
		}
		s.next() // the colon
		s.at++
		if found := s.value(); found != nil {
			return found.within(string(key))
		}
		if s.next() == ',' {
			s.at++
		}
	}
	s.at++
	s.keys = s.keys[:first]
	return nil
}

func contains(keys [][]byte, key []byte) bool {
	for _, known := range keys {
		if bytes.Equal(known, key) {
			return true
		}
	}
	return false
}

func (s *scan) array() *ambiguity {
	s.at++
	for i := 0; s.at < len(s.in); i++ {
		if s.next() == ']' {
			break
		}
		if found := s.value(); found != nil {
			return found.within("[" + strconv.Itoa(i) + "]")
		}
		if s.next() == ',' {
			s.at++
		}
	}
	s.at++
	return nil
}

// key reads a key and returns it with its escapes decoded.
func (s *scan) key() (key []byte, whole bool) {
	raw, escaped, whole := s.text()
	if !escaped || !whole {
		return raw[1 : len(raw)-1], whole
	}
	var decoded string
	_ = json.Unmarshal(raw, &decoded) // it is part of valid JSON
	return []byte(decoded), true
}

// text reads a string. It returns the string as it is written, whether it has
// escapes, and whether all its surrogate pairs are complete.
func (s *scan) text() (raw []byte, escaped, whole bool) {
	begin := s.at
	whole = true
	for s.at++; s.at < len(s.in) && s.in[s.at] != '"'; s.at++ {
		if s.in[s.at] != '\\' {
			continue
		}
		escaped = true
		s.at++
		if s.at < len(s.in) && s.in[s.at] == 'u' {
			whole = s.codePoint() && whole
		}
	}
	s.at = min(s.at+1, len(s.in))
	return s.in[begin:s.at], escaped, whole
}

// codePoint skips a \u escape, and the low surrogate after a high one. It reports false
// for an unpaired surrogate.
func (s *scan) codePoint() bool {
	unit := s.unit()
	switch {
	case unit < 0xD800 || unit > 0xDFFF:
		return true
	case unit > 0xDBFF || !bytes.HasPrefix(s.in[min(s.at+1, len(s.in)):], []byte(`\u`)):
		return false
	}
	s.at += 2
	low := s.unit()
	return low >= 0xDC00 && low <= 0xDFFF
}

// unit reads the four digits after the u at the scan's position, and moves to the
// last.
func (s *scan) unit() uint64 {
	digits := s.in[min(s.at+1, len(s.in)):min(s.at+5, len(s.in))]
	s.at = min(s.at+4, len(s.in)-1)
	unit, _ := strconv.ParseUint(string(digits), 16, 32) // valid JSON has four
	return unit
}
