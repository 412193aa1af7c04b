package layering

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/helixagents/helix"

// jsonschema infers schemas from Go types and validates what a model sends; it needs nothing but the standard library.
const jsonschema = "github.com/google/jsonschema-go"

// The layers. Patterns are relative to the module root, "." is the root itself, "*" one path element, and "x/..." means x
// and all below it. Where several match, the one that spells out more decides.
//
// A package may import the standard library, packages of the layers listed in its own, modules listed in it, and its own
// tree: the packages below what the pattern matches, so cmd/helix/a may import cmd/helix/b.
var layers = []layer{
	{
		name:     "domain", // types and small interfaces
		packages: []string{"session", "stream", "llm", "skill", "memory", "usage", "workspace", "lock", "store", "blob"},
		imports:  []string{"domain"},
	},
	{
		name:       "support", // what adapters and the layers above share without showing it
		packages:   []string{"internal/*/...", "store/internal/...", "llm/internal/...", "workspace/internal/..."},
		imports:    []string{"domain", "support"},
		thirdParty: anyModule,
	},
	{
		name:       "adapter", // implement domain interfaces, know nothing above the domain
		packages:   []string{"store/*/...", "blob/*/...", "llm/*/...", "skill/*/...", "workspace/*/..."},
		imports:    []string{"domain", "support"},
		thirdParty: anyModule,
	},
	{
		name: "suite", // conformance suites of adapters
		packages: []string{
			"store/storetest/...", "stream/streamtest/...", "llm/llmtest/...", "workspace/workspacetest/...",
		},
		imports:    []string{"domain", "support"},
		thirdParty: anyModule,
	},
	{
		name:     "choice", // adapters by name, for programs and tests that leave the choice open
		packages: []string{"internal/backend", "internal/testbackend", "llm/models"},
		imports:  []string{"domain", "support", "adapter", "choice"},
	},
	{
		name:       "helix", // what an application imports
		packages:   []string{"."},
		imports:    []string{"domain", "support"},
		thirdParty: []string{jsonschema},
	},
	{
		name:     "builtin", // tools that need nothing but the above
		packages: []string{"builtin"},
		imports:  []string{"domain", "helix"},
	},
	{
		name:     "extension", // abilities that are known when a turn begins
		packages: []string{"extension/..."},
		imports:  []string{"domain", "support", "helix"},
	},
	{
		name:       "config", // agents from a file
		packages:   []string{"config/..."},
		imports:    []string{"domain", "support", "adapter", "choice", "helix", "builtin", "extension"},
		thirdParty: anyModule,
	},
	{
		name:       "tracing", // hooks that report to an observability system
		packages:   []string{"tracing/..."},
		imports:    []string{"domain", "support", "helix"},
		thirdParty: anyModule,
	},
	{
		name:     "machine", // what a turn does next, as a pure function of results
		packages: []string{"engine/machine"},
		imports:  []string{"domain"},
	},
	{
		name:     "engine", // the handler of effects
		packages: []string{"engine/..."},
		imports:  []string{"domain", "support", "helix", "machine"},
	},
	{
		name:       "engine suite", // turns cut off everywhere, on any backend
		packages:   []string{"engine/enginetest/..."},
		imports:    []string{"domain", "support", "adapter", "suite", "helix", "machine", "engine"},
		thirdParty: anyModule,
	},
	{
		name:     "host", // what runtimes share
		packages: []string{"runtime/host"},
		imports:  []string{"domain", "support", "helix", "machine", "engine"},
	},
	{
		name:       "runtime", // where effects run
		packages:   []string{"runtime/*/..."},
		imports:    []string{"domain", "support", "helix", "machine", "engine", "host"},
		thirdParty: anyModule,
	},
	{
		name:       "runtime suite", // every behaviour as a scenario, on any executor and backend
		packages:   []string{"runtime/runtimetest/..."},
		imports:    []string{"domain", "support", "adapter", "suite", "helix", "extension", "machine", "engine", "engine suite"},
		thirdParty: anyModule,
	},
	{
		name:     "wire", // the HTTP API as data
		packages: []string{"server/wire"},
		imports:  []string{"domain"},
	},
	{
		name:     "client", // of the HTTP API
		packages: []string{"client"},
		imports:  []string{"domain", "wire"},
	},
	{
		name:     "remote", // agents on other servers
		packages: []string{"remote"},
		imports:  []string{"domain", "helix", "wire", "client"},
	},
	{
		name:       "server", // HTTP
		packages:   []string{"server/..."},
		imports:    []string{"domain", "support", "helix", "tracing", "engine", "runtime", "wire"},
		thirdParty: anyModule,
	},
	{
		name:       "studio", // the web page
		packages:   []string{"studio/..."},
		imports:    []string{"domain", "support", "helix", "tracing", "engine", "runtime", "server"},
		thirdParty: anyModule,
	},
	{
		name:       "bake", // fetches skills, for a program of its own: no application has it
		packages:   []string{"skill/bake"},
		imports:    []string{"domain", "support", "adapter"},
		thirdParty: anyModule,
	},
	{
		name:     "top", // programs, users' test kit, tests' own tools: nothing imports them
		packages: []string{"cmd/*/...", "bench/...", "examples", "examples/*/...", "helixtest/...", "internal/layering", "internal/chaos/...", "internal/simulation", "internal/webtest/...", "docs"},
		imports: []string{
			"domain", "support", "adapter", "choice", "suite", "helix", "builtin", "extension", "config", "tracing", "machine", "engine", "engine suite", "runtime",
			"runtime suite", "wire", "client", "remote", "server", "studio", "bake",
		},
		thirdParty: anyModule,
	},
}

// What every application compiles, and the third-party modules that may come along, by whatever path.
var (
	lean        = []string{".", "engine", "runtime/local"}
	leanModules = []string{jsonschema}
)

// The SQL of the SQLite stores: it is used by stores with different drivers, so it pulls in none.
var driverless = []string{"store/internal/lite"}

func TestImportsPointDownOnly(t *testing.T) {
	t.Parallel()
	report(t, checkLayers(moduleGraph(t), layers))
}

func TestNoHeavyDependencyLeaks(t *testing.T) {
	t.Parallel()
	report(t, checkClosure(moduleGraph(t), lean, leanModules))
}

func TestNoDriverBelowStatements(t *testing.T) {
	t.Parallel()
	g := moduleGraph(t)
	for _, path := range driverless {
		if _, ok := g[path]; !ok {
			t.Errorf("%s does not exist", path)
		}
	}
	report(t, checkClosure(g, driverless, nil))
}

// machineImports is all that engine/machine may import. A package that does I/O, reads a clock or draws random numbers is
// not among them: whoever wants to import one has to change this list.
var machineImports = []string{"slices", "strconv", module + "/session"}

func TestMachineIsPure(t *testing.T) {
	t.Parallel()
	found := list(t, "-f", `{{join .Imports "\n"}}`, "./engine/machine")
	if len(found) == 0 {
		t.Fatal("go list found no imports of engine/machine")
	}
	for _, imp := range found {
		if !slices.Contains(machineImports, imp) {
			t.Errorf("engine/machine imports %s: it may import nothing but %s", imp, strings.Join(machineImports, ", "))
		}
	}
}

// TestEngineKnowsNoAbility: what an agent may do besides talking and calling tools is a package
// beside the engine, which a program that does not use it does not compile.
func TestEngineKnowsNoAbility(t *testing.T) {
	t.Parallel()
	deps := list(t, "-deps", ".", "./engine")
	for _, ability := range []string{"skill", "memory", "workspace", "extension"} {
		for _, dep := range deps {
			if path := strings.TrimPrefix(dep, module+"/"); path == ability || strings.HasPrefix(path, ability+"/") {
				t.Errorf("the engine depends on %s", dep)
			}
		}
	}
	if !slices.Contains(deps, module+"/session") {
		t.Error("no dependency was found, so the test shows nothing")
	}
}

// Adapters of model providers, which need nothing but the standard library: an application pays for an HTTP client.
var providers = []string{"llm/anthropic", "llm/gemini", "llm/openai", "llm/models"}

func TestProvidersNeedNoModule(t *testing.T) {
	t.Parallel()
	report(t, checkClosure(moduleGraph(t), providers, nil))
}

// list returns what go list prints, word by word.
func list(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Fields(string(out))
}

func report(t *testing.T, violations []string) {
	t.Helper()
	for _, v := range violations {
		t.Error(v)
	}
}
