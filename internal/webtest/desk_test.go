package webtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

type city struct {
	City string `json:"city"`
}

type item struct {
	N int `json:"n"`
}

type choice struct {
	Question string   `json:"question"`
	Options  []string `json:"options"`
}

type task struct {
	Task string `json:"task"`
}

// speaker is a model whose reply is computed from what was said.
type speaker func(text string) scripted.Step

func (s speaker) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	last := request.Messages[len(request.Messages)-1]
	text := last.Content()
	if last.Role == session.RoleTool {
		text = "result " + string(last.Parts[0].ResultJSON())
	}
	return scripted.New(s(text)).Generate(ctx, request, emit)
}

// story is long enough to be cut off in the middle. Its words are numbered, so that
// it shows what is lost or doubled.
func story() string {
	var words []string
	for i := range 300 {
		words = append(words, fmt.Sprintf("word%d", i+1))
	}
	return strings.Join(words, " ")
}

// desk is the agent that the clients talk to. It does what the message names.
func desk() *helix.Agent {
	deletes := helix.Tool{
		Name: "delete", Approval: helix.RequireApproval,
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in item) (string, error) {
			return fmt.Sprint("deleted ", in.N), nil
		}),
	}
	scout := &helix.Agent{Name: "scout", Tools: []helix.Tool{deletes}, Model: speaker(func(text string) scripted.Step {
		if strings.HasPrefix(text, "result ") {
			return scripted.Text("scouted, " + text)
		}
		return scripted.Reply(scripted.Say("I will clean up."), scripted.Calling("delete", item{9}))
	})}
	return &helix.Agent{
		Name: "desk", SubAgents: []helix.SubAgent{{Agent: scout}},
		Model: speaker(func(text string) scripted.Step {
			switch text {
			case "hello":
				return scripted.Reply(scripted.Think("A greeting."), scripted.Say("Hello, how are you?"))
			case "weather":
				return scripted.Reply(scripted.Say("Looking."), scripted.Calling("weather", city{"Rome"}), scripted.Calling("weather", city{"Oslo"}))
			case "where":
				return scripted.Call("locate", city{"here"})
			case "choose":
				return scripted.Call("choose", choice{"Which?", []string{"tea", "coffee"}})
			case "delete":
				return scripted.Reply(scripted.Calling("delete", item{1}), scripted.Calling("delete", item{2}))
			case "scout":
				return scripted.Call("subagent__scout", task{"tidy"})
			case "fail":
				return scripted.Fail(session.CodeAuth, false, "the key is wrong")
			case "story":
				return scripted.Text(story()).WithPieceSize(8).WithPace(15 * time.Millisecond)
			}
			return scripted.Text("So: " + text)
		}),
		Tools: []helix.Tool{
			{Name: "weather", ReadOnly: true, Execute: helix.Func(func(_ context.Context, _ *helix.Call, in city) (string, error) {
				if in.City == "Oslo" {
					return "", fmt.Errorf("no weather in %s", in.City)
				}
				return "sun in " + in.City, nil
			})},
			{Name: "locate", Execute: helix.OnClient[city]()},
			{Name: "choose", Execute: helix.OnClient[choice]()},
			deletes,
		},
	}
}
