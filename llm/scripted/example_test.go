package scripted_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func Example() {
	m := scripted.New(
		scripted.Reply(scripted.Say("Searching. "), scripted.Calling("search", `{"query":"compass"}`)),
		scripted.Takes(
			scripted.Fail(session.CodeProvider, true, "overloaded"),
			scripted.Text("It was invented in China."),
		),
		scripted.Text("You are welcome."),
	)
	for range 3 {
		response, err := m.Generate(context.Background(), &llm.Request{Agent: "researcher"}, func(d llm.Delta) {
			if d.Kind == llm.DeltaText {
				fmt.Printf("%q ", d.Text)
			}
		})
		if err != nil {
			fmt.Println("failed:", err, "retryable:", session.IsRetryable(err))
			continue
		}
		fmt.Println(response.Finish)
	}
	fmt.Println("unused:", m.Unused())
	// Output:
	// "Sear" "chin" "g. " tool-calls
	// failed: overloaded retryable: true
	// "It was in" "vented in" " China." stop
	// unused: [step 3 of 3: says "You are welcome."]
}

// A test that crashes and resumes asks for a lost reply again. The transcript
// tells the model where it stands, and no two answers are the same.
func ExampleModel_Vary() {
	m := scripted.New(scripted.Call("search", nil), scripted.Text("Done.")).Vary()
	afterSearch := &llm.Request{SessionID: "s-1", Messages: []session.Message{
		session.UserText("Find it."),
		{Role: session.RoleAssistant, Parts: []session.Part{{Kind: session.PartToolCall, CallID: "c", Tool: "search"}}},
	}}
	for range 2 {
		response, _ := m.Generate(context.Background(), afterSearch, nil)
		fmt.Println(response.Parts[0].Text)
	}
	// Output:
	// Done.
	// Done. (take 2)
}
