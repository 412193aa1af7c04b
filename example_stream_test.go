package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/stream"
)

// A run is streamed while it is running. The loop ends with the run. You may break out of
// it and read the stream again, even from another process.
func ExampleRun_Stream() {
	type book struct {
		Title string `json:"title"`
	}
	agent := &helix.Agent{
		Name: "librarian",
		Model: scripted.New(
			scripted.Reply(scripted.Say("Let me look. "), scripted.Calling("find", `{"title":"Walden"}`)),
			scripted.Text("It is on shelf 3."),
		),
		Tools: []helix.Tool{{
			Name: "find", Description: "Find a book.", ReadOnly: true,
			Execute: helix.Func(func(_ context.Context, call *helix.Call, in book) (int, error) {
				call.Emit("progress", "searching for "+in.Title) // an event of the application's own
				return 3, nil
			}),
		}},
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
	run, err := rt.Execute(ctx, agent, helix.Input{Message: helix.UserText("Where is Walden?")})
	if err != nil {
		fmt.Println(err)
		return
	}

	var text string
	for item, err := range run.Stream(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if item.Terminal() {
			fmt.Println("ended:", item.End.Status)
			break
		}
		if item.Frame != stream.FrameChunk {
			continue
		}
		switch c := item.Chunk; c.Kind {
		case stream.TextDelta: // comes in pieces
			text += c.Delta
		case stream.ToolStart:
			fmt.Printf("calls %s %s\n", c.Tool, c.Arguments)
		case stream.Custom:
			fmt.Printf("%s: %s\n", c.Name, c.Data)
		case stream.ToolEnd:
			fmt.Printf("result: %s\n", c.Result)
		}
	}
	fmt.Println(text)
	// Output:
	// calls find {"title":"Walden"}
	// progress: "searching for Walden"
	// result: 3
	// ended: completed
	// Let me look. It is on shelf 3.
}

// Text is for programs that only want what the agent says.
func ExampleRun_Text() {
	agent := &helix.Agent{Name: "guide", Model: scripted.New(scripted.Text("It is on shelf 3."))}
	ctx := context.Background()
	rt, err := local.New(local.Config{Backend: memory.New(memory.Config{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Shutdown(ctx)
	run, err := rt.Execute(ctx, agent, helix.Input{Message: helix.UserText("Where is Walden?")})
	if err != nil {
		fmt.Println(err)
		return
	}
	for text, err := range run.Text(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(text)
	}
	// Output: It is on shelf 3.
}
