package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// FormatVersion is the version of the persisted JSON. Additions do not change
// it: unknown fields survive a round trip through an older program.
const FormatVersion = 1

// Extra holds the fields of a persisted document that this version of the
// program does not know. They are written back as they were read.
type Extra map[string]json.RawMessage

// Encode returns v's persisted JSON. Unlike [json.Marshal] it does not escape
// HTML, so that stored text is the text that was sent.
func Encode(v any) ([]byte, error) {
	if m, ok := v.(interface {
		AppendJSON(b []byte) ([]byte, error)
	}); ok {
		return m.AppendJSON(nil)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}), nil
}

// Decode reads a persisted document into v. A document that cannot be decoded is
// reported as [ErrCorrupt] with what as its name.
func Decode(what string, data []byte, v any) error {
	decode := func() error { return json.Unmarshal(data, v) }
	if u, ok := v.(json.Unmarshaler); ok { // saves a pass over data
		decode = func() error { return u.UnmarshalJSON(data) }
	}
	if err := decode(); err != nil {
		return ErrCorrupt.WithCause(err, "%s cannot be decoded", what)
	}
	return nil
}

// encodeWithExtra encodes doc, a struct without a MarshalJSON of its own, and
// adds the unknown fields it was read with.
func encodeWithExtra(doc any, extra Extra) ([]byte, error) {
	out, err := Encode(doc)
	if err != nil || len(extra) == 0 {
		return out, err
	}
	out = out[:len(out)-1] // the closing brace
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = AppendString(out, name)
		out = append(out, ':')
		out = append(out, extra[name]...)
	}
	return append(out, '}'), nil
}

// decodeWithExtra decodes data into doc, a pointer to a struct without an
// UnmarshalJSON of its own, and returns the fields that doc does not have.
func decodeWithExtra(data []byte, doc any) (Extra, error) {
	if err := json.Unmarshal(data, doc); err != nil {
		return nil, err
	}
	known := fieldNames(reflect.TypeOf(doc).Elem())
	if !hasUnknown(data, known, nil) {
		return nil, nil
	}
	var all Extra
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	// encoding/json matches names without regard to case, so a field that matched a
	// known one must not count as unknown.
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
		for field := range known {
			if strings.EqualFold(field, name) {
				return true
			}
		}
		return false
	})
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

var fieldNameCache sync.Map // reflect.Type → map[string]bool

func fieldNames(t reflect.Type) map[string]bool {
	if names, ok := fieldNameCache.Load(t); ok {
		return names.(map[string]bool)
	}
	names := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names[name] = true
		}
	}
	fieldNameCache.Store(t, names)
	return names
}

// hasUnknown reports whether the JSON object in data, known to be valid, has a
// top-level key that is not in known, or, if third is set, a key three levels down
// that is not in third: the objects of a list under a top-level key. It avoids the
// second decoding that collecting unknown fields needs, because nearly no document
// has any.
func hasUnknown(data []byte, known, third map[string]bool) bool {
	depth, expectKey := 0, false
	inList := false // whether depth 2 is a list; the objects in another object have names of their own
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{':
			depth++
			inList = inList && depth != 2
			expectKey = depth == 1 || (depth == 3 && inList && third != nil)
		case '[':
			depth++
			inList = inList || depth == 2
			expectKey = false
		case '}', ']':
			depth--
			expectKey = false
		case ',':
			expectKey = depth == 1 || (depth == 3 && inList && third != nil)
		case '"':
			end := stringEnd(data, i)
			if expectKey {
				names := known
				if depth == 3 {
					names = third
				}
				if !names[string(data[i+1:end])] {
					return true
				}
				expectKey = false
			}
			i = end
		}
	}
	return false
}

// stringEnd returns the index of the quote that closes the string opened at i.
func stringEnd(data []byte, i int) int {
	for start := i + 1; ; {
		n := bytes.IndexByte(data[start:], '"')
		if n < 0 {
			return len(data) - 1
		}
		end := start + n
		escapes := 0
		for data[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end
		}
		start = end + 1
	}
}

// checkFormat refuses a document whose format this program cannot read.
func checkFormat(what string, v int) error {
	if v > FormatVersion {
		return ErrCorrupt.WithMessage("%s has format version %d; this program reads up to %d", what, v, FormatVersion)
	}
	return nil
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string, escaping only what JSON requires.
func AppendString(b []byte, s string) []byte {
	if plain(s) {
		b = append(slices.Grow(b, len(s)+2), '"')
		return append(append(b, s...), '"')
	}
	b = append(b, '"')
	start := 0
	for i, r := range s {
		var esc string
		switch {
		case r == '"':
			esc = `\"`
		case r == '\\':
			esc = `\\`
		case r == '\n':
			esc = `\n`
		case r == '\r':
			esc = `\r`
		case r == '\t':
			esc = `\t`
		case r < ' ':
			esc = `\u00` + string(hexDigits[r>>4]) + string(hexDigits[r&15])
		case r == '\uFFFD' && !strings.HasPrefix(s[i:], "\uFFFD"):
			// An invalid byte is written as json.Marshal writes it.
			b = append(append(b, s[start:i]...), "\uFFFD"...)
			start = i + 1
			continue
		default:
			continue
		}
		b = append(append(b, s[start:i]...), esc...)
		start = i + 1
	}
	return append(append(b, s[start:]...), '"')
}

// ValidJSON is [json.Valid]. It is much faster for a string with nothing to escape,
// which most results of tools are.
func ValidJSON(value []byte) bool {
	if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' && plain(value[1:n-1]) {
		return true
	}
	return json.Valid(value)
}

// plain reports whether s is ASCII with nothing to escape, as most strings are. It
// looks at eight bytes at a time, because every stored text passes through it.
func plain[T ~string | ~[]byte](s T) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		// The subtraction sets the top bit of each byte that is zero or below the bound. A
		// byte whose top bit was set before is not ASCII.
		quote, backslash := w^(ones*'"'), w^(ones*'\\')
		if (w|(w-ones*' ')|(quote-ones)|(backslash-ones))&tops != 0 {
			return false
		}
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// appendRaw appends a JSON value byte for byte, without surrounding space, after
// checking that it is valid.
func appendRaw(b []byte, field string, raw json.RawMessage) ([]byte, error) {
	if !ValidJSON(raw) {
		return nil, fmt.Errorf("%s is not valid JSON", field)
	}
	return append(b, bytes.Trim(raw, " \t\r\n")...), nil
}
