package helix_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
)

// windowed is a model that knows its window.
type windowed struct {
	llm.Model
	window int
}

func (m windowed) Window() int { return m.window }

// wrapped is a model around another.
type wrapped struct{ llm.Model }

func (m wrapped) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	return m.Model.Generate(ctx, r, emit)
}

func (m wrapped) Unwrap() llm.Model { return m.Model }

func TestContextPolicyIsChecked(t *testing.T) {
	t.Parallel()
	many := make([]string, 257)
	for i := range many {
		many[i] = "tool" + strings.Repeat("x", i%60)
	}
	for want, policy := range map[string]helix.ContextPolicy{
		"Context.TriggerMessages is -2; use helix.Unlimited":                        {TriggerMessages: -2},
		"Context.TriggerMessages is 1; it must be at least 2":                       {TriggerMessages: 1},
		"Context.TriggerTokens is -5":                                               {TriggerTokens: -5},
		"Context.TriggerFraction is 1.5":                                            {TriggerFraction: 1.5},
		"Context.TriggerFraction is -0.5":                                           {TriggerFraction: -0.5},
		"Context.TriggerFraction is NaN":                                            {TriggerFraction: math.NaN()},
		"Context.KeepMessages is -1; it must not be negative":                       {KeepMessages: -1},
		"Context.KeepMessages is 50, but TriggerMessages defaults to 50":            {KeepMessages: 50},
		"Context.KeepMessages defaults to 20, but TriggerMessages is 20":            {TriggerMessages: 20},
		"Context.KeepTokens is -1":                                                  {KeepTokens: -1},
		"Context.KeepTokens is 90000, but TriggerTokens defaults to 80000":          {KeepTokens: 90_000},
		"Context.KeepTokens is 850, but TriggerFraction is 0.85 of the model's win": {KeepTokens: 850},
		"Context.TrimArguments is -2":                                               {TrimArguments: -2},
		"Context.TrimResults is 20; it must be at least 200":                        {TrimResults: 20},
		"Context.Prompt does not contain {messages}":                                {Prompt: "Summarise!"},
		"Context.Prompt has 70010 bytes":                                            {Prompt: "{messages}" + strings.Repeat("x", 70_000)},
		"Context.EvictOver is -1":                                                   {EvictOver: -1},
		"Context.EvictOver is 10; it must be at least 1000":                         {EvictOver: 10},
		"Context.EvictExcept is set, but EvictOver is not":                          {EvictExcept: []string{"a"}},
		`Context.EvictExcept contains "a/b", which is not the name of a tool`:       {EvictOver: 80_000, EvictExcept: []string{"a/b"}},
		`Context.EvictExcept contains "a" twice`:                                    {EvictOver: 80_000, EvictExcept: []string{"a", "b", "a"}},
		"Context.EvictExcept has 257 names":                                         {EvictOver: 80_000, EvictExcept: many},
	} {
		agent := &helix.Agent{Name: "a", Model: wrapped{windowed{scripted.New(), 1_000}}, Context: &policy}
		if err := agent.Check(); err == nil || !strings.HasPrefix(err.Error(), "agent a: "+want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, policy := range []helix.ContextPolicy{
		{},
		{TriggerMessages: helix.Unlimited, TriggerTokens: helix.Unlimited, TriggerFraction: helix.Unlimited, TrimArguments: helix.Unlimited, TrimResults: helix.Unlimited},
		{TriggerMessages: 5, KeepMessages: 4},
		{KeepTokens: 700, TriggerMessages: 5},
		{TriggerFraction: 1},
		{EvictOver: 80_000, EvictExcept: []string{"workspace_read_file"}},
		{TriggerMessages: helix.Unlimited, KeepMessages: 500},
		{Prompt: "{messages} {previous}"},
	} {
		if err := (&helix.Agent{Name: "a", Model: windowed{scripted.New(), 1_000}, Context: &policy}).Check(); err != nil {
			t.Errorf("%+v: %v", policy, err)
		}
	}
}

func TestContextPolicyDefaults(t *testing.T) {
	t.Parallel()
	got := (*helix.ContextPolicy)(nil).WithDefaults()
	if got.TriggerMessages != 50 || got.TriggerTokens != 80_000 || got.TriggerFraction != 0.85 || got.KeepMessages != 20 || got.KeepTokens != 0 ||
		got.TrimArguments != 2_000 || got.TrimResults != 4_000 || got.EvictOver != 0 {
		t.Errorf("the defaults are %+v", got)
	}
	given := &helix.ContextPolicy{TriggerMessages: helix.Unlimited, KeepMessages: 7}
	if got := given.WithDefaults(); got.TriggerMessages != helix.Unlimited || got.KeepMessages != 7 || got.TriggerTokens != 80_000 || given.TriggerTokens != 0 {
		t.Errorf("%+v becomes %+v", given, got)
	}
}
