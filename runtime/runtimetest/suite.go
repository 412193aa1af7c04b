package runtimetest

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/store"
)

// Executor is a runtime under test. Shutdown and Close may be called more than once, also
// after Kill.
type Executor interface {
	helix.Runtime
	// Kill drops the runtime as if its process had died: its writes do not reach the backend
	// any more.
	Kill()
}

// Options are the options that a scenario starts a runtime with.
type Options = helix.RuntimeOptions

// Config configures the suite.
type Config struct {
	// NewBackend opens an empty backend, and closes it when t ends.
	NewBackend func(t testing.TB) store.Backend
	// Reopen opens a second handle on a backend's data, as another process would,
	// and closes it when t ends. Defaults to the backend itself.
	Reopen func(t testing.TB, backend store.Backend) store.Backend
	// NewRuntime starts a runtime with the given options. The runtimes of one deployment
	// share a backend and work together, and do not work with those of any other. The
	// suite closes the runtime.
	NewRuntime func(t testing.TB, deployment string, opts helix.RuntimeOptions) helix.Runtime
	// Snapshots takes a snapshot at every write, and checks each against the session's final
	// state.
	Snapshots bool
	// Pace multiplies the deadlines of client tools and approvals in scenarios, for a runtime
	// whose steps are slower. Defaults to 1.
	Pace int
	// FakeTime plays each scenario in a bubble of [synctest], in which time passes only while
	// everybody waits, so that no machine is too slow. Backend and runtime must live in the
	// process of the test and use no network.
	FakeTime bool
	// Every runs only each Every-th scenario of a group, starting with the one at the index
	// First, if running all takes too long. Defaults to all.
	Every, First int
	// Skip has the reasons why scenarios ("group/name") do not apply.
	Skip map[string]string
}

// Scenario is one behaviour of a runtime.
type Scenario struct {
	Name string
	// Doc states the promise in one line. It is printed on failure.
	Doc  string
	Func func(s *Stage)
}

// Group has the scenarios about one concern.
type Group struct {
	Name      string
	Scenarios []Scenario
}

// everywhere are scenarios that run whatever [Config.Every] leaves out, because they depend
// on what each store does in a way of its own.
var everywhere = map[string]bool{
	"questions/killed three agents down": true,
	"questions/not supported":            true,
	"context/long":                       true,
	"evictions/read back":                true,
	"evictions/branch and delete":        true,
	"skills/compacted":                   true,
}

// Groups returns all scenarios.
func Groups() []Group {
	return []Group{
		{"execute", executeScenarios()},
		{"multiturn", multiturnScenarios()},
		{"models", modelScenarios()},
		{"tools", toolScenarios()},
		{"state", stateScenarios()},
		{"finish", finishScenarios()},
		{"limits", limitScenarios()},
		{"blobs", blobScenarios()},
		{"evictions", evictionScenarios()},
		{"hooks", hookScenarios()},
		{"streams", streamScenarios()},
		{"stops", stopScenarios()},
		{"resume", resumeScenarios()},
		{"retry", retryScenarios()},
		{"branch", branchScenarios()},
		{"tasks", taskScenarios()},
		{"recovery", recoveryScenarios()},
		{"shutdown", shutdownScenarios()},
		{"usage", usageScenarios()},
		{"badinput", badInputScenarios()},
		{"tenants", tenantScenarios()},
		{"people", peopleScenarios()},
		{"questions", questionScenarios()},
		{"subagents", subagentScenarios()},
		{"nested", nestedScenarios()},
		{"companions", companionScenarios()},
		{"rewinds", rewindScenarios()},
		{"forged children", forgedChildScenarios()},
		{"remotes", remoteScenarios()},
		{"remote ends", remoteEndScenarios()},
		{"lifetime", lifetimeScenarios()},
		{"registry", registryScenarios()},
		{"reads", readScenarios()},
		{"observers", observerScenarios()},
		{"extensions", slices.Concat(extensionScenarios(), badExtensionScenarios(), extensionTaskScenarios())},
		{"views", viewScenarios()},
		{"context", contextScenarios()},
		{"skills", skillScenarios()},
	}
}

// Run runs every scenario on a runtime and a backend.
func Run(t *testing.T, config Config) {
	if config.Reopen == nil {
		config.Reopen = func(_ testing.TB, backend store.Backend) store.Backend { return backend }
	}
	every := max(config.Every, 1)
	var ran, skipped atomic.Int64
	t.Cleanup(func() { t.Logf("runtimetest: %d scenarios, %d skipped", ran.Load(), skipped.Load()) })
	for _, group := range Groups() {
		t.Run(group.Name, func(t *testing.T) {
			t.Parallel()
			for i, scenario := range group.Scenarios {
				if i%every != config.First%every && !everywhere[group.Name+"/"+scenario.Name] {
					continue
				}
				t.Run(scenario.Name, func(t *testing.T) {
					t.Parallel()
					if why, ok := config.Skip[group.Name+"/"+scenario.Name]; ok {
						skipped.Add(1)
						t.Skipf("SKIPPED, %s: %s", why, scenario.Doc)
					}
					ran.Add(1)
					if config.FakeTime {
						synctest.Test(t, func(t *testing.T) { play(t, &config, scenario) })
						return
					}
					play(t, &config, scenario)
				})
			}
		})
	}
}

// play runs one scenario and then checks the sessions that it created.
func play(t *testing.T, config *Config, scenario Scenario) {
	s := newStage(t, config)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("promise: %s", scenario.Doc)
			t.Logf("log:\n%s", s.Log.String())
		}
	})
	scenario.Func(s)
	if !t.Failed() {
		s.checkSessions()
		for _, n := range s.servers {
			n.checkSessions()
		}
	}
}
