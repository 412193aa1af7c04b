// Package shop is an agent with tests: what it does in a turn, what it asks people, and what
// becomes of their answers, without a model and without waiting.
package shop

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
)

type article struct {
	Article string `json:"article"`
}

// Order is what the tool order is called with.
type Order struct {
	Article  string `json:"article"`
	Quantity int    `json:"quantity" jsonschema:"at least one"`
}

// Stock knows what there is.
type Stock interface {
	Count(ctx context.Context, article string) (int, error)
	Reserve(ctx context.Context, key, article string, n int) error
}

// New returns the agent on a stock. Orders of more than ten need a person's approval.
func New(model llm.Model, stock Stock) *helix.Agent {
	return &helix.Agent{
		Name: "shop", Instructions: "Look at the stock before you promise anything.", Model: model,
		Tools: []helix.Tool{{
			Name: "stock", Description: "Count the articles in stock.", ReadOnly: true,
			Execute: helix.Func(func(ctx context.Context, _ *helix.Call, in article) (int, error) {
				return stock.Count(ctx, in.Article)
			}),
		}, {
			Name: "order", Description: "Place an order.", Idempotent: true,
			Approval: helix.RequireApprovalWhen(func(_ context.Context, in Order) (bool, error) { return in.Quantity > 10, nil }),
			Execute: helix.Func(func(ctx context.Context, call *helix.Call, in Order) (string, error) {
				if in.Quantity < 1 {
					return "", fmt.Errorf("the quantity is %d, at least 1 is needed", in.Quantity)
				}
				// The key is the same on each attempt, also in another process.
				if err := stock.Reserve(ctx, call.IdempotencyKey(), in.Article, in.Quantity); err != nil {
					return "", err
				}
				return fmt.Sprintf("ordered %d of %s", in.Quantity, in.Article), nil
			}),
		}},
	}
}
