package helix_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// Hooks observe a run and may veto a call: the model then sees an error instead of the
// result.
func ExampleHooks() {
	type file struct {
		Path string `json:"path"`
	}
	remove := helix.Tool{
		Name: "remove", Description: "Remove a file.",
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in file) (string, error) {
			return "removed " + in.Path, nil
		}),
	}
	agent := &helix.Agent{
		Name:  "cleaner",
		Tools: []helix.Tool{remove},
		Model: scripted.New(
			scripted.Call("remove", `{"path":"draft.txt"}`),
			scripted.Call("remove", `{"path":"report.txt"}`),
			scripted.Text("I removed what I could."),
		),
		Hooks: helix.Hooks{
			OnAgentStart: func(_ context.Context, h *helix.HookContext, e helix.AgentStartEvent) error {
				fmt.Printf("%s starts: %s\n", h.Agent, e.Input[0].Content())
				return nil
			},
			BeforeTool: func(_ context.Context, _ *helix.HookContext, e helix.BeforeToolEvent) error {
				if string(e.Input) == `{"path":"report.txt"}` {
					return errors.New("not that file")
				}
				return nil
			},
			AfterTool: func(_ context.Context, h *helix.HookContext, e helix.AfterToolEvent) error {
				fmt.Printf("step %d: %s %s: %s\n", h.Step, e.Tool, e.Input, e.Result.Parts[0].ResultJSON())
				return nil
			},
			OnAgentComplete: func(_ context.Context, _ *helix.HookContext, e helix.AgentCompleteEvent) error {
				fmt.Printf("done after %d steps and %d tokens: %s\n", e.Steps, e.Usage.TotalTokens(), e.Reply)
				return nil
			},
		},
	}
	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := rt.Execute(ctx, agent, helix.Input{Message: helix.UserText("Clean up.")})
	if err == nil {
		_, err = run.Result(ctx)
	}
	if err != nil {
		fmt.Println(err)
	}
	_ = rt.Shutdown(ctx)
	// Output:
	// cleaner starts: Clean up.
	// step 1: remove {"path":"draft.txt"}: "removed draft.txt"
	// step 2: remove {"path":"report.txt"}: {"code":"tool_vetoed","error":"the call was vetoed: not that file"}
	// done after 3 steps and 45 tokens: I removed what I could.
}
