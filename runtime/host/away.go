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
	told  time.Time     // when it was last logged; of the goroutine that watches leases
}

// awayReminder is how often an absence is logged again.
const awayReminder = time.Minute

// noteAway notes that the store could not be read, and logs it now and then. Only the
// goroutine that watches leases calls it, and noteBack.
func (h *Host) noteAway(ctx context.Context, began time.Time, err error) {
	away := h.absence.Load()
	switch {
	case ctx.Err() != nil:
		return
	case away == nil:
		away = &absence{began: began, ended: make(chan struct{})}
		h.absence.Store(away)
	case time.Since(away.told) < awayReminder:
		return
	}
	away.told = time.Now()
	h.mu.Lock()
	turns := len(h.turns)
	h.mu.Unlock()
	h.log.WarnContext(ctx, "store.away", "after", time.Since(away.began).Round(time.Millisecond), "turns", turns, "error", err)
}

// noteBack notes that the store could be read. It is logged like the absence, so that
// whoever reads of that also reads of its end.
func (h *Host) noteBack(ctx context.Context) {
	if away := h.absence.Swap(nil); away != nil {
		close(away.ended)
		h.log.WarnContext(ctx, "store.back", "after", time.Since(away.began).Round(time.Millisecond))
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
// random part of a tenth is left, so that not all turns of this process write at once. It
// reports whether the wait was cut short like that.
func (h *Host) pauseRetry(ctx context.Context, pause time.Duration) (cut bool, err error) {
	away := h.absence.Load()
	if away == nil {
		return false, retry.Sleep(ctx, pause)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-away.ended:
		return true, retry.Sleep(ctx, rand.N(pause/10+1))
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
