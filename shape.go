package helix

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// shape is a schema that says only which types values have and which properties an object
// has, as the schemas of most tools do. It recognises a value that matches by reading its
// bytes, which costs no memory. Whether any other value matches, and why not, only the
// schema itself can say.
type shape struct {
	types      []string                 // the types that a value may have
	properties map[string]shapeProperty // of an object; none is recognised with others
	required   uint64                   // the bits of the properties that an object must have
	items      *shape                   // of an array; nil if only an empty array is recognised
}

type shapeProperty struct {
	*shape
	bit uint64 // marks the property as present; 0 if it is not required
}

// newShape returns the shape of a schema, or nil if the schema says more than a shape can.
func newShape(s *jsonschema.Schema) *shape {
	out := &shape{types: s.Types, properties: make(map[string]shapeProperty, len(s.Properties))}
	if s.Type != "" {
		out.types = []string{s.Type}
	}
	if s.Items != nil {
		if out.items = newShape(s.Items); out.items == nil {
			return nil
		}
	}
	for name, property := range s.Properties {
		below := newShape(property)
		if below == nil {
			return nil
		}
		out.properties[name] = shapeProperty{shape: below}
	}
	for i, name := range s.Required {
		property, known := out.properties[name]
		if !known || i == 64 {
			return nil
		}
		property.bit = 1 << i
		out.properties[name], out.required = property, out.required|property.bit
	}
	// What is left must say nothing about values.
	rest := *s
	rest.Type, rest.Types, rest.Items, rest.Properties, rest.Required, rest.PropertyOrder = "", nil, nil, nil, nil, nil
	rest.Title, rest.Description, rest.Comment, rest.Default, rest.Examples = "", "", "", nil, nil
	if !allows(s.AdditionalProperties) {
		rest.AdditionalProperties = nil
	}
	if len(out.types) == 0 || !reflect.ValueOf(rest).IsZero() {
		return nil
	}
	return out
}

// recognises reports whether value certainly matches. A nil shape recognises nothing.
func (s *shape) recognises(value json.RawMessage) bool {
	if s == nil || !json.Valid(value) {
		return false
	}
	r := shapeReader{in: value}
	return r.value(s)
}

func (s *shape) has(name string) bool { return slices.Contains(s.types, name) }

// shapeReader is the position in a value, which is valid JSON.
type shapeReader struct {
	in []byte
	at int
}

// next returns the next byte that is no space, or 0 at the end.
func (r *shapeReader) next() byte {
	for ; r.at < len(r.in); r.at++ {
		switch c := r.in[r.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// value reads a value and reports whether it matches. It stops where one does not.
func (r *shapeReader) value(s *shape) bool {
	switch r.next() {
	case '{':
		return s.has("object") && r.object(s)
	case '[':
		return s.has("array") && r.array(s)
	case '"':
		r.text()
		return s.has("string")
	case 't':
		r.at += len("true")
		return s.has("boolean")
	case 'f':
		r.at += len("false")
		return s.has("boolean")
	case 'n':
		r.at += len("null")
		return s.has("null")
	}
	return r.number(s)
}

// number reads a number. It leaves exponents and long numbers to the schema, which knows
// how they are represented.
func (r *shapeReader) number(s *shape) bool {
	const most = 15
	begin, whole := r.at, true
	for ; r.at < len(r.in); r.at++ {
		c := r.in[r.at]
		if c == 'e' || c == 'E' {
			return false
		}
		if c == '.' {
			whole = false
		} else if c != '-' && (c < '0' || c > '9') {
			break
		}
	}
	return r.at-begin <= most && (s.has("number") || whole && s.has("integer"))
}

// text reads a string and returns what is between its quotes, and whether that has escapes.
func (r *shapeReader) text() (raw []byte, escaped bool) {
	r.at++
	begin := r.at
	for ; r.at < len(r.in) && r.in[r.at] != '"'; r.at++ {
		if r.in[r.at] == '\\' {
			escaped = true
			r.at++
		}
	}
	raw = r.in[begin:r.at]
	r.at++
	return raw, escaped
}

func (r *shapeReader) object(s *shape) bool {
	var present uint64
	for r.at++; r.next() == '"'; {
		name, escaped := r.text()
		property := s.properties[string(name)]
		if escaped || property.shape == nil {
			return false
		}
		present |= property.bit
		r.next() // the colon
		r.at++
		if !r.value(property.shape) {
			return false
		}
		if r.next() == ',' {
			r.at++
		}
	}
	r.at++
	return present == s.required
}

func (r *shapeReader) array(s *shape) bool {
	for r.at++; r.next() != ']'; {
		if s.items == nil || !r.value(s.items) {
			return false
		}
		if r.next() == ',' {
			r.at++
		}
	}
	r.at++
	return true
}
