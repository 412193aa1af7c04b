package helix

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema is a JSON Schema that can validate.
type Schema struct {
	json     json.RawMessage
	resolved *jsonschema.Resolved
}

// SchemaFor infers the schema of a Go type. Fields without omitempty are
// required, unknown fields are refused, and a `jsonschema:"…"` tag is a field's
// description.
func SchemaFor[T any]() (*Schema, error) {
	if known, ok := schemas.Load(reflect.TypeFor[T]()); ok {
		return known.(*Schema), nil
	}
	inferred, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, fmt.Errorf("infer a JSON schema of %T: %w", *new(T), err)
	}
	schema, err := newSchema(inferred)
	if err == nil {
		schemas.Store(reflect.TypeFor[T](), schema)
	}
	return schema, err
}

// schemas are those of Go types, by type: agents may be made for every request.
var schemas sync.Map

// ParseSchema reads a JSON Schema.
func ParseSchema(raw json.RawMessage) (*Schema, error) {
	var parsed jsonschema.Schema
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return nil, fmt.Errorf("parse a JSON schema: %w", err)
	}
	return newSchema(&parsed)
}

// parseObjectSchema reads a JSON Schema that must describe an object.
func parseObjectSchema(raw json.RawMessage) (*Schema, error) {
	parsed, err := ParseSchema(raw)
	if err == nil && !parsed.IsObject() {
		err = errors.New("the schema must be of type object, so that its fields have names")
	}
	return parsed, err
}

func newSchema(s *jsonschema.Schema) (*Schema, error) {
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("resolve a JSON schema: %w", err)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode a JSON schema: %w", err)
	}
	return &Schema{json: raw, resolved: resolved}, nil
}

// JSON is the schema itself. It must not be changed.
func (s *Schema) JSON() json.RawMessage { return s.json }

// IsObject reports whether the schema describes an object, as a tool's input
// must be.
func (s *Schema) IsObject() bool {
	return s.resolved.Schema().Type == "object" || len(s.resolved.Schema().Properties) > 0
}

// Validate reports how a JSON value breaks the schema, naming the field.
func (s *Schema) Validate(value json.RawMessage) error {
	var instance any
	if err := json.Unmarshal(value, &instance); err != nil {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	if err := s.resolved.Validate(instance); err != nil {
		return fmt.Errorf("%s", fieldOf(err.Error()))
	}
	return nil
}

var (
	validatingPath = regexp.MustCompile(`validating (/\S*|root): `)
	propertyStep   = regexp.MustCompile(`/properties/([^/]+)`)
)

// fieldOf turns the validator's nested "validating /properties/a: validating …"
// into "a: …", which a model and a person understand.
func fieldOf(message string) string {
	var path string
	for {
		loc := validatingPath.FindStringSubmatchIndex(message)
		if len(loc) == 0 || loc[0] != 0 {
			break
		}
		path = message[loc[2]:loc[3]]
		message = message[loc[1]:]
	}
	var fields []string
	for _, step := range propertyStep.FindAllStringSubmatch(path, -1) {
		fields = append(fields, step[1])
	}
	if len(fields) == 0 {
		return message
	}
	return strings.Join(fields, ".") + ": " + message
}
