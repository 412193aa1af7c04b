package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/local"
)

// mute is a model that says nothing until it is cancelled. It says when it is asked,
// and when it is cancelled.
type mute struct {
	asked     chan struct{}
	cancelled chan time.Time
}

// Generate implements [llm.Model].
func (m *mute) Generate(ctx context.Context, _ *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	m.asked <- struct{}{}
	<-ctx.Done()
	m.cancelled <- time.Now()
	return nil, ctx.Err()
}

// stopElsewhere measures how long it takes until a stop that another process requests
// cancels a model call. The processes are two runtimes on handles of their own.
func stopElsewhere(ctx context.Context, k kind, quick bool) ([]row, error) {
	if k.reopen == nil {
		return nil, nil
	}
	rounds := 50
	if quick {
		rounds = 10
	}
	var took []time.Duration
	err := k.onRuntime(ctx, func(rt *local.Runtime, s *site) error {
		url, err := k.server.get(ctx)
		if err != nil {
			return err
		}
		db, err := k.reopen(url, s.name)
		if err != nil {
			return err
		}
		other, err := local.New(local.Config{Backend: db})
		if err != nil {
			return errors.Join(err, db.Close())
		}
		model := &mute{make(chan struct{}, 1), make(chan time.Time, 1)}
		agent := &helix.Agent{Name: "mute", Model: model}
		for i := range rounds {
			if err = stopOnce(ctx, rt, other, agent, model, fmt.Sprint("s-", i), &took); err != nil {
				break
			}
		}
		return errors.Join(err, other.Shutdown(ctx), db.Close())
	})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, p := range []float64{50, 99} {
		rows = append(rows, row{Bench: "stop-elsewhere", Store: k.name, Runtime: local.Name, N: rounds, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(took, p)})
	}
	return rows, nil
}

func stopOnce(ctx context.Context, rt, other *local.Runtime, agent *helix.Agent, model *mute, id string, took *[]time.Duration) error {
	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: id, Message: helix.UserText("Begin.")})
	if err != nil {
		return err
	}
	<-model.asked
	began := time.Now()
	if err := other.Interrupt(ctx, id, ""); err != nil {
		return err
	}
	select {
	case at := <-model.cancelled:
		*took = append(*took, at.Sub(began))
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err = run.Result(ctx)
	return err
}

// victims is how many runs the process has that is killed.
const victims = 100

// killed measures how long the runs of a process that is killed with SIGKILL wait until
// another process continues them, with the default settings.
func killed(ctx context.Context, k kind, _ bool) ([]row, error) {
	return continued(ctx, "killed", k, func(_ context.Context, start, kill func() error) (began time.Time, err error) {
		if err := start(); err != nil {
			return began, err
		}
		err = kill()
		return time.Now(), err
	})
}

// restarted returns a bench of how long the runs of the only process wait after its restart, if
// it was killed with SIGKILL and was away for a while.
func restarted(away time.Duration) func(context.Context, kind, bool) ([]row, error) {
	return func(ctx context.Context, k kind, _ bool) ([]row, error) {
		name := fmt.Sprintf("restarted-%.0fs", away.Seconds())
		return continued(ctx, name, k, func(ctx context.Context, start, kill func() error) (began time.Time, err error) {
			if err := kill(); err != nil {
				return began, err
			}
			if err := retry.Sleep(ctx, away); err != nil {
				return began, err
			}
			began = time.Now()
			return began, start()
		})
	}
}

// continued measures how long the runs of a process that is killed wait until the one continues
// them that prepare starts. It kills the first, too, and returns from when on they wait.
func continued(
	ctx context.Context, name string, k kind, prepare func(ctx context.Context, start, kill func() error) (began time.Time, err error),
) ([]row, error) {
	if k.reopen == nil {
		return nil, nil
	}
	var took []time.Duration
	err := k.on(ctx, func(s *site) error {
		url, err := k.server.get(ctx)
		if err != nil {
			return err
		}
		model := &mute{make(chan struct{}, victims), make(chan time.Time, victims)}
		var rt *local.Runtime
		start := func() error {
			rt, err = local.New(local.Config{Backend: s.Backend, Agents: []*helix.Agent{{Name: "mute", Model: model}}})
			return err
		}
		kill := func() error {
			v, err := startVictim(ctx, victimOf(k, s, url, victims))
			if err == nil {
				v.kill()
			}
			return err
		}
		began, err := prepare(ctx, start, kill)
		if rt != nil {
			defer rt.Close()
		}
		if err != nil {
			return err
		}
		for range victims {
			select {
			case <-model.asked:
				took = append(took, time.Since(began))
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, p := range []float64{50, 100} {
		rows = append(rows, row{Bench: name, Store: k.name, Runtime: local.Name, N: victims, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(took, p)})
	}
	return rows, nil
}
