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
)

func TestCleanup(t *testing.T) {
	t.Parallel()
	for _, kind := range testbackend.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			db := kind.Open(t)
			ask := helix.Tool{Name: "ask", Description: "Ask the user.", Execute: helix.OnClient[struct{}]()}
			agent := &helix.Agent{
				Name: "clerk", Instructions: "Ask.", Tools: []helix.Tool{ask},
				Model: scripted.New(scripted.Call("ask", `{}`)).ByPosition(),
			}
			// The one that cleans up does not know the agent.
			keeper, err := local.New(local.Config{Backend: db, NoRecovery: true})
			if err != nil {
				t.Fatal(err)
			}
			defer keeper.Shutdown(t.Context())
			rt, err := local.New(local.Config{Backend: db, NoRecovery: true, Sweep: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Shutdown(t.Context())
			now, err := db.Sessions().Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []struct {
				id, tenant string
				expires    time.Time
			}{
				{"late", "a", now.Add(-time.Minute)},
				{"in time", "a", now.Add(time.Hour)},
				{"never", "a", time.Time{}},
				{"late", "b", now.Add(-time.Minute)},
			} {
				id := s.tenant + "-" + strings.ReplaceAll(s.id, " ", "-")
				run, err := rt.Tenant(s.tenant).Execute(t.Context(), agent, helix.Input{
					SessionID: id, Message: helix.UserText("Hi!"), ExpiresAt: s.expires,
				})
				if err != nil {
					t.Fatal(err)
				}
				if res, err := run.Result(t.Context()); err != nil || res.Status != helix.SuspendedClientTool {
					t.Fatalf("%s: %v, %v", id, res, err)
				}
			}

			done, err := keeper.Cleanup(t.Context(), "a")
			if err != nil || done.Detected != 1 || done.Marked != 1 || len(done.Errors) != 0 {
				t.Errorf("cleaned up %+v, %v", done, err)
			}
			if again, err := keeper.Cleanup(t.Context(), "a"); err != nil || again.Detected != 0 {
				t.Errorf("cleaned up again: %+v, %v", again, err)
			}
			state, err := db.Sessions().Tenant("a").Load(t.Context(), "a-late")
			if err != nil || state.Status != session.Failed || state.FailureReason != session.FailureExpired {
				t.Errorf("the expired session is %+v, %v", state, err)
			}
			if all, err := keeper.Cleanup(t.Context(), ""); err != nil || all.Marked != 1 {
				t.Errorf("cleaned up all tenants: %+v, %v", all, err)
			}
		})
	}
}
