package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

type depthKey struct{}

// outline prints what a runtime does, indented by what it belongs to.
type outline struct{}

// Begin implements [helix.Observer].
func (outline) Begin(ctx context.Context, a *helix.Activity) (context.Context, func(*helix.Ending)) {
	depth, _ := ctx.Value(depthKey{}).(int)
	fmt.Printf("%*s%s %s\n", 2*depth, "", a.Kind, a.Name)
	return context.WithValue(ctx, depthKey{}, depth+1), func(e *helix.Ending) {
		if a.Kind == helix.ActivityRun {
			fmt.Printf("%s: %d tokens\n", e.Status, e.Usage.TotalTokens())
		}
	}
}

// An observer is told of each activity of a runtime. The context that it returns reaches
// the model or the tool, so that what they begin belongs to the activity.
func ExampleObserver() {
	type city struct {
		Name string `json:"name"`
	}
	agent := &helix.Agent{
		Name:  "weather",
		Model: scripted.New(scripted.Call("forecast", `{"name":"Oslo"}`), scripted.Text("It will rain.")),
		Tools: []helix.Tool{{
			Name: "forecast", Description: "The weather of tomorrow.", ReadOnly: true,
			Execute: helix.Func(func(ctx context.Context, _ *helix.Call, in city) (string, error) {
				fmt.Printf("%*sasking for %s\n", 2*ctx.Value(depthKey{}).(int), "", in.Name)
				return "rain", nil
			}),
		}},
	}
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Observers: []helix.Observer{outline{}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	ctx := context.Background()
	run, err := rt.Execute(ctx, agent, helix.Input{Message: helix.UserText("Do I need an umbrella?")})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := run.Result(ctx); err != nil {
		fmt.Println(err)
	}
	_ = rt.Shutdown(ctx)
	// Output:
	// run weather
	//   model weather
	//   tool forecast
	//     asking for Oslo
	//   commit commit
	//   model weather
	//   commit commit
	// completed: 30 tokens
}
