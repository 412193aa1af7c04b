// Command program is a small application as a user writes it: an agent on OpenAI whose sessions are in a SQLite file. It
// exists to be weighed.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/sqlite"
)

func main() {
	if err := run(context.Background(), strings.Join(os.Args[1:], " ")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, question string) error {
	db, err := sqlite.Open("agents.db")
	if err != nil {
		return err
	}
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db})
	if err != nil {
		return err
	}
	defer rt.Shutdown(ctx)

	type place struct {
		City string `json:"city"`
	}
	agent := &helix.Agent{
		Name:         "assistant",
		Instructions: "You answer in one sentence.",
		Model:        openai.New(openai.Config{Model: "gpt-5"}),
		Tools: []helix.Tool{{
			Name: "weather", Description: "Tell the weather in a city.",
			Execute: helix.Func(func(_ context.Context, _ *helix.Call, in place) (string, error) {
				return "sunny in " + in.City, nil
			}),
		}},
	}
	turn, err := rt.Execute(ctx, agent, helix.Input{SessionID: "s1", Message: helix.UserText(question)})
	if err != nil {
		return err
	}
	result, err := turn.Result(ctx)
	if err != nil {
		return err
	}
	fmt.Println(result.Text)
	return nil
}
