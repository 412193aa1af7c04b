package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/helixagents/helix"
)

var update = flag.Bool("update", false, "write schema.json and docs/helix-yaml.md anew")

// comments are the comments of the file's types: "Agent" and "Agent.Tools".
func comments(t *testing.T) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "file.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, decl := range parsed.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			found[named.Name.Name] = flat(general.Doc.Text())
			record, ok := named.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range record.Fields.List {
				for _, name := range f.Names {
					found[named.Name.Name+"."+name.Name] = flat(f.Doc.Text())
				}
			}
		}
	}
	return found
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// keys lists a struct's keys in the order of the source.
func keys(t reflect.Type) []key {
	var out []key
	for f := range t.Fields() {
		if o := options(&f); f.IsExported() && o.name != "" && o.name != "-" {
			out = append(out, key{f.Name, f.Type, o})
		}
	}
	return out
}

type key struct {
	field  string
	typ    reflect.Type
	option option
}

// generator makes the schema and the page.
type generator struct {
	t        *testing.T
	comments map[string]string
	defs     map[string]any
}

type object = map[string]any

// orVariable also takes a value that comes from the environment.
func orVariable(schema object) object {
	return object{"anyOf": []any{schema, object{"type": "string", "pattern": `\$\{`}}}
}

func (g *generator) schema(t reflect.Type, o *option) object {
	switch t {
	case reflect.TypeFor[Duration]():
		pattern := `^([0-9.]+d)?([0-9.]+(ns|us|µs|ms|s|m|h))*$|\$\{`
		if o.never {
			pattern = "^never$|" + pattern
		}
		return object{"type": "string", "pattern": pattern}
	case reflect.TypeFor[Limit]():
		return orVariable(object{"anyOf": []any{g.number("integer", o), object{"const": o.unlimited()}}})
	case reflect.TypeFor[Rate]():
		return orVariable(object{"anyOf": []any{g.number("number", o), object{"const": o.unlimited()}}})
	case reflect.TypeFor[Expression]():
		return object{"type": "string"}
	case reflect.TypeFor[Schema]():
		return object{"type": "object", "$ref": "https://json-schema.org/draft/2020-12/schema"}
	case reflect.TypeFor[JSON]():
		if o.object {
			return object{"type": "object"}
		}
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		if o.off {
			return orVariable(object{"anyOf": []any{g.schema(t.Elem(), &option{}), object{"const": wordOff}}})
		}
		return g.schema(t.Elem(), o)
	case reflect.String:
		if len(o.enum) > 0 {
			return orVariable(object{"enum": o.enum})
		}
		return object{"type": []string{"string", "number"}}
	case reflect.Bool:
		return orVariable(object{"type": "boolean"})
	case reflect.Int, reflect.Int64:
		return orVariable(g.number("integer", o))
	case reflect.Float64:
		return orVariable(g.number("number", o))
	case reflect.Map:
		return object{"type": "object", "additionalProperties": g.schema(t.Elem(), &option{})}
	case reflect.Slice:
		item := g.schema(t.Elem(), &option{})
		if o.named {
			if t.Elem() == reflect.TypeFor[Model]() {
				item = object{"anyOf": []any{object{"type": "string"}, item}}
			}
			return object{"type": "object", "additionalProperties": item}
		}
		return object{"type": "array", "items": item}
	case reflect.Struct:
		g.define(t)
		ref := object{"$ref": "#/$defs/" + t.Name()}
		if t == reflect.TypeFor[AgentSkills]() {
			names := object{"type": "array", "items": object{"type": "string"}}
			return object{"anyOf": []any{object{"const": allSkills}, names, ref}}
		}
		for _, k := range keys(t) {
			if k.option.short {
				return object{"anyOf": []any{object{"type": "string"}, ref}}
			}
		}
		return ref
	}
	g.t.Fatalf("no schema for %s", t)
	return nil
}

func (g *generator) number(kind string, o *option) object {
	out := object{"type": kind}
	if o.min != nil {
		out["minimum"] = *o.min
	}
	if o.max != nil {
		out["maximum"] = *o.max
	}
	return out
}

func (g *generator) define(t reflect.Type) {
	if _, ok := g.defs[t.Name()]; ok {
		return
	}
	g.defs[t.Name()] = object{} // for types that hold themselves
	g.defs[t.Name()] = g.record(t)
}

func (g *generator) record(t reflect.Type) object {
	properties := object{}
	required := []string{}
	for _, k := range keys(t) {
		about := g.comments[t.Name()+"."+k.field]
		if about == "" {
			g.t.Errorf("%s.%s has no comment", t.Name(), k.field)
		}
		one := g.schema(k.typ, &k.option)
		one["description"] = about
		properties[k.option.name] = one
		if k.option.required {
			required = append(required, k.option.name)
		}
	}
	out := object{"type": "object", "properties": properties, "additionalProperties": false, "description": g.comments[t.Name()]}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func newGenerator(t *testing.T) *generator {
	return &generator{t: t, comments: comments(t), defs: map[string]any{}}
}

func schemaJSON(t *testing.T) []byte {
	t.Helper()
	g := newGenerator(t)
	root := g.record(reflect.TypeFor[File]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "helix.yaml"
	root["$defs"] = g.defs
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// kind names a type for readers of the page.
func kind(t reflect.Type, o *option) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[Limit](), reflect.TypeFor[Rate]():
		return "number"
	case reflect.TypeFor[Expression]():
		return "CEL"
	case reflect.TypeFor[Schema]():
		return "JSON Schema"
	case reflect.TypeFor[JSON]():
		if o.object {
			return "mapping"
		}
		return "any"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kind(t.Elem(), o)
	case reflect.Bool:
		return "true, false"
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "number"
	case reflect.Map:
		return "texts by name"
	case reflect.Slice:
		switch {
		case o.named:
			return "by name"
		case t.Elem().Kind() == reflect.Struct:
			return "list"
		}
		return "list of texts"
	case reflect.Struct:
		if o.off {
			return "mapping, off"
		}
		return "mapping"
	}
	if len(o.enum) > 0 {
		return strings.Join(o.enum, ", ")
	}
	return "text"
}

// below is a struct that a key leads to, and how its keys are written.
func below(path string, k *key) (reflect.Type, string, bool) {
	t := k.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path = join(path, k.option.name)
	switch {
	case t.Kind() == reflect.Struct:
		return t, path, true
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && k.option.named:
		return t.Elem(), path + ".NAME", true
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return t.Elem(), path + "[]", true
	}
	return nil, "", false
}

func (g *generator) section(out *strings.Builder, t reflect.Type, path string) {
	all := keys(t)
	fmt.Fprintf(out, "\n## %s\n\n", cmp.Or(path, "The file"))
	fmt.Fprintf(out, "| key | value | |\n| --- | --- | --- |\n")
	for _, k := range all {
		about := g.comments[t.Name()+"."+k.field]
		if k.option.required {
			about = "**Required.** " + about
		}
		about = strings.NewReplacer("|", `\|`, "<", `\<`, "${", "`${", "}", "}`").Replace(about)
		about = tidy(about)
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", k.option.name, kind(k.typ, &k.option), about)
	}
	for _, k := range all {
		if next, at, ok := below(path, &k); ok {
			g.section(out, next, at)
		}
	}
}

// tidy undoes the marks around a } that closes no variable.
func tidy(text string) string {
	var out strings.Builder
	open := false
	for i := range len(text) {
		if text[i] != '`' {
			out.WriteByte(text[i])
			continue
		}
		begins := strings.HasPrefix(text[i:], "`${")
		if begins || open {
			out.WriteByte('`')
			open = begins
		}
	}
	return out.String()
}

func page(t *testing.T) []byte {
	t.Helper()
	intro, err := os.ReadFile(filepath.Join("testdata", "helix-yaml.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.Write(intro)
	newGenerator(t).section(&out, reflect.TypeFor[File](), "")
	return []byte(out.String())
}

func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]byte{
		"schema.json": schemaJSON(t),
		filepath.Join("..", "docs", "helix-yaml.md"): page(t),
	} {
		if *update {
			if err := os.WriteFile(path, want, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code says; run go test ./config -update", path)
		}
	}
}

// The schema takes what the code takes, and refuses keys that it does not know.
func TestSchemaAgreesWithTheCode(t *testing.T) {
	t.Parallel()
	// What a schema within the file is, is another's schema, which is not here.
	raw := bytes.ReplaceAll(schemaJSON(t), []byte(`"$ref": "https://json-schema.org/draft/2020-12/schema",`), nil)
	schema, err := helix.ParseSchema(raw)
	if err != nil {
		t.Fatal(err)
	}
	asJSON := func(text string) json.RawMessage {
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		d := &decoder{source: newSource("x", nil, func(name string) (string, bool) { return "${" + name + "}", true })}
		d.encode(n.Content[0], "", &out)
		return out.Bytes()
	}
	if err := schema.Validate(asJSON(whole)); err != nil {
		t.Errorf("a valid file: %v", err)
	}
	for old, broken := range map[string]string{
		"maxSteps: 20": "maxSteps: many", "    maxSteps: 20": "    maxStep: 20", "tools: [search, time, pay]": "tools: search",
		"sessionExpiry: 7d": "sessionExpiry: a week", "      - agent: clerk": "      - agen: clerk", "temperature: 0.5": "temperature: 3",
		"    type: http": "    type: htpt", "version: 1": "", "fraction: never": "fraction: unlimited", "context: off": "context: none",
	} {
		text := strings.Replace(whole, old, broken, 1)
		_, err := parse("helix.yaml", []byte(text), noEnv)
		if verdict := schema.Validate(asJSON(text)); text == whole || err == nil || verdict == nil {
			t.Errorf("%q: the code says %v, the schema %v", broken, err, verdict)
		}
	}
}
