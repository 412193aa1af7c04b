package helix_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// A call that requires approval suspends its run. Anyone whom the tool's Approver admits
// can answer it, from any process, until the deadline. Resume then runs the call once, with
// the input that the person saw.
func ExampleApprove() {
	type payment struct {
		To     string `json:"to"`
		Amount int    `json:"amount"`
	}
	pay := helix.Tool{
		Name: "pay", Description: "Pay an invoice.",
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in payment) (string, error) {
			fmt.Printf("paying %d to %s\n", in.Amount, in.To)
			return "paid", nil
		}),
		Approval: helix.RequireApprovalWhen(func(_ context.Context, in payment) (bool, error) { return in.Amount >= 100, nil }),
		Approver: func(_ context.Context, answer *helix.Answer) error {
			if answer.By.ID != "cfo" {
				return errors.New("only the cfo decides on payments")
			}
			return nil
		},
	}
	agent := &helix.Agent{
		Name:  "clerk",
		Tools: []helix.Tool{pay},
		Model: scripted.New(scripted.Call("pay", payment{"Acme", 5000}), scripted.Text("The invoice is paid.")),
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

	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "invoice-17", Message: helix.UserText("Pay invoice 17.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status)

	// Hours later, in any process:
	waiting, err := rt.Waiting(ctx, "invoice-17")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range waiting {
		fmt.Printf("%s %s waits: %s\n", p.Tool, p.Input, p.Kind)
		_, err := rt.Submit(ctx, "invoice-17", helix.Approve(p, helix.User{ID: "intern"}))
		fmt.Println("refused:", errors.Is(err, helix.ErrNotAllowed))
		for range 2 { // a click too many does no harm
			out, err := rt.Submit(ctx, "invoice-17", helix.Approve(p, helix.User{ID: "cfo"}))
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(out.Outcome)
		}
	}

	run, err = rt.Resume(ctx, "invoice-17", helix.ResumeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if res, err = run.Result(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status, res.Text)
	// Output:
	// suspended_client_tool
	// pay {"to":"Acme","amount":5000} waits: approval
	// refused: true
	// accepted
	// already_completed
	// paying 5000 to Acme
	// completed The invoice is paid.
}
