package shop_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/examples/testing"
	"github.com/helixagents/helix/helixtest"
	"github.com/helixagents/helix/llm/scripted"
)

// shelf is a stock in memory.
type shelf struct {
	count    map[string]int
	reserved map[string]int // by idempotency key
}

func (s *shelf) Count(_ context.Context, article string) (int, error) { return s.count[article], nil }

func (s *shelf) Reserve(_ context.Context, key, article string, n int) error {
	if s.count[article] < n {
		return errors.New("not enough in stock")
	}
	s.reserved[key] = n
	return nil
}

func newShelf() *shelf {
	return &shelf{count: map[string]int{"pencils": 100}, reserved: map[string]int{}}
}

// TestOrder plays a whole turn: the script is what the model says and calls, the tools are
// the real ones.
func TestOrder(t *testing.T) {
	t.Parallel()
	stock := newShelf()
	model := scripted.New(
		scripted.Call("stock", `{"article":"pencils"}`),
		scripted.Call("order", shop.Order{Article: "pencils", Quantity: 10}),
		scripted.Text("Ten pencils are on their way."),
	)
	res := helixtest.Run(t, shop.New(nil, stock), helixtest.With(model), "Ten pencils, please.")
	if res.Status != helix.Completed || res.Text != "Ten pencils are on their way." {
		t.Errorf("%s: %q", res.Status, res.Text)
	}
	if calls := res.CallsOf("stock"); len(calls) != 1 || string(calls[0].Output) != "100" {
		t.Errorf("the stock was asked %+v", calls)
	}
	if len(stock.reserved) != 1 {
		t.Errorf("reserved: %v", stock.reserved)
	}
}

// TestLargeOrder lets a person decide: the turn waits, and goes on with the answer and the
// rest of the script.
func TestLargeOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer helixtest.Answer
		n      int
	}{
		{"approved", helixtest.Approve("order"), 1},
		{"denied", helixtest.Deny("order", "too many"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			stock := newShelf()
			model := scripted.New(
				scripted.Call("order", shop.Order{Article: "pencils", Quantity: 50}),
				scripted.Text("That is settled."),
			)
			res := helixtest.Run(t, shop.New(nil, stock), helixtest.With(model), "Fifty pencils, please.")
			if len(res.Pending) != 1 || len(stock.reserved) != 0 {
				t.Fatalf("%s, waiting: %+v, reserved: %v", res.Status, res.Pending, stock.reserved)
			}
			res = helixtest.Resume(t, res, c.answer)
			if res.Status != helix.Completed || len(stock.reserved) != c.n {
				t.Errorf("%s, reserved: %v", res.Status, stock.reserved)
			}
		})
	}
}

// TestRefusedOrder checks what the model is told when a tool refuses: its next reply can
// mend it.
func TestRefusedOrder(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		`{"article":"pencils","quantity":0}`: "at least 1",
		`{"article":"ships","quantity":1}`:   "not enough in stock",
		`{"article":"pencils"}`:              "quantity",
	} {
		model := scripted.New(scripted.Call("order", json.RawMessage(input)), scripted.Text("I am sorry."))
		res := helixtest.Run(t, shop.New(nil, newShelf()), helixtest.With(model), "One of those.")
		if calls := res.CallsOf("order"); len(calls) != 1 || calls[0].Error == nil || !strings.Contains(calls[0].Error.Message, want) {
			t.Errorf("%s: %+v, want an error with %q", input, calls, want)
		}
	}
}
