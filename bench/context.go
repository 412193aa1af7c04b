package main

import (
	"context"
	"fmt"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
)

// abstract is a model that summarises at once.
type abstract struct{}

// Generate implements [llm.Model].
func (abstract) Generate(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error) {
	return &llm.Response{Parts: []session.Part{session.Text(text)}, Finish: llm.FinishStop}, nil
}

// policy keeps the conversation short, with the default numbers.
func policy() *helix.ContextPolicy { return &helix.ContextPolicy{Model: abstract{}} }

// open measures how long it takes from the call that begins a run to its first model call, on a session of
// 10,000 messages whose agent keeps the conversation short. Its floor is the same on a session of 100.
func open(ctx context.Context, k kind, quick bool) ([]row, error) {
	length, rounds := 10_000, 60
	if quick {
		length, rounds = 1_000, 10
	}
	took := map[string][]time.Duration{}
	err := k.onRuntime(ctx, func(rt *local.Runtime, _ *site) error {
		model := newWorker(0)
		agent := agentOf(model, bounded)
		for id, messages := range map[string]int{"short": 100, "long": length} {
			model.steps = messages / 2
			if err := runSession(ctx, rt, agent, id); err != nil {
				return err
			}
		}
		model.steps = 0
		for range rounds {
			for _, id := range []string{"short", "long"} {
				model.forget(id)
				began := time.Now()
				if err := runSession(ctx, rt, agent, id); err != nil {
					return err
				}
				model.mu.Lock()
				took[id] = append(took[id], model.asked[id][0].Sub(began))
				model.mu.Unlock()
			}
		}
		return nil
	})
	var rows []row
	for _, p := range []float64{50, 90} {
		r := row{Bench: "open" + string(bounded), Store: k.name, Runtime: local.Name, N: length, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(took["long"], p)}
		rows = append(rows, r.with(percentile(took["short"], p)))
	}
	return rows, err
}
