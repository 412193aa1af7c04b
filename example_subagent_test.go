package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// A sub-agent is a tool of the agent that may call it. Each call has its own session. A
// call at any depth that waits for a person suspends all agents above it; answer and resume
// it at the root session.
func ExampleSubAgent() {
	type document struct {
		Title string `json:"title"`
	}
	notary := &helix.Agent{
		Name: "notary", Description: "Signs documents.",
		Tools: []helix.Tool{{
			Name: "sign", Description: "Sign a document.", Approval: helix.RequireApproval,
			Execute: helix.Func(func(_ context.Context, _ *helix.Call, in document) (string, error) {
				return in.Title + " is signed", nil
			}),
		}},
		Model: scripted.New(scripted.Call("sign", document{"the lease"}), scripted.Text("Signed as deed 42.")),
	}
	lawyer := &helix.Agent{
		Name:      "lawyer",
		SubAgents: []helix.SubAgent{{Agent: notary, Input: helix.InputOf[document]()}},
		Model:     scripted.New(scripted.Call("subagent__notary", document{"the lease"}), scripted.Text("You may move in.")),
	}
	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Shutdown(ctx)

	run, err := rt.Execute(ctx, lawyer, helix.Input{SessionID: "flat", Message: helix.UserText("I would like the flat.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status)
	for _, p := range res.Pending {
		owner, err := db.Sessions().Load(ctx, p.SessionID)
		if err != nil {
			fmt.Println(err)
			return
		}
		out, err := rt.Submit(ctx, "flat", helix.Approve(p, helix.User{ID: "ann"})) // at the top
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s of %s: %s\n", p.Tool, owner.Agent, out.Outcome)
	}

	if run, err = rt.Resume(ctx, "flat", helix.ResumeOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	if res, err = run.Result(ctx); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := db.Sessions().AllMessages(ctx, "flat")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("the notary says %s\n", messages[2].Parts[0].ResultJSON())
	fmt.Println(res.Status, res.Text)
	// Output:
	// suspended_awaiting_children
	// sign of notary: accepted
	// the notary says "Signed as deed 42."
	// completed You may move in.
}
