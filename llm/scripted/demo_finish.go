package scripted

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// shape is the part of a JSON Schema that is needed to make a matching value.
type shape struct {
	Type       any               `json:"type"`
	Properties map[string]*shape `json:"properties"`
	Required   []string          `json:"required"`
	Items      *shape            `json:"items"`
	Enum       []any             `json:"enum"`
	Minimum    *float64          `json:"minimum"`
	Maximum    *float64          `json:"maximum"`
}

// maxShape limits the depth of a value.
const maxShape = 8

// fitting makes a value that matches a schema from the user's words.
func fitting(schema json.RawMessage, words string) any {
	var s shape
	if json.Unmarshal(schema, &s) != nil {
		return map[string]any{}
	}
	return s.value("", strings.TrimSpace(words), 0)
}

var (
	firstNumber = regexp.MustCompile(`-?\d+(\.\d+)?`)
	email       = regexp.MustCompile(`[\w.+-]+@[\w-]+(\.[\w-]+)+`)
	sentence    = regexp.MustCompile(`^[^.!?\n]+`)
	longWord    = regexp.MustCompile(`\pL{5,}`)
	pressing    = regexp.MustCompile(`(?i)\b(urgent(ly)?|asap|immediately|now|emergency)\b`)
)

// value makes a value for a field with the given name.
func (s *shape) value(name, words string, depth int) any {
	if s == nil || depth > maxShape {
		return nil
	}
	if len(s.Enum) > 0 {
		return chosen(s.Enum, words)
	}
	switch s.kind() {
	case "object":
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
			out[key] = s.Properties[key].value(key, words, depth+1)
		}
		return out
	case "array":
		if s.Items == nil || s.Items.kind() != "string" || len(s.Items.Enum) > 0 {
			return []any{s.Items.value(name, words, depth+1)}
		}
		return topics(words)
	case "boolean":
		return pressing.MatchString(words) || strings.Contains(strings.ToLower(words), strings.ToLower(name))
	case "integer", "number":
		return s.number(words)
	case "null":
		return nil
	}
	return aboutField(name, words)
}

// kind returns the schema's type, or the first of several.
func (s *shape) kind() string {
	switch kind := s.Type.(type) {
	case string:
		return kind
	case []any:
		if len(kind) > 0 {
			first, _ := kind[0].(string)
			return first
		}
	}
	if len(s.Properties) > 0 {
		return "object"
	}
	return "string"
}

// number returns the first number in the words, or the number of words, within the schema's
// bounds.
func (s *shape) number(words string) float64 {
	n := float64(len(strings.Fields(words)))
	if found, err := strconv.ParseFloat(firstNumber.FindString(words), 64); err == nil {
		n = found
	}
	if s.kind() == "integer" {
		n = float64(int64(n))
	}
	if s.Minimum != nil {
		n = max(n, *s.Minimum)
	}
	if s.Maximum != nil {
		n = min(n, *s.Maximum)
	}
	return n
}

// chosen returns the option that the words name, or the first.
func chosen(options []any, words string) any {
	for _, option := range options {
		if text, ok := option.(string); ok && strings.Contains(strings.ToLower(words), strings.ToLower(text)) {
			return option
		}
	}
	if i := slices.Index(options, any("high")); i >= 0 && pressing.MatchString(words) {
		return options[i]
	}
	return options[0]
}

// topics returns the first few longer words.
func topics(words string) []string {
	out := []string{}
	for _, word := range longWord.FindAllString(strings.ToLower(words), -1) {
		if !slices.Contains(out, word) && len(out) < 4 {
			out = append(out, word)
		}
	}
	return out
}

// aboutField returns a text for a field with the given name.
func aboutField(name, words string) string {
	switch strings.ToLower(name) {
	case "email":
		return email.FindString(words)
	case "subject", "title", "name":
		return strings.TrimSpace(sentence.FindString(words))
	}
	return words
}
