// Client tool: a tool that runs where the user is, for example in a browser.
//
// The agent's reply calls two tools at the same time. The first runs on the server.
// The second appears on the stream as soon as it is durable, and the reader of the
// stream answers it while the first still runs. No resume is needed, because the
// live run uses the answer.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/stream"
)

type question struct {
	Options []string `json:"options"`
}

func main() {
	ctx := context.Background()
	answered := make(chan struct{})
	barista := &helix.Agent{
		Name: "barista",
		Tools: []helix.Tool{
			{
				Name: "heat_water", Description: "Heat the water.",
				Execute: helix.Func(func(ctx context.Context, _ *helix.Call, _ struct{}) (string, error) {
					select { // until the guest has decided
					case <-answered:
						return "94 °C", nil
					case <-ctx.Done():
						return "", ctx.Err()
					}
				}),
			},
			{Name: "pick_cup", Description: "Let the guest pick a cup.", Execute: helix.OnClient[question]()},
		},
		Model: scripted.New(
			scripted.Reply(
				scripted.Calling("heat_water", nil),
				scripted.Calling("pick_cup", question{Options: []string{"small", "large"}}),
			),
			scripted.Text("One large coffee, coming up."),
		),
	}
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db})
	check(err)
	defer rt.Shutdown(ctx)

	run, err := rt.Execute(ctx, barista, helix.Input{SessionID: "table-4", Message: helix.UserText("A coffee, please.")})
	check(err)
	for item, err := range run.Stream(ctx) {
		check(err)
		switch c := item.Chunk; {
		case c == nil:
		case c.Kind == stream.ToolStart && c.Tool == "pick_cup":
			fmt.Println("question to the guest:", string(c.Arguments))
			out, err := rt.Submit(ctx, "table-4", helix.ToolResult(c.CallID, "large"))
			check(err)
			fmt.Println("the answer is", out.Outcome, "and the run is", out.Continuation)
			close(answered)
		case c.Kind == stream.ToolEnd:
			fmt.Println(c.Tool, "returns", string(c.Result))
		}
	}
	res, err := run.Result(ctx)
	check(err)
	fmt.Println(res.Status, "with:", res.Text)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
