// Branching: continue from an earlier point in another way, and keep both.
//
// Every step writes a checkpoint. A branch copies messages and state up to a
// checkpoint into a new session. The old session does not change.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/sqlite"
)

// Trip is the planner's state.
type Trip struct {
	Stops []string `json:"stops"`
}

type stop struct {
	City string `json:"city"`
}

var planner = &helix.Agent{
	Name:  "planner",
	State: helix.StateOf(Trip{}),
	Tools: []helix.Tool{{
		Name: "add_stop", Description: "Add a stop to the trip.",
		Execute: helix.Func(func(_ context.Context, call *helix.Call, in stop) (string, error) {
			helix.Update(call, func(t *Trip) { t.Stops = append(t.Stops, in.City) })
			return "added", nil
		}),
	}},
	Model: scripted.New(
		scripted.Call("add_stop", stop{"Paris"}), scripted.Text("Paris first. Where next?"),
		scripted.Call("add_stop", stop{"Rome"}), scripted.Text("Paris and Rome."),
		scripted.Call("add_stop", stop{"Oslo"}), scripted.Text("Paris and Oslo."),
	),
}

func main() {
	dir, err := os.MkdirTemp("", "helix-branching-")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	db, err := sqlite.Open(filepath.Join(dir, "helix.db"))
	check(err)
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{planner}})
	check(err)
	defer rt.Shutdown(ctx)

	say(ctx, rt, helix.Input{SessionID: "south", Message: helix.UserText("A trip that starts in Paris.")})
	checkpoints, err := rt.Sessions().Checkpoints(ctx, "south", session.PageRequest{Limit: 1}) // the newest
	check(err)
	say(ctx, rt, helix.Input{SessionID: "south", Message: helix.UserText("Then to the south.")})
	say(ctx, rt, helix.Input{
		SessionID: "north", Message: helix.UserText("Then to the north."),
		Branch: &helix.Branch{From: "south", Checkpoint: checkpoints.Items[0].ID},
	})

	show(ctx, rt.Sessions(), "south")
	show(ctx, rt.Sessions(), "north")
}

func say(ctx context.Context, rt helix.Executor, in helix.Input) {
	run, err := rt.Execute(ctx, planner, in)
	check(err)
	res, err := run.Result(ctx)
	check(err)
	check(res.Err())
}

func show(ctx context.Context, sessions helix.Sessions, id string) {
	state, err := sessions.Get(ctx, id)
	check(err)
	page, err := sessions.Checkpoints(ctx, id, session.PageRequest{})
	check(err)
	fmt.Printf("%s: stops %s, turn %d, checkpoints after", id, state.Custom.Get("stops"), state.Turn)
	for _, c := range slices.Backward(page.Items) { // they come newest first
		fmt.Printf(" %d", c.MessageCount)
	}
	fmt.Println(" messages")
	messages, err := sessions.Messages(ctx, id, session.PageRequest{})
	check(err)
	for _, m := range messages.Items {
		if text := m.Content(); text != "" {
			fmt.Printf("  %s: %s\n", m.Role, text)
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
