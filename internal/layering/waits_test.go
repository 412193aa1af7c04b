package layering

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// waitFuncs are the functions with which a test waits for a time, or measures one.
var waitFuncs = map[string][]string{
	"time":    {"After", "AfterFunc", "NewTicker", "NewTimer", "Since", "Sleep", "Tick", "Until"},
	"context": {"WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause"},
}

// deadlineMethods are the methods of connections with which a test does so.
var deadlineMethods = []string{"SetDeadline", "SetReadDeadline", "SetWriteDeadline"}

// nowMethods are the methods of time.Now() that are another way to write Since and Until.
var nowMethods = []string{"After", "Before", "Compare", "Sub"}

// waitPackage holds the helpers with which tests wait.
const waitPackage = "internal/eventually"

var (
	// A directive excuses the waits of its line, or of the line below if it has a line of its own. In the comment of a function
	// it excuses those of the function, and in the comment of a package clause those of the file.
	waitDirective = regexp.MustCompile(`^// waits: \S`)
	// What is meant as one, but does not have the form or has no reason.
	brokenDirective = regexp.MustCompile(`^//\s*waits:`)
)

// TestWaitsHaveReasons: a test that waits for a time fails on a slow machine, or proves nothing on a fast one.
func TestWaitsHaveReasons(t *testing.T) {
	t.Parallel()
	root, names := repositoryFiles(t)
	packages := map[string]map[string]string{} // by directory, the sources by path
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // deleted, and not committed yet
		}
		dir := path.Dir(name)
		if packages[dir] == nil {
			packages[dir] = map[string]string{}
		}
		packages[dir][name] = string(source)
	}
	for dir, sources := range packages {
		if dir == waitPackage {
			continue
		}
		faults, err := checkWaits(sources)
		if err != nil {
			t.Error(err)
		}
		report(t, faults)
	}
}

// checkWaits lists the waits without a reason, and the reasons without a wait, in the files of one directory that are for
// tests: those named _test.go, and all of a package that imports testing outside of them.
func checkWaits(sources map[string]string) ([]string, error) {
	fset, files, suite := token.NewFileSet(), map[string]*ast.File{}, false
	for name, source := range sources {
		file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files[name] = file
		suite = suite || !strings.HasSuffix(name, "_test.go") && importName(file, "testing") != ""
	}
	bubbled := bubbledFuncs(files)
	var faults []string
	for name, file := range files {
		if suite || strings.HasSuffix(name, "_test.go") {
			faults = append(faults, checkFile(fset, file, strings.Split(sources[name], "\n"), bubbled)...)
		}
	}
	slices.Sort(faults)
	return faults, nil
}

func checkFile(fset *token.FileSet, file *ast.File, lines []string, bubbled map[string]bool) []string {
	var faults []string
	type span struct{ first, last, line int } // the lines that a directive excuses, and its own
	used := map[span]bool{}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if !brokenDirective.MatchString(comment.Text) {
				continue
			}
			line := fset.Position(comment.Pos()).Line
			if !waitDirective.MatchString(comment.Text) {
				faults = append(faults, fmt.Sprintf("%s: a directive has the form \"// waits: <reason>\"", fset.Position(comment.Pos())))
				continue
			}
			s := span{line, line, line}
			if before, _, _ := strings.Cut(lines[line-1], "//"); strings.TrimSpace(before) == "" {
				s.last = fset.Position(group.End()).Line + 1
			}
			if group == file.Doc {
				s.last = fset.Position(file.FileEnd).Line
			}
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Doc == group {
					s.last = fset.Position(f.End()).Line
				}
			}
			used[s] = false
		}
	}
	patient := map[ast.Node]bool{}
	walkOutside(file, bubbled, func(node ast.Node) {
		if call, ok := node.(*ast.CallExpr); ok && slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return isPatience(file, arg) }) {
			patient[call.Fun] = true
		}
		wait := waitOf(file, node)
		if wait == "" || patient[node] {
			return
		}
		at := fset.Position(node.Pos())
		excused := false
		for s := range used {
			if s.first <= at.Line && at.Line <= s.last {
				used[s], excused = true, true
			}
		}
		if !excused {
			faults = append(faults, fmt.Sprintf("%s: %s in a test: wait for a signal with internal/eventually, in fake time, or count; or give the reason: // waits: <reason>", at, wait))
		}
	})
	for s, found := range used {
		if !found {
			faults = append(faults, fmt.Sprintf("%s:%d: the directive excuses nothing", fset.Position(file.Package).Filename, s.line))
		}
	}
	return faults
}

// waitOf returns the name of the function if node is one with which a test waits.
func waitOf(file *ast.File, node ast.Node) string {
	selector, ok := node.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if slices.Contains(deadlineMethods, selector.Sel.Name) {
		return selector.Sel.Name
	}
	if call, ok := selector.X.(*ast.CallExpr); ok {
		if isFunc(file, call.Fun, "time", "Now") && slices.Contains(nowMethods, selector.Sel.Name) {
			return "time.Now()." + selector.Sel.Name
		}
		return ""
	}
	for pkg, names := range waitFuncs {
		if slices.Contains(names, selector.Sel.Name) && isFunc(file, selector, pkg, selector.Sel.Name) {
			return pkg + "." + selector.Sel.Name
		}
	}
	return ""
}

// isPatience returns whether expr is eventually.Patience or the time when it is over, which only ends tests that would hang.
func isPatience(file *ast.File, expr ast.Expr) bool {
	if isFunc(file, expr, module+"/"+waitPackage, "Patience") {
		return true
	}
	call, ok := expr.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 || !isPatience(file, call.Args[0]) {
		return false
	}
	add, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || add.Sel.Name != "Add" {
		return false
	}
	now, ok := add.X.(*ast.CallExpr)
	return ok && isFunc(file, now.Fun, "time", "Now")
}

// bubbledFuncs returns the names of the functions and methods that run in bubbles of testing/synctest only: each use of the
// name, whatever it means there, is in a bubble or in such a function.
func bubbledFuncs(files map[string]*ast.File) map[string]bool {
	bubbled := map[string]bool{}
	uses := map[string]bool{}
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				bubbled[f.Name.Name] = true
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if f, ok := node.(*ast.FuncDecl); ok {
				inspectUses(f, uses)
				return false
			}
			if id, ok := node.(*ast.Ident); ok {
				uses[id.Name] = true
			}
			return true
		})
	}
	for name := range bubbled {
		// What nobody calls by its name, somebody else does: the test's own functions, and methods of an interface.
		if !uses[name] || ast.IsExported(name) {
			delete(bubbled, name)
		}
	}
	for again := true; again; {
		again = false
		for _, file := range files {
			outside := map[string]bool{}
			walkOutside(file, bubbled, func(node ast.Node) {
				if id, ok := node.(*ast.Ident); ok {
					outside[id.Name] = true
				}
			})
			for name := range outside {
				if bubbled[name] {
					delete(bubbled, name)
					again = true
				}
			}
		}
	}
	return bubbled
}

// inspectUses collects the names that a function uses, without its own in its declaration.
func inspectUses(f *ast.FuncDecl, uses map[string]bool) {
	for _, part := range []ast.Node{f.Type, f.Body} {
		if body, ok := part.(*ast.BlockStmt); ok && body == nil {
			continue
		}
		ast.Inspect(part, func(node ast.Node) bool {
			if id, ok := node.(*ast.Ident); ok {
				uses[id.Name] = true
			}
			return true
		})
	}
}

// walkOutside visits what is neither in the function that synctest.Test gets nor in a function of bubbled.
func walkOutside(file *ast.File, bubbled map[string]bool, visit func(ast.Node)) {
	var walk func(ast.Node)
	walk = func(root ast.Node) {
		ast.Inspect(root, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.FuncDecl:
				if !bubbled[n.Name.Name] && n.Body != nil {
					walk(n.Type)
					walk(n.Body)
				}
				return false
			case *ast.CallExpr:
				if isFunc(file, n.Fun, "testing/synctest", "Test") && len(n.Args) == 2 {
					walk(n.Args[0])
					if _, ok := n.Args[1].(*ast.FuncLit); !ok {
						walk(n.Args[1])
					}
					return false
				}
			}
			if node != nil {
				visit(node)
			}
			return true
		})
	}
	walk(file)
}

// isFunc returns whether expr is the function of the package with the import path.
func isFunc(file *ast.File, expr ast.Expr, importPath, function string) bool {
	selector, ok := expr.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != function {
		return false
	}
	id, ok := selector.X.(*ast.Ident)
	return ok && id.Name == importName(file, importPath)
}

// importName returns the name by which a file knows an import, or nothing.
func importName(file *ast.File, importPath string) string {
	for _, spec := range file.Imports {
		if value, err := strconv.Unquote(spec.Path.Value); err != nil || value != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

func TestWaitCheck(t *testing.T) {
	t.Parallel()
	const (
		imports   = "package p\n\nimport (\n\t\"context\"\n\t\"testing\"\n\t\"testing/synctest\"\n\t\"time\"\n\n\t\"" + module + "/internal/eventually\"\n)\n\n"
		inTest    = "func TestX(t *testing.T) {\n"
		unexcused = " in a test: wait for a signal"
		form      = "a directive has the form"
		nothing   = "the directive excuses nothing"
	)
	for name, c := range map[string]struct {
		source string
		want   []string // what the faults contain, in order
	}{
		"sleep":           {inTest + "time.Sleep(1)\n}", []string{"time.Sleep" + unexcused}},
		"after":           {inTest + "<-time.After(1)\n}", []string{"time.After" + unexcused}},
		"since":           {inTest + "_ = time.Since(began)\n}", []string{"time.Since" + unexcused}},
		"until":           {inTest + "_ = time.Until(end)\n}", []string{"time.Until" + unexcused}},
		"timer":           {inTest + "time.NewTimer(1)\n}", []string{"time.NewTimer" + unexcused}},
		"ticker":          {inTest + "time.NewTicker(1)\n}", []string{"time.NewTicker" + unexcused}},
		"tick":            {inTest + "for range time.Tick(1) {\n}\n}", []string{"time.Tick" + unexcused}},
		"after func":      {inTest + "time.AfterFunc(1, f)\n}", []string{"time.AfterFunc" + unexcused}},
		"timeout":         {inTest + "context.WithTimeout(ctx, 1)\n}", []string{"context.WithTimeout" + unexcused}},
		"timeout, cause":  {inTest + "context.WithTimeoutCause(ctx, 1, err)\n}", []string{"context.WithTimeoutCause" + unexcused}},
		"deadline":        {inTest + "context.WithDeadline(ctx, at)\n}", []string{"context.WithDeadline" + unexcused}},
		"deadline, cause": {inTest + "context.WithDeadlineCause(ctx, at, err)\n}", []string{"context.WithDeadlineCause" + unexcused}},
		"a loop by hand":  {inTest + "for time.Now().Before(end) {\n}\n}", []string{"time.Now().Before" + unexcused}},
		"a difference":    {inTest + "_ = time.Now().Sub(began)\n}", []string{"time.Now().Sub" + unexcused}},
		"of a connection": {inTest + "conn.SetReadDeadline(at)\n}", []string{"SetReadDeadline" + unexcused}},
		"as a value":      {"var wait = time.Sleep", []string{"time.Sleep" + unexcused}},
		"in a helper":     {"func help() { time.Sleep(1) }\n" + inTest + "help()\n}", []string{"time.Sleep" + unexcused}},
		"beside a bubble": {inTest + "synctest.Test(t, func(t *testing.T) {})\ntime.Sleep(1)\n}", []string{"time.Sleep" + unexcused}},
		"a part of patience": {
			inTest + "time.Sleep(eventually.Patience / 2)\n}", []string{"time.Sleep" + unexcused},
		},
		"a helper of a bubble and of others": {
			"func help() { time.Sleep(1) }\n" + inTest + "help()\nsynctest.Test(t, func(t *testing.T) { help() })\n}", []string{"time.Sleep" + unexcused},
		},
		"a helper that is kept elsewhere": {
			"var all = []func(){help}\nfunc help() { time.Sleep(1) }\n" + inTest + "synctest.Test(t, func(t *testing.T) { all[0](); help() })\n}",
			[]string{"time.Sleep" + unexcused},
		},
		"a method of an interface": {
			"func (x) Read() { time.Sleep(1) }\n" + inTest + "synctest.Test(t, func(t *testing.T) { x.Read() })\n}", []string{"time.Sleep" + unexcused},
		},
		"an excuse for another line": {
			inTest + "// waits: it is slow\n\ntime.Sleep(1)\n}", []string{"_test.go:13", nothing},
		},
		"an excuse for the line above": {
			inTest + "help() // waits: it is slow\ntime.Sleep(1)\n}", []string{"_test.go:13", nothing},
		},
		"no reason":           {inTest + "time.Sleep(1) // waits:\n}", []string{form, "time.Sleep" + unexcused}},
		"a reason of nothing": {inTest + "time.Sleep(1) // waits: \n}", []string{form, "time.Sleep" + unexcused}},
		"no space":            {inTest + "time.Sleep(1) //waits: it is slow\n}", []string{form, "time.Sleep" + unexcused}},
		"an idle excuse":      {inTest + "help() // waits: it was slow\n}", []string{nothing}},
		"an idle excuse in a bubble": {
			inTest + "synctest.Test(t, func(t *testing.T) {\ntime.Sleep(1) // waits: it is slow\n})\n}", []string{nothing},
		},
		"an idle excuse for a function": {"// help helps.\n//\n// waits: it was slow\nfunc help() {}", []string{nothing}},

		"no wait":              {inTest + "_ = time.Now().Add(time.Second)\n}", nil},
		"excused":              {inTest + "time.Sleep(1) // waits: it is slow\n}", nil},
		"excused in two lines": {inTest + "// waits: it is slow\n// and has reasons\ntime.Sleep(1)\n}", nil},
		"excused above":        {inTest + "// waits: it is slow\ntime.Sleep(1)\n}", nil},
		"an excused function":  {"// help helps.\n//\n// waits: it is slow\nfunc help() {\ntime.Sleep(1)\n\ntime.Sleep(1)\n}", nil},
		"a bubble":             {inTest + "synctest.Test(t, func(t *testing.T) { go func() { time.Sleep(1) }() })\n}", nil},
		"a helper of bubbles": {
			"func help() { other() }\nfunc other() { time.Sleep(1) }\n" + inTest + "synctest.Test(t, func(t *testing.T) { help() })\n}", nil,
		},
		"patience": {
			inTest + "context.WithTimeout(ctx, eventually.Patience)\n<-time.After(eventually.Patience)\nconn.SetDeadline(time.Now().Add(eventually.Patience))\n}", nil,
		},
		"another package's": {inTest + "clock.Sleep(1)\n}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults, err := checkWaits(map[string]string{"p/x_test.go": imports + c.source + "\n"})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(faults, "\n"); len(faults) != len(c.want) || !containsInOrder(got, c.want) {
				t.Errorf("got:\n%s\nwant %q", got, c.want)
			}
		})
	}
}

// Which files are for tests, and what they call the packages.
func TestWaitCheckFiles(t *testing.T) {
	t.Parallel()
	const waits = "func wait() { time.Sleep(1) }\n"
	for name, c := range map[string]struct {
		sources map[string]string
		want    []string
	}{
		"the product": {map[string]string{"p/p.go": "package p\nimport \"time\"\n" + waits, "p/p_test.go": "package p\nimport \"testing\"\n"}, nil},
		"a suite": {
			map[string]string{"p/p.go": "package p\nimport \"time\"\n" + waits, "p/q.go": "package p\nimport \"testing\"\n"}, []string{"p/p.go:3:15: time.Sleep"},
		},
		"another name":         {map[string]string{"p/p_test.go": "package p\nimport clock \"time\"\nfunc wait() { clock.Sleep(1) }\n"}, []string{"time.Sleep"}},
		"another time":         {map[string]string{"p/p_test.go": "package p\nimport \"example.com/time\"\n" + waits}, nil},
		"an excused file":      {map[string]string{"p/p_test.go": "// waits: all of it is slow\npackage p\nimport \"time\"\n" + waits + waits}, nil},
		"an idle excuse of it": {map[string]string{"p/p_test.go": "// waits: all of it was slow\npackage p\n"}, []string{"p/p_test.go:1: the directive excuses nothing"}},
		"a helper that another file uses": {
			map[string]string{
				"p/p_test.go": "package p\nimport \"time\"\n" + waits,
				"p/q_test.go": "package p\nimport \"testing/synctest\"\nfunc TestQ(t *testing.T) { synctest.Test(t, func(t *testing.T) { wait() }) }\n",
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults, err := checkWaits(c.sources)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(faults, "\n"); len(faults) != len(c.want) || !containsInOrder(got, c.want) {
				t.Errorf("got:\n%s\nwant %q", got, c.want)
			}
		})
	}
}

// containsInOrder returns whether text contains the parts, one behind the other.
func containsInOrder(text string, parts []string) bool {
	for _, part := range parts {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return true
}
