// Output: an agent whose result is a Go type.
//
// The agent has the tool __finish__, whose arguments must match the type. The
// model's first attempt does not match. The model receives an error that names the
// wrong field, and finishes with its second attempt.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// Report is the agent's output.
type Report struct {
	Summary string   `json:"summary" jsonschema:"one sentence"`
	Sources []string `json:"sources"`
	Year    int      `json:"year,omitempty"`
}

var historian = &helix.Agent{
	Name:   "historian",
	Output: helix.OutputOf[Report](),
	Model: scripted.New(
		scripted.Finish(`{"summary":"The compass comes from China.","sources":"Dream Pool Essays"}`),
		scripted.Finish(Report{Summary: "The compass comes from China.", Sources: []string{"Dream Pool Essays"}, Year: 1088}),
	),
}

func main() {
	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{historian}})
	check(err)
	defer rt.Shutdown(ctx)
	run, err := rt.Execute(ctx, historian, helix.Input{Message: helix.UserText("Who invented the compass?")})
	check(err)
	res, err := run.Result(ctx)
	check(err)
	report, err := helix.Output[Report](res)
	check(err)
	// The run's stream has only the output. The transcript also has the attempts.
	messages, err := rt.Sessions().Messages(ctx, res.SessionID, session.PageRequest{})
	check(err)
	for _, message := range messages.Items {
		for _, part := range message.Parts {
			switch {
			case part.Kind == session.PartToolCall:
				fmt.Printf("→ %s %s\n", part.Tool, part.Input)
			case part.Kind == session.PartToolResult && part.Error != nil:
				fmt.Printf("← error: %s\n", part.Error.Message)
			case part.Kind == session.PartToolResult:
				fmt.Printf("← %s\n", part.ResultJSON())
			}
		}
	}
	fmt.Printf("%s after %d steps (%s)\n", res.Status, res.Steps, res.CompletionReason)
	fmt.Println("Summary:", report.Summary)
	fmt.Println("Sources:", report.Sources)
	fmt.Println("Year:   ", report.Year)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
