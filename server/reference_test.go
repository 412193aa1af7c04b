package server

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/wire"
)

var update = flag.Bool("update", false, "write the routes in docs/http.md anew")

const referencePage = "../docs/http.md"

// The reference lists the routes that there are, in the words of the code.
func TestReference(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	const mark = "## Routes\n"
	written, _, found := strings.Cut(string(page), mark)
	if !found {
		t.Fatalf("%s has no line %q", referencePage, mark)
	}
	r := &apiPage{docs: fieldDocs(t, "wire", "aisdk")}
	r.routes(table())
	want := written + mark + r.String()
	switch {
	case want == string(page):
	case *update:
		if err := os.WriteFile(referencePage, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the code says; run go test ./server -run TestReference -update", referencePage)
	}
}

// fieldDocs reads the comments of the fields of packages' types, by "package.Type.Field".
func fieldDocs(t *testing.T, packages ...string) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for _, name := range packages {
		files, err := filepath.Glob(name + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if fields, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range fields.Fields.List {
						for _, ident := range field.Names {
							docs[name+"."+spec.Name.Name+"."+ident.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
						}
					}
				}
				return false
			})
		}
	}
	return docs
}

// apiPage is the page as it is written.
type apiPage struct {
	strings.Builder
	docs  map[string]string
	types []reflect.Type // that answers refer to, in order
}

func (r *apiPage) routes(all []route) {
	for i := range all {
		rt := &all[i]
		fmt.Fprintf(r, "\n### `%s`\n\n%s", rt.pattern(), rt.summary)
		if rt.open {
			r.WriteString(" Needs no identity.")
		}
		r.WriteString("\n")
		if len(rt.query) > 0 {
			r.WriteString("\nIn the query:\n\n")
			for _, p := range rt.query {
				fmt.Fprintf(r, "- `%s` (%s): %s\n", p.name, words(p.kind, p.required, p.repeated), p.about)
			}
		}
		if rt.body != nil {
			r.WriteString("\nThe body:\n\n")
			r.fields(reflect.TypeOf(rt.body), ", required")
		}
		r.answers(rt)
	}
	r.WriteString("\n## Answers\n")
	for listed := 0; listed < len(r.types); { // listing one may add others
		t := r.types[listed]
		listed++
		fmt.Fprintf(r, "\n### %s\n\n", schemaName(t))
		r.fields(t, "")
	}
}

func words(kind string, required, repeated bool) string {
	out := map[string]string{"string": "text", "integer": "number", "boolean": "true or false"}[kind]
	if required {
		out += ", required"
	}
	if repeated {
		out += ", may be repeated"
	}
	return out
}

func (r *apiPage) answers(rt *route) {
	r.WriteString("\n")
	if len(rt.answers) == 0 {
		r.WriteString("It always fails.\n")
	}
	for _, a := range rt.answers {
		switch {
		case a.body != nil:
			fmt.Fprintf(r, "Answers %d: %s.\n", a.status, r.name(reflect.TypeOf(a.body)))
		case a.media != "":
			fmt.Fprintf(r, "Answers %d: `%s`.\n", a.status, a.media)
		default:
			fmt.Fprintf(r, "Answers %d: %s.\n", a.status, http.StatusText(a.status))
		}
	}
}

// fields lists what a type has in JSON, and marks what is always there.
func (r *apiPage) fields(t reflect.Type, always string) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || f.Anonymous {
			continue
		}
		fmt.Fprintf(r, "- `%s` (%s", name, r.kind(f.Type))
		if !strings.Contains(options, "omit") {
			r.WriteString(always)
		}
		r.WriteString(")")
		if doc := r.docs[t.String()+"."+f.Name]; doc != "" {
			r.WriteString(": " + r.inJSON(t, strings.NewReplacer("[", "`", "]", "`").Replace(doc)))
		}
		r.WriteString("\n")
	}
}

// inJSON replaces the names of fields in a comment by their names in JSON. After
// "the" the word is no field: "URL is the URL of a file".
func (r *apiPage) inJSON(t reflect.Type, doc string) string {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		field := regexp.MustCompile("(^|[ (])(the )?" + f.Name + "([ ,.:;)]|$)")
		doc = field.ReplaceAllStringFunc(doc, func(found string) string {
			m := field.FindStringSubmatch(found)
			if m[2] != "" {
				return found
			}
			return m[1] + "`" + name + "`" + m[3]
		})
	}
	return doc
}

// kind is a type in words.
func (r *apiPage) kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[wire.Messages]():
		return "text, or list of " + r.name(reflect.TypeFor[wire.UserMessage]())
	case t.Kind() == reflect.Pointer:
		return r.kind(t.Elem())
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return "number"
	case t.Name() == "RawMessage":
		return "any JSON"
	case t.Kind() == reflect.Slice:
		return "list of " + r.kind(t.Elem())
	case t.Name() == "Time":
		return "time"
	case t.Kind() == reflect.Struct:
		return r.name(t)
	}
	return "object"
}

// name refers to a type, which is then listed.
func (r *apiPage) name(t reflect.Type) string {
	if !strings.HasPrefix(t.PkgPath(), reflect.TypeFor[wire.Error]().PkgPath()) {
		return "`" + schemaName(t) + "`"
	}
	if !slices.Contains(r.types, t) {
		r.types = append(r.types, t)
	}
	return "[" + schemaName(t) + "](#" + strings.ToLower(schemaName(t)) + ")"
}
