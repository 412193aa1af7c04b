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
	// SlowSteps has the session of hundreds of steps take only as many as make one marker, for a
	// runtime whose steps are slow. It has no effect with HELIX_SOAK.
	SlowSteps bool
	// FakeTime plays each scenario in a bubble of [synctest], in which time passes only while
	// everybody waits, so that no machine is too slow. Backend and runtime must live in the
	// process of the test and use no network.
	FakeTime bool
	// SkipTimed leaves out the scenarios that wait for deadlines of a few moments, for a
	// machine that may be too busy to begin them in time. It has no effect with FakeTime.
	SkipTimed bool
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

// timed are the scenarios that wait for a deadline of a few moments, which a machine that is
// busy may miss while it is still at the beginning (see [Config.SkipTimed]).
var timed = map[string]bool{
	"context/hanging":                                       true,
	"context/overflow in vain":                              true,
	"extensions/tasks of an expired session":                true,
	"hangs/sweeps":                                          true,
	"lifetime/abandoned calls reported":                     true,
	"lifetime/answered before the expiry":                   true,
	"lifetime/answered and running":                         true,
	"lifetime/answered below":                               true,
	"lifetime/expiry is seen":                               true,
	"lifetime/expiry of a session in use":                   true,
	"lifetime/renewal at the end":                           true,
	"nested/deadline at a resume":                           true,
	"nested/deadline swept":                                 true,
	"people/abandoned past a deadline":                      true,
	"people/answer at the deadline":                         true,
	"people/answer at the suspension":                       true,
	"people/answer past the deadline":                       true,
	"people/deadline at a resume":                           true,
	"people/deadline at an execute":                         true,
	"people/deadline in a sweep":                            true,
	"people/deadline of a tenant":                           true,
	"people/deadline reported":                              true,
	"people/deleted":                                        true,
	"people/expired session":                                true,
	"people/late answer":                                    true,
	"people/late answer by policy":                          true,
	"people/late answer to a live run":                      true,
	"people/late approval":                                  true,
	"people/one of two deadlines":                           true,
	"people/paused":                                         true,
	"questions/deadline":                                    true,
	"recovery/heartbeat":                                    true,
	"remote ends/deadline":                                  true,
	"remote ends/expired":                                   true,
	"remote ends/expired, caller killed":                    true,
	"remote ends/expired, not answered":                     true,
	"remote ends/expired on an older server":                true,
	"remote ends/expired on an older server, caller killed": true,
	"remote ends/expired on an older server, not answered":  true,
	"remotes/deadline":                                      true,
	"remotes/deadline and policy":                           true,
	"remotes/expired":                                       true,
	"remotes/in time":                                       true,
	"remotes/in time but lost":                              true,
	"remotes/late":                                          true,
	"tasks/at once":                                         true,
	"tasks/shutdown's grace":                                true,
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
		{"hangs", hangScenarios()},
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
				name := group.Name + "/" + scenario.Name
				if i%every != config.First%every && !everywhere[name] || timed[name] && config.SkipTimed && !config.FakeTime {
					continue
				}
				t.Run(scenario.Name, func(t *testing.T) {
					t.Parallel()
					if why, ok := config.Skip[name]; ok {
						skipped.Add(1)
						t.Skipf("SKIPPED, %s: %s", why, scenario.Doc)
					}
					ran.Add(1)
					if config.FakeTime {
						synctest.Test(t, func(t *testing.T) { play(t, &config, name, scenario) })
						return
					}
					play(t, &config, name, scenario)
				})
			}
		})
	}
}

// play runs one scenario and then checks the sessions that it created.
func play(t *testing.T, config *Config, name string, scenario Scenario) {
	s := newStage(t, config, name)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("promise: %s", scenario.Doc)
			t.Logf("log:\n%s", s.Log.String())
		}
	})
	scenario.Func(s)
	if !t.Failed() {
		if timed[name] && !s.paced.Load() {
			t.Errorf("the scenario %s is in the list of timed ones, and waits for no deadline", name)
		}
		s.checkSessions()
		for _, n := range s.servers {
			n.checkSessions()
		}
	}
}
