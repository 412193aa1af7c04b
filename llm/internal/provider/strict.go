package provider

import (
	"encoding/json"
	"slices"
)

// Strict describes the schemas that a provider can enforce. A tool with any other schema is
// sent as a plain one, because every provider would refuse the request.
type Strict struct {
	// Keywords are the keywords of JSON Schema that are supported.
	Keywords []string
	// Formats are the formats of strings that are supported; nil means any.
	Formats []string
	// AllRequired says that no property may be optional.
	AllRequired bool
}

// Fits reports whether a tool's schema can be enforced.
func (s *Strict) Fits(schema json.RawMessage) bool {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil || root["type"] != "object" {
		return false
	}
	return s.fits(root)
}

func (s *Strict) fits(schema map[string]any) bool {
	for name, value := range schema {
		if !slices.Contains(s.Keywords, name) {
			return false
		}
		switch name {
		case "properties", "$defs":
			set, ok := value.(map[string]any)
			if !ok {
				return false
			}
			for _, sub := range set {
				if !s.fitsAny(sub) {
					return false
				}
			}
		case "items":
			if !s.fitsAny(value) {
				return false
			}
		case "anyOf", "allOf":
			list, ok := value.([]any)
			if !ok {
				return false
			}
			for _, sub := range list {
				if !s.fitsAny(sub) {
					return false
				}
			}
		case "format":
			if format, ok := value.(string); !ok || s.Formats != nil && !slices.Contains(s.Formats, format) {
				return false
			}
		}
	}
	return !isObject(schema) || s.closed(schema)
}

func (s *Strict) fitsAny(value any) bool {
	schema, ok := value.(map[string]any) // true, which allows anything, cannot be enforced
	return ok && len(schema) > 0 && s.fits(schema)
}

// isObject reports whether a schema's type is, or may be, an object.
func isObject(schema map[string]any) bool {
	switch kind := schema["type"].(type) {
	case string:
		return kind == "object"
	case []any:
		for _, k := range kind {
			if k == "object" {
				return true
			}
		}
	}
	return false
}

// closed reports whether an object has no properties but those listed.
func (s *Strict) closed(schema map[string]any) bool {
	if schema["additionalProperties"] != false {
		return false
	}
	if !s.AllRequired {
		return true
	}
	required, _ := schema["required"].([]any)
	properties, _ := schema["properties"].(map[string]any)
	return len(required) == len(properties) // a required one that is not listed would be refused anyway
}
