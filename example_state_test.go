package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

type basket struct {
	Items []string `json:"items"`
	Total int      `json:"total"`
}

// Custom state is a Go type. What a call changes becomes operations on top-level
// fields, so appends of calls that run at the same time compose, in the order of
// the calls.
func ExampleUpdate() {
	type purchase struct {
		Item string `json:"item"`
	}
	add := helix.Tool{
		Name: "add", Description: "Put an item into the basket.",
		Execute: helix.Func(func(_ context.Context, call *helix.Call, in purchase) (string, error) {
			helix.Update(call, func(b *basket) { b.Items = append(b.Items, in.Item) })
			return "added", nil
		}),
	}
	agent := &helix.Agent{
		Name:  "shop",
		State: helix.StateOf(basket{Items: []string{"bag"}}), // the defaults
		Tools: []helix.Tool{add},
		InstructionsFunc: func(_ context.Context, p *helix.Prompt) (string, error) {
			return fmt.Sprintf("The basket holds %d items.", len(helix.State[basket](p).Items)), nil
		},
	}
	model := scripted.New(
		scripted.Reply(
			scripted.Calling("add", `{"item":"apples"}`), // these three run at the same time
			scripted.Calling("add", `{"item":"bread"}`),
			scripted.Calling("add", `{"item":"cheese"}`),
		),
		scripted.Text("All in the basket."),
	)
	agent.Model = model

	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Shutdown(ctx)
	run, err := rt.Execute(ctx, agent, helix.Input{
		SessionID: "s-1",
		Message:   helix.UserText("Apples, bread and cheese, please."),
		State:     map[string]int{"total": 7}, // laid over the defaults
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := run.Result(ctx); err != nil {
		fmt.Println(err)
		return
	}
	state, err := helix.ReadState[basket](ctx, rt.Sessions(), "s-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(state.Items, state.Total)
	for _, request := range model.Requests() {
		fmt.Println(request.Instructions)
	}
	// Output:
	// [bag apples bread cheese] 7
	// The basket holds 1 items.
	// The basket holds 4 items.
}
