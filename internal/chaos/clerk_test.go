package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/enginetest"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// clerk is a model that asks for tools until it is enough, then answers. It
// decides from the transcript alone, so that any process continues where another was
// killed.
type clerk struct {
	enough func(replies int) bool
	asked  func() // called at every model call; may be nil
}

func (c clerk) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	replies := 0
	for i := range r.Messages {
		if r.Messages[i].Role == session.RoleAssistant {
			replies++
		}
	}
	if c.asked != nil {
		c.asked()
	}
	// Every asking gives other words and ids: a reply that was lost cannot hide.
	text := fmt.Sprintf("step %d, %x.", replies+1, rand.Uint32())
	for _, word := range strings.SplitAfter(text, " ") {
		emit(llm.Delta{Kind: llm.DeltaText, Text: word})
	}
	response := &llm.Response{Parts: []session.Part{session.Text(text)}, Finish: llm.FinishStop, Model: "clerk"}
	if c.enough(replies) {
		return response, ctx.Err()
	}
	for i, tool := range []string{"pay", "look", "send"} {
		if (replies+i)%3 == 2 && i > 0 {
			continue
		}
		input, err := json.Marshal(map[string]int{"n": replies})
		if err != nil {
			return nil, err
		}
		response.Parts = append(response.Parts, session.Part{
			Kind: session.PartToolCall, Tool: tool, Input: input, ProviderCallID: fmt.Sprintf("p%x", rand.Uint64()),
		})
	}
	response.Finish = llm.FinishToolCalls
	return response, ctx.Err()
}

// ledger is the agent's state.
type ledger struct {
	Paid []int `json:"paid"`
}

// clerkAgent is an agent whose tools have effects, of which each start is
// recorded before it happens.
func clerkAgent(model clerk, record func(start string) error) *helix.Agent {
	effect := func(tool string) helix.Callable {
		return helix.Func(func(_ context.Context, call *helix.Call, in struct {
			N int `json:"n"`
		},
		) (string, error) {
			if err := record(tool + " " + call.IdempotencyKey()); err != nil {
				return "", err
			}
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) // waits: so that trouble finds calls in flight
			if tool == "pay" {
				helix.Append(call, "paid", in.N)
			}
			return fmt.Sprintf("%s %d", tool, in.N), nil
		})
	}
	return &helix.Agent{
		Name: "clerk", Model: model, MaxSteps: helix.Unlimited, State: helix.StateOf(ledger{}),
		Tools: []helix.Tool{
			{Name: "pay", Execute: effect("pay")},
			{Name: "look", Execute: effect("look"), ReadOnly: true},
			{Name: "send", Execute: effect("send"), Idempotent: true},
		},
	}
}

// verifyClerk requires that a clerk's session is complete and valid: every step
// once, every call with its result, no payment started twice, and the state and
// the folded stream as the transcript has them. It returns the number of steps,
// and of payments that were cut off.
func verifyClerk(t *testing.T, db store.Backend, id string, starts map[string]int) (steps, unknown int) {
	t.Helper()
	ctx := t.Context()
	messages, err := db.Sessions().AllMessages(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	transcript, err := session.NewTranscript(messages)
	if err == nil {
		err = transcript.Sendable()
	}
	if err != nil {
		t.Fatalf("%s: the transcript is invalid: %v", id, err)
	}
	var paid []int
	for i := range messages {
		switch m := &messages[i]; m.Role {
		case session.RoleAssistant:
			steps++
			if m.Step != steps {
				t.Errorf("%s: reply %d is of step %d", id, steps, m.Step)
			}
		case session.RoleTool:
			p := &m.Parts[0]
			n := starts[p.Tool+" "+id+"/"+p.CallID]
			switch {
			case p.Tool == "pay" && n > 1:
				t.Errorf("%s: %s was started %d times", id, p.CallID, n)
			case p.Error != nil && p.Error.Code == session.CodeToolOutcome && p.Tool == "pay":
				unknown++
			case p.Error != nil:
				t.Errorf("%s: %s %s failed: %v", id, p.Tool, p.CallID, p.Error)
			case n == 0:
				t.Errorf("%s: %s %s has a result but never started", id, p.Tool, p.CallID)
			case p.Tool == "pay":
				paid = append(paid, m.Step-1)
			}
		}
	}
	if last := &messages[len(messages)-1]; last.Role != session.RoleAssistant || len(last.Calls()) > 0 {
		t.Errorf("%s: the transcript does not end with an answer but with %+v", id, last)
	}
	state, err := db.Sessions().Load(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	if raw := state.Custom.Get("paid"); raw != nil {
		err = json.Unmarshal(raw, &got)
	}
	if err != nil || !slices.Equal(got, paid) {
		t.Errorf("%s: the state holds %v, the transcript %v (%v)", id, got, paid, err)
	}
	verifyFold(t, db, id, messages)
	return steps, unknown
}

func verifyFold(t *testing.T, db store.Backend, id string, messages []session.Message) {
	t.Helper()
	verifyFoldOn(t, db, id, id, messages)
}

// verifyFoldOn is verifyFold for a session whose stream may be another's.
func verifyFoldOn(t *testing.T, db store.Backend, streamID, id string, messages []session.Message) {
	t.Helper()
	var chunks []stream.Chunk
	for item, err := range db.Streams().Read(t.Context(), streamID, 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Chunk != nil {
			chunks = append(chunks, *item.Chunk)
		}
	}
	folded, want := enginetest.Lines(stream.Fold(id, chunks)), enginetest.Lines(messages)
	if slices.Equal(folded, want) {
		return
	}
	t.Errorf("%s: folding the stream does not give the transcript: %d against %d messages", id, len(folded), len(want))
	for i := range min(len(folded), len(want)) {
		if folded[i] != want[i] {
			t.Fatalf("first difference at %d:\n%s\n%s", i, folded[i], want[i])
		}
	}
}
