// waits: all that waits here does so in a bubble of holdTurns
package host

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

// standing is the driver of a workflow engine that asks for no effect: turns stay held as
// they were opened.
type standing struct{}

func (standing) Drive(context.Context, *Turn) error              { return nil }
func (standing) Recover(context.Context, session.Due) error      { return nil }
func (standing) EnsureDriven(context.Context, session.Due) error { return nil }
func (standing) NotifyStop(context.Context, Start)               {}

// renewing is a backend whose renewals do what a test says.
type renewing struct {
	store.Backend
	renew func(ctx context.Context, leases []session.Held, pass func() []session.Renewed) []session.Renewed
}

// RenewLeases implements [store.Backend].
func (b *renewing) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	return b.renew(ctx, leases, func() []session.Renewed { return b.Backend.RenewLeases(ctx, leases, ttl) })
}

// office is a host in a bubble that holds turns, and the store of their leases.
type office struct {
	*Host
	t     *testing.T
	db    *memory.Backend
	log   *bytes.Buffer
	turns []*Turn
}

// holdTurns calls do with a host that holds n turns, whose leases are renewed as renew says.
func holdTurns(
	t *testing.T, n int, renew func(ctx context.Context, leases []session.Held, pass func() []session.Renewed) []session.Renewed, do func(*testing.T, *office),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &office{t: t, db: memory.New(memory.Config{}), log: &bytes.Buffer{}}
		agent := &helix.Agent{Name: "waiter", Model: scripted.New()}
		var err error
		o.Host, err = New(Config{Name: "standing", WorkflowEngine: true, RuntimeOptions: helix.RuntimeOptions{
			Backend: &renewing{o.db, renew}, Agents: []*helix.Agent{agent}, Logger: slog.New(slog.NewTextHandler(o.log, nil)),
		}}, standing{})
		if err != nil {
			t.Fatal(err)
		}
		o.Start()
		defer func() {
			if err := CloseNow(o.Shutdown); err != nil {
				t.Error(err)
			}
			if err := o.db.Close(); err != nil {
				t.Error(err)
			}
		}()
		for i := range n {
			if _, err := o.Executor().Execute(t.Context(), agent, helix.Input{SessionID: fmt.Sprint("s-", i), Message: helix.UserText("Hi!")}); err != nil {
				t.Fatal(err)
			}
		}
		for _, turn := range o.Host.turns {
			o.turns = append(o.turns, turn)
		}
		do(t, o)
	})
}

// expired returns the sessions whose leases have expired.
func (o *office) expired() []session.Due {
	o.t.Helper()
	due, err := o.db.Sessions().ExpiredLeases(o.t.Context(), session.SweepRequest{Limit: sweepPage})
	if err != nil {
		o.t.Fatal(err)
	}
	return due
}

// keepsAll fails the test if within a time a lease expires, or the process believes so.
func (o *office) keepsAll(d time.Duration) {
	o.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(o.cfg.LeaseTTL / 50) {
		for _, turn := range o.turns {
			if o.LeaseLost(turn.Opened.Run.ID) {
				o.t.Fatalf("the process believes to have lost the lease of session %s", turn.Opened.Key.ID)
			}
		}
		if due := o.expired(); len(due) > 0 {
			o.t.Fatalf("%d leases or more have expired, the first of session %s", len(due), due[0].ID)
		}
	}
}

// cancelled returns how many turns this process has been told to stop working on.
func (o *office) cancelled() (n int) {
	for _, turn := range o.turns {
		if turn.cancelled() {
			n++
		}
	}
	return n
}

// A round trip that takes longer than a heartbeat costs no lease.
func TestRenewalsOfSlowStore(t *testing.T) {
	t.Parallel()
	holdTurns(t, 3, func(ctx context.Context, leases []session.Held, pass func() []session.Renewed) []session.Renewed {
		time.Sleep(time.Second)
		out := pass()
		time.Sleep(time.Second)
		if ctx.Err() != nil {
			return session.NotRenewed(leases, ctx.Err())
		}
		return out
	}, func(_ *testing.T, o *office) { o.keepsAll(time.Minute) })
}

// A renewal that is never answered costs no lease, and neither do many in a row if some are
// answered.
func TestRenewalsWithoutAnswer(t *testing.T) {
	t.Parallel()
	calls := 0
	var mu sync.Mutex
	holdTurns(t, 3, func(ctx context.Context, leases []session.Held, pass func() []session.Renewed) []session.Renewed {
		mu.Lock()
		calls++
		answered := calls%2 == 0
		mu.Unlock()
		if answered {
			return pass()
		}
		<-ctx.Done()
		return session.NotRenewed(leases, session.ErrUnavailable.WithCause(ctx.Err(), "renew leases"))
	}, func(_ *testing.T, o *office) { o.keepsAll(time.Minute) })
}

// However many leases there are, one call renews few of them, and those come first that
// were renewed the longest time ago.
func TestRenewalsInBatches(t *testing.T) {
	t.Parallel()
	largest := 0
	var mu sync.Mutex
	holdTurns(t, 2*renewalBatch+100, func(_ context.Context, leases []session.Held, pass func() []session.Renewed) []session.Renewed {
		mu.Lock()
		largest = max(largest, len(leases))
		mu.Unlock()
		time.Sleep(1400 * time.Millisecond)
		return pass()
	}, func(_ *testing.T, o *office) { o.keepsAll(30 * time.Second) })
	if largest > renewalBatch {
		t.Errorf("a call renews %d leases", largest)
	}
}

// outage refuses renewals between two times after its beginning.
type outage struct {
	from, to time.Duration

	mu    sync.Mutex
	began time.Time
	calls []time.Duration // when, since the beginning
}

func (o *outage) renew(_ context.Context, leases []session.Held, pass func() []session.Renewed) []session.Renewed {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() {
		o.began = time.Now()
	}
	at := time.Since(o.began)
	o.calls = append(o.calls, at)
	if at >= o.from && at < o.to {
		return session.NotRenewed(leases, session.ErrUnavailable)
	}
	return pass()
}

// between returns how many calls were made between two times.
func (o *outage) between(from, to time.Duration) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.calls {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// Renewals that have failed are repeated soon, by one round only.
func TestRenewalsAreRepeated(t *testing.T) {
	t.Parallel()
	away := &outage{from: 3 * time.Second, to: 23 * time.Second}
	holdTurns(t, 40, away.renew, func(t *testing.T, o *office) {
		time.Sleep(30 * time.Second)
		pause := o.cfg.LeaseTTL / renewalPause
		if n := away.between(away.from, away.to); n < 60 || n > 100 {
			t.Errorf("the store was asked %d times in an outage of 20 s, and should be about every %s", n, pause)
		}
		if n := away.between(away.to, away.to+pause); n == 0 {
			t.Errorf("the leases were not renewed within %s after the outage", pause)
		}
	})
}

// A process goes on with its turns when the store is back, if nobody has taken them. Until
// then it does not claim to hold them.
func TestTurnsOutlastOutage(t *testing.T) {
	t.Parallel()
	away := &outage{from: 3 * time.Second, to: 23 * time.Second}
	holdTurns(t, 40, away.renew, func(t *testing.T, o *office) {
		run := o.turns[0].Opened.Run.ID
		time.Sleep(20 * time.Second)
		if n := len(o.expired()); n != 40 {
			t.Errorf("%d leases have expired in the outage", n)
		}
		if !o.LeaseLost(run) {
			t.Error("the process claims a lease that has expired")
		}
		held := make(chan bool)
		go func() { held <- o.HoldsLease(t.Context(), run) }()
		time.Sleep(6 * time.Second)
		if !<-held {
			t.Error("the store says that the lease is held, and HoldsLease does not")
		}
		if o.LeaseLost(run) || len(o.expired()) > 0 {
			t.Error("the leases are not renewed after the outage")
		}
		if n := o.cancelled(); n > 0 {
			t.Errorf("%d turns were cancelled because of an outage", n)
		}
		if lines := strings.Count(o.log.String(), "lease.not_renewed"); lines == 0 || lines > 15 {
			t.Errorf("the log has %d lines about renewals:\n%s", lines, o.log)
		}
	})
}

// What another process has taken is cancelled once the store says so.
func TestTurnsLostInOutage(t *testing.T) {
	t.Parallel()
	away := &outage{from: 3 * time.Second, to: 23 * time.Second}
	holdTurns(t, 2, away.renew, func(t *testing.T, o *office) {
		lost, kept := o.turns[0], o.turns[1]
		time.Sleep(15 * time.Second)
		sessions := o.db.Sessions()
		state, err := sessions.Load(t.Context(), lost.Opened.Key.ID)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sessions.TakeOver(t.Context(), &session.TakeOver{
			SessionID: state.ID, RunID: lost.Opened.Run.ID, Owner: "another", TTL: time.Hour, Epoch: state.Lease.Epoch,
		})
		if err != nil {
			t.Fatal(err)
		}
		held := make(chan bool)
		go func() { held <- o.HoldsLease(t.Context(), lost.Opened.Run.ID) }()
		time.Sleep(5 * time.Second)
		if n := o.cancelled(); n != 0 {
			t.Errorf("%d turns were cancelled during the outage", n)
		}
		time.Sleep(5 * time.Second)
		if <-held {
			t.Error("another process has the lease, and HoldsLease says that this one holds it")
		}
		if !lost.cancelled() || kept.cancelled() {
			t.Errorf("the turn that was lost is cancelled: %t; the other one: %t", lost.cancelled(), kept.cancelled())
		}
	})
}

// A process whose heartbeats are so rare that one lost renewal ends its leases is refused.
func TestHeartbeatIsRefused(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	t.Cleanup(func() { _ = db.Close() })
	_, err := New(Config{Name: "test", RuntimeOptions: helix.RuntimeOptions{Backend: db, Heartbeat: 3 * time.Second}}, standing{})
	if err == nil || !strings.Contains(err.Error(), "at most half of LeaseTTL 5s") {
		t.Errorf("a heartbeat of 3 s is answered with %v", err)
	}
}
