package chaos

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// A process that lives keeps its leases, however slow the machine is. When one is killed or
// stopped, the test ends them.
const (
	lease     = 30 * time.Second
	heartbeat = 100 * time.Millisecond // for a process that has to find out what it has lost
	sweep     = 60 * time.Millisecond
	moment    = time.Millisecond
)

// endLeases lets the leases of all running sessions expire, as time would. The next process
// waits for a whole lease only if a server has carried out what the dead one asked for last
// after this.
func endLeases(t *testing.T, db store.Backend) {
	t.Helper()
	if err := tryEndLeases(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

func tryEndLeases(ctx context.Context, db store.Backend) error {
	page, err := db.Sessions().List(ctx, session.Query{
		Activity: session.ActivityRunning, PageRequest: session.PageRequest{Limit: session.MaxPageSize},
	})
	if err != nil {
		return err
	}
	var held []session.Held
	for i := range page.Items {
		state, err := db.Sessions().Load(ctx, page.Items[i].ID)
		if err != nil {
			return err
		}
		if state.Lease.Owner != "" {
			held = append(held, session.Held{Key: page.Items[i].Key, Fence: state.Lease.Fence()})
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
		if err := db.Sessions().RenewTask(t.Context(), task.Ref(), task.Fence(), moment); err != nil && !errors.Is(err, session.ErrStale) {
			t.Fatal(err)
		}
	}
}
