package host

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// absence is a time in which this process cannot read the store.
type absence struct {
	began time.Time
	ended chan struct{} // closed at its end
}

// noteAway notes that the store could not be read, and logs it once per outage.
func (h *Host) noteAway(ctx context.Context, began time.Time, err error) {
	if ctx.Err() != nil || !h.absence.CompareAndSwap(nil, &absence{began: began, ended: make(chan struct{})}) {
		return
	}
	h.mu.Lock()
	turns := len(h.turns)
	h.mu.Unlock()
	h.log.WarnContext(ctx, "store.away", "turns", turns, "error", err)
}

// noteBack notes that the store could be read.
func (h *Host) noteBack(ctx context.Context) {
	if ended := h.absence.Swap(nil); ended != nil {
		h.log.InfoContext(ctx, "store.back", "after", time.Since(ended.began).Round(time.Millisecond))
		close(ended.ended)
	}
}

// retryLevel is the level at which to log that a call of the store failed and will be
// repeated: while the store is known to be away, a line for each would fill the log.
func (h *Host) retryLevel(err error) slog.Level {
	if h.absence.Load() != nil && session.IsRetryable(err) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// pauseRetry waits before a call of the store is repeated. At the end of an outage only a
// random part of a tenth is left, so that not all turns of this process write at once.
func (h *Host) pauseRetry(ctx context.Context, pause time.Duration) error {
	now := h.absence.Load()
	if now == nil {
		return retry.Sleep(ctx, pause)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-now.ended:
		return retry.Sleep(ctx, rand.N(pause/10+1))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
