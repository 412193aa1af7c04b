// Package docs_test checks the documents against the code.
package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/config"
)

const mapping = "from-typescript.md"

// packages maps the packages that the mapping may name to their directories.
var packages = map[string]string{
	"bake": "../skill/bake", "helix": "..", "session": "../session", "stream": "../stream", "llm": "../llm", "usage": "../usage",
	"lock": "../lock", "store": "../store", "engine": "../engine", "machine": "../engine/machine", "local": "../runtime/local",
	"temporal": "../runtime/temporal", "dbos": "../runtime/dbos",
	"memory": "../store/memory", "postgres": "../store/postgres", "redis": "../store/redis",
	"sqlite": "../store/sqlite", "scripted": "../llm/scripted",
	"remote": "../remote", "server": "../server", "wire": "../server/wire", "aisdk": "../server/aisdk", "client": "../client",
	"skill": "../skill", "files": "../skill/files", "skills": "../extension/skills",
}

// standard lists the packages of the standard library that the mapping may name.
var standard = []string{"context", "errors", "iter", "slog", "time"}

// row is one line of a table: a name, its counterpart, a note.
type row struct {
	section string
	line    int
	name    string
	cells   []string // the columns after the first
}

var ticked = regexp.MustCompile("`([^`]+)`")

// differences is the heading of the section about behaviour, which has no names.
const differences = "Behaviour that differs on purpose"

// rows reads all tables of the mapping.
func rows(t *testing.T) []row {
	t.Helper()
	raw, err := os.ReadFile(mapping)
	if err != nil {
		t.Fatal(err)
	}
	var out []row
	section, line := "", 0
	for text := range strings.Lines(string(raw)) {
		line++
		text = strings.TrimSpace(text)
		if heading, ok := strings.CutPrefix(text, "## "); ok {
			section = heading
		}
		if section == differences {
			continue
		}
		if !strings.HasPrefix(text, "|") || strings.HasPrefix(text, "| ---") {
			continue
		}
		cells := strings.Split(strings.Trim(text, "|"), "|")
		if len(cells) != 3 {
			t.Errorf("%s:%d: the row has %d cells, want 3", mapping, line, len(cells))
			continue
		}
		if strings.TrimSpace(cells[1]) == "Go" {
			continue // a header
		}
		name := ticked.FindStringSubmatch(cells[0])
		if len(name) == 0 || strings.TrimSpace(cells[0]) != name[0] {
			t.Errorf("%s:%d: the first cell is %q, want one name in backquotes", mapping, line, cells[0])
			continue
		}
		out = append(out, row{section, line, name[1], cells[1:]})
	}
	return out
}

func TestEverySeedNameHasItsRow(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/seed-names.txt")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, r := range rows(t) {
		if first, ok := found[r.name]; ok {
			t.Errorf("%s:%d: %s already has a row on line %d", mapping, r.line, r.name, first)
		}
		found[r.name] = r.line
	}
	names := 0
	for name := range strings.Lines(string(raw)) {
		name = strings.TrimSpace(name)
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		names++
		if _, ok := found[name]; !ok {
			t.Errorf("%s has no row for %s", mapping, name)
		}
		delete(found, name)
	}
	for name, line := range found {
		t.Errorf("%s:%d: %s is not in testdata/seed-names.txt", mapping, line, name)
	}
	t.Logf("%d names, each with its row", names)
}

func TestEveryRowHasACounterpartOrSaysWhy(t *testing.T) {
	t.Parallel()
	for _, r := range rows(t) {
		goes := strings.TrimSpace(r.cells[0])
		if goes != "none" && goes != "not yet" && !ticked.MatchString(goes) {
			t.Errorf("%s:%d: %s: the counterpart is %q, want an identifier, none, or not yet", mapping, r.line, r.name, goes)
		}
	}
}

var identifier = regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?$`)

func TestEveryIdentifierExists(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, r := range rows(t) {
		for _, cell := range r.cells {
			for _, tick := range ticked.FindAllStringSubmatch(cell, -1) {
				id := identifier.FindStringSubmatch(tick[1])
				if len(id) == 0 || slices.Contains(standard, id[1]) {
					continue
				}
				checked++
				if err := exists(id[1], id[2], id[3]); err != nil {
					t.Errorf("%s:%d: %s: %v", mapping, r.line, tick[1], err)
				}
			}
		}
	}
	if checked == 0 {
		t.Fatal("no identifier found")
	}
	t.Logf("%d identifiers exist", checked)
}

// TestWireNamesAreKept checks that statuses and chunks keep their names on the wire.
func TestWireNamesAreKept(t *testing.T) {
	t.Parallel()
	renamed := []string{"tool_error", "checkpoint_created", "suspension_marker"} // their notes say so
	for _, r := range rows(t) {
		if r.section != "Statuses" && r.section != "Chunks" || slices.Contains(renamed, r.name) {
			continue
		}
		id := identifier.FindStringSubmatch(strings.Trim(strings.TrimSpace(r.cells[0]), "`"))
		if len(id) == 0 || id[3] != "" {
			continue
		}
		pkg, err := load(id[1])
		if err != nil {
			t.Fatal(err)
		}
		value, isConstant := pkg.constants[id[2]]
		if want := r.name[strings.LastIndexByte(r.name, '.')+1:]; isConstant && value != want {
			t.Errorf("%s:%d: %s.%s is %q, not %q", mapping, r.line, id[1], id[2], value, want)
		}
	}
}

var event = regexp.MustCompile("`((?:client_tool|subagent)\\.[a-z_]+)`")

// TestLogEventsAreWritten checks that the engine writes the log events that a page names.
func TestLogEventsAreWritten(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../engine/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var engine strings.Builder
	for _, file := range files {
		engine.WriteString(unindented(t, file))
	}
	promised := map[string]bool{}
	for _, r := range rows(t) {
		if r.section == "Log events" && strings.TrimSpace(r.cells[0]) != "none" && event.MatchString("`"+r.name+"`") {
			promised[r.name] = true
		}
	}
	for _, name := range event.FindAllStringSubmatch(unindented(t, "people.md"), -1) {
		promised[name[1]] = true
	}
	if len(promised) == 0 {
		t.Fatal("no page names an event")
	}
	for name := range promised {
		if !strings.Contains(engine.String(), strconv.Quote(name)) {
			t.Errorf("nothing writes %s", name)
		}
	}
}

// TestCodeIsExecuted checks that the code on the pages comes from executed examples, so
// that it compiles and works.
func TestCodeIsExecuted(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob("../example_*_test.go")
	if err != nil || len(examples) == 0 {
		t.Fatal("found no examples", err)
	}
	examples = append(examples, "../remote/example_test.go", "../extension/skills/example_test.go", "../examples/embed/main.go", "../examples/testing/shop_test.go")
	var executed []string
	for _, file := range examples {
		executed = append(executed, unindented(t, file))
	}
	for _, page := range []string{"people.md", "agents.md", "embedding.md", "extensions.md", "skills.md", "testing.md"} {
		blocks := strings.Split(unindented(t, page), "\n```go\n")[1:]
		if len(blocks) == 0 {
			t.Errorf("%s has no code", page)
		}
		for _, block := range blocks {
			code, _, closed := strings.Cut(block, "\n```")
			if !closed || !slices.ContainsFunc(executed, func(all string) bool { return strings.Contains(all, "\n"+code+"\n") }) {
				t.Errorf("%s: no example has this code:\n%s", page, code)
			}
		}
	}
}

// TestRuntimeSettings checks that the settings on the page about runtimes are valid.
func TestRuntimeSettings(t *testing.T) {
	t.Setenv("HOSTNAME", "host-1")
	page, err := os.ReadFile("runtimes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "\n```yaml\n")[1:]
	if len(blocks) < 3 {
		t.Fatalf("found only %d settings", len(blocks))
	}
	for _, block := range blocks {
		settings, _, _ := strings.Cut(block, "\n```")
		if _, err := config.Parse("runtimes.md", []byte("version: 1\nagents: {a: {model: demo}}\n"+settings+"\n")); err != nil {
			t.Errorf("%v in\n%s", err, settings)
		}
	}
}

func unindented(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(raw)) {
		out.WriteString(strings.TrimSpace(line) + "\n")
	}
	return out.String()
}

// pkg lists the declarations of a package.
type pkg struct {
	names     map[string]bool     // at its top level
	constants map[string]string   // those that are string literals
	typed     map[string][]string // values of constants with an explicit type, by its name
	types     map[string]ast.Expr
	methods   map[string]map[string]bool // by type
}

var (
	loading sync.Mutex
	loaded  = map[string]*pkg{}
)

// exists looks an identifier up: a declaration, or a field or method of a type.
func exists(name, ident, member string) error {
	p, err := load(name)
	if err != nil {
		return err
	}
	if !p.names[ident] {
		return fmt.Errorf("package %s declares no %s", name, ident)
	}
	if member == "" {
		return nil
	}
	if p.types[ident] == nil {
		return fmt.Errorf("%s.%s is not a type", name, ident)
	}
	ok, err := p.has(name, ident, member)
	if err == nil && !ok {
		err = fmt.Errorf("%s.%s has no field or method %s", name, ident, member)
	}
	return err
}

// has reports whether a type has a field or method, its own or of what it embeds.
func (p *pkg) has(name, ident, member string) (bool, error) {
	if p.methods[ident][member] {
		return true, nil
	}
	var embedded []ast.Expr
	switch def := p.types[ident].(type) {
	case *ast.StructType:
		for _, field := range def.Fields.List {
			if declares(field, member) {
				return true, nil
			}
			if len(field.Names) == 0 {
				embedded = append(embedded, field.Type)
			}
		}
	case *ast.InterfaceType:
		for _, method := range def.Methods.List {
			if declares(method, member) {
				return true, nil
			}
			if len(method.Names) == 0 {
				embedded = append(embedded, method.Type)
			}
		}
	case *ast.Ident, *ast.SelectorExpr: // an alias, or a type made of another
		embedded = append(embedded, def)
	}
	for _, e := range embedded {
		if ok, err := p.embeds(name, e, member); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func declares(field *ast.Field, member string) bool {
	return slices.ContainsFunc(field.Names, func(n *ast.Ident) bool { return n.Name == member })
}

// embeds looks for a member in an embedded type; its own name counts, too.
func (p *pkg) embeds(name string, e ast.Expr, member string) (bool, error) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return p.embeds(name, e.X, member)
	case *ast.Ident:
		if e.Name == member {
			return true, nil
		}
		if p.types[e.Name] == nil {
			return false, nil // a predeclared type
		}
		return p.has(name, e.Name, member)
	case *ast.SelectorExpr:
		other, ok := e.X.(*ast.Ident)
		if e.Sel.Name == member {
			return true, nil
		}
		if !ok || packages[other.Name] == "" {
			return false, nil
		}
		q, err := load(other.Name)
		if err != nil {
			return false, err
		}
		return q.has(other.Name, e.Sel.Name, member)
	}
	return false, nil
}

// load parses a package once, without its tests.
func load(name string) (*pkg, error) {
	loading.Lock()
	defer loading.Unlock()
	if p := loaded[name]; p != nil {
		return p, nil
	}
	dir, ok := packages[name]
	if !ok {
		return nil, fmt.Errorf("no package is known as %s", name)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("package %s has no files in %s (%w)", name, dir, err)
	}
	p := &pkg{
		names: map[string]bool{}, constants: map[string]string{}, typed: map[string][]string{},
		types: map[string]ast.Expr{}, methods: map[string]map[string]bool{},
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			p.declare(d)
		}
	}
	loaded[name] = p
	return p, nil
}

func (p *pkg) declare(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			p.names[d.Name.Name] = true
			return
		}
		if of := receiver(d.Recv.List[0].Type); of != "" {
			if p.methods[of] == nil {
				p.methods[of] = map[string]bool{}
			}
			p.methods[of][d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				p.names[spec.Name.Name] = true
				p.types[spec.Name.Name] = spec.Type
			case *ast.ValueSpec:
				p.declareValues(d.Tok, spec)
			}
		}
	}
}

func (p *pkg) declareValues(tok token.Token, spec *ast.ValueSpec) {
	for i, n := range spec.Names {
		p.names[n.Name] = true
		if tok != token.CONST || i >= len(spec.Values) {
			continue
		}
		literal, ok := spec.Values[i].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		if value, err := strconv.Unquote(literal.Value); err == nil {
			p.constants[n.Name] = value
			if typ, ok := spec.Type.(*ast.Ident); ok {
				p.typed[typ.Name] = append(p.typed[typ.Name], value)
			}
		}
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
