package helix_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// glossary explains the words of a company.
type glossary struct{ words map[string]string }

func (g *glossary) Name() string { return "glossary" }

// Attach adds instructions and a tool. It sorts the words, because equal circumstances
// must give equal bytes.
func (g *glossary) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	type word struct {
		Word string `json:"word"`
	}
	explain := helix.Tool{
		Name: "explain", Description: "Explain a word of the company.", ReadOnly: true,
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in word) (string, error) {
			if text, ok := g.words[in.Word]; ok {
				return text, nil
			}
			return "", errors.New("the glossary does not have " + in.Word)
		}),
	}
	return &helix.Attachment{
		Instructions: fmt.Sprint("Use explain for these words: ", slices.Sorted(maps.Keys(g.words))),
		Tools:        []helix.Tool{explain},
	}, nil
}

// Prepare adds a message that the model sees and people do not.
func (g *glossary) Prepare(_ context.Context, turn *helix.Turn) ([]session.Message, error) {
	return []session.Message{session.UserText("The user is " + turn.UserID + ".")}, nil
}

// Check refuses a call when the model makes it.
func (g *glossary) Check(_ context.Context, call *helix.Call) error {
	if string(call.Input) == `{"word":"salary"}` {
		return errors.New("that word is not for the model")
	}
	return nil
}

// An extension adds instructions, tools and messages when a turn begins, and may refuse
// calls.
func ExampleExtension() {
	agent := &helix.Agent{
		Name:         "helper",
		Instructions: "Help new colleagues.",
		Extensions:   []helix.Extension{&glossary{map[string]string{"helm": "our deploy tool", "bridge": "the meeting room", "salary": "…"}}},
		Model: scripted.New(
			scripted.Func(func(request *llm.Request) scripted.Step {
				fmt.Println(request.Instructions)
				for _, message := range request.Messages {
					fmt.Printf("%s (hidden: %t)\n", message.Content(), message.Hidden())
				}
				return scripted.Reply(scripted.Calling("explain", `{"word":"helm"}`), scripted.Calling("explain", `{"word":"salary"}`))
			}),
			scripted.Text("It is our deploy tool."),
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
	run, err := rt.Execute(ctx, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("What is the helm?"), User: helix.User{ID: "ada"},
	})
	if err == nil {
		_, err = run.Result(ctx)
	}
	if err != nil {
		fmt.Println(err)
	}
	messages, err := rt.Sessions().Messages(ctx, "s-1", session.PageRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, message := range messages.Items {
		if message.Role == session.RoleTool {
			fmt.Printf("%s\n", message.Parts[0].ResultJSON())
		}
	}
	_ = rt.Shutdown(ctx)
	// Output:
	// Help new colleagues.
	//
	// Use explain for these words: [bridge helm salary]
	// What is the helm? (hidden: false)
	// The user is ada. (hidden: true)
	// "our deploy tool"
	// {"code":"tool_vetoed","error":"the call was refused: that word is not for the model"}
}
