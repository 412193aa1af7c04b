package llm_test

import (
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
