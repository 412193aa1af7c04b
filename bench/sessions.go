package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store"
)

// concurrent runs many sessions of ten steps at once.
func concurrent(ctx context.Context, k kind, quick bool) ([]row, error) {
	sessions := 1000
	if quick {
		sessions = 200
	}
	const steps = 10
	var rows []row
	err := k.onRuntime(ctx, func(rt *local.Runtime, s *site) error {
		model := newWorker(steps)
		agent := agentOf(model, effect)
		began := time.Now()
		err := each(sessions, func(i int) error {
			return runSession(ctx, rt, agent, fmt.Sprintf("s-%d", i))
		})
		took := time.Since(began)
		if err != nil {
			return err
		}
		peak := peakRSS()
		var all []time.Duration
		for i := range sessions {
			all = append(all, model.durations(fmt.Sprintf("s-%d", i))...)
		}
		floorRate, err := concurrentFloor(ctx, s.floor, sessions, steps)
		if err != nil {
			return err
		}
		r := row{Bench: "concurrent", Store: k.name, Runtime: local.Name, N: sessions}
		r.Unit, r.Value = "steps/s", float64(sessions*steps)/took.Seconds()
		rows = append(rows, r.with(floorRate))
		r.Floor, r.Ratio = 0, 0
		for _, p := range []float64{50, 99} {
			r.Unit, r.Value = fmt.Sprintf("µs p%.0f", p), percentile(all, p)
			rows = append(rows, r)
		}
		r.Unit, r.Value = "MB peak RSS", peak
		rows = append(rows, r)
		return nil
	})
	return rows, err
}

// concurrentFloor is the rate of the same with bare writes.
func concurrentFloor(ctx context.Context, f floor, sessions, steps int) (float64, error) {
	began := time.Now()
	err := each(sessions, func(i int) error {
		id := fmt.Sprintf("s-%d", i)
		if err := f.begin(ctx, id); err != nil {
			return err
		}
		for n := range steps {
			if err := floorStep(ctx, f, id, n, effect); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(sessions*steps) / time.Since(began).Seconds(), err
}

// each calls do n times at once and returns what went wrong.
func each(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// peakRSS returns the peak memory of the process in MB, if the system reports it.
func peakRSS() float64 {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err == nil {
				return kb / 1024
			}
		}
	}
	return 0
}

// resume measures how long it takes to resume a session of 1,000 steps: from
// the call to the first model call.
func resume(ctx context.Context, k kind, quick bool) ([]row, error) {
	rounds := 10
	if quick {
		rounds = 3
	}
	var took []time.Duration
	err := k.onRuntime(ctx, func(rt *local.Runtime, _ *site) error {
		model := newWorker(1000)
		agent := agentOf(model, effect)
		if err := runSession(ctx, rt, agent, "long"); err != nil {
			return err
		}
		for range rounds {
			model.mu.Lock()
			model.steps = 0
			model.mu.Unlock()
			model.forget("long")
			began := time.Now()
			if err := runSession(ctx, rt, agent, "long"); err != nil {
				return err
			}
			model.mu.Lock()
			took = append(took, model.asked["long"][0].Sub(began))
			model.mu.Unlock()
		}
		return nil
	})
	r := row{Bench: "resume", Store: k.name, Runtime: local.Name, N: 1000, Unit: "µs p50", Value: percentile(took, 50)}
	return []row{r}, err
}

// takeover measures how long it takes a process to take over a session of 1,000
// steps whose owner is gone: from finding it to the first model call.
func takeover(ctx context.Context, k kind, quick bool) ([]row, error) {
	rounds := 5
	if quick {
		rounds = 1
	}
	var took []time.Duration
	for range rounds {
		err := k.on(ctx, func(s *site) error {
			d, err := takeOverOnce(ctx, s)
			took = append(took, d)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	r := row{Bench: "takeover", Store: k.name, Runtime: local.Name, N: 1000, Unit: "µs p50", Value: percentile(took, 50)}
	return []row{r}, nil
}

func takeOverOnce(ctx context.Context, db store.Backend) (time.Duration, error) {
	first, err := local.New(local.Config{Backend: db})
	if err != nil {
		return 0, err
	}
	agent := agentOf(newWorker(1_000_000), effect)
	run, err := first.Execute(ctx, agent, helix.Input{SessionID: "long", Message: helix.UserText("Begin.")})
	if err != nil {
		return 0, err
	}
	for item, err := range run.Stream(ctx) {
		if err != nil {
			return 0, err
		}
		if item.Chunk != nil && item.Chunk.Step > 1000 {
			break
		}
	}
	if err := first.Close(); err != nil { // the turn stops where it is
		return 0, err
	}
	model := newWorker(0)
	model.first = make(chan string, 1)
	agent = agentOf(model, effect)
	began := time.Now()
	second, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}})
	if err != nil {
		return 0, err
	}
	defer second.Shutdown(ctx)
	select {
	case <-model.first:
		return time.Since(began), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
