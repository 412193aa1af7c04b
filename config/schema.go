package config

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/helixagents/helix"
)

// The keywords of JSON Schema, by the type of their values.
var (
	schemaTypes = []string{"string", "number", "integer", "boolean", "object", "array", "null"}
	// Keywords whose value is a schema, a list of schemas, or a mapping of names to schemas.
	subschema = []string{
		"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else", "unevaluatedProperties",
		"unevaluatedItems", "additionalItems", "contentSchema",
	}
	subschemas = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaMaps = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	numbers    = []string{
		"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	}
	otherKeywords = []string{
		"type", "required", "enum", "const", "default", "examples", "title", "description", "format", "pattern", "uniqueItems",
		"$ref", "$id", "$schema", "$anchor", "$comment", "readOnly", "writeOnly", "deprecated", "dependentRequired",
		"contentEncoding", "contentMediaType",
	}
	keywords = slices.Concat(subschema, subschemas, schemaMaps, numbers, otherKeywords)
)

// schema decodes a JSON Schema of type object.
func (d *decoder) schema(n *yaml.Node, path string, target *Schema) {
	if n.Kind != yaml.MappingNode {
		d.problem(at(n), path, "expected a JSON Schema of type object, found %s", describe(n))
		return
	}
	var out bytes.Buffer
	d.encode(n, path, &out)
	before := len(d.problems) + d.omitted
	d.checkSchema(n, path)
	if len(d.problems)+d.omitted > before {
		return
	}
	parsed, err := helix.ParseSchema(out.Bytes())
	switch {
	case err != nil:
		d.problem(at(n), path, "not a usable JSON Schema: %v", err)
	case !parsed.IsObject():
		d.problem(at(n), path, "expected a JSON Schema of type object, so that its fields have names")
	default:
		*target = out.Bytes()
	}
}

// checkSchema finds unknown keywords and invalid values.
func (d *decoder) checkSchema(n *yaml.Node, path string) {
	d.depth++
	defer func() { d.depth-- }()
	n, ok := d.resolve(n, path)
	if !ok {
		return
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
		return // true matches any value, false none
	}
	if n.Kind != yaml.MappingNode {
		d.problem(at(n), path, "expected a JSON Schema, found %s", describe(n))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		d.checkKeyword(n.Content[i], n.Content[i+1], join(path, n.Content[i].Value))
	}
}

func (d *decoder) checkKeyword(key, value *yaml.Node, path string) {
	value, ok := d.resolve(value, path)
	if !ok {
		return
	}
	kind := func(want yaml.Kind, what string) bool {
		if value.Kind != want {
			d.problem(at(value), path, "expected %s, found %s", what, describe(value))
		}
		return value.Kind == want
	}
	switch word := key.Value; {
	case word == "type":
		d.checkType(value, path)
	case word == "required":
		d.checkTexts(value, path)
	case word == "enum":
		kind(yaml.SequenceNode, "a list")
	case word == "description" || word == "pattern" || word == "format" || word == "$ref":
		kind(yaml.ScalarNode, "a text")
	case slices.Contains(numbers, word):
		if value.Kind != yaml.ScalarNode || value.ShortTag() != "!!int" && value.ShortTag() != "!!float" {
			d.problem(at(value), path, "expected a number, found %s", describe(value))
		}
	case word == "items" && value.Kind == yaml.SequenceNode, slices.Contains(subschemas, word):
		if kind(yaml.SequenceNode, "a list of JSON Schemas") {
			for i, child := range value.Content {
				d.checkSchema(child, fmt.Sprintf("%s[%d]", path, i))
			}
		}
	case slices.Contains(subschema, word):
		d.checkSchema(value, path)
	case slices.Contains(schemaMaps, word):
		if kind(yaml.MappingNode, "a mapping of names to JSON Schemas") {
			for i := 0; i+1 < len(value.Content); i += 2 {
				d.checkSchema(value.Content[i+1], join(path, value.Content[i].Value))
			}
		}
	case !slices.Contains(otherKeywords, word):
		d.problem(at(key), path, "not a keyword of JSON Schema%s", didYouMean(word, keywords))
	}
}

func (d *decoder) checkType(n *yaml.Node, path string) {
	all := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		all = n.Content
	}
	for _, one := range all {
		if one.Kind != yaml.ScalarNode || !slices.Contains(schemaTypes, one.Value) {
			d.problem(at(one), path, "expected %s, found %s%s", listed(schemaTypes), describe(one), didYouMean(one.Value, schemaTypes))
		}
	}
}

func (d *decoder) checkTexts(n *yaml.Node, path string) {
	if n.Kind != yaml.SequenceNode {
		d.problem(at(n), path, "expected a list of names, found %s", describe(n))
		return
	}
	for _, one := range n.Content {
		if one.Kind != yaml.ScalarNode || one.ShortTag() != "!!str" {
			d.problem(at(one), path, "expected a name, found %s", describe(one))
		}
	}
}
