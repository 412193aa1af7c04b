package temporal_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/session"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	c, err := client.NewLazyClient(client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for want, cfg := range map[string]temporal.Config{
		"Client":        {},
		"Backend":       {Client: c},
		"WorkerTimeout": {Client: c, WorkerTimeout: time.Millisecond},
		"MaxHistory":    {Client: c, MaxHistory: -1},
		"MaxEffects":    {Client: c, MaxEffects: -1},
	} {
		_, err := temporal.New(cfg)
		if !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A process without a worker starts turns, and others work on them.
func TestNoWorker(t *testing.T) {
	t.Parallel()
	agent := counter(2)
	s := newSite(t, func(cfg *temporal.Config) { cfg.NoWorker = true }, agent)
	run := s.execute(agent, "s-1")
	other := newSiteOn(t, s.client, testbackend.Open(t, s.address), s.queue, nil, counter(2))
	if result := s.result(run); result.Status != helix.Completed {
		t.Errorf("the run is %s: %v", result.Status, result.Error)
	}
	if attempts := other.run("s-1", run.ID()).Attempts; attempts != 0 {
		t.Errorf("handing the turn over counted as %d crashes", attempts)
	}
	_, err := s.Execute(t.Context(), agent, helix.Input{
		SessionID: "s-2", Message: helix.UserText("Hi!"), Hooks: &helix.Hooks{}, EphemeralHooks: true,
	})
	if err == nil {
		t.Error("hooks of one run were taken by a process that works on none")
	}
}

// waiting is an agent whose tool waits until it is stopped.
func waiting(entered chan<- struct{}) *helix.Agent {
	agent := counter(1)
	agent.Tools[0].Execute = helix.Func(func(ctx context.Context, _ *helix.Call, _ in) (int, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	})
	return agent
}

// A stop that is requested by one process is noticed by the one that works on the
// turn, long before that renews its lease.
func TestStopFromElsewhere(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 1)
	agent := waiting(entered)
	s := newSite(t, func(cfg *temporal.Config) { cfg.LeaseTTL = 24 * time.Hour }, agent) // it is not renewed within a test's patience
	run := s.execute(agent, "s-1")
	<-entered
	other := newSiteOn(t, s.client, testbackend.Open(t, s.address), s.queue, func(cfg *temporal.Config) { cfg.NoWorker = true }, agent)
	if err := other.Interrupt(t.Context(), "s-1", "enough"); err != nil {
		t.Fatal(err)
	}
	if result := s.result(run); result.Status != helix.Interrupted {
		t.Errorf("the run is %s: %v", result.Status, result.Error)
	}
}

// A workflow that an operator cancels on the server is a run that is aborted; one
// that is terminated is started again.
func TestOperatorsOfTheServer(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 10)
	agent := waiting(entered)
	s := newSite(t, func(cfg *temporal.Config) { cfg.LeaseTTL, cfg.Sweep = time.Second, 200*time.Millisecond }, agent)
	run := s.execute(agent, "s-1")
	<-entered
	if err := s.client.CancelWorkflow(t.Context(), s.queue+"__counter__s-1", ""); err != nil {
		t.Fatal(err)
	}
	if result := s.result(run); result.Status != helix.Failed || !errors.Is(result.Error, helix.ErrCancelled) {
		t.Errorf("the run is %s: %v", result.Status, result.Error)
	}

	done := counter(1)
	done.Name, done.Tools[0].Idempotent = "other", true
	calls := make(chan struct{}, 10)
	release := make(chan struct{})
	done.Tools[0].Execute = helix.Func(func(ctx context.Context, _ *helix.Call, _ in) (int, error) {
		calls <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return 1, ctx.Err()
	})
	run = s.execute(done, "s-2")
	<-calls
	if err := s.client.TerminateWorkflow(t.Context(), s.queue+"__other__s-2", "", "test"); err != nil {
		t.Fatal(err)
	}
	close(release)
	if result := s.result(run); result.Status != helix.Completed {
		t.Errorf("the run is %s: %v", result.Status, result.Error)
	}
}

// A session that is deleted while its workflow runs, and made again under the same
// id, has a workflow of its own.
func TestSameIDAgain(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 10)
	slow := waiting(entered)
	s := newSite(t, nil, slow)
	db := testbackend.Open(t, s.address)
	s.execute(slow, "s-1")
	<-entered
	if _, err := db.Sessions().Delete(t.Context(), "s-1"); err != nil {
		t.Fatal(err)
	}
	fast := counter(1)
	if err := s.Replace(fast); err != nil {
		t.Fatal(err)
	}
	if result := s.say(fast, "s-1"); result.Status != helix.Completed {
		t.Errorf("the run is %s: %v", result.Status, result.Error)
	}
}

func TestFactories(t *testing.T) {
	t.Parallel()
	agent := counter(1)
	s := newSite(t, func(cfg *temporal.Config) { cfg.NoWorker = true }, agent)
	worker := newSiteOn(t, s.client, testbackend.Open(t, s.address), s.queue, nil)
	made := 0
	err := worker.RegisterFactory("counter", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		made++
		return counter(1), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.RegisterFactory("counter", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) { return counter(1), nil }); !errors.Is(err, session.ErrInvalid) {
		t.Errorf("a second factory: %v", err)
	}
	err = worker.RegisterFactory("liar", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) { return counter(1), nil })
	if err != nil {
		t.Fatal(err)
	}
	if result := s.say(agent, "s-1"); result.Status != helix.Completed {
		t.Errorf("the run is %s: %v", result.Status, result.Error)
	}
	if made != 1 {
		t.Errorf("the factory was asked %d times", made)
	}
}

// Ids of workflows are readable, and no two runs share one.
func TestWorkflowIDs(t *testing.T) {
	t.Parallel()
	agent := &helix.Agent{
		Name: "clerk", Model: scripted.New(scripted.Call("count", in{1}), scripted.Text("Done."), scripted.Text("Again.")).ByPosition(),
		Tools: counter(0).Tools,
	}
	agent.Tools[0].Approval = helix.RequireApproval
	s := newSite(t, nil, agent)
	result := s.say(agent, "s-1")
	call := result.Pending[0]
	if _, err := s.Submit(t.Context(), "s-1", helix.Approve(call, helix.User{})); err != nil {
		t.Fatal(err)
	}
	run, err := s.Resume(t.Context(), "s-1", helix.ResumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.result(run)
	s.say(agent, "s-1")
	long := strings.Repeat("s", 250)
	s.say(agent, long)
	for _, id := range []string{"clerk__s-1", "clerk__s-1__resume-2", "clerk__s-1__turn-3"} {
		events := s.history(s.queue + "__" + id)[0] // once it has ended
		if last := events[len(events)-1].GetEventType(); last != enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED {
			t.Errorf("%s ended with %s", id, last)
		}
	}
}
