package host

import (
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

const (
	// maxSignals is how many signals wait to be handled. A stop that finds no room is
	// noticed when leases are renewed, a wake at the next sweep.
	maxSignals = 256
	// wakePause is how long wakes are collected before they are delivered. Meanwhile the
	// process that put one has usually delivered it, or stored what the wake announces;
	// if not, it has a few times as long.
	wakePause = 20 * time.Millisecond
	wakeTries = 5
)

// listen handles what other processes announce, until ctx ends.
func (h *Host) listen(ctx context.Context) {
	stops := make(chan session.Signal, maxSignals)
	wakes := make(chan struct{}, 1)
	h.loops.Go(func() { h.noticeStops(ctx, stops) })
	h.loops.Go(func() { h.deliverWakes(ctx, wakes) })
	h.cfg.Backend.Signals(ctx, func(signal session.Signal) {
		if signal.StopOf != "" {
			select {
			case stops <- signal:
			default:
			}
			return
		}
		select {
		case wakes <- struct{}{}:
		default:
		}
	})
}

// noticeStops cancels what runs of this process do once a stop of theirs was requested.
func (h *Host) noticeStops(ctx context.Context, stops <-chan session.Signal) {
	for {
		select {
		case signal := <-stops:
			if err := h.handler.Signalled(ctx, signal); err != nil && ctx.Err() == nil && !errors.Is(err, session.ErrNotFound) {
				h.log.WarnContext(ctx, "stop.not_read", "tenant", signal.Tenant, "session", signal.ID, "run", signal.StopOf, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// deliverWakes delivers wakes soon after they were put.
func (h *Host) deliverWakes(ctx context.Context, wakes <-chan struct{}) {
	for {
		select {
		case <-wakes:
			for try := range wakeTries {
				if retry.Sleep(ctx, wakePause<<try) != nil || h.isClosing() || !h.sweepWakes(ctx) {
					break
				}
			}
		case <-ctx.Done():
			return
		}
	}
}
