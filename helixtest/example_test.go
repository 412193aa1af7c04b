package helixtest_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/helixtest"
	"github.com/helixagents/helix/llm/scripted"
)

// exampleT stands in for the *testing.T that a test has.
type exampleT struct{}

func (exampleT) Helper()                           {}
func (exampleT) Errorf(format string, args ...any) { fmt.Printf("FAIL: "+format+"\n", args...) }
func (exampleT) Fatalf(format string, args ...any) { fmt.Printf("FAIL: "+format+"\n", args...) }
func (exampleT) Cleanup(func())                    {}
func (exampleT) Context() context.Context          { return context.Background() }

type findings struct {
	Notes []string `json:"notes"`
}

type report struct {
	Summary string `json:"summary"`
}

type search struct {
	Query string `json:"query"`
}

// researcher is the agent under test. In an application it has a model of its
// own, which the tests replace.
var researcher = &helix.Agent{
	Name:   "researcher",
	State:  helix.StateOf(findings{}),
	Output: helix.OutputOf[report](),
	Tools: []helix.Tool{{
		Name: "search", Description: "Search the archive.", ReadOnly: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, in search) (string, error) {
			hit := "the " + in.Query + " comes from China"
			helix.Update(call, func(f *findings) { f.Notes = append(f.Notes, hit) })
			return hit, nil
		}),
	}},
}

func Example() {
	t := exampleT{} // the *testing.T of your test

	m := scripted.New(
		scripted.Call("search", `{"query":"compass"}`),
		scripted.Finish(report{Summary: "China, about 2,000 years ago."}),
	)
	res := helixtest.Run(t, researcher, helixtest.With(m), "Who invented the compass?")

	fmt.Println(res.Status, "after", res.Steps, "steps")
	fmt.Println("searched:", string(res.CallsOf("search")[0].Input))
	fmt.Println("notes:", strings.Join(helixtest.State[findings](t, res).Notes, "; "))
	fmt.Println("summary:", helixtest.Output[report](t, res).Summary)
	// Output:
	// completed after 2 steps
	// searched: {"query":"compass"}
	// notes: the compass comes from China
	// summary: China, about 2,000 years ago.
}

// A step that the agent never came to fails the test.
func ExampleRun_leftovers() {
	t := exampleT{}
	m := scripted.New(
		scripted.Finish(report{Summary: "I knew it already."}),
		scripted.Call("search", `{"query":"compass"}`),
	)
	helixtest.Run(t, researcher, helixtest.With(m), "Who invented the compass?")
	// Output:
	// FAIL: the script was not played to its end: step 2 of 2: calls search
}

// A conversation is one Run per turn.
func ExampleContinue() {
	t := exampleT{}
	first := helixtest.Run(t, researcher, helixtest.With(scripted.New(
		scripted.Call("search", `{"query":"compass"}`),
		scripted.Finish(report{Summary: "From China."}),
	)), "Who invented the compass?")

	second := helixtest.Run(t, researcher, helixtest.With(scripted.New(
		scripted.Finish(report{Summary: "About 2,000 years ago."}),
	)), "And when?", helixtest.Continue(first))

	fmt.Println(helixtest.Output[report](t, second).Summary)
	fmt.Println(len(second.Messages), "messages,", len(second.Calls), "call in this turn")
	// Output:
	// About 2,000 years ago.
	// 8 messages, 1 call in this turn
}

// A turn that waits for a person is answered and continued.
func ExampleResume() {
	t := exampleT{}
	type order struct {
		Order int `json:"order"`
	}
	clerk := &helix.Agent{
		Name: "clerk",
		Tools: []helix.Tool{{
			Name: "refund", Description: "Refund an order.", Approval: helix.RequireApproval,
			Execute: helix.Func(func(context.Context, *helix.Call, order) (string, error) { return "refunded", nil }),
		}},
	}
	m := scripted.New(
		scripted.Call("refund", `{"order":7}`),
		scripted.Text("Done."),
	)
	res := helixtest.Run(t, clerk, helixtest.With(m), "Refund order 7.")
	fmt.Println(res.Status, "for", res.Pending[0].Tool, string(res.Pending[0].Input))

	res = helixtest.Resume(t, res, helixtest.Approve("refund"))
	fmt.Println(res.Status, string(res.CallsOf("refund")[0].Output), res.Text)
	// Output:
	// suspended_client_tool for refund {"order":7}
	// completed "refunded" Done.
}
