package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
)

func renewLease(ctx context.Context, b *Backend, id string, fence session.Fence, ttl time.Duration) error {
	return b.RenewLeases(ctx, []session.Held{{Key: session.Key{ID: id}, Fence: fence}}, ttl)[0].Err
}

// TestRenewalsTogether counts the round trips of renewing hundreds of leases.
func TestRenewalsTogether(t *testing.T) {
	t.Parallel()
	b, trips := openWire(t)
	var leases []session.Held
	for i := range 200 {
		r := newRunner(t, b, fmt.Sprint("s-", i))
		leases = append(leases, session.Held{Key: session.Key{Tenant: session.DefaultTenant, ID: r.id}, Fence: r.fence})
	}
	before := leaseEnd(t, b, "s-199")
	b.notifier.close() // notifications are not part of writes
	for range 2 {      // the first one prepares the statement
		trips.Store(0)
		for i, renewed := range b.RenewLeases(t.Context(), leases, 2*time.Hour) {
			if renewed.Err != nil || len(renewed.Stops) > 0 {
				t.Fatalf("lease %d: %+v", i, renewed)
			}
		}
	}
	if got := trips.Load(); got != 1 {
		t.Errorf("%d round trips", got)
	}
	if after := leaseEnd(t, b, "s-199"); after.Sub(before) < 30*time.Minute {
		t.Errorf("the lease ended at %s and ends at %s", before, after)
	}
}

// leaseEnd returns when the lease of a session ends, by the server's clock.
func leaseEnd(t *testing.T, b *Backend, id string) time.Time {
	t.Helper()
	state, err := b.Sessions().Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lease.ExpiresAt
}

// lockSessions locks the rows of sessions, as another transaction would, until unlock is called or the test ends.
func lockSessions(t *testing.T, b *Backend, ids ...string) (unlock func()) {
	t.Helper()
	held, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Rollback(context.WithoutCancel(t.Context())) })
	for _, id := range ids {
		if _, err := held.Exec(t.Context(), b.sql(lockOnly), session.DefaultTenant, id); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		if err := held.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRenewalWaitsForNobody renews leases while a row is locked: only its own lease waits.
func TestRenewalWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	x, y := newRunner(t, b, "x"), newRunner(t, b, "y")
	before := leaseEnd(t, b, "y")
	unlock := lockSessions(t, b, "x")
	done := make(chan []session.Renewed, 1)
	go func() {
		done <- b.RenewLeases(t.Context(), []session.Held{
			{Key: session.Key{ID: "x"}, Fence: x.fence}, {Key: session.Key{ID: "y"}, Fence: y.fence},
		}, 2*time.Hour)
	}()
	eventually.Poll(t, "y is renewed while x is locked", func() bool {
		return leaseEnd(t, b, "y").Sub(before) > 30*time.Minute
	})
	out := <-done // while x is locked
	unlock()
	if err := out[0].Err; !session.IsRetryable(err) {
		t.Errorf("the lease of x: %v", err)
	}
	if out[1].Err != nil {
		t.Errorf("the lease of y: %v", out[1].Err)
	}
	if err := renewLease(t.Context(), b, "x", x.fence, 2*time.Hour); err != nil {
		t.Errorf("the lease of x, later: %v", err)
	}
}

// TestTakeOverPassesLockedRows takes over sessions whose rows are locked. A sweep, which has others to take over, waits for
// them less than a workflow engine's process, which was asked for this one.
func TestTakeOverPassesLockedRows(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	x := newRunner(t, b, "x")
	lockSessions(t, b, "x")
	refused := make(chan bool, 2)
	for _, force := range []bool{true, false} {
		go func() {
			_, err := b.Sessions().TakeOver(eventually.Context(t), &session.TakeOver{
				SessionID: "x", RunID: "run", Owner: "other", TTL: time.Hour, Epoch: x.fence.Epoch, Force: force,
			})
			if !session.IsRetryable(err) {
				t.Errorf("a takeover of a locked session, forced %t: %v", force, err)
			}
			refused <- force
		}()
	}
	if <-refused {
		t.Error("a sweep waits longer for a locked session than a process that was asked for it")
	}
	<-refused
}

// TestRenewalsHaveConnections renews leases while all other connections are taken.
func TestRenewalsHaveConnections(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	x := newRunner(t, b, "x")
	for range b.pool.Config().MaxConns {
		conn, err := b.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	if err := renewLease(eventually.Context(t), b, "x", x.fence, 2*time.Hour); err != nil {
		t.Error(err)
	}
}

// TestRenewalsPassLockedRows renews leases while many rows are locked. Those are renewed once they are not, and what was lost is
// told, though its row is locked, too.
func TestRenewalsPassLockedRows(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	var leases []session.Held
	for i := range 40 {
		r := newRunner(t, b, fmt.Sprint("s-", i))
		leases = append(leases, session.Held{Key: session.Key{ID: r.id}, Fence: r.fence})
	}
	const lost, locked = 17, 18 // the lost one is locked, too
	leases[lost].Epoch--
	var ids []string
	for _, lease := range leases[:locked] {
		ids = append(ids, lease.ID)
	}
	unlock := lockSessions(t, b, ids...)
	for i, renewed := range b.RenewLeases(t.Context(), leases, 2*time.Hour) {
		switch err := renewed.Err; {
		case i == lost:
			if !errors.Is(err, session.ErrStale) {
				t.Errorf("the lost lease: %v", err)
			}
		case i < locked:
			if !errors.Is(err, session.ErrUnavailable) {
				t.Errorf("lease %d: %v", i, err)
			}
		case err != nil:
			t.Errorf("lease %d: %v", i, err)
		}
	}
	unlock()
	for i, renewed := range b.RenewLeases(t.Context(), leases, 2*time.Hour) {
		if (renewed.Err != nil) != (i == lost) {
			t.Errorf("lease %d, later: %v", i, renewed.Err)
		}
	}
}
