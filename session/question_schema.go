package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp/syntax"
	"slices"
	"strings"
)

// Limits of a question's schema, and of the work that checking an answer may take.
const (
	maxSchemaDepth  = 32
	maxSchemaParts  = 1000 // values: objects, lists, texts, numbers and so on
	maxPatterns     = 16
	maxPattern      = 256  // bytes
	maxPatternSteps = 2000 // of all patterns, about the instructions that they compile to
	maxAnswerEffort = 1_000_000
)

// questionSchema is what the work of checking an answer depends on.
type questionSchema struct {
	parts    int
	patterns int
	steps    int // of the patterns
}

var (
	// refusedKeywords may not occur in a question's schema. References can have no end, or
	// multiply the work, and the others take work that grows faster than the answer does.
	refusedKeywords = []string{
		"$ref", "$dynamicRef", "$recursiveRef", "patternProperties", "contains", "minContains", "maxContains", "uniqueItems",
		"unevaluatedItems", "unevaluatedProperties", "propertyNames", "dependentSchemas", "dependencies",
	}
	namedSchemas = []string{"properties", "$defs", "definitions"} // objects whose keys are no keywords
	plainValues  = []string{"const", "enum", "default", "examples", "dependentRequired"}
)

// schemaPlace is what an object or a list within a schema is.
type schemaPlace int

const (
	placeSchema schemaPlace = iota // a schema, or a list of them
	placeNames                     // schemas by name
	placeValue                     // part of a value
)

// openPart is an object or a list whose end has not been read.
type openPart struct {
	object  bool
	place   schemaPlace
	keyword string // the last key, if its value comes next
	named   bool   // whether a key has been read and its value comes next
}

// below returns what the next value within the part is.
func (o *openPart) below() schemaPlace {
	switch {
	case o.place == placeValue, o.place == placeSchema && isKeyword(plainValues, o.keyword):
		return placeValue
	case o.place == placeSchema && isKeyword(namedSchemas, o.keyword):
		return placeNames
	}
	return placeSchema
}

// isKeyword reports whether a key is one of some keywords for the parser of schemas, which
// ignores case.
func isKeyword(keywords []string, key string) bool {
	return slices.ContainsFunc(keywords, func(keyword string) bool { return strings.EqualFold(keyword, key) })
}

// readQuestionSchema returns an error if parsing the schema, or validating an answer with it,
// could take long or need much memory. The schema may come from another server.
func readQuestionSchema(id string, schema json.RawMessage) (*questionSchema, error) {
	decoder := json.NewDecoder(bytes.NewReader(schema))
	decoder.UseNumber()
	out := &questionSchema{}
	var open []openPart
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, Invalid("schema", "of question %q is not valid JSON: %v", id, err)
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			open = open[:len(open)-1]
			continue
		}
		place := placeSchema
		if len(open) > 0 {
			in := &open[len(open)-1]
			text, isText := token.(string)
			if in.object && !in.named {
				if in.place == placeSchema && isKeyword(refusedKeywords, text) {
					return nil, Invalid("schema", "of question %q must not use %s", id, text)
				}
				in.keyword, in.named = text, true
				continue
			}
			if isText && in.object && in.place == placeSchema && strings.EqualFold(in.keyword, "pattern") {
				if err := out.addPattern(id, text); err != nil {
					return nil, err
				}
			}
			place, in.named = in.below(), false
		}
		if out.parts++; token == json.Delim('{') || token == json.Delim('[') {
			open = append(open, openPart{object: token == json.Delim('{'), place: place})
		}
		if len(open) > maxSchemaDepth || out.parts > maxSchemaParts {
			return nil, ErrTooLarge.WithMessage("the schema of question %s has more than %d levels or %d parts", id, maxSchemaDepth, maxSchemaParts)
		}
	}
}

// addPattern counts a pattern.
func (s *questionSchema) addPattern(id, pattern string) error {
	if s.patterns++; s.patterns > maxPatterns || len(pattern) > maxPattern {
		return ErrTooLarge.WithMessage("the schema of question %s has more than %d patterns, or a pattern of more than %d bytes", id, maxPatterns, maxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl) // does not repeat what the pattern repeats, unlike compiling it
	if err != nil {
		return Invalid("schema", "of question %q has the pattern %q, which is not valid: %v", id, pattern, err)
	}
	if s.steps += patternSteps(parsed); s.steps > maxPatternSteps {
		return ErrTooLarge.WithMessage("the patterns in the schema of question %s have more than %d steps, the pattern %q included", id, maxPatternSteps, pattern)
	}
	return nil
}

// patternSteps estimates how many instructions a pattern compiles to. The parser bounds how
// often patterns repeat, also within each other.
func patternSteps(p *syntax.Regexp) int {
	steps := 1
	switch p.Op {
	case syntax.OpLiteral:
		steps = len(p.Rune)
	case syntax.OpCharClass:
		const ranges = 256 // a class is one instruction, but its ranges need memory, too
		steps += len(p.Rune) / ranges
	}
	for _, below := range p.Sub {
		steps += patternSteps(below)
	}
	if p.Op == syntax.OpRepeat {
		times := p.Max
		if times < 0 { // no limit
			times = p.Min + 1
		}
		steps *= max(times, 1)
	}
	return steps
}

// CheckEffort returns an error if checking the answer against the question's schema could
// take long. The validator may apply each part of the schema to each value of the answer,
// and repeat both in its errors.
func (p *Pending) CheckEffort(answer json.RawMessage) error {
	if p.Schema == nil {
		return nil
	}
	schema, err := readQuestionSchema(p.CallID, p.Schema)
	if err != nil {
		return err
	}
	const (
		text  = 16 // as many bytes count as one part
		value = 4  // applying the schema to a value takes as long as copying more text than that
	)
	values := value*countValues(answer) + len(answer)/text
	if parts := schema.parts + schema.steps + len(p.Schema)/text; values*parts > maxAnswerEffort {
		out := ErrTooLarge.WithMessage("the answer to question %s has too many values or bytes for a schema of this size", p.CallID)
		out.Calls = []string{p.CallID}
		return out
	}
	return nil
}

// countValues returns how many values valid JSON has, and never fewer.
func countValues(raw json.RawMessage) int {
	values, quoted := 1, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '[' || c == '{'):
			values++
		}
	}
	return values
}
