package helix_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// A tool returns more than the model should be sent with every step. The conversation keeps
// the beginning and the end of the result, and the model reads the line that it needs.
func ExampleContextPolicy_evictOver() {
	agent := &helix.Agent{
		Name: "operator",
		Model: scripted.New(
			scripted.Call("logs", nil),
			scripted.Func(func(r *llm.Request) scripted.Step {
				result := r.Messages[2] // the model reads the id in the text
				return scripted.Call("read_result", map[string]any{"id": result.Evicted().ID, "from": 7001, "lines": 1})
			}),
			scripted.Text("The disk is full."),
		),
		Context: &helix.ContextPolicy{EvictOver: 80_000},
		Tools: []helix.Tool{{
			Name: "logs", Description: "The log of today.", ReadOnly: true,
			Execute: helix.Func(func(context.Context, *helix.Call, struct{}) (string, error) {
				return strings.Repeat("all is well\n", 7000) + "disk full\n" + strings.Repeat("all is well\n", 7000), nil
			}),
		}},
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
	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("What is wrong?")})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := run.Result(ctx); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := db.Sessions().AllMessages(ctx, "s-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	whole := messages[2].Evicted()
	data, err := db.Blobs().Get(ctx, "s-1", whole.Blobs[0])
	fmt.Println("the result has", whole.Bytes, "bytes, its message", len(messages[2].Parts[0].Text), "and the blob", len(data), err)
	fmt.Print(messages[4].Parts[0].Text)
	// Output:
	// the result has 168010 bytes, its message 4303 and the blob 168010 <nil>
	// [Lines 7001 to 7001 of 14001, bytes 84000 to 84010 of 168010. Continue with from=7002.]
	//
	// disk full
}
