// Approval: one process asks, another one answers, a third one resumes.
//
// The program starts copies of itself that share only a SQLite file. The first runs
// an agent whose tool needs a person's approval: its run suspends, and the process
// ends. The second answers for two people, perhaps hours later. The tool's policy
// lets only one of them decide. The third resumes the session: the tool runs there,
// once, with the input that was approved.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/sqlite"
)

const sessionID = "invoice-17"

type payment struct {
	To     string `json:"to"`
	Amount int    `json:"amount"`
}

var clerk = &helix.Agent{
	Name: "clerk",
	Tools: []helix.Tool{{
		Name: "pay", Description: "Pay an invoice.",
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in payment) (string, error) {
			fmt.Printf("   paying %d to %s\n", in.Amount, in.To)
			return "paid", nil
		}),
		Approval: helix.RequireApprovalWhen(func(_ context.Context, in payment) (bool, error) { return in.Amount >= 100, nil }),
		Approver: func(_ context.Context, answer *helix.Answer) error {
			if answer.By.ID != "cfo" {
				return errors.New("only the cfo decides on payments")
			}
			return nil
		},
	}},
	Model: scripted.New(
		scripted.Call("pay", payment{To: "Acme", Amount: 5000}),
		scripted.Text("The invoice is paid."),
	).ByPosition(),
}

func main() {
	ctx := context.Background()
	if len(os.Args) == 3 {
		work(ctx, os.Args[1], os.Args[2])
		return
	}
	dir, err := os.MkdirTemp("", "helix-approval-")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	check(err)
	for _, part := range []string{"ask", "answer", "resume"} {
		fmt.Printf("A process to %s:\n", part)
		cmd := exec.CommandContext(ctx, self, part, dir)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		check(cmd.Run())
	}
}

// work does the part of one process.
func work(ctx context.Context, part, dir string) {
	db, err := sqlite.Open(filepath.Join(dir, "helix.db"))
	check(err)
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{clerk}})
	check(err)
	defer rt.Shutdown(ctx)
	switch part {
	case "ask":
		run, err := rt.Execute(ctx, clerk, helix.Input{SessionID: sessionID, Message: helix.UserText("Pay invoice 17.")})
		check(err)
		show(ctx, run)
	case "answer":
		waiting, err := rt.Waiting(ctx, sessionID)
		check(err)
		for _, p := range waiting {
			fmt.Printf("   %s %s is waiting for approval\n", p.Tool, p.Input)
			_, err := rt.Submit(ctx, sessionID, helix.Approve(p, helix.User{ID: "intern"}))
			fmt.Println("   the intern is rejected:", errors.Is(err, helix.ErrNotAllowed))
			for range 2 { // a second click does no harm
				out, err := rt.Submit(ctx, sessionID, helix.Approve(p, helix.User{ID: "cfo"}))
				check(err)
				fmt.Println("   the cfo's answer is", out.Outcome, out.Continuation)
			}
		}
	case "resume":
		run, err := rt.Resume(ctx, sessionID, helix.ResumeOptions{})
		check(err)
		show(ctx, run)
	}
}

func show(ctx context.Context, run helix.Run) {
	res, err := run.Result(ctx)
	check(err)
	fmt.Println("   the run is", res.Status, res.Text)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
