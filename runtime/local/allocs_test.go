//go:build !race

package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// A step in memory, with a call that is recorded before it runs, allocates about 110
// times. The race detector adds allocations of its own.
func TestStepAllocations(t *testing.T) { //nolint:paralleltest // it counts the allocations of the whole process
	const steps, limit = 300, 130
	rt, err := local.New(local.Config{Backend: memory.New(memory.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rt.Close() }()
	agent := &helix.Agent{Name: "worker", Model: &diligent{steps: steps}, MaxSteps: helix.Unlimited, Tools: []helix.Tool{{
		Name: "work", Description: "Works.",
		Execute: helix.Func(func(context.Context, *helix.Call, struct {
			N int `json:"n"`
		},
		) (string, error) {
			return "done", nil
		}),
	}}}
	sessions := 0
	n := testing.AllocsPerRun(1, func() {
		sessions++
		run, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: fmt.Sprint("s-", sessions), Message: helix.UserText("Begin.")})
		if err != nil {
			t.Fatal(err)
		}
		if result, err := run.Result(t.Context()); err != nil || result.Error != nil {
			t.Fatalf("the run ended with %v, %v", result, err)
		}
	})
	if n/steps > limit {
		t.Errorf("a step makes %.0f allocations, at most %d are allowed", n/steps, limit)
	}
}

// diligent is a model that calls a tool in each of its steps.
type diligent struct{ steps int }

func (d *diligent) Generate(_ context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	emit(llm.Delta{Kind: llm.DeltaText, Text: "on it"})
	if r.Step > d.steps {
		return &llm.Response{Parts: []session.Part{session.Text("on it")}, Finish: llm.FinishStop}, nil
	}
	call := session.Part{Kind: session.PartToolCall, Tool: "work", ProviderCallID: "call_1", Input: json.RawMessage(`{"n":1}`)}
	return &llm.Response{Parts: []session.Part{session.Text("on it"), call}, Finish: llm.FinishToolCalls}, nil
}
