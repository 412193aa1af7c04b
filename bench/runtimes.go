package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/helixagents/helix"
	helixdbos "github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/local"
	helixtemporal "github.com/helixagents/helix/runtime/temporal"
)

// What an engine must record of a step with one call. Temporal records each effect
// as an activity: the model, the call, the commit. On DBOS the commit and the model
// call that follows it are one step, because the store knows whether the commit was
// made; the call is another, because DBOS must know its result to not run it again.
const (
	temporalEffects = 3
	dbosEffects     = 2
)

// turnSteps is how many steps the turns have on which runtimes are measured.
const turnSteps = 20

// engine is a runtime that has an engine, and that engine by itself.
type engine struct {
	name string
	rt   helix.Runtime
	// bare has the engine do nothing, as often as a turn has effects, one after the
	// other.
	bare  func(ctx context.Context, id string) error
	close func() error // of what bare needs
}

// runtimes measures what a runtime adds to a step beside what it is on the local one.
// The floor is the engine by itself, with empty activities or steps, by turns with
// the other two, so that all see the same machine.
func runtimes(ctx context.Context, k kind, quick bool) ([]row, error) {
	if k.temporal == nil {
		return nil, nil
	}
	rounds := 15
	if quick {
		rounds = 3
	}
	agent := agentOf(newWorker(turnSteps), effect)
	var rows []row
	err := k.onRuntime(ctx, func(rt *local.Runtime, s *site) error {
		url, err := k.server.get(ctx)
		if err != nil {
			return err
		}
		for _, open := range []func() (*engine, error){
			func() (*engine, error) { return openTemporal(ctx, k, s) },
			func() (*engine, error) { return openDBOS(url, s) },
		} {
			e, err := open()
			if err != nil {
				return err
			}
			found, err := e.measure(ctx, rt, agent, k.name, rounds)
			if err := errors.Join(err, e.rt.Shutdown(ctx), e.close()); err != nil {
				return err
			}
			rows = append(rows, found...)
		}
		return nil
	})
	return rows, err
}

func (e *engine) measure(ctx context.Context, rt *local.Runtime, agent *helix.Agent, store string, rounds int) ([]row, error) {
	var ours, locals, floors []time.Duration
	for i := range rounds + 1 {
		if i == 1 { // the first is to warm up
			ours, locals, floors = nil, nil, nil
		}
		id := fmt.Sprintf("%s-%d", e.name, i)
		err := errors.Join(
			timed(&ours, func() error { return runSession(ctx, e.rt, agent, "engine-"+id) }),
			timed(&locals, func() error { return runSession(ctx, rt, agent, "local-"+id) }),
			timed(&floors, func() error { return e.bare(ctx, id) }),
		)
		if err != nil {
			return nil, err
		}
	}
	added := make([]time.Duration, len(ours))
	for i := range ours {
		added[i] = ours[i] - locals[i]
	}
	step := row{Bench: "runtime-step", Store: store, Runtime: e.name, N: turnSteps, Unit: "µs p50"}
	step.Value = percentile(ours, 50) / turnSteps
	plain := row{Bench: "runtime-step", Store: store, Runtime: local.Name, N: turnSteps, Unit: "µs p50"}
	plain.Value = percentile(locals, 50) / turnSteps
	extra := row{Bench: "runtime-added", Store: store, Runtime: e.name, N: turnSteps, Unit: "µs p50"}
	extra.Value = percentile(added, 50) / turnSteps
	return []row{plain, step, extra.with(percentile(floors, 50) / turnSteps)}, nil
}

// bareTemporal does nothing, often.
func bareTemporal(ctx workflow.Context, queue string) error {
	for range turnSteps * temporalEffects {
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: queue, StartToCloseTimeout: time.Minute, HeartbeatTimeout: 15 * time.Second,
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		}), "nothing").Get(ctx, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

func openTemporal(ctx context.Context, k kind, s *site) (*engine, error) {
	address, err := k.temporal.get(ctx)
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(client.Options{HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return nil, err
	}
	rt, err := helixtemporal.New(helixtemporal.Config{RuntimeOptions: helix.RuntimeOptions{Backend: s.Backend}, Client: c})
	if err != nil {
		c.Close()
		return nil, err
	}
	flows := sdkworker.New(c, "bare", sdkworker.Options{})
	flows.RegisterWorkflowWithOptions(bareTemporal, workflow.RegisterOptions{Name: "bare"})
	own := sdkworker.New(c, "bare-own", sdkworker.Options{DisableWorkflowWorker: true})
	own.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "nothing"})
	if err := errors.Join(flows.Start(), own.Start()); err != nil {
		return nil, err
	}
	return &engine{
		name: helixtemporal.Name, rt: rt,
		bare: func(ctx context.Context, id string) error {
			run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: "bare"}, "bare", "bare-own")
			if err != nil {
				return err
			}
			return run.Get(ctx, nil)
		},
		close: func() error {
			flows.Stop()
			own.Stop()
			c.Close()
			return nil
		},
	}, nil
}

// bareDBOS does nothing, often.
func bareDBOS(ctx transact.Context, _ string) (string, error) {
	for i := range turnSteps * dbosEffects {
		_, err := transact.RunAsStep(ctx, func(context.Context) (string, error) { return "", nil }, transact.WithStepName(fmt.Sprint(i)))
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

func openDBOS(url string, s *site) (*engine, error) {
	rt, err := helixdbos.New(helixdbos.Config{RuntimeOptions: helix.RuntimeOptions{Backend: s.Backend}, DatabaseURL: url, Schema: "bench_dbos"})
	if err != nil {
		return nil, err
	}
	ctx, err := transact.NewContext(context.Background(), transact.Config{
		AppName: "bare", DatabaseURL: url, DatabaseSchema: "bench_dbos_bare", ExecutorID: "bench", ApplicationVersion: "1",
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	transact.RegisterWorkflow(ctx, bareDBOS)
	if err := transact.Launch(ctx); err != nil {
		return nil, err
	}
	return &engine{
		name: helixdbos.Name, rt: rt,
		bare: func(_ context.Context, id string) error {
			handle, err := transact.RunWorkflow(ctx, bareDBOS, id, transact.WithWorkflowID(id))
			if err != nil {
				return err
			}
			_, err = handle.GetResult()
			return err
		},
		close: func() error { return transact.Shutdown(ctx, 10*time.Second) },
	}, nil
}
