package helix

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// declared determines which arguments a schema declares. JSON Schema allows properties that
// a schema does not mention. For a tool's input they are refused: no policy checks them,
// but the service that receives them might use them.
//
// All schemas that apply to an object count together: the schema itself and the ones that
// it is composed of ($ref, allOf, the alternatives that match, and so on). An object whose
// schemas name no properties is a map with arbitrary keys. A schema that explicitly allows
// others (additionalProperties, unevaluatedProperties, patternProperties) is respected.
type declared struct {
	root     *jsonschema.Schema
	draft7   bool // draft 7 ignores everything beside a $ref
	refs     map[*jsonschema.Schema]*jsonschema.Schema
	fits     map[*jsonschema.Schema]*jsonschema.Resolved // the alternatives, to determine which one matches
	patterns map[string]*regexp.Regexp
}

// maxNamed bounds how many undeclared arguments an error names.
const maxNamed = 8

func newDeclared(root *jsonschema.Schema) (*declared, error) {
	d := &declared{
		root:     root,
		draft7:   strings.Contains(root.Schema, "json-schema.org/draft-07/"),
		refs:     map[*jsonschema.Schema]*jsonschema.Schema{},
		fits:     map[*jsonschema.Schema]*jsonschema.Resolved{},
		patterns: map[string]*regexp.Regexp{},
	}
	index := &schemaIndex{places: map[string]*jsonschema.Schema{}, bases: map[*jsonschema.Schema]*url.URL{}, draft7: d.draft7}
	if err := index.add(root, &url.URL{}, "", ""); err != nil {
		return nil, err
	}
	for s, base := range index.bases {
		if s.DynamicRef != "" {
			return nil, errors.New("$dynamicRef is not supported in the schema of an input")
		}
		if s.Ref != "" {
			ref, err := base.Parse(s.Ref)
			if err != nil {
				return nil, fmt.Errorf("$ref %q: %w", s.Ref, err)
			}
			if d.refs[s] = index.places[place(ref, ref.Fragment)]; d.refs[s] == nil {
				return nil, fmt.Errorf("$ref %q does not resolve within the schema", s.Ref)
			}
		}
		for pattern := range s.PatternProperties {
			compiled, err := regexp.Compile(pattern)
			if err != nil {
				return nil, fmt.Errorf("patternProperties: %w", err)
			}
			d.patterns[pattern] = compiled
		}
	}
	if err := d.addAlternatives(root, ""); err != nil {
		return nil, err
	}
	return d, nil
}

// schemaIndex indexes the schemas within a schema.
type schemaIndex struct {
	places map[string]*jsonschema.Schema   // by address, with a JSON pointer or an anchor
	bases  map[*jsonschema.Schema]*url.URL // what a schema's references are relative to
	draft7 bool
}

func place(base *url.URL, fragment string) string {
	address := *base
	address.Fragment, address.RawFragment = "", ""
	return address.String() + "#" + fragment
}

// add indexes a schema and those below it. whole is its path from the root, path the one
// from the last schema with an $id.
func (x *schemaIndex) add(s *jsonschema.Schema, base *url.URL, whole, path string) error {
	x.places[place(&url.URL{}, whole)] = s
	if s.ID != "" && !(x.draft7 && s.Ref != "") {
		id, err := base.Parse(s.ID)
		if err != nil {
			return fmt.Errorf("$id %q: %w", s.ID, err)
		}
		if x.draft7 && id.Fragment != "" { // the draft 7 form of an anchor
			x.places[place(id, id.Fragment)] = s
		} else {
			base, path = id, ""
		}
	}
	x.bases[s] = base
	x.places[place(base, path)] = s
	for _, anchor := range []string{s.Anchor, s.DynamicAnchor} {
		if anchor != "" {
			x.places[place(base, anchor)] = s
		}
	}
	for step, below := range subschemas(s) {
		if err := x.add(below, base, whole+step, path+step); err != nil {
			return err
		}
	}
	return nil
}

// subschemas returns the schemas directly below s, keyed by their JSON pointers relative to
// s.
func subschemas(s *jsonschema.Schema) map[string]*jsonschema.Schema {
	out := map[string]*jsonschema.Schema{}
	for name, one := range map[string]*jsonschema.Schema{
		"items": s.Items, "additionalItems": s.AdditionalItems, "contains": s.Contains, "unevaluatedItems": s.UnevaluatedItems,
		"additionalProperties": s.AdditionalProperties, "propertyNames": s.PropertyNames, "unevaluatedProperties": s.UnevaluatedProperties,
		"not": s.Not, "if": s.If, "then": s.Then, "else": s.Else, "contentSchema": s.ContentSchema,
	} {
		if one != nil {
			out["/"+name] = one
		}
	}
	for name, list := range map[string][]*jsonschema.Schema{
		"prefixItems": s.PrefixItems, "items": s.ItemsArray, "allOf": s.AllOf, "anyOf": s.AnyOf, "oneOf": s.OneOf,
	} {
		for i, one := range list {
			out["/"+name+"/"+strconv.Itoa(i)] = one
		}
	}
	for name, named := range map[string]map[string]*jsonschema.Schema{
		"$defs": s.Defs, "definitions": s.Definitions, "dependencies": s.DependencySchemas, "dependentSchemas": s.DependentSchemas,
		"properties": s.Properties, "patternProperties": s.PatternProperties,
	} {
		for key, one := range named {
			out["/"+name+"/"+pointerStep.Replace(key)] = one
		}
	}
	return out
}

// pointerStep escapes a step of a JSON pointer.
var pointerStep = strings.NewReplacer("~", "~0", "/", "~1")

// addAlternatives resolves the alternatives of the schema at path, and of those below it,
// so that undeclared can match values against them.
func (d *declared) addAlternatives(s *jsonschema.Schema, path string) error {
	for step, below := range subschemas(s) {
		at := path + step
		if step == "/if" || strings.HasPrefix(step, "/anyOf/") || strings.HasPrefix(step, "/oneOf/") {
			// Resolve the alternative by itself, in a document in which its references still
			// resolve.
			alone := &jsonschema.Schema{Schema: d.root.Schema, Ref: "helix://input#" + (&url.URL{Fragment: at}).EscapedFragment()}
			resolved, err := alone.Resolve(&jsonschema.ResolveOptions{
				BaseURI: "helix://alternative", Loader: func(*url.URL) (*jsonschema.Schema, error) { return d.root, nil },
			})
			if err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			d.fits[below] = resolved
		}
		if err := d.addAlternatives(below, at); err != nil {
			return err
		}
	}
	return nil
}

// arguments returns the arguments that the schema declares at the top level.
func (d *declared) arguments() Arguments {
	about := []*jsonschema.Schema{d.root}
	var out Arguments
	for _, s := range d.together(about, choice{}) {
		out.Required = append(out.Required, s.Required...)
	}
	names := map[string]bool{}
	all := d.together(about, choice{every: true})
	for _, s := range all {
		for name := range s.Properties {
			names[name] = true
		}
		for _, name := range s.Required {
			names[name] = true
		}
	}
	slices.Sort(out.Required)
	out.Required = slices.Compact(out.Required)
	out.Known = slices.Sorted(maps.Keys(names))
	out.Open = !closed(all) || slices.ContainsFunc(all, func(s *jsonschema.Schema) bool { return len(s.PatternProperties) > 0 })
	return out
}

// undeclared returns the paths of the arguments that the schema does not declare.
func (d *declared) undeclared(input any) []string {
	var found []string
	d.look(input, []*jsonschema.Schema{d.root}, "", &found)
	return found
}

// look checks the value at a path against the schemas that apply to it.
func (d *declared) look(value any, about []*jsonschema.Schema, path string, found *[]string) {
	switch value := value.(type) {
	case map[string]any:
		all := d.together(about, choice{value: value, object: value})
		isClosed := closed(all)
		for _, name := range slices.Sorted(maps.Keys(value)) {
			below, known := d.property(all, name)
			at := name
			if path != "" {
				at = path + "." + name
			}
			switch {
			case len(*found) == maxNamed:
				return
			case isClosed && !known:
				*found = append(*found, at)
			case len(below) > 0:
				d.look(value[name], below, at, found)
			}
		}
	case []any:
		all := d.together(about, choice{value: value})
		for i, item := range value {
			if below := items(all, i); len(below) > 0 {
				d.look(item, below, path+"["+strconv.Itoa(i)+"]", found)
			}
		}
	}
}

// choice selects alternatives: those that match a value, all of them, or, for the zero
// value, none.
type choice struct {
	value  any
	object map[string]any // the value to match, if any
	every  bool
}

func (d *declared) chosen(s *jsonschema.Schema, c choice) bool {
	return c.every || c.value != nil && d.fits[s].Validate(c.value) == nil
}

// together returns all schemas that apply: the given ones, and those that they refer to or
// are composed of.
func (d *declared) together(about []*jsonschema.Schema, c choice) []*jsonschema.Schema {
	var all []*jsonschema.Schema
	seen := slices.Clone(about)
	add := func(s *jsonschema.Schema) {
		if s != nil && !slices.Contains(seen, s) {
			seen = append(seen, s)
		}
	}
	for i := 0; i < len(seen); i++ { //nolint:intrange // add makes it longer
		s := seen[i]
		add(d.refs[s])
		if d.draft7 && s.Ref != "" {
			continue
		}
		all = append(all, s)
		for _, one := range s.AllOf {
			add(one)
		}
		for _, one := range slices.Concat(s.AnyOf, s.OneOf) {
			if d.chosen(one, c) {
				add(one)
			}
		}
		if s.If != nil {
			fits := d.chosen(s.If, c)
			if fits {
				add(s.If)
				add(s.Then)
			}
			if c.every || !fits && c.value != nil {
				add(s.Else)
			}
		}
		for _, dependent := range []map[string]*jsonschema.Schema{s.DependentSchemas, s.DependencySchemas} {
			for name, one := range dependent {
				if _, given := c.object[name]; given || c.every {
					add(one)
				}
			}
		}
	}
	return all
}

// closed reports whether an object may have only the properties that its schemas declare.
func closed(all []*jsonschema.Schema) bool {
	says := false
	for _, s := range all {
		if allows(s.AdditionalProperties) || allows(s.UnevaluatedProperties) {
			return false
		}
		says = says || s.Properties != nil || len(s.PatternProperties) > 0 || len(s.Required) > 0 ||
			s.AdditionalProperties != nil || s.UnevaluatedProperties != nil
	}
	return says
}

// allows reports whether a schema is set and is not the schema false.
func allows(s *jsonschema.Schema) bool {
	return s != nil && !(s.Not != nil && reflect.ValueOf(*s.Not).IsZero())
}

// property returns the schemas that apply to a property, and whether one of them declares
// it.
func (d *declared) property(all []*jsonschema.Schema, name string) (below []*jsonschema.Schema, known bool) {
	for _, s := range all {
		before := len(below)
		if one, ok := s.Properties[name]; ok {
			below = append(below, one)
		}
		for pattern, one := range s.PatternProperties {
			if d.patterns[pattern].MatchString(name) {
				below = append(below, one)
			}
		}
		if len(below) == before && allows(s.AdditionalProperties) {
			below = append(below, s.AdditionalProperties)
		}
		known = known || slices.Contains(s.Required, name)
	}
	if len(below) == 0 {
		for _, s := range all {
			if allows(s.UnevaluatedProperties) {
				below = append(below, s.UnevaluatedProperties)
			}
		}
	}
	return below, known || len(below) > 0
}

// items returns the schemas that apply to item i of a list.
func items(all []*jsonschema.Schema, i int) (below []*jsonschema.Schema) {
	for _, s := range all {
		switch {
		case i < len(s.PrefixItems):
			below = append(below, s.PrefixItems[i])
		case i < len(s.ItemsArray):
			below = append(below, s.ItemsArray[i])
		case s.Items != nil:
			below = append(below, s.Items)
		case s.ItemsArray != nil && s.AdditionalItems != nil:
			below = append(below, s.AdditionalItems)
		case s.UnevaluatedItems != nil:
			below = append(below, s.UnevaluatedItems)
		}
	}
	return below
}
