package local_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/storetest"
)

// clerk is an agent whose model answers at once.
func clerk() *helix.Agent {
	return &helix.Agent{Name: "clerk", Model: scripted.New(scripted.Text("Hello.")).ByPosition()}
}

// launch starts a runtime that ends with the test.
func launch(t *testing.T, db store.Backend, opts helix.RuntimeOptions) *local.Runtime {
	t.Helper()
	opts.Backend = db
	rt, err := local.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	return rt
}

// lose leaves a session with a run whose process, with leases of the given length, has died
// just after it renewed the lease.
func lose(t *testing.T, db store.Backend, id, agent string, ttl time.Duration) {
	t.Helper()
	_, err := db.Sessions().StartRun(t.Context(), &session.StartRun{
		SessionID: id, Create: &session.State{ID: id, Agent: agent, Status: session.Active, StreamID: id},
		Owner: session.NewLeaseOwner(local.Name, ttl), TTL: ttl,
		Run:    session.Run{ID: "run-" + id, Kind: session.RunExecute, Agent: agent, Runtime: local.Name},
		Change: session.Change{Messages: []session.Message{session.UserText("Hi!")}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// release leaves a session with a run whose process has released it.
func release(t *testing.T, db store.Backend, id string) {
	t.Helper()
	lose(t, db, id, "clerk", time.Hour)
	state, err := db.Sessions().Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Sessions().CloseRun(t.Context(), id, state.Lease.Fence(), false); err != nil {
		t.Fatal(err)
	}
}

// untilCompleted returns how long it takes until the runs of sessions are completed.
func untilCompleted(t *testing.T, db store.Backend, ids ...string) time.Duration {
	t.Helper()
	began := time.Now()
	for _, id := range ids {
		eventually.Poll(t, id+" is completed", func() bool {
			run, err := db.Sessions().CurrentRun(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return run.Status == session.RunCompleted
		})
	}
	return time.Since(began)
}

// How long the runs of a process that was killed wait: for the rest of their lease where
// another process lives, and at least for its length where the only process starts again.
func TestTimeToRecover(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		others      int           // processes that live all along
		own         time.Duration // the length of their leases
		after       time.Duration // when another process starts, without others
		least, most time.Duration
	}{
		{"one other", 1, 5 * time.Second, 0, 5 * time.Second, 7 * time.Second},
		{"eight others", 8, 5 * time.Second, 0, 5 * time.Second, 7 * time.Second},
		{"another with long leases", 1, 30 * time.Second, 0, 5 * time.Second, 7 * time.Second},
		{"started again at once", 0, 5 * time.Second, 0, 5 * time.Second, 7 * time.Second},
		{"started again soon", 0, 5 * time.Second, 3 * time.Second, 5 * time.Second, 7 * time.Second},
		{"started again late", 0, 5 * time.Second, 30 * time.Second, 5 * time.Second, 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memory.New(memory.Config{})
				defer db.Close()
				opts := helix.RuntimeOptions{Agents: []*helix.Agent{clerk()}, LeaseTTL: c.own}
				for range c.others {
					launch(t, db, opts)
				}
				time.Sleep(time.Minute)
				lose(t, db, "s-1", "clerk", 5*time.Second)
				if c.others == 0 {
					time.Sleep(c.after)
					launch(t, db, opts)
				}
				if took := untilCompleted(t, db, "s-1"); took < c.least || took > c.most {
					t.Errorf("the run was continued after %s, not after %s to %s", took, c.least, c.most)
				}
			})
		})
	}
}

// newClocked returns a store, and a function that sets its clock back by ten minutes.
func newClocked(t *testing.T) (db *memory.Backend, setBack func()) {
	t.Helper()
	var behind atomic.Int64
	db = memory.New(memory.Config{Clock: func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }})
	t.Cleanup(func() { _ = db.Close() })
	return db, func() { behind.Store(int64(10 * time.Minute)) }
}

// A clock of the store that is set back delays no judgement by more than a lease.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, setBack := newClocked(t)
		launch(t, db, helix.RuntimeOptions{Agents: []*helix.Agent{clerk()}})
		time.Sleep(time.Minute)
		lose(t, db, "s-1", "clerk", 5*time.Second)
		setBack()
		if took := untilCompleted(t, db, "s-1"); took > 12*time.Second {
			t.Errorf("the run was continued after %s", took)
		}
	})
}

// A run that was released before the store's clock was set back is continued all the same.
func TestReleasedBeforeClockSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, setBack := newClocked(t)
		release(t, db, "s-1")
		setBack()
		launch(t, db, helix.RuntimeOptions{Agents: []*helix.Agent{clerk()}})
		if took := untilCompleted(t, db, "s-1"); took > time.Second {
			t.Errorf("the run was continued after %s", took)
		}
	})
}

// A lock whose owner died before the store's clock was set back, so that it does not expire for
// long, keeps nobody from recovering runs.
func TestClockSetBackUnderLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, setBack := newClocked(t)
		dies := storetest.NewFaults(db)
		launch(t, dies, helix.RuntimeOptions{Agents: []*helix.Agent{clerk()}})
		lose(t, db, "s-1", "clerk", 5*time.Second)
		untilCompleted(t, db, "s-1")
		dies.Cut()
		setBack()
		launch(t, db, helix.RuntimeOptions{Agents: []*helix.Agent{clerk()}})
		time.Sleep(time.Minute)
		lose(t, db, "s-2", "clerk", 5*time.Second)
		if took := untilCompleted(t, db, "s-2"); took > 14*time.Second {
			t.Errorf("the run was continued after %s", took)
		}
	})
}

// A process that has just started does not keep one that can judge sooner from doing so, and
// one that ends leaves recovery to others at once.
func TestRecoveryChangesHands(t *testing.T) {
	t.Parallel()
	latest := time.Duration(0)
	for since := 3 * time.Second; since < 6*time.Second; since += 100 * time.Millisecond {
		for phase := time.Duration(0); phase < time.Second; phase += 100 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				db := memory.New(memory.Config{})
				defer db.Close()
				opts := helix.RuntimeOptions{Agents: []*helix.Agent{clerk()}}
				ends := launch(t, db, opts)
				time.Sleep(time.Minute + phase)
				launch(t, db, opts)
				time.Sleep(10 * time.Second)
				lose(t, db, "s-1", "clerk", 5*time.Second)
				time.Sleep(since)
				if err := ends.Close(); err != nil {
					t.Fatal(err)
				}
				launch(t, db, opts)
				latest = max(latest, since+untilCompleted(t, db, "s-1"))
			})
		}
	}
	if latest > 9*time.Second {
		t.Errorf("the run was continued after up to %s", latest)
	}
}

// A run that was released is continued within a second, and many that were lost are
// continued as fast as they can be admitted.
func TestReleasedAndMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memory.New(memory.Config{})
		defer db.Close()
		launch(t, db, helix.RuntimeOptions{Agents: []*helix.Agent{clerk()}})
		time.Sleep(time.Minute)
		release(t, db, "released")
		if took := untilCompleted(t, db, "released"); took > time.Second {
			t.Errorf("the run that was released was continued after %s", took)
		}
		var ids []string
		for i := range 1200 {
			ids = append(ids, fmt.Sprint("s-", i))
			lose(t, db, ids[i], "clerk", 5*time.Second)
		}
		if took := untilCompleted(t, db, ids...); took > 30*time.Second {
			t.Errorf("%d runs were continued after %s", len(ids), took)
		}
	})
}

// While the store does not answer and afterwards, nobody takes a run from a process that
// lives, however long it lasts, and whether reads succeed or not.
func TestOutageKeepsRuns(t *testing.T) {
	t.Parallel()
	for i := range 16 {
		blind, ends := i&1 != 0, i&2 != 0
		length := []time.Duration{time.Second, 7 * time.Second, 20 * time.Second, 5 * time.Minute}[i/4]
		t.Run(fmt.Sprintf("%s, reads fail: %t, the call ends: %t", length, blind, ends), func(t *testing.T) {
			t.Parallel()
			takes := 10 * time.Minute
			if ends {
				takes = 20*time.Second + length/2
			}
			synctest.Test(t, func(t *testing.T) {
				db := memory.New(memory.Config{})
				defer db.Close()
				var away atomic.Bool
				open := func() store.Backend {
					faults := storetest.NewFaults(db)
					faults.Fail(func(storetest.Op) storetest.When {
						if away.Load() {
							return storetest.Before
						}
						return storetest.Pass
					})
					faults.FailReads(func() bool { return blind && away.Load() })
					return faults
				}
				calls := atomic.Int32{}
				agent := &helix.Agent{
					Name: "clerk", Model: scripted.New(scripted.Call("work", `{}`), scripted.Text("Done.")).ByPosition(),
					Tools: []helix.Tool{{Name: "work", Description: "Works.", Execute: helix.Func(func(ctx context.Context, _ *helix.Call, _ struct{}) (int, error) {
						calls.Add(1)
						select {
						case <-time.After(takes):
							return 1, nil
						case <-ctx.Done():
							return 0, ctx.Err()
						}
					})}},
				}
				rt := launch(t, open(), helix.RuntimeOptions{Agents: []*helix.Agent{agent}})
				for range 3 {
					launch(t, open(), helix.RuntimeOptions{Agents: []*helix.Agent{agent}})
				}
				run, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
				away.Store(true)
				time.Sleep(length)
				away.Store(false)
				if res, err := run.Result(t.Context()); err != nil || res.Status != helix.Completed || res.Text != "Done." || calls.Load() != 1 {
					t.Errorf("%+v after %d calls: %v", res, calls.Load(), err)
				}
				if found, err := db.Sessions().CurrentRun(t.Context(), "s-1"); err != nil || found.Attempts != 0 {
					t.Errorf("the run was taken over %d times: %v", found.Attempts, err)
				}
			})
		})
	}
}

// A factory that does not return, or fails, keeps its process from recovering runs, and no
// other.
func TestFailingFactory(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{true, false} {
		t.Run(fmt.Sprint("hangs: ", hangs), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testFailingFactory(t, hangs) })
		})
	}
}

func testFailingFactory(t *testing.T, hangs bool) {
	t.Helper()
	db := memory.New(memory.Config{})
	defer db.Close()
	over := make(chan struct{})
	begin := func(works bool) {
		rt := launch(t, db, helix.RuntimeOptions{Agents: []*helix.Agent{clerk()}})
		err := rt.RegisterFactory("made", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
			if hangs && !works {
				<-over
			}
			if !works {
				return nil, errors.New("the database of agents is away")
			}
			agent := clerk()
			agent.Name = "made"
			return agent, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	begin(false)
	time.Sleep(time.Minute)
	for i := range 8 { // as many as are recovered at the same time
		lose(t, db, fmt.Sprint("made-", i), "made", 5*time.Second)
	}
	time.Sleep(7 * time.Second)
	lose(t, db, "s-1", "clerk", 5*time.Second)
	time.Sleep(7 * time.Second)
	begin(true)
	t.Cleanup(func() { close(over) }) // before the processes end
	if took := untilCompleted(t, db, "made-7", "s-1"); took > 30*time.Second {
		t.Errorf("the runs were continued after %s", took)
	}
}

// Processes that have nothing to do write nothing.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memory.New(memory.Config{})
		defer db.Close()
		faults := storetest.NewFaults(db)
		agent := clerk()
		launch(t, faults, helix.RuntimeOptions{Agents: []*helix.Agent{agent}})
		rt := launch(t, faults, helix.RuntimeOptions{Agents: []*helix.Agent{agent}})
		if _, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		before := len(faults.Log())
		time.Sleep(8 * time.Minute) // every ten minutes they ask who removes blobs
		for _, op := range faults.Log()[before:] {
			t.Errorf("an idle process has made the write %s of %q", op.Name, op.ID)
		}
	})
}
