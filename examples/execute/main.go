// Execute: an agent with one tool, run from Go, whose reply is printed while it is written.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/sqlite"
)

type place struct {
	City string `json:"city" jsonschema:"the city's name"`
}

var weather = helix.Tool{
	Name: "weather", Description: "Tell the weather in a city.", ReadOnly: true,
	Execute: helix.Func(func(_ context.Context, _ *helix.Call, in place) (string, error) {
		return "sunny in " + in.City, nil
	}),
}

var guide = &helix.Agent{
	Name: "guide", Instructions: "You help travellers.", Tools: []helix.Tool{weather},
	Model: scripted.New( // plays a script, so that no API key is needed
		scripted.Call("weather", `{"city":"Lisbon"}`),
		scripted.Text("It is sunny in Lisbon. Go!"),
	),
}

func main() {
	ctx := context.Background()
	db, err := sqlite.Open("execute.db")
	check(err)
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{guide}})
	check(err)
	defer rt.Shutdown(ctx)
	run, err := rt.Execute(ctx, guide, helix.Input{Message: helix.UserText("Shall I go to Lisbon?")})
	check(err)
	for text, err := range run.Text(ctx) { // run.Stream has everything else
		check(err)
		fmt.Print(text)
	}
	res, err := run.Result(ctx)
	check(err)
	fmt.Printf("\n%s after %d steps\n", res.Status, res.Steps)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
