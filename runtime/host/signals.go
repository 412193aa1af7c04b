package host

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

const (
	// maxSignals is how many signals of each kind wait to be handled. A stop that finds
	// no room is noticed when leases are renewed, a wake at the next sweep.
	maxSignals = 256
	// stopReaders is how many stops are read at the same time, and stopLimit is how long
	// that may take.
	stopReaders = 2
	stopLimit   = 2 * time.Second
	// wakePause is how long wakes are collected before they are delivered, at least.
	// Meanwhile the process that put one has usually delivered it, or stored what the
	// wake announces; if not, it has a few times as long.
	wakePause = 20 * time.Millisecond
	wakeTries = 5
	// wakeAge is how far back a wake that was announced is looked for: clocks differ.
	wakeAge = time.Minute
)

// listen handles what other processes announce, until ctx ends.
func (h *Host) listen(ctx context.Context) {
	stops := make(chan session.Signal, maxSignals)
	lost := make(chan struct{}, 1)
	stop := h.cfg.Backend.Signals(func(signal session.Signal) {
		switch {
		case signal == session.Signal{}:
			select {
			case lost <- struct{}{}:
			default:
			}
		case signal.StopOf != "":
			select {
			case stops <- signal:
			default:
			}
		default:
			h.wakes.add(signal.Key)
		}
	})
	for range stopReaders {
		h.loops.Go(func() { h.noticeStops(ctx, stops) })
	}
	h.loops.Go(func() { h.deliverWakes(ctx, h.wakes) })
	h.loops.Go(func() {
		defer stop()
		h.makeUp(ctx, lost)
	})
}

// makeUp looks for stops and wakes whose signals may have been lost.
func (h *Host) makeUp(ctx context.Context, lost <-chan struct{}) {
	for {
		select {
		case <-lost:
			h.beginRenewal(ctx)
			if !h.isClosing() {
				h.sweepWakes(ctx, always)
			}
		case <-ctx.Done():
			return
		}
	}
}

// announced is the sessions for which wakes were announced.
type announced struct {
	ready chan struct{} // receives when there are some

	mu       sync.Mutex
	sessions map[session.Key]bool
}

func (a *announced) add(key session.Key) {
	a.mu.Lock()
	if a.sessions == nil {
		a.sessions = map[session.Key]bool{}
	}
	if len(a.sessions) < maxSignals {
		a.sessions[key] = true
	}
	a.mu.Unlock()
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

func (a *announced) take() map[session.Key]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	sessions := a.sessions
	a.sessions = nil
	return sessions
}

// noticeStops cancels what runs of this process do once a stop of theirs was requested.
func (h *Host) noticeStops(ctx context.Context, stops <-chan session.Signal) {
	for {
		select {
		case signal := <-stops:
			reading, cancel := context.WithTimeout(ctx, stopLimit)
			err := h.handler.Signalled(reading, signal)
			cancel()
			if err != nil && ctx.Err() == nil && !errors.Is(err, session.ErrNotFound) {
				h.log.WarnContext(ctx, "stop.not_read", "tenant", signal.Tenant, "session", signal.ID, "run", signal.StopOf, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// deliverWakes delivers wakes soon after they were announced. The pause before that is
// random, so that not all processes try to deliver the same wake.
func (h *Host) deliverWakes(ctx context.Context, wakes *announced) {
	for {
		select {
		case <-wakes.ready:
		case <-ctx.Done():
			return
		}
		if retry.Sleep(ctx, wakePause+rand.N(2*wakePause)) != nil {
			return
		}
		left := wakes.take()
		for try := 1; len(left) > 0 && !h.isClosing(); try++ {
			left = h.deliverAnnounced(ctx, left)
			if try == wakeTries || len(left) > 0 && retry.Sleep(ctx, wakePause<<try) != nil {
				break
			}
		}
	}
}

// deliverAnnounced delivers the wakes of some sessions. It returns those sessions whose
// wakes have to be delivered again, because what they announce has not arrived, or something
// else is done for the session.
func (h *Host) deliverAnnounced(ctx context.Context, sessions map[session.Key]bool) (early map[session.Key]bool) {
	var mu sync.Mutex // guards early
	early = map[session.Key]bool{}
	announced := func(key session.Key) bool { return sessions[key] }
	again := func(key session.Key) {
		mu.Lock()
		defer mu.Unlock()
		early[key] = true
	}
	h.eachWake(ctx, &session.Wake{At: time.Now().Add(-wakeAge)}, always, announced, func(ctx context.Context, j *job, wake session.Wake) {
		if h.deliver(ctx, j, wake) {
			again(session.Key{Tenant: wake.Tenant, ID: wake.SessionID})
		}
	}, again)
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(early) // those that take long may still write into it
}
