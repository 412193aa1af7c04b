package helix_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// A long output does not belong into a message, which is sent to the model with every
// step. A tool puts it beside the conversation and returns the reference; another one reads
// parts of it.
func ExampleScope_PutBlob() {
	type query struct {
		Word string `json:"word"`
	}
	type found struct {
		Blob  string `json:"blob"`
		Lines int    `json:"lines"`
	}
	var ref string
	agent := &helix.Agent{
		Name: "archivist",
		Model: scripted.New(
			scripted.Call("search", query{"whale"}),
			scripted.Text("I found 5,000 lines."),
		),
		Tools: []helix.Tool{{
			Name: "search", Description: "Search the archive.", ReadOnly: true,
			Execute: helix.Func(func(ctx context.Context, call *helix.Call, in query) (found, error) {
				lines := strings.Repeat("There she blows, the "+in.Word+"!\n", 5000)
				var err error
				ref, err = call.PutBlob(ctx, []byte(lines))
				return found{Blob: ref, Lines: 5000}, err
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
	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Where is the whale?")})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	data, err := db.Blobs().Get(ctx, "s-1", ref)
	fmt.Println(result.Text, ref[:14]+"…", len(data), err)
	_, err = db.Blobs().Get(ctx, "s-2", ref) // knowing the reference is not enough
	fmt.Println(err)
	// Output:
	// I found 5,000 lines. sha256:5a75979… 140000 <nil>
	// session s-2: not found
}
