package layering

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layer is one row of the table: which packages it holds and what they may import besides the standard library.
type layer struct {
	name       string
	packages   []string // patterns relative to the module root
	imports    []string // names of layers
	thirdParty []string // modules; anyModule for no limit
}

// anyModule as a layer's thirdParty lets it import any module.
var anyModule = []string{"*"}

// graph maps import paths to packages. Packages of the module go by their path below its root, the root by ".".
type graph map[string]node

type node struct {
	module  string // the third-party module that holds the package; empty for this module's own
	imports []string
}

// moduleGraph reads the import graph of the whole module, without test files and without the standard library.
func moduleGraph(t *testing.T) graph {
	t.Helper()
	// -e: what does not compile is reported by the compiler, better than by this test.
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Standard,Module,Imports", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	g, err := decodeGraph(bytes.NewReader(out))
	if err != nil {
		t.Fatalf("decode the output of go list: %v", err)
	}
	if _, ok := g["internal/layering"]; !ok {
		t.Fatalf("go list did not list this package: the graph is not that of %s", module)
	}
	return g
}

func decodeGraph(r io.Reader) (graph, error) {
	type listed struct {
		ImportPath string
		Standard   bool
		Module     *struct {
			Path string
			Main bool
		}
		Imports []string
	}
	var packages []listed
	standard := map[string]bool{"C": true}
	dec := json.NewDecoder(r)
	for {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if p.Standard {
			standard[p.ImportPath] = true
			continue
		}
		packages = append(packages, p)
	}

	g := graph{}
	for _, p := range packages {
		var n node
		switch path, own := ownPath(p.ImportPath); {
		case own:
			p.ImportPath = path
		case p.Module != nil:
			n.module = p.Module.Path
		default: // a package that go list could not find
			n.module = p.ImportPath
		}
		for _, imp := range p.Imports {
			if standard[imp] {
				continue
			}
			if path, own := ownPath(imp); own {
				imp = path
			}
			n.imports = append(n.imports, imp)
		}
		g[p.ImportPath] = n
	}
	return g, nil
}

// ownPath turns an import path of this module into the path below its root.
func ownPath(importPath string) (path string, own bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// checkLayers lists every import that the table does not allow.
func checkLayers(g graph, table []layer) []string {
	var violations []string
	complain := func(format string, args ...any) {
		violations = append(violations, fmt.Sprintf(format, args...))
	}
	for _, path := range slices.Sorted(maps.Keys(g)) {
		n := g[path]
		if n.module != "" {
			continue
		}
		from, tree := layerOf(table, path)
		if from == nil {
			complain("%s belongs to no layer: place it in the table of internal/layering", name(path))
			continue
		}
		for _, imp := range n.imports {
			if m := g[imp].module; m != "" {
				if !allowsModule(from.thirdParty, m) {
					complain("%s imports %s: the %s layer may not import %s", name(path), imp, from.name, m)
				}
				continue
			}
			to, itsTree := layerOf(table, imp)
			switch {
			case to == nil: // reported where the imported package is checked
			case to == from && itsTree == tree:
			case !slices.Contains(from.imports, to.name):
				complain("%s imports %s: imports point down only, and the %s layer may import %s",
					name(path), name(imp), from.name, strings.Join(from.imports, ", "))
			}
		}
	}
	return violations
}

// checkClosure lists the third-party modules, other than those allowed, that the roots pull in, with the path by which
// each gets there. Roots that do not exist are passed over.
func checkClosure(g graph, roots, allowed []string) []string {
	var violations []string
	for _, root := range roots {
		if _, ok := g[root]; !ok {
			continue
		}
		reported := map[string]bool{}
		via := map[string]string{root: ""}
		for queue := []string{root}; len(queue) > 0; queue = queue[1:] {
			path := queue[0]
			if m := g[path].module; m != "" && !allowsModule(allowed, m) {
				if !reported[m] {
					reported[m] = true
					violations = append(violations, fmt.Sprintf("%s pulls in %s (%s): heavy dependencies live in leaves",
						name(root), m, trail(via, path)))
				}
				continue // what it brings along in turn is its fault
			}
			for _, imp := range g[path].imports {
				if _, seen := via[imp]; !seen {
					via[imp] = path
					queue = append(queue, imp)
				}
			}
		}
	}
	return violations
}

// trail spells out how a search that recorded its predecessors in via came to path.
func trail(via map[string]string, path string) string {
	steps := []string{name(path)}
	for p := via[path]; p != ""; p = via[p] {
		steps = append(steps, name(p))
	}
	slices.Reverse(steps)
	return strings.Join(steps, " → ")
}

// layerOf finds the layer of path, by the pattern that spells out most of it, and the tree that this pattern makes of
// path: sqlite's own tree is store/sqlite, whatever lies below. Without a layer it returns nil.
func layerOf(table []layer, path string) (best *layer, tree string) {
	most := 0
	for i := range table {
		for _, pattern := range table[i].packages {
			if t, literals := match(pattern, path); literals > most {
				best, tree, most = &table[i], t, literals
			}
		}
	}
	return best, tree
}

// match returns the tree that pattern makes of path and how many elements of path the pattern spells out, 0 if it does
// not match.
func match(pattern, path string) (tree string, literals int) {
	pattern, whole := strings.CutSuffix(pattern, "/...")
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(have) < len(want) || len(have) > len(want) && !whole {
		return "", 0
	}
	for i, element := range want {
		switch element {
		case "*":
		case have[i]:
			literals++
		default:
			return "", 0
		}
	}
	return strings.Join(have[:len(want)], "/"), literals
}

func allowsModule(allowed []string, m string) bool {
	return slices.Contains(allowed, "*") || slices.Contains(allowed, m)
}

// name is how a message speaks of a package: its path below the module root, and helix for the root.
func name(path string) string {
	if path == "." {
		return "helix"
	}
	return path
}

// goodGraph is a small module that keeps to the rules.
func goodGraph() graph {
	return graph{
		"session":               {},
		"stream":                {imports: []string{"session"}},
		"llm":                   {imports: []string{"session"}},
		"store/sqlite":          {imports: []string{"session", "stream", "modernc.org/sqlite"}},
		"store/storetest":       {imports: []string{"session", "pgregory.net/rapid"}},
		"llm/scripted":          {imports: []string{"llm"}},
		".":                     {imports: []string{"session", "llm", jsonschema + "/jsonschema"}},
		"engine/machine":        {imports: []string{"session"}},
		"engine":                {imports: []string{".", "session", "engine/machine", "engine/internal/retry"}},
		"engine/internal/retry": {imports: []string{"session"}},
		"runtime/local":         {imports: []string{"engine", "."}},
		"runtime/temporal":      {imports: []string{"engine", "go.temporal.io/sdk/client"}},
		"runtime/runtimetest":   {imports: []string{"engine", "llm/scripted"}},
		"server":                {imports: []string{"runtime/local", "server/wire", "."}},
		"server/wire":           {imports: []string{"stream"}},
		"cmd/helix":             {imports: []string{"server", "store/sqlite", "cmd/helix/chat"}},
		"cmd/helix/chat":        {imports: []string{"runtime/local", "cmd/helix/term"}},
		"cmd/helix/term":        {},

		"modernc.org/sqlite":        {module: "modernc.org/sqlite", imports: []string{"modernc.org/libc"}},
		"modernc.org/libc":          {module: "modernc.org/libc"},
		"pgregory.net/rapid":        {module: "pgregory.net/rapid"},
		"go.temporal.io/sdk/client": {module: "go.temporal.io/sdk"},
		jsonschema + "/jsonschema":  {module: jsonschema},
	}
}

func TestCheckerAcceptsGoodGraph(t *testing.T) {
	t.Parallel()
	report(t, checkLayers(goodGraph(), layers))
	report(t, checkClosure(goodGraph(), lean, leanModules))
}

func TestCheckerFindsBadImports(t *testing.T) {
	t.Parallel()
	const down = ": imports point down only"
	for _, test := range []struct{ from, to, want string }{
		{"session", "store/sqlite", "session imports store/sqlite" + down},
		{"session", ".", "session imports helix" + down},
		{"session", "pgregory.net/rapid", "session imports pgregory.net/rapid: the domain layer may not import"},
		{"stream", "engine", "stream imports engine" + down},
		{"store/sqlite", ".", "store/sqlite imports helix" + down},
		{"store/sqlite", "llm/scripted", "store/sqlite imports llm/scripted" + down},
		{"store/storetest", "store/sqlite", "store/storetest imports store/sqlite" + down},
		{"llm/scripted", "runtime/local", "llm/scripted imports runtime/local" + down},
		{".", "engine", "helix imports engine" + down},
		{".", "store/sqlite", "helix imports store/sqlite" + down},
		{".", "go.temporal.io/sdk/client", "helix imports go.temporal.io/sdk/client: the helix layer may not import"},
		{"engine", "runtime/local", "engine imports runtime/local" + down},
		{"engine/machine", "engine", "engine/machine imports engine" + down},
		{"engine/machine", "engine/internal/retry", "engine/machine imports engine/internal/retry" + down},
		{"engine/machine", ".", "engine/machine imports helix" + down},
		{"engine", "llm/scripted", "engine imports llm/scripted" + down},
		{"runtime/local", "server", "runtime/local imports server" + down},
		{"runtime/local", "store/sqlite", "runtime/local imports store/sqlite" + down},
		{"runtime/local", "runtime/temporal", "runtime/local imports runtime/temporal" + down},
		{"server/wire", "studio", "server/wire imports studio" + down},
		{"server", "cmd/helix/chat", "server imports cmd/helix/chat" + down},
		{"server", "runtime/runtimetest", "server imports runtime/runtimetest" + down},
		{"cmd/helix", "examples/quickstart", "cmd/helix imports examples/quickstart" + down},
		{"cmd/helix", "helixtest", "cmd/helix imports helixtest" + down},
	} {
		t.Run(name(test.from)+" to "+name(test.to), func(t *testing.T) {
			t.Parallel()
			g := goodGraph()
			g["helixtest"] = node{imports: []string{"runtime/local"}}
			g[test.from] = node{imports: append(g[test.from].imports, test.to)}
			wantOne(t, checkLayers(g, layers), test.want)
		})
	}
}

func TestCheckerFindsUnplacedPackage(t *testing.T) {
	t.Parallel()
	g := goodGraph()
	g["util"] = node{}
	g["server"] = node{imports: []string{"util"}}
	wantOne(t, checkLayers(g, layers), "util belongs to no layer: place it in the table")
}

func TestCheckerFindsLeaks(t *testing.T) {
	t.Parallel()
	g := goodGraph()
	g["internal/journal"] = node{imports: []string{"modernc.org/sqlite"}}
	g["runtime/local"] = node{imports: []string{"engine", "internal/journal"}}
	if got := checkLayers(g, layers); len(got) > 0 {
		t.Errorf("the leak is indirect, no single import is wrong, but the layer check says:\n%s", strings.Join(got, "\n"))
	}
	wantOne(t, checkClosure(g, lean, leanModules),
		"runtime/local pulls in modernc.org/sqlite (runtime/local → internal/journal → modernc.org/sqlite)")
}

func TestCheckerToleratesMissingPackages(t *testing.T) {
	t.Parallel()
	g := graph{"session": {}}
	report(t, checkLayers(g, layers))
	report(t, checkClosure(g, lean, leanModules))
}

func TestTableNamesItsLayers(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, l := range layers {
		if names[l.name] {
			t.Errorf("two layers are called %q", l.name)
		}
		names[l.name] = true
	}
	for _, l := range layers {
		for _, imp := range l.imports {
			if !names[imp] {
				t.Errorf("layer %q may import %q, which is no layer", l.name, imp)
			}
		}
	}
}

func TestDecodeGraph(t *testing.T) {
	t.Parallel()
	const out = `
{"ImportPath":"fmt","Standard":true}
{"ImportPath":"example.org/x/y","Module":{"Path":"example.org/x"},"Imports":["fmt"]}
{"ImportPath":"` + module + `","Module":{"Path":"` + module + `","Main":true},"Imports":["fmt","` + module + `/session","example.org/x/y"]}
{"ImportPath":"` + module + `/session","Module":{"Path":"` + module + `","Main":true}}
{"ImportPath":"example.org/missing"}
`
	got, err := decodeGraph(strings.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	want := graph{
		".":                   {imports: []string{"session", "example.org/x/y"}},
		"session":             {},
		"example.org/x/y":     {module: "example.org/x"},
		"example.org/missing": {module: "example.org/missing"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func wantOne(t *testing.T, violations []string, want string) {
	t.Helper()
	if len(violations) != 1 || !strings.HasPrefix(violations[0], want) {
		t.Errorf("want exactly one violation that begins with %q, got:\n%s", want, strings.Join(violations, "\n"))
	}
}
