package remote_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/remote"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/sqlite"
)

// frozen is a database with agent trees that were suspended by a version whose
// child ids had no randomness of their own. It is never written anew: the version
// that can write it is gone.
const frozen = "testdata/trees-derived-ids.sqlite"

// office is the program that the frozen database belongs to: the same agents, with
// models that answer by position, so that a later process continues their scripts.
type office struct {
	*local.Runtime
	db                          *sqlite.Backend
	nested, hosted, away, apart *helix.Agent
}

// openOffice starts the program on a database. The remote agent is served from the
// same one.
func openOffice(t *testing.T, file string) *office {
	t.Helper()
	db, err := sqlite.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	signer := &helix.Agent{
		Name: "signer",
		Tools: []helix.Tool{{
			Name: "sign", Description: "sign", Approval: helix.RequireApproval, Deadline: helix.NoDeadline,
			Execute: helix.Func(func(_ context.Context, _ *helix.Call, in number) (int, error) { return 2 * in.N, nil }),
		}},
		Model: scripted.New(scripted.Call("sign", number{3}), scripted.Text("Signed.")).ByPosition(),
	}
	web := httptest.NewUnstartedServer(nil)
	there := &remote.Agent{URL: "http://" + web.Listener.Addr().String(), Token: token, Agent: "signer", Name: "notary"}
	task := map[string]string{"task": "do it"}
	middle := &helix.Agent{Name: "middle", SubAgents: []helix.SubAgent{{Agent: signer}}, Model: scripted.New(
		scripted.Call("subagent__signer", task), scripted.Text("It is signed.")).ByPosition()}
	writer := &helix.Agent{Name: "writer", Model: scripted.New(scripted.Text("First draft."), scripted.Text("Second draft.")).ByPosition()}
	o := &office{
		db: db,
		nested: &helix.Agent{Name: "nested", SubAgents: []helix.SubAgent{{Agent: middle}}, Model: scripted.New(
			scripted.Call("subagent__middle", task), scripted.Text("Done.")).ByPosition()},
		hosted: &helix.Agent{Name: "hosted", Companions: []helix.Companion{{Agent: signer}}, Model: scripted.New(
			scripted.Call(helix.SpawnAgentTool, map[string]string{"agent": "signer", "name": "sam", "initialMessage": "sign"}),
			scripted.Text("Done.")).ByPosition()},
		away: &helix.Agent{Name: "away", SubAgents: []helix.SubAgent{there.SubAgent()}, Model: scripted.New(
			scripted.Call("subagent__notary", task), scripted.Text("Done.")).ByPosition()},
		apart: &helix.Agent{Name: "apart", Companions: []helix.Companion{{Agent: writer}}, Model: scripted.New(
			scripted.Call(helix.SpawnAgentTool, map[string]string{"agent": "writer", "name": "wendy", "initialMessage": "write"}),
			scripted.Text("Ready."),
			scripted.Call(helix.SendMessageTool, map[string]string{"name": "wendy", "message": "again"}),
			scripted.Text("Done.")).ByPosition()},
	}
	agents := []*helix.Agent{signer, o.nested, o.hosted, o.away, o.apart}
	if o.Runtime, err = local.New(local.Config{Backend: db, Agents: agents, Sweep: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	authenticate, err := server.Tokens(server.Token{Token: token, Identity: server.Identity{User: "boss"}})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(server.Config{
		Executor: o.Runtime, Backend: db, Agents: func() []*helix.Agent { return agents }, Authenticate: authenticate,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	web.Config.Handler = srv
	web.Start()
	t.Cleanup(func() {
		ctx := eventually.Context(t)
		if err := srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// result waits for a run.
func (o *office) result(t *testing.T, run helix.Run, err error) *helix.Result {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	res, err := run.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Trees that were suspended before ids of children became unguessable are resumed:
// a child is found by the id that its caller's reference has.
func TestFrozenTrees(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(frozen)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trees.db")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	o := openOffice(t, file)
	for _, agent := range []*helix.Agent{o.nested, o.hosted, o.away} {
		waiting, err := o.Waiting(t.Context(), agent.Name)
		if err != nil || len(waiting) == 0 {
			t.Fatalf("%s waits for %+v, %v", agent.Name, waiting, err)
		}
		children, err := o.db.Sessions().Children(t.Context(), agent.Name)
		if err != nil || len(children) != 1 || strings.Count(children[0].SessionID, "-") != 2 {
			t.Fatalf("the children of %s are %+v, %v, want one with an id of the earlier form", agent.Name, children, err)
		}
		p := waiting[0]
		if out, err := o.Submit(t.Context(), agent.Name, helix.Approve(p, helix.User{})); err != nil || out.Outcome != helix.SubmitAccepted {
			t.Fatalf("the answer to %s is %+v, %v", agent.Name, out, err)
		}
		run, err := o.Resume(t.Context(), agent.Name, helix.ResumeOptions{})
		if res := o.result(t, run, err); res.Status != helix.Completed || res.Text != "Done." {
			t.Fatalf("%s came to %+v", agent.Name, res)
		}
		after, err := o.db.Sessions().Children(t.Context(), agent.Name)
		if err != nil || len(after) != 1 || after[0].SessionID != children[0].SessionID || after[0].Status != session.ChildCompleted {
			t.Fatalf("the children of %s are %+v, %v, were %+v", agent.Name, after, err, children)
		}
	}
	// A companion is the one that the reference names, and remembers.
	run, err := o.Execute(t.Context(), o.apart, helix.Input{SessionID: "apart", Message: helix.UserText("Continue.")})
	if res := o.result(t, run, err); res.Status != helix.Completed || res.Text != "Done." {
		t.Fatalf("the run is %+v", res)
	}
	messages, err := o.db.Sessions().AllMessages(t.Context(), "apart-agent-wendy")
	if err != nil || len(messages) != 4 || messages[3].Content() != "Second draft." {
		t.Fatalf("the companion's messages are %+v, %v", messages, err)
	}
}
