// Recovery: a process is killed during tool calls, and another one recovers its run.
//
// The program starts a copy of itself that runs an agent on SQLite. It kills the copy
// with SIGKILL while two of the agent's three tool calls are in progress, and starts a
// second copy, which continues the run from its last commit:
//
//   - a finished call keeps its result and does not run again;
//   - an Idempotent call that was in progress runs again, with the same key;
//   - any other call that was in progress does not run again: the model receives the
//     error that its outcome is unknown.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/sqlite"
	"github.com/helixagents/helix/stream"
)

const sessionID = "evening"

func main() {
	ctx := context.Background()
	if len(os.Args) == 3 {
		work(ctx, os.Args[1], os.Args[2])
		return
	}
	dir, err := os.MkdirTemp("", "helix-recovery-")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()

	fmt.Println("Process 1 runs the agent and is killed during two tool calls:")
	first, lines := start(ctx, "first", dir)
	for range 3 { // one call has ended, two have started
		<-lines
	}
	check(first.Process.Kill()) // SIGKILL: nothing in the process can react to it
	for range lines {
	}
	fmt.Println("  ", first.Wait())

	fmt.Println("Process 2 takes over the run and finishes it:")
	second, lines := start(ctx, "second", dir)
	for line := range lines {
		fmt.Println("  ", line)
	}
	check(second.Wait())

	fmt.Println("Effects outside the store:")
	printLedger(dir)
}

// start runs a copy of this program and returns the lines that it prints.
func start(ctx context.Context, part, dir string) (*exec.Cmd, <-chan string) {
	self, err := os.Executable()
	check(err)
	cmd := exec.CommandContext(ctx, self, part, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(err)
	check(cmd.Start())
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return cmd, lines
}

// work does the part of one copy: the first executes a turn, the second recovers it.
func work(ctx context.Context, part, dir string) {
	db, err := sqlite.Open(filepath.Join(dir, "helix.db"))
	check(err)
	defer db.Close()
	agent := concierge(part, dir)
	rt, err := local.New(local.Config{
		Backend: db, Agents: []*helix.Agent{agent},
		LeaseTTL: time.Second, Sweep: 100 * time.Millisecond, // so that the takeover is fast
	})
	check(err)
	defer rt.Shutdown(ctx)
	if part == "first" {
		run, err := rt.Execute(ctx, agent, helix.Input{SessionID: sessionID, Message: helix.UserText("Arrange our evening.")})
		check(err)
		for item, err := range run.Stream(ctx) {
			check(err)
			if c := item.Chunk; c != nil && c.Kind == stream.ToolEnd {
				fmt.Println("ended", c.Tool)
			}
		}
		return
	}
	run, err := rt.Attach(ctx, sessionID)
	check(err)
	res, err := run.Result(ctx)
	check(err)
	fmt.Printf("the run is %s\n", res.Status)
	messages, err := rt.Sessions().Messages(ctx, sessionID, session.PageRequest{})
	check(err)
	for i := range messages.Items {
		printMessage(&messages.Items[i])
	}
}

func printMessage(m *session.Message) {
	for _, p := range m.Parts {
		switch {
		case p.Kind == session.PartText:
			fmt.Printf("%s: %s\n", m.Role, p.Text)
		case p.Kind == session.PartToolCall:
			fmt.Printf("%s: → %s\n", m.Role, p.Tool)
		case p.Error != nil:
			fmt.Printf("%s: ← %s: error: %s\n", m.Role, p.Tool, p.Error.Message)
		default:
			fmt.Printf("%s: ← %s: %s\n", m.Role, p.Tool, p.Text)
		}
	}
}

// concierge makes three calls in one reply. In the first process only book_table
// returns; the other two hang.
func concierge(part, dir string) *helix.Agent {
	tool := func(name string, idempotent, slow bool) helix.Tool {
		return helix.Tool{
			Name: name, Description: "Arrange something.", Idempotent: idempotent,
			Execute: helix.Func(func(ctx context.Context, call *helix.Call, _ struct{}) (string, error) {
				if err := enter(dir, name+" "+call.IdempotencyKey()); err != nil {
					return "", err
				}
				if part == "first" && slow {
					fmt.Println("started", name)
					<-ctx.Done()
					return "", ctx.Err()
				}
				return "done in the " + part + " process", nil
			}),
		}
	}
	return &helix.Agent{
		Name: "concierge",
		Tools: []helix.Tool{
			tool("book_table", false, false),
			tool("reserve_taxi", true, true),
			tool("charge_card", false, true),
		},
		// ByPosition finds the place in the script by the transcript, so the second process
		// continues where the first was killed.
		Model: scripted.New(
			scripted.Reply(
				scripted.Calling("book_table", nil), scripted.Calling("reserve_taxi", nil), scripted.Calling("charge_card", nil),
			),
			scripted.Text("Table and taxi are arranged. Please check whether your card was charged."),
		).ByPosition(),
	}
}

// The ledger records the effects that the tools have outside the store.

func enter(dir, line string) error {
	f, err := os.OpenFile(ledger(dir), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		return err
	}
	return f.Close()
}

func ledger(dir string) string { return filepath.Join(dir, "ledger.txt") }

func printLedger(dir string) {
	raw, err := os.ReadFile(ledger(dir))
	check(err)
	times, keys := map[string]int{}, map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		name, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		times[name]++
		keys[name+key] = true
	}
	for _, name := range []string{"book_table", "reserve_taxi", "charge_card"} {
		fmt.Printf("   %s started %d time(s)\n", name, times[name])
	}
	fmt.Printf("   with %d different idempotency keys\n", len(keys))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
