// Nested: an approval that a sub-agent's sub-agent needs suspends the whole
// conversation, and an answer at the root resumes it.
//
// A manager calls a lawyer, who calls a notary, who needs approval to sign. Each
// agent has its own session. The manager's session lists the waiting call and accepts
// the answer. Resuming the manager resumes exactly the agents that wait.
package main

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

type document struct {
	Title string `json:"title"`
}

type deed struct {
	Number int `json:"number"`
}

var notary = &helix.Agent{
	Name: "notary", Description: "Signs documents.",
	Tools: []helix.Tool{{
		Name: "sign", Description: "Sign a document.", Approval: helix.RequireApproval,
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in document) (deed, error) {
			fmt.Println("signing", in.Title)
			return deed{Number: 42}, nil
		}),
	}},
	Output: helix.OutputOf[deed](),
	Model:  scripted.New(scripted.Call("sign", document{"the lease"}), scripted.Finish(deed{42})),
}

var lawyer = &helix.Agent{
	Name: "lawyer", Description: "Draws up contracts.",
	SubAgents: []helix.SubAgent{{Agent: notary, Input: helix.InputOf[document]()}},
	Model:     scripted.New(scripted.Call("subagent__notary", document{"the lease"}), scripted.Text("The lease is signed, deed 42.")),
}

var manager = &helix.Agent{
	Name:      "manager",
	SubAgents: []helix.SubAgent{{Agent: lawyer}},
	Model:     scripted.New(scripted.Call("subagent__lawyer", map[string]string{"task": "Draw up the lease."}), scripted.Text("You may move in.")),
}

func main() {
	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db})
	check(err)
	defer rt.Shutdown(ctx)

	run, err := rt.Execute(ctx, manager, helix.Input{SessionID: "flat", Message: helix.UserText("I would like the flat.")})
	check(err)
	res, err := run.Result(ctx)
	check(err)
	fmt.Println("the manager is", res.Status)
	for _, p := range res.Pending {
		owner, err := rt.Sessions().Get(ctx, p.SessionID)
		check(err)
		fmt.Printf("%s of %s is waiting: %s\n", p.Tool, owner.Agent, p.Input)
		out, err := rt.Submit(ctx, "flat", helix.Approve(p, helix.User{ID: "ann"}))
		check(err)
		fmt.Println("the answer is", out.Outcome)
	}

	run, err = rt.Resume(ctx, "flat", helix.ResumeOptions{})
	check(err)
	res, err = run.Result(ctx)
	check(err)
	fmt.Println("the manager is", res.Status, "and says:", res.Text)
	page, err := rt.Sessions().List(ctx, session.Query{})
	check(err)
	for _, s := range slices.Backward(page.Items) {
		fmt.Println(s.Agent, "took", s.Turn, "turns")
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
