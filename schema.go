package helix

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema is a JSON Schema that validates values.
type Schema struct {
	json     json.RawMessage
	resolved *jsonschema.Resolved
	shape    *shape // nil if the schema says more than a shape can
	// declared determines the declared arguments when they are first needed, or returns why
	// it cannot. A schema that validates other values than inputs does not need them.
	declared func() (*declared, error)
	// onClient marks the input of a tool that runs on the client, so that a [Callable] around
	// one, which passes its schema on, is one, too.
	onClient bool
}

// SchemaFor infers the schema of a Go type. Fields without omitempty are required, unknown
// fields are refused, and a `jsonschema:"…"` tag describes a field.
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

// schemas caches the schemas of Go types, because an agent may be built for every request.
var schemas sync.Map

// ParseSchema parses a JSON Schema.
func ParseSchema(raw json.RawMessage) (*Schema, error) {
	var parsed jsonschema.Schema
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return nil, fmt.Errorf("parse a JSON schema: %w", err)
	}
	return newSchema(&parsed)
}

// parseObjectSchema parses a JSON Schema that must describe an object.
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
	return &Schema{
		json: raw, resolved: resolved, shape: newShape(s),
		// With a copy, because resolving changes a schema, which others may use by then.
		declared: sync.OnceValues(func() (*declared, error) { return newDeclared(s.CloneSchemas()) }),
	}, nil
}

// JSON returns the schema. The caller must not change it.
func (s *Schema) JSON() json.RawMessage { return s.json }

// IsObject reports whether the schema describes an object, which a tool's input must be.
func (s *Schema) IsObject() bool {
	return s.resolved.Schema().Type == "object" || len(s.resolved.Schema().Properties) > 0
}

// Arguments are the arguments that an input schema declares.
type Arguments struct {
	// Known are all arguments, including those of alternatives. Required are the arguments
	// that every call must have.
	Known, Required []string
	// Open reports whether a call may have other arguments.
	Open bool
}

// Arguments returns the arguments that the schema declares.
func (s *Schema) Arguments() (Arguments, error) {
	declared, err := s.declared()
	if err != nil {
		return Arguments{}, err
	}
	return declared.arguments(), nil
}

// Validate returns an error that names the field if a JSON value does not match the schema.
func (s *Schema) Validate(value json.RawMessage) error {
	if s.shape.recognises(value) {
		return nil
	}
	_, err := s.validate(value)
	return misfit(err)
}

func (s *Schema) validate(value json.RawMessage) (instance any, err error) {
	if err := json.Unmarshal(value, &instance); err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	if err := s.resolved.Validate(instance); err != nil {
		return instance, fmt.Errorf("%s", fieldOf(err.Error()))
	}
	return instance, nil
}

// maxMisfit is how long the text may be that says why a value does not match. The
// validator repeats the value.
const maxMisfit = 1 << 10

// misfit shortens an error and removes what would control a terminal that shows it.
func misfit(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) > maxMisfit {
		text = strings.ToValidUTF8(text[:maxMisfit], "") + "…"
	}
	return errors.New(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, text))
}

// ValidateInput returns an error that names the argument if the input of a call does not
// match the schema. An object whose schema has properties but none of additionalProperties,
// unevaluatedProperties and patternProperties may have no others, at any depth: an argument
// that the schema does not declare is refused.
func (s *Schema) ValidateInput(input json.RawMessage) error {
	declared, err := s.declared()
	if err != nil {
		return err
	}
	if s.shape.recognises(input) {
		return nil
	}
	instance, err := s.validate(input)
	if err != nil && !strings.Contains(err.Error(), "unexpected additional properties") {
		return misfit(err)
	}
	switch names := declared.undeclared(instance); len(names) {
	case 0:
		return misfit(err)
	case 1:
		return fmt.Errorf("undeclared argument %.200q", names[0])
	default:
		for i := range names {
			names[i] = fmt.Sprintf("%.200q", names[i])
		}
		return misfit(fmt.Errorf("undeclared arguments %s", strings.Join(names, ", ")))
	}
}

var (
	validatingPath = regexp.MustCompile(`validating (/\S*|root): `)
	propertyStep   = regexp.MustCompile(`/properties/([^/]+)`)
)

// fieldOf shortens the validator's nested "validating /properties/a: validating …" to "a:
// …".
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
