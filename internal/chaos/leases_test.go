package chaos

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// A process that lives keeps its leases, however slow the machine is ([runtimetest.KeepLeases]).
// When one is killed or stopped, the test ends them. They are short, because another process has to
// reach the store for as long before it takes a run over.
const (
	lease     = time.Second
	heartbeat = 100 * time.Millisecond // for a process that has to find out what it has lost
	sweep     = 60 * time.Millisecond
	moment    = time.Millisecond
)

// endLeases lets the leases of all sessions expire, as time would. The next process
// waits for a whole lease only if a server has carried out what the dead one asked for last
// after this.
func endLeases(t *testing.T, db store.Backend) {
	t.Helper()
	eventually.Poll(t, "leases end", func() bool { return done(t, tryEndLeases(t.Context(), db)) })
}

// done reports whether something was done that may be tried again: a server may not know yet
// that the process is dead whose transaction locks what it wants.
func done(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && !session.IsRetryable(err) {
		t.Fatal(err)
	}
	return err == nil
}

// stop stops a process and ends its leases. One that is stopped in a transaction keeps them
// locked, so it may go on for a moment.
func (c *child) stop(db store.Backend) {
	c.t.Helper()
	eventually.Poll(c.t, "a process is stopped", func() bool {
		c.signal(syscall.SIGSTOP)
		if done(c.t, tryEndLeases(c.t.Context(), db)) {
			return true
		}
		c.signal(syscall.SIGCONT)
		return false
	})
}

func tryEndLeases(ctx context.Context, db store.Backend) error {
	page, err := db.Sessions().List(ctx, session.Query{
		Activity: session.ActivityRunning, PageRequest: session.PageRequest{Limit: session.MaxPageSize},
	})
	if err != nil {
		return err
	}
	var keys []session.Key
	for i := range page.Items {
		keys = append(keys, page.Items[i].Key)
	}
	// A process keeps the lease of a run that has ended until it has closed its stream.
	closes, err := db.Sessions().PendingCloses(ctx, session.SweepRequest{Limit: session.MaxPageSize})
	if err != nil {
		return err
	}
	for i := range closes {
		keys = append(keys, closes[i].Key)
	}
	var held []session.Held
	for _, key := range keys {
		state, err := db.Sessions().Load(ctx, key.ID)
		if err != nil {
			return err
		}
		if state.Lease.Owner != "" {
			held = append(held, session.Held{Key: key, Fence: state.Lease.Fence()})
		}
	}
	for _, renewed := range db.RenewLeases(ctx, held, moment) {
		if renewed.Err != nil && !errors.Is(renewed.Err, session.ErrStale) { // it has ended, or another process has it
			return renewed.Err
		}
	}
	return nil
}

// endHolds does the same with tasks.
func endHolds(t *testing.T, db store.Backend) {
	t.Helper()
	page, err := db.Sessions().ListTasks(t.Context(), session.TaskQuery{Limit: session.MaxPageSize})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Items {
		task := &page.Items[i]
		if task.Owner == "" {
			continue
		}
		eventually.Poll(t, "a hold ends", func() bool {
			err := db.Sessions().RenewTask(t.Context(), task.Ref(), task.Fence(), moment)
			return errors.Is(err, session.ErrStale) || done(t, err)
		})
	}
}
