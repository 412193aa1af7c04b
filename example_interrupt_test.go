package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// An interrupt stops a run from any process. The part of the reply that was streamed is
// kept, and the session can be resumed or continued with a new message.
func ExampleExecutor_Interrupt() {
	talking := make(chan struct{})
	agent := &helix.Agent{
		Name: "narrator",
		Model: scripted.New(
			scripted.Reply(
				scripted.Say("Once upon a time"),
				scripted.Do(func() { close(talking) }),
				scripted.Until(nil), // would never end by itself
			),
			scripted.Text("there was a compass."),
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

	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "story", Message: helix.UserText("Tell me a story.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-talking
	if err := rt.Interrupt(ctx, "story", "the user pressed stop"); err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status)

	run, err = rt.Resume(ctx, "story", helix.ResumeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if res, err = run.Result(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status)

	messages, err := db.Sessions().AllMessages(ctx, "story")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range messages {
		if !m.Hidden() {
			fmt.Printf("%s: %s\n", m.Role, m.Content())
		}
	}
	// Output:
	// interrupted
	// completed
	// user: Tell me a story.
	// assistant: Once upon a time
	// assistant: there was a compass.
}
