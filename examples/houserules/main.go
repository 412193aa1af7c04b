// House rules: an extension of one's own.
//
// It adds the rules of a house to the agent's instructions, a tool that looks one up, a
// message to each exchange that people do not see, and a task that follows it. The task is
// stored by the commit that ends the run, so a crash loses neither or both.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// houseRules is the extension. All turns of all sessions use it at the same time.
type houseRules struct {
	rules map[string]string
	today string
	noted chan string // what was noted in the house's book
}

// Name implements helix.Extension.
func (h *houseRules) Name() string { return "houserules" }

type topic struct {
	Topic string `json:"topic" jsonschema:"one of the topics of the rules"`
}

// Attach implements helix.Extension. The topics are sorted, so that each turn begins with
// the same bytes, which a provider's cache may know.
func (h *houseRules) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	topics := slices.Sorted(maps.Keys(h.rules))
	return &helix.Attachment{
		Instructions: "The house has rules about: " + strings.Join(topics, ", ") + ". Look them up with house_rule.",
		Tools: []helix.Tool{{
			Name: "house_rule", Description: "Look up a rule of the house.", ReadOnly: true,
			Execute: helix.Func(func(_ context.Context, _ *helix.Call, in topic) (string, error) {
				if rule, ok := h.rules[in.Topic]; ok {
					return rule, nil
				}
				return "", errors.New("the house has no rule about " + in.Topic)
			}),
		}},
	}, nil
}

// Prepare implements helix.Preparer.
func (h *houseRules) Prepare(context.Context, *helix.Turn) ([]session.Message, error) {
	if h.today == "" {
		return nil, errors.New("the porter has no calendar")
	}
	return []session.Message{session.UserText("Today is " + h.today + ".")}, nil
}

// kindBook is the kind of tasks that write to the house's book.
const kindBook = "houserules.book"

// Finish implements helix.Finisher. The body of a task has ids, not content: what they
// name may have changed when the task is carried out.
func (h *houseRules) Finish(_ context.Context, turn *helix.Turn, outcome *session.Outcome) ([]session.Task, error) {
	if outcome.Status != session.RunCompleted || len(turn.Input) == 0 {
		return nil, nil
	}
	body, err := json.Marshal(turn.Input[0].ID)
	if err != nil {
		return nil, fmt.Errorf("encode the task: %w", err)
	}
	return []session.Task{{Kind: kindBook, Body: body}}, nil
}

// TaskKinds implements helix.TaskHandler.
func (h *houseRules) TaskKinds() []string { return []string{kindBook} }

// HandleTask implements helix.TaskHandler. A task may be handled twice; whoever keeps the
// book recognises that by the task's id.
func (h *houseRules) HandleTask(ctx context.Context, task *session.Task) error {
	select {
	case h.noted <- "session " + task.SessionID + " was noted in the book":
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func main() {
	ctx := context.Background()
	rules := &houseRules{
		rules: map[string]string{"noise": "No noise after ten, and none on Sundays.", "bicycles": "Bicycles stand in the yard."},
		today: "Sunday", noted: make(chan string),
	}
	porter := &helix.Agent{
		Name:         "porter",
		Instructions: "You are the porter of the house.",
		Extensions:   []helix.Extension{rules},
		Model: scripted.New(
			scripted.Call("house_rule", topic{"noise"}),
			scripted.Text("Not today: it is Sunday."),
		),
	}
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{porter}})
	check(err)
	defer rt.Shutdown(ctx)
	run, err := rt.Execute(ctx, porter, helix.Input{SessionID: "flat-3", Message: helix.UserText("May I drill a hole?")})
	check(err)
	_, err = run.Result(ctx)
	check(err)
	messages, err := rt.Sessions().Messages(ctx, "flat-3", session.PageRequest{})
	check(err)
	for _, message := range messages.Items {
		who := string(message.Role)
		if message.Hidden() {
			who += ", hidden"
		}
		for _, part := range message.Parts {
			switch part.Kind {
			case session.PartToolCall:
				fmt.Printf("%s: → %s %s\n", who, part.Tool, part.Input)
			case session.PartToolResult:
				fmt.Printf("%s: ← %s\n", who, part.ResultJSON())
			default:
				fmt.Printf("%s: %s\n", who, part.Text)
			}
		}
	}
	select {
	case note := <-rules.noted:
		fmt.Println(note)
	case <-time.After(30 * time.Second):
		fmt.Println("nothing was noted")
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
