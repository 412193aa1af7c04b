package helix_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// A companion keeps its session between calls: the agent addresses it by name, and it
// remembers.
func ExampleCompanion() {
	writer := &helix.Agent{
		Name: "writer", Description: "Writes prose.",
		Model: scripted.New(scripted.Text("It was a dark night."), scripted.Text("It was a bright night.")),
	}
	editor := &helix.Agent{
		Name:       "editor",
		Companions: []helix.Companion{{Agent: writer, Mode: helix.Blocking}},
		Model: scripted.New(
			scripted.Call(helix.SpawnAgentTool, `{"agent":"writer","name":"kim","initialMessage":"An opening, please."}`),
			scripted.Call(helix.SendMessageTool, `{"name":"kim","message":"Less gloomy."}`),
			scripted.Call(helix.ListChildrenTool, `{}`),
			scripted.Text("Published."),
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

	run, err := rt.Execute(ctx, editor, helix.Input{SessionID: "novel", Message: helix.UserText("Begin the novel.")})
	if err == nil {
		_, err = run.Result(ctx)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	children, err := db.Sessions().Children(ctx, "novel")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"novel", children[0].SessionID} { // kim has a transcript of its own
		messages, err := db.Sessions().AllMessages(ctx, id)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, m := range messages {
			part := m.Parts[0]
			switch part.Kind {
			case session.PartToolCall:
				fmt.Println("→", strings.TrimPrefix(part.Tool, helix.CompanionPrefix), string(part.Input))
			case session.PartToolResult:
				fmt.Println("←", string(part.ResultJSON()))
			default:
				fmt.Printf("%s: %s\n", m.Role, part.Text)
			}
		}
	}
	// Output:
	// user: Begin the novel.
	// → spawnAgent {"agent":"writer","name":"kim","initialMessage":"An opening, please."}
	// ← {"name":"kim","agent":"writer","status":"completed","output":"It was a dark night."}
	// → sendMessage {"name":"kim","message":"Less gloomy."}
	// ← {"name":"kim","agent":"writer","status":"completed","output":"It was a bright night."}
	// → listChildren {}
	// ← [{"name":"kim","agent":"writer","status":"completed"}]
	// assistant: Published.
	// user: An opening, please.
	// assistant: It was a dark night.
	// user: Less gloomy.
	// assistant: It was a bright night.
}
