package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// A tool that runs on the client has no function; the client submits the result. One reply
// may make several such calls, and answers may arrive one by one: Resume consumes those
// submitted so far and waits for the rest.
func ExampleOnClient() {
	type question struct {
		Options []string `json:"options"`
	}
	agent := &helix.Agent{
		Name: "barista",
		Tools: []helix.Tool{
			{Name: "pick_drink", Description: "Let the guest pick a drink.", Execute: helix.OnClient[question]()},
			{Name: "pick_cup", Description: "Let the guest pick a cup.", Execute: helix.OnClient[question]()},
		},
		Model: scripted.New(
			scripted.Reply(
				scripted.Calling("pick_drink", question{[]string{"coffee", "tea"}}),
				scripted.Calling("pick_cup", question{[]string{"small", "large"}}),
			),
			scripted.Text("One large tea, coming up."),
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

	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "table-4", Message: helix.UserText("Something hot, please.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	answers := map[string]string{"pick_cup": "large", "pick_drink": "tea"}
	for {
		res, err := run.Result(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(res.Status)
		if !res.Status.Suspended() {
			break
		}
		asked := res.Pending[len(res.Pending)-1] // the last one first: the order is free
		fmt.Printf("%s %s? %s\n", asked.Tool, asked.Input, answers[asked.Tool])
		out, err := rt.Submit(ctx, "table-4", helix.ToolResult(asked.CallID, answers[asked.Tool]))
		if err != nil {
			fmt.Println(err)
			return
		}
		if out.Continuation == helix.CallerResumes {
			if run, err = rt.Resume(ctx, "table-4", helix.ResumeOptions{}); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
	messages, err := db.Sessions().AllMessages(ctx, "table-4")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range messages[2:4] { // results are in the order of the calls
		fmt.Printf("%s: %s\n", m.Parts[0].Tool, m.Parts[0].ResultJSON())
	}
	// Output:
	// suspended_client_tool
	// pick_cup {"options":["small","large"]}? large
	// suspended_step_partial
	// pick_drink {"options":["coffee","tea"]}? tea
	// completed
	// pick_drink: "tea"
	// pick_cup: "large"
}
