package local_test

import (
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
)

// A sub-agent is aborted at the moment in which its caller resumes it: the call's result
// says that it was aborted and why, not that the agent could not be called.
func TestAbortWhileCallerResumes(t *testing.T) {
	t.Parallel()
	for _, kind := range testbackend.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			db := kind.Open(t)
			clerk := &helix.Agent{
				Name: "clerk", Tools: []helix.Tool{{Name: "ask", Execute: helix.OnClient[struct{}]()}},
				Model: scripted.New(scripted.Call("ask", `{}`), scripted.Text("Asked.")).ByPosition(),
			}
			boss := &helix.Agent{
				Name: "boss", SubAgents: []helix.SubAgent{{Agent: clerk}},
				Model: scripted.New(scripted.Call("subagent__clerk", `{"task":"ask"}`), scripted.Text("Thanks.")).ByPosition(),
			}
			begin := func(backend store.Backend) *local.Runtime {
				rt, err := local.New(local.Config{Backend: backend, Sweep: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = rt.Close() })
				if err := rt.Register(boss); err != nil {
					t.Fatal(err)
				}
				return rt
			}
			other := begin(db)
			run, err := other.Execute(t.Context(), boss, helix.Input{SessionID: "s", Message: helix.UserText("Hi!")})
			if err != nil {
				t.Fatal(err)
			}
			res, err := run.Result(t.Context())
			if err != nil || res.Status != helix.SuspendedAwaitingChildren || len(res.Pending) != 1 {
				t.Fatalf("%+v, %v", res, err)
			}
			child := res.Pending[0].SessionID

			faults := storetest.NewFaults(db)
			aborted := false
			faults.Fail(func(op storetest.Op) storetest.When {
				if op.Name == "StartRun" && op.ID == child && !aborted {
					aborted = true
					if err := other.Abort(t.Context(), child, "enough"); err != nil {
						t.Errorf("abort: %v", err)
					}
				}
				return storetest.Pass
			})
			rt := begin(faults)
			if _, err := db.Sessions().Submit(t.Context(), child, helix.ToolResult(res.Pending[0].CallID, "yes").Submission); err != nil {
				t.Fatal(err)
			}
			if run, err = rt.Resume(t.Context(), "s", helix.ResumeOptions{}); err != nil {
				t.Fatal(err)
			}
			if res, err = run.Result(t.Context()); err != nil || res.Status != helix.Completed || !aborted {
				t.Fatalf("%+v, %v, aborted %v", res, err, aborted)
			}
			messages, err := db.Sessions().AllMessages(t.Context(), "s")
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				if m.Role != session.RoleTool {
					continue
				}
				if failure := m.Parts[0].Error; failure == nil || !strings.Contains(failure.Error(), "enough") {
					t.Errorf("the call ended with %v", failure)
				}
			}
		})
	}
}
