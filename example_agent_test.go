package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// An agent is data: a model, instructions and tools. A runtime runs it on a
// backend. The scripted model stands in for a provider's.
func ExampleAgent() {
	type place struct {
		City string `json:"city" jsonschema:"the city's name"`
	}
	weather := helix.Tool{
		Name:        "weather",
		Description: "Tell the weather in a city.",
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in place) (string, error) {
			return "sunny in " + in.City, nil
		}),
		ReadOnly: true, // no effect: may run again after a crash
	}
	agent := &helix.Agent{
		Name:         "guide",
		Instructions: "You help travellers.",
		Model: scripted.New(
			scripted.Call("weather", `{"city":"Lisbon"}`),
			scripted.Text("It is sunny in Lisbon. Go!"),
		),
		Tools: []helix.Tool{weather},
	}

	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Shutdown(ctx)

	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "trip", Message: helix.UserText("Shall I go to Lisbon?")})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status, "in", res.Steps, "steps:", res.Text)

	messages, err := rt.Sessions().Messages(ctx, "trip", session.PageRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range messages.Items {
		fmt.Println("-", m.Role)
	}
	// Output:
	// completed in 2 steps: It is sunny in Lisbon. Go!
	// - user
	// - assistant
	// - tool
	// - assistant
}
