// State: typed state that parallel tool calls change together.
//
// One reply of the model makes three calls. They run at the same time, and each sees
// the state as it was before the reply. Their appends are applied in the order of the
// calls, whichever call ends first.
package main

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/stream"
)

// Findings is the agent's state. It is stored with every step.
type Findings struct {
	Notes    []string `json:"notes"`
	Searches int      `json:"searches"`
}

type searchInput struct {
	Query string `json:"query" jsonschema:"what to look for"`
}

// researcher has a search tool that waits until all three searches of the reply have
// started. The last one then returns first.
func researcher() *helix.Agent {
	var begun sync.WaitGroup
	begun.Add(3)
	needle, card, gimbal := make(chan struct{}), make(chan struct{}), make(chan struct{})
	close(gimbal)
	turn := map[string]struct{ mine, next chan struct{} }{
		"gimbal": {gimbal, card}, "card": {card, needle}, "needle": {needle, make(chan struct{})},
	}
	search := helix.Tool{
		Name: "search", Description: "Search the archive.", ReadOnly: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, in searchInput) (string, error) {
			begun.Done()
			begun.Wait()
			<-turn[in.Query].mine
			defer close(turn[in.Query].next)
			fmt.Printf("  the search for %s ends; it sees the notes %q\n", in.Query, helix.State[Findings](call).Notes)
			helix.Update(call, func(f *Findings) { f.Notes = append(f.Notes, "about the "+in.Query) })
			return "found", nil
		}),
	}
	count := helix.Tool{
		Name: "count", Description: "Count the searches made.",
		Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct{}) (int, error) {
			helix.Update(call, func(f *Findings) { f.Searches = len(f.Notes) - 1 })
			return helix.State[Findings](call).Searches, nil
		}),
	}
	return &helix.Agent{
		Name:  "researcher",
		State: helix.StateOf(Findings{Notes: []string{"the task"}}), // the initial state of a session
		Tools: []helix.Tool{search, count},
		Model: scripted.New(
			scripted.Reply(
				scripted.Calling("search", searchInput{"needle"}),
				scripted.Calling("search", searchInput{"card"}),
				scripted.Calling("search", searchInput{"gimbal"}),
			),
			scripted.Call("count", nil),
			scripted.Text("Done."),
		),
	}
}

func main() {
	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	agent := researcher()
	fmt.Println("The model searches for needle, card and gimbal in parallel:")
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}})
	check(err)
	defer rt.Shutdown(ctx)
	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "compass", Message: helix.UserText("What is a compass made of?")})
	check(err)
	_, err = run.Result(ctx)
	check(err)
	fmt.Println("The state changes, step by step:")
	for item, err := range run.Stream(ctx) {
		check(err)
		if c := item.Chunk; c != nil && c.Kind == stream.StatePatch {
			for _, p := range c.Patches {
				fmt.Printf("  step %d: %s %s %s\n", c.Step, p.Op, p.Path, p.Value)
			}
		}
	}
	state, err := helix.ReadState[Findings](ctx, rt.Sessions(), "compass")
	check(err)
	fmt.Printf("The final state has %d searches and the notes %q\n", state.Searches, state.Notes)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
