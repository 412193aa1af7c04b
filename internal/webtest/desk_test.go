package webtest

import (
	"context"
	"encoding/json"
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

// hostile are a page and a script that must not run on the server's origin.
var hostile = []string{
	`<!doctype html><title>ran</title><script>fetch("/ran-page")</script><img src=x onerror='fetch("/ran-image")'>`,
	`fetch("/ran-script"); window.stolen = true;`,
}

// ask asks what its input says, and returns the answer.
func ask(_ context.Context, call *helix.Call, in choice) (string, error) {
	if said := call.Answers(); len(said) > 0 {
		return fmt.Sprintf("%s %t %s", said[0].Answer, said[0].Declined, said[0].Reason), nil
	}
	q := helix.Question{Prompt: "Please: " + in.Question}
	switch in.Question {
	case "a size":
		q.Schema = json.RawMessage(`{"enum":["S","M"]}`)
	case "yes or no":
		q.Schema = json.RawMessage(`{"type":"object","required":["sure"],"properties":{"sure":{"type":"boolean"}}}`)
	default:
		q.URL = "https://example.com/sign-in"
	}
	return "", helix.Ask(q)
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
			case "page":
				return scripted.Reply(scripted.Calling("put", item{1}), scripted.Calling("put", item{2}))
			case "scout":
				return scripted.Call("subagent__scout", task{"tidy"})
			case "ask a size", "ask yes or no", "ask for a visit":
				return scripted.Call("ask", choice{Question: strings.TrimPrefix(text, "ask ")})
			case "fail":
				return scripted.Fail(session.CodeAuth, false, "the key is wrong")
			case "story":
				return scripted.Text(story()).WithPieceSize(8).WithPace(15 * time.Millisecond)
			case "slow story": // which can be stopped in the middle, however slow the browser is
				return scripted.Text(story()).WithPieceSize(8).WithPace(200 * time.Millisecond)
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
			{Name: "put", ReadOnly: true, Execute: helix.Func(func(ctx context.Context, call *helix.Call, in item) (string, error) {
				return call.PutBlob(ctx, []byte(hostile[in.N-1]))
			})},
			{Name: "ask", Asks: true, Execute: helix.Func(ask)},
			{Name: "locate", Execute: helix.OnClient[city]()},
			{Name: "choose", Execute: helix.OnClient[choice]()},
			deletes,
		},
	}
}
