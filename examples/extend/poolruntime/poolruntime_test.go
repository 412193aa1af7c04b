package poolruntime_test

import (
	"flag"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"example.com/extend/mapstore"
	"example.com/extend/poolruntime"
	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/store"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // scenarios wait more than they work
	goleak.VerifyTestMain(m)
}

func TestRuntime(t *testing.T) {
	t.Parallel()
	runtimetest.Run(t, runtimetest.Config{NewBackend: newBackend, NewRuntime: newRuntime, FakeTime: true})
}

// workers is enough for every scenario: one of them has 300 runs ask their models at
// the same time.
const workers = 320

// TestOneWorker shows that a turn which waits for another agent holds no worker: a
// chain of agents, of which each waits for the next, runs on a single one.
func TestOneWorker(t *testing.T) {
	t.Parallel()
	rt, err := poolruntime.New(poolruntime.Config{RuntimeOptions: helix.RuntimeOptions{Backend: newBackend(t)}, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	agent := &helix.Agent{Name: "agent-0", Model: scripted.New(scripted.Text("Done."))}
	for i := range 3 {
		agent = &helix.Agent{
			Name:      fmt.Sprintf("agent-%d", i+1),
			SubAgents: []helix.SubAgent{{Agent: agent, Input: helix.InputOf[struct{}]()}},
			Model:     scripted.New(scripted.Call("subagent__"+agent.Name, struct{}{}), scripted.Text("Done.")),
		}
	}
	run, err := rt.Execute(t.Context(), agent, helix.Input{Message: helix.UserText("Go!")})
	if err != nil {
		t.Fatal(err)
	}
	res, err := run.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != helix.Completed || res.Text != "Done." {
		t.Errorf("the run is %s with the text %q: %v", res.Status, res.Text, res.Err())
	}
}

func newBackend(t testing.TB) store.Backend {
	backend := mapstore.New(mapstore.Config{})
	t.Cleanup(func() { backend.Close() })
	return backend
}

func newRuntime(t testing.TB, _ string, options helix.RuntimeOptions) helix.Runtime {
	rt, err := poolruntime.New(poolruntime.Config{RuntimeOptions: options, Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}
