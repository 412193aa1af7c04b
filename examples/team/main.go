// Team: companions are agents that keep their session between calls.
//
// An editor has two. The writer is blocking: a call waits for the answer, and the
// second call continues the same writer's conversation. The archivist is not
// blocking: it works in the background, with its own stream, and the editor receives
// a message when it is done.
package main

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

var writer = &helix.Agent{
	Name: "writer", Description: "Writes prose.",
	Model: scripted.New(scripted.Text("It was a dark night."), scripted.Text("It was a bright night.")),
}

var archivist = &helix.Agent{
	Name: "archivist", Description: "Files what is published.",
	Model: scripted.New(scripted.Text("Filed under N.")),
}

type (
	spawn struct {
		Agent   string `json:"agent"`
		Name    string `json:"name,omitempty"`
		Message string `json:"initialMessage"`
	}
	send struct {
		Name    string `json:"name"`
		Message string `json:"message"`
	}
	name struct {
		Name string `json:"name"`
	}
)

var editor = &helix.Agent{
	Name: "editor",
	Companions: []helix.Companion{
		{Agent: writer, Mode: helix.Blocking},
		{Agent: archivist, Mode: helix.NonBlocking},
	},
	Model: scripted.New(
		scripted.Call(helix.SpawnAgentTool, spawn{Agent: "writer", Name: "kim", Message: "An opening, please."}),
		scripted.Call(helix.SendMessageTool, send{Name: "kim", Message: "Less gloomy."}),
		scripted.Call(helix.SpawnAgentTool, spawn{Agent: "archivist", Message: "File it."}),
		scripted.Call(helix.WaitForResultTool, name{"archivist-1"}),
		scripted.Text("Published."),
	),
}

func main() {
	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db})
	check(err)
	defer rt.Shutdown(ctx)

	run, err := rt.Execute(ctx, editor, helix.Input{SessionID: "novel", Message: helix.UserText("Begin the novel.")})
	check(err)
	res, err := run.Result(ctx)
	check(err)
	// The editor may wait for the archivist. Helix resumes it when the archivist is done.
	for res.Status.Suspended() {
		run, err = rt.Attach(ctx, "novel")
		check(err)
		res, err = run.Result(ctx)
		check(err)
	}
	messages, err := db.Sessions().AllMessages(ctx, "novel")
	check(err)
	for i := range messages {
		show(&messages[i])
	}
	children, err := db.Sessions().Children(ctx, "novel")
	check(err)
	for _, child := range children {
		state, err := db.Sessions().Load(ctx, child.SessionID)
		check(err)
		fmt.Printf("%s is %s after %d turn(s)\n", child.Name, child.Status, state.Turn)
	}
}

func show(m *session.Message) {
	if m.Hidden() {
		return
	}
	for _, p := range m.Parts {
		switch p.Kind {
		case session.PartToolCall:
			fmt.Println("→", strings.TrimPrefix(p.Tool, helix.CompanionPrefix), string(p.Input))
		case session.PartToolResult:
			fmt.Println("←", string(p.ResultJSON()))
		default:
			fmt.Printf("%s: %s\n", m.Role, p.Text)
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
