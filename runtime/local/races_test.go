package local_test

import (
	"context"
	"errors"
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

// deleting is a backend that calls a function when a session has been deleted, before
// whoever deleted it learns that.
type deleting struct {
	store.Backend
	deleted func()
}

func (d *deleting) Sessions() session.Store {
	return &deletingSessions{d.Backend.Sessions(), d.deleted}
}

type deletingSessions struct {
	session.Store
	deleted func()
}

func (d *deletingSessions) Tenant(tenant string) session.Store {
	return &deletingSessions{d.Store.Tenant(tenant), d.deleted}
}

func (d *deletingSessions) Delete(ctx context.Context, id string) ([]string, error) {
	ids, err := d.Store.Delete(ctx, id)
	d.deleted()
	return ids, err
}

// A session that is created under the id of one that is being deleted keeps its run.
func TestDeleteSparesTheNextSession(t *testing.T) {
	t.Parallel()
	asked, reply := make(chan struct{}, 2), make(chan struct{})
	agent := &helix.Agent{Name: "clerk", Model: scripted.New(scripted.Reply(scripted.Do(func() {
		asked <- struct{}{}
		<-reply
	}), scripted.Say("Done."))).ByPosition()}
	var rt *local.Runtime
	var next helix.Run
	backend := &deleting{Backend: memory.New(memory.Config{}), deleted: func() {
		var err error
		if next, err = rt.Execute(t.Context(), agent, helix.Input{SessionID: "s", Message: helix.UserText("Again!")}); err != nil {
			t.Error(err)
		}
		<-asked
	}}
	rt, err := local.New(local.Config{Backend: backend, Sweep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	if _, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: "s", Message: helix.UserText("Hi!")}); err != nil {
		t.Fatal(err)
	}
	<-asked
	if _, err := rt.Sessions().Delete(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	close(reply)
	if res, err := next.Result(eventually.Context(t)); err != nil || res.Status != helix.Completed {
		t.Errorf("the run of the new session: %+v, %v", res, err)
	}
}

// A turn that is opened while the runtime closes is handed over, too, and Shutdown says so.
func TestShutdownWhileATurnIsOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memory.New(memory.Config{})
		faults := storetest.NewFaults(db)
		opening, release := make(chan struct{}), make(chan struct{})
		faults.Fail(func(op storetest.Op) storetest.When {
			if op.Name == "StartRun" {
				close(opening)
				<-release
			}
			return storetest.Pass
		})
		agent := &helix.Agent{Name: "clerk", Model: scripted.New(scripted.Text("Done.")).ByPosition()}
		rt, err := local.New(local.Config{Backend: faults, Sweep: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		executed := make(chan error, 1)
		go func() {
			_, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: "s", Message: helix.UserText("Hi!")})
			executed <- err
		}()
		<-opening
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go func() {
			time.Sleep(time.Minute) // Shutdown is at work by then
			close(release)
		}()
		closed := rt.Shutdown(ctx)
		if err := <-executed; err != nil {
			t.Fatal(err)
		}
		run, err := db.Sessions().CurrentRun(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if run.Status != session.RunRunning || !errors.Is(closed, context.Canceled) {
			t.Errorf("Shutdown returned %v, and the run is %s", closed, run.Status)
		}
	})
}
