package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// A branch starts a session as a copy of another, here of its first two
// messages, and leaves the other as it is.
func ExampleBranch() {
	agent := &helix.Agent{
		Name: "planner",
		Model: scripted.New(
			scripted.Text("Where to?"),
			scripted.Text("Rome in May, then."),
			scripted.Text("Oslo in May, then."),
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

	keep := 2
	for _, in := range []helix.Input{
		{SessionID: "rome", Message: helix.UserText("Plan a trip in May.")},
		{SessionID: "rome", Message: helix.UserText("To Rome.")},
		{SessionID: "oslo", Message: helix.UserText("To Oslo."), Branch: &helix.Branch{From: "rome", MessageIndex: &keep}},
	} {
		run, err := rt.Execute(ctx, agent, in)
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := run.Result(ctx); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, id := range []string{"rome", "oslo"} {
		messages, err := db.Sessions().AllMessages(ctx, id)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s:\n", id)
		for _, m := range messages {
			fmt.Printf("  %s: %s\n", m.Role, m.Content())
		}
	}
	// Output:
	// rome:
	//   user: Plan a trip in May.
	//   assistant: Where to?
	//   user: To Rome.
	//   assistant: Rome in May, then.
	// oslo:
	//   user: Plan a trip in May.
	//   assistant: Where to?
	//   user: To Oslo.
	//   assistant: Oslo in May, then.
}
