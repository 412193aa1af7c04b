package dbos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// TestQueue has two processes work off turns, some at a time.
func TestQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		const turns, limit = 12, 3
		var now, most, calls atomic.Int32
		all := make(chan struct{}) // as many as may have run at the same time
		agent := caller(helix.Func(func(context.Context, *helix.Call, struct{}) (int32, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for seen := most.Load(); n > seen; seen = most.Load() {
				if most.CompareAndSwap(seen, n) && n == limit {
					close(all)
				}
			}
			eventually.Receive(t, "others run, too", all)
			return calls.Add(1), nil
		}))
		var rts []*dbos.Runtime
		for range 2 {
			rts = append(rts, at.launch(t, backend(), func(c *dbos.Config) {
				c.Agents, c.Queue = []*helix.Agent{agent}, &dbos.Queue{Concurrency: limit, WorkerConcurrency: 2, Poll: 10 * time.Millisecond}
			}))
		}
		_, err := rts[0].Execute(t.Context(), agent, helix.Input{
			Message: helix.UserText("Hi!"), Hooks: &helix.Hooks{}, EphemeralHooks: true,
		})
		if !errors.Is(err, session.ErrInvalid) {
			t.Errorf("hooks that nobody would call are refused with %v", err)
		}
		var runs []helix.Run
		for i := range turns {
			runs = append(runs, begin(t, rts[i%2], agent, fmt.Sprintf("s-%d", i)))
		}
		for _, run := range runs {
			completed(t, run)
		}
		if most.Load() != limit || calls.Load() != turns {
			t.Errorf("%d calls, at most %d at a time, want %d and %d", calls.Load(), most.Load(), turns, limit)
		}
	})
}

// TestRateLimit limits how many turns start per period.
func TestRateLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		const period = 500 * time.Millisecond
		agent := sayer("Hello!")
		rt := at.launch(t, backend(), func(c *dbos.Config) {
			c.Queue = &dbos.Queue{RateLimit: 2, RatePeriod: period, Poll: 10 * time.Millisecond}
		})
		start := time.Now()
		var runs []helix.Run
		for i := range 6 {
			runs = append(runs, begin(t, rt, agent, fmt.Sprintf("s-%d", i)))
		}
		for _, run := range runs {
			completed(t, run)
		}
		if took := time.Since(start); took < 2*period { // waits: a lower bound, which a slow machine keeps
			t.Errorf("6 turns took %s, though only 2 may begin in %s", took, period)
		}
	})
}

// TestQueuedMeanwhile leaves a turn in the queue after the process that enqueued it has
// stopped, while no other runs.
func TestQueuedMeanwhile(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		agent := sayer("Hello!")
		blocked := caller(helix.Func(func(ctx context.Context, _ *helix.Call, _ struct{}) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}))
		blocked.Name = "blocked"
		queue := func(c *dbos.Config) {
			c.Agents, c.Queue = []*helix.Agent{agent}, &dbos.Queue{Concurrency: 1, Poll: 10 * time.Millisecond}
		}
		first := at.launch(t, backend(), queue)
		begin(t, first, blocked, "s-1")
		c := at.client(t)
		eventually.Poll(t, "the first turn runs", func() bool { return slices.Contains(workflows(t, c), at.prefix+"__blocked__s-1 PENDING") })
		begin(t, first, agent, "s-2")
		eventually.Poll(t, "the second turn waits", func() bool { return slices.Contains(workflows(t, c), at.prefix+"__agent__s-2 ENQUEUED") })
		stop(t, first)
		eventually.Poll(t, "the second turn still waits", func() bool { return slices.Contains(workflows(t, c), at.prefix+"__agent__s-2 ENQUEUED") })
		second := at.launch(t, backend(), func(c *dbos.Config) { queue(c); c.Queue.Concurrency = 2 })
		run, err := second.Attach(t.Context(), "s-2")
		if err != nil {
			t.Fatal(err)
		}
		completed(t, run)
	})
}
