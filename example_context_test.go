package helix_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// A conversation that has become long is summarised for the model, and stays whole for
// people.
func ExampleContextPolicy() {
	agent := &helix.Agent{
		Name: "guide",
		Model: scripted.New(
			scripted.Text("Rome has "+strings.Repeat("churches, museums, ruins, ", 20)+"and more."),
			scripted.Text("In May there are "+strings.Repeat("concerts, markets, fairs, ", 20)+"and more."),
			scripted.Text("You want to see Rome in May."),
		),
		Context: &helix.ContextPolicy{
			TriggerMessages: 5, KeepMessages: 1,
			// A smaller model may write the summaries.
			Model: scripted.New(scripted.Text("The user plans to see Rome in May.")),
		},
	}
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	ctx := context.Background()
	for _, text := range []string{"I want to see Rome.", "What is there in May?", "What do I want?"} {
		run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "trip", Message: helix.UserText(text)})
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := run.Result(ctx); err != nil {
			fmt.Println(err)
			return
		}
	}
	page, err := rt.Sessions().Messages(ctx, "trip", session.PageRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	show := func(what string, messages []session.Message) {
		fmt.Println(what)
		for i := range messages {
			m := &messages[i]
			if marker := m.Compaction(); marker != nil {
				fmt.Printf("  (%s)\n", marker.Kind)
			} else {
				fmt.Printf("  %s: %.30s\n", m.Role, m.Content())
			}
		}
	}
	show("The history:", page.Items)
	show("What the model is sent:", session.View(page.Items))
	// Output:
	// The history:
	//   user: I want to see Rome.
	//   assistant: Rome has churches, museums, ru
	//   user: What is there in May?
	//   assistant: In May there are concerts, mar
	//   user: What do I want?
	//   (summary)
	//   assistant: You want to see Rome in May.
	// What the model is sent:
	//   (summary)
	//   user: What do I want?
	//   assistant: You want to see Rome in May.
}
