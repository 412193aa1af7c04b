package host_test

import (
	"context"
	"errors"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

type idle struct{}

func (idle) Drive(context.Context, *host.Turn) error         { return nil }
func (idle) Recover(context.Context, session.Due) error      { return nil }
func (idle) EnsureDriven(context.Context, session.Due) error { return nil }
func (idle) NotifyStop(context.Context, host.Start)          {}

func TestShutdownBeforeStart(t *testing.T) {
	t.Parallel()
	h, err := host.New(host.Config{RuntimeOptions: helix.RuntimeOptions{Backend: memory.New(memory.Config{})}, Name: "idle"}, idle{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// Close hides that turns were handed over, and nothing else.
func TestCloseNow(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct{ shutdown, want error }{
		{nil, nil},
		{context.Canceled, nil},
		{broken, broken},
		{errors.Join(context.Canceled, broken), broken},
		{errors.Join(context.Canceled), nil},
	} {
		got := host.CloseNow(func(ctx context.Context) error {
			if ctx.Err() == nil {
				t.Error("the context has not ended")
			}
			return c.shutdown
		})
		if !errors.Is(got, c.want) || (c.want == nil) != (got == nil) || errors.Is(got, context.Canceled) {
			t.Errorf("%v is reported as %v", c.shutdown, got)
		}
	}
}
