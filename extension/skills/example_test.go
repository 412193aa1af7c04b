package skills_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/store/memory"
)

// An agent knows the names and descriptions of its skills, and loads the instructions of one
// when a task needs them. Skills of a directory come from files.Dir("./skills").
func Example() {
	haiku := skill.Skill{
		Metadata: skill.Metadata{Name: "haiku", Description: "Writes a haiku."},
		Body:     "Three lines of five, seven and five syllables.",
	}
	agent := &helix.Agent{
		Name:         "writer",
		Instructions: "You write short texts.",
		Extensions:   []helix.Extension{skills.New(skills.Config{Provider: skill.Static(haiku)})},
		Model: scripted.New(
			scripted.Func(func(request *llm.Request) scripted.Step {
				_, catalogue, _ := strings.Cut(request.Instructions, "<available_skills>\n")
				catalogue, _, _ = strings.Cut(catalogue, "</available_skills>")
				fmt.Print(catalogue)
				return scripted.Call(skills.LoadTool, map[string]string{"name": "haiku"})
			}),
			scripted.Func(func(request *llm.Request) scripted.Step {
				fmt.Println(strings.Contains(request.Messages[2].Parts[0].Text, "five syllables"))
				return scripted.Text("Rain on the harbour")
			}),
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
	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Write a haiku.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Text)
	_ = rt.Shutdown(ctx)
	// Output:
	// <skill name="haiku">Writes a haiku.</skill>
	// true
	// Rain on the harbour
}
