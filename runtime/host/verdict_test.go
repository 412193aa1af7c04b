// waits: all that waits here does so in a bubble of holdTurns
package host

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// refusing is a backend that may take no writes on account of leases.
type refusing struct {
	store.Backend
	refuses atomic.Bool
}

// ProbeLeases implements [store.Backend].
func (b *refusing) ProbeLeases(ctx context.Context, leases []session.Held) []error {
	if b.refuses.Load() {
		errs := make([]error, len(leases))
		for i := range errs {
			errs[i] = session.ErrUnavailable
		}
		return errs
	}
	return b.Backend.ProbeLeases(ctx, leases)
}

// askOther calls do with a function that asks another process to take over the turn of a
// process that renews its lease if renews says so. The other one has been in contact with the
// store for long.
func askOther(t *testing.T, renews func() bool, do func(t *testing.T, o *office, db *refusing, ask func(asked time.Duration) error)) {
	t.Helper()
	renew := func(_ context.Context, leases []session.Held, pass func() []session.Renewed) []session.Renewed {
		if renews() {
			return pass()
		}
		return session.NotRenewed(leases, session.ErrUnavailable)
	}
	holdTurns(t, 1, renew, func(t *testing.T, o *office) {
		db := &refusing{Backend: o.db}
		agent := &helix.Agent{Name: "waiter", Model: scripted.New()}
		other, err := New(Config{Name: "standing", WorkflowEngine: true, HolderTimeout: 15 * time.Second, RuntimeOptions: helix.RuntimeOptions{
			Backend: db, Agents: []*helix.Agent{agent}, Logger: slog.New(slog.DiscardHandler),
			NoRecovery: true, // or it would have judged the lease before it is asked
		}}, standing{})
		if err != nil {
			t.Fatal(err)
		}
		other.Start()
		defer func() {
			if err := CloseNow(other.Shutdown); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(10 * time.Second)
		do(t, o, db, func(asked time.Duration) error {
			_, err := other.TakeOver(t.Context(), StartOf(o.turns[0].Opened), asked)
			return err
		})
	})
}

// A workflow engine that asks another process for a turn gets it after a while, though the
// process that holds it renews its lease: perhaps that hears nothing of the engine any more.
func TestTurnOfOneThatRenews(t *testing.T) {
	t.Parallel()
	askOther(t, func() bool { return true }, func(t *testing.T, _ *office, _ *refusing, ask func(asked time.Duration) error) {
		if err := ask(14 * time.Second); !errors.Is(err, ErrHolderLives) {
			t.Errorf("the turn was taken over, or refused otherwise: %v", err)
		}
		if err := ask(time.Minute); !errors.Is(err, ErrHolderLives) {
			t.Errorf("the turn was taken over soon after this process could reach the store, or refused otherwise: %v", err)
		}
		time.Sleep(5 * time.Second)
		if err := ask(15 * time.Second); err != nil {
			t.Error(err)
		}
	})
}

// A turn whose lease has expired is taken over after a proof, and a longer one if the store
// has refused writes.
func TestTurnOfOneThatIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		refused     time.Duration // for how long writes are refused
		least, most time.Duration
	}{
		{"the store takes writes", 0, 2 * time.Second, 3500 * time.Millisecond},
		{"the store has refused writes", time.Second, 6 * time.Second, 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			askOther(t, func() bool { return false }, func(t *testing.T, _ *office, db *refusing, ask func(asked time.Duration) error) {
				db.refuses.Store(c.refused > 0)
				time.AfterFunc(c.refused, func() { db.refuses.Store(false) })
				began := time.Now()
				if err := ask(0); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("the turn was taken over after %s", took)
				}
			})
		})
	}
}

// A turn whose lease is renewed in the last moment stays where it is.
func TestTurnOfOneThatComesBack(t *testing.T) {
	t.Parallel()
	var renews atomic.Bool
	askOther(t, renews.Load, func(t *testing.T, o *office, _ *refusing, ask func(asked time.Duration) error) {
		time.AfterFunc(time.Second, func() { renews.Store(true) })
		if err := ask(0); !errors.Is(err, ErrHolderLives) {
			t.Errorf("the turn was taken over, or refused otherwise: %v", err)
		}
		if o.turns[0].cancelled() {
			t.Error("the turn was cancelled")
		}
	})
}
