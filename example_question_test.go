package helix_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// A tool asks a person in the middle of a call by returning [Ask]. The call waits, in the
// store and not in a goroutine, and runs again from the beginning when it is answered, in
// any process. Its memo tells it what it had found out before.
func ExampleAsk() {
	type order struct {
		Article string `json:"article"`
	}
	type choice struct {
		Size string `json:"size"`
	}
	buy := helix.Tool{
		Name: "buy", Description: "Buy an article.", Asks: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, in order) (string, error) {
			if len(call.Answers()) == 0 {
				return "", helix.AskFor[choice](helix.Question{Prompt: "Which size of " + in.Article + "?", Memo: 12})
			}
			answer := call.Answers()[0]
			if answer.Declined {
				return "Nothing was bought.", nil
			}
			var chosen choice
			if err := answer.Decode(&chosen); err != nil {
				return "", err
			}
			var price int
			if _, err := call.Memo(&price); err != nil {
				return "", err
			}
			return fmt.Sprintf("%s in %s for %d", in.Article, chosen.Size, price), nil
		}),
	}
	agent := &helix.Agent{
		Name:  "shopper",
		Tools: []helix.Tool{buy},
		Model: scripted.New(scripted.Call("buy", order{"a shirt"}), scripted.Text("You have a shirt.")),
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

	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "shopping", Message: helix.UserText("Buy me a shirt.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range res.Pending {
		fmt.Println(p.Kind+":", p.Prompt)
		_, err := rt.Submit(ctx, "shopping", helix.Reply(p, map[string]any{"size": 7}, helix.User{ID: "ann"}))
		fmt.Println("refused:", err != nil) // the answer does not fit
		out, err := rt.Submit(ctx, "shopping", helix.Reply(p, choice{"L"}, helix.User{ID: "ann"}))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(out.Outcome)
	}
	run, err = rt.Resume(ctx, "shopping", helix.ResumeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if res, err = run.Result(ctx); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := db.Sessions().AllMessages(ctx, "shopping")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(messages[2].Parts[0].Text)
	fmt.Println(res.Status, res.Text)
	// Output:
	// question: Which size of a shirt?
	// refused: true
	// accepted
	// a shirt in L for 12
	// completed You have a shirt.
}
