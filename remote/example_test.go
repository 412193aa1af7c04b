package remote_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/remote"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/store/memory"
)

// An agent calls one on another server. What that one asks of people is asked of
// the caller's.
func Example() {
	ctx := context.Background()

	// The other server.
	clerk := &helix.Agent{
		Name:  "clerk",
		Model: scripted.New(scripted.Call("sign", map[string]string{"what": "the lease"}), scripted.Text("The lease is signed.")),
		Tools: []helix.Tool{{
			Name: "sign", Description: "Sign a document.", Approval: helix.RequireApproval,
			Execute: helix.Func(func(context.Context, *helix.Call, map[string]string) (string, error) { return "signed", nil }),
		}},
	}
	there := memory.New(memory.Config{})
	defer there.Close()
	office, err := local.New(local.Config{Backend: there, Agents: []*helix.Agent{clerk}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer office.Shutdown(ctx)
	handler, err := server.New(server.Config{
		Executor: office, Backend: there, Agents: func() []*helix.Agent { return []*helix.Agent{clerk} }, AllowUnauthenticated: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	web := httptest.NewServer(handler)
	defer web.Close()

	// Here.
	away := &remote.Agent{URL: web.URL, Token: token, Agent: "clerk", Description: "Signs documents."}
	subs := []helix.SubAgent{away.SubAgent()}
	boss := &helix.Agent{
		Name:      "boss",
		Model:     scripted.New(scripted.Call("subagent__clerk", map[string]string{"task": "Sign the lease."}), scripted.Text("It is done.")),
		SubAgents: subs,
	}
	here := memory.New(memory.Config{})
	defer here.Close()
	rt, err := local.New(local.Config{Backend: here, Agents: []*helix.Agent{boss}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Shutdown(ctx)

	run, err := rt.Execute(ctx, boss, helix.Input{SessionID: "lease-1", Message: helix.UserText("Get the lease signed.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range res.Pending {
		fmt.Printf("%s wants to %s %s\n", p.Kind, p.Tool, p.Input)
		if _, err := rt.Submit(ctx, "lease-1", helix.Approve(p, helix.User{ID: "ann"})); err != nil {
			fmt.Println(err)
		}
	}
	run, err = rt.Resume(ctx, "lease-1", helix.ResumeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err = run.Result(ctx)
	fmt.Println(res.Text, err)
	// Output:
	// approval wants to sign {"what":"the lease"}
	// It is done. <nil>
}
