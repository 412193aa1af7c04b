package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

type invoice struct {
	Customer string `json:"customer" jsonschema:"who pays"`
	Cents    int    `json:"cents"`
}

// An agent with an output type finishes by calling __finish__. Arguments that do not match
// the type are returned to the model with an error that names the field.
func ExampleOutput() {
	agent := &helix.Agent{
		Name:   "clerk",
		Output: helix.OutputOf[invoice](),
		Model: scripted.New(
			scripted.Finish(`{"customer":"Ann","cents":"twelve"}`),
			scripted.Finish(`{"customer":"Ann","cents":1200}`),
		),
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
	run, err := rt.Execute(ctx, agent, helix.Input{Message: helix.UserText("Ann owes 12 euros.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	bill, err := helix.Output[invoice](res)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s pays %d cents\n", bill.Customer, bill.Cents)

	messages, err := db.Sessions().AllMessages(ctx, res.SessionID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the model sees:", messages[2].Parts[0].Error.Message)
	// Output:
	// Ann pays 1200 cents
	// the model sees: the result does not fit: cents: type: twelve has type "string", want "integer"
}
