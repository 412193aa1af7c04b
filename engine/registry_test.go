package engine

import (
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
)

// Definitions that nobody has any more are not kept in mind.
func TestReplaceForgets(t *testing.T) {
	h := newRegistry(nil, newHookLimit(time.Minute), slog.New(slog.DiscardHandler))
	greeter := func() *helix.Agent { return &helix.Agent{Name: "greeter", Model: scripted.New()} }
	held := greeter()
	if err := h.Replace(held); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := h.Replace(greeter()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	if err := h.Replace(greeter()); err != nil {
		t.Fatal(err)
	}
	// The one that is held, and the one that the last displaced.
	if n := len(h.displaced); n > 2 {
		t.Errorf("%d definitions are kept in mind", n)
	}
	if agent, err := h.Register(held); err != nil || agent == held {
		t.Errorf("%p, %v", agent, err)
	}
}
