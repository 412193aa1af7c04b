package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

func TestErrorIsClassified(t *testing.T) {
	t.Parallel()
	e := llm.Error(session.CodeRateLimited, true, "slow %s", "down")
	e.Cause = &llm.RetryAfterError{After: 3 * time.Second, Cause: io.EOF}
	wrapped := fmt.Errorf("step 2: %w", e)
	var after *llm.RetryAfterError
	if !errors.As(wrapped, &after) || after.After != 3*time.Second || !errors.Is(wrapped, io.EOF) {
		t.Errorf("%v does not say when to ask again", wrapped)
	}
	if !session.IsRetryable(wrapped) || !errors.Is(wrapped, &session.Error{Code: session.CodeRateLimited}) {
		t.Errorf("%v is not classified", wrapped)
	}
	if got, want := e.Error(), "slow down: retry after 3s: EOF"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.As(session.AsError(wrapped), &after) {
		t.Error("the time to wait is lost on the way to the engine")
	}
}

// plain is a model that knows nothing of itself, knowing one that does, and wrapping a model
// around another.
type (
	plain    struct{}
	knowing  struct{ plain }
	wrapping struct{ llm.Model }
)

func (plain) Generate(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error) {
	return nil, errors.New("no")
}
func (knowing) Window() int                                      { return 100 }
func (knowing) Count(context.Context, *llm.Request) (int, error) { return 7, nil }
func (w wrapping) Unwrap() llm.Model                             { return w.Model }

func TestWhatModelsKnow(t *testing.T) {
	t.Parallel()
	loop := &wrapping{}
	loop.Model = loop
	for name, c := range map[string]struct {
		model         llm.Model
		window, count int
	}{
		"plain": {plain{}, 0, 0}, "knowing": {knowing{}, 100, 7}, "wrapped": {wrapping{wrapping{knowing{}}}, 100, 7},
		"around nothing": {wrapping{plain{}}, 0, 0}, "nil": {wrapping{}, 0, 0}, "around itself": {loop, 0, 0},
	} {
		if got := llm.WindowOf(c.model); got != c.window {
			t.Errorf("%s: the window is %d", name, got)
		}
		n, err := llm.CountTokens(t.Context(), c.model, &llm.Request{})
		if n != c.count || (c.count == 0) != errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: counted %d: %v", name, n, err)
		}
	}
}
