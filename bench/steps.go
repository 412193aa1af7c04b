package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/helixagents/helix/runtime/local"
)

// length is a session length to measure at: sessions of n steps, of each of which
// the last steps count.
type length struct{ n, sessions, last int }

func lengths(quick bool) []length {
	if quick {
		return []length{{10, 20, 6}, {100, 3, 40}, {500, 1, 100}}
	}
	return []length{{10, 80, 6}, {100, 10, 50}, {1000, 2, 250}, {10000, 1, 500}}
}

// steps returns the bench that measures whole tool steps at several session
// lengths, and the bytes they leave.
func steps(of work) func(ctx context.Context, k kind, quick bool) ([]row, error) {
	return func(ctx context.Context, k kind, quick bool) ([]row, error) {
		all := lengths(quick)
		if k.server != nil && !quick {
			all = all[:len(all)-1] // the longest takes long there, and flat has it
		}
		var rows []row
		for _, l := range all {
			found, err := stepsOf(ctx, k, l, of)
			if err != nil {
				return nil, err
			}
			rows = append(rows, found.rows(row{Bench: "step" + string(of), Store: k.name, Runtime: local.Name, N: l.n})...)
		}
		return rows, nil
	}
}

// stepped is what steps took, and the bytes that each left.
type stepped struct {
	ours, floors, bares []time.Duration
	bytes, floorBytes   float64
}

// rows are the figures, in copies of r.
func (s *stepped) rows(r row) (rows []row) {
	for _, p := range []float64{50, 99} {
		r.Unit, r.Value = fmt.Sprintf("µs p%.0f", p), percentile(s.ours, p)
		rows = append(rows, r.with(percentile(s.floors, p)))
	}
	r.Unit, r.Value = "bytes", s.bytes
	rows = append(rows, r.with(s.floorBytes))
	r.Bench, r.Unit, r.Value = r.Bench+"-bare", "µs p50", percentile(s.ours, 50)
	return append(rows, r.with(percentile(s.bares, 50)))
}

// stepsOf measures steps of sessions of one length. The floors are measured between
// two steps.
func stepsOf(ctx context.Context, k kind, l length, of work) (found stepped, err error) {
	err = k.onRuntime(ctx, func(rt *local.Runtime, s *site) error {
		model := newWorker(l.n)
		agent := agentOf(model, of)
		before, floorBefore, err := s.occupied(ctx)
		if err != nil {
			return err
		}
		model.pause = func(id string, step int) error {
			first := l.n - l.last + 1
			if step == first {
				if err := s.floor.begin(ctx, id); err != nil {
					return err
				}
			}
			if step < first {
				return nil
			}
			return errors.Join(
				timed(&found.floors, func() error { return floorStep(ctx, s.floor, id, step, of) }),
				timed(&found.bares, func() error { return s.floor.bare(ctx, id, step) }),
			)
		}
		for i := range l.sessions {
			id := fmt.Sprintf("s-%d", i)
			if err := runSession(ctx, rt, agent, id); err != nil {
				return err
			}
			took := model.durations(id)
			found.ours = append(found.ours, took[len(took)-l.last:]...)
		}
		after, floorAfter, err := s.occupied(ctx)
		found.bytes = (after - before) / float64(l.n*l.sessions)
		found.floorBytes = (floorAfter - floorBefore) / float64(len(found.floors))
		return err
	})
	return found, err
}

// timed adds how long do takes.
func timed(samples *[]time.Duration, do func() error) error {
	began := time.Now()
	err := do()
	*samples = append(*samples, time.Since(began))
	return err
}

// flat returns the bench that compares a step of a long session with one of a short session, by turns, so
// that both see the same machine. Its floor is the short session's step. None of
// the sessions is the newest, whose rows come last and are a little cheaper to add.
func flat(of work) func(ctx context.Context, k kind, quick bool) ([]row, error) {
	return func(ctx context.Context, k kind, quick bool) ([]row, error) {
		length, rounds := 10_000, 15
		if quick {
			length, rounds = 500, 3
		}
		long, short, err := longAndShort(ctx, k, of, length, rounds)
		var rows []row
		for _, p := range []float64{50, 99} {
			r := row{
				Bench: "flat" + string(of), Store: k.name, Runtime: local.Name, N: length, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(long, p),
			}
			rows = append(rows, r.with(percentile(short, p)))
		}
		return rows, err
	}
}

func longAndShort(ctx context.Context, k kind, of work, length, rounds int) (long, short []time.Duration, err error) {
	// The first steps of a turn share the machine with the garbage that reading the
	// transcript left, so they do not count.
	const steps, skipped = 60, 25
	err = k.onRuntime(ctx, func(rt *local.Runtime, _ *site) error {
		model := newWorker(1)
		agent := agentOf(model, of)
		for i := range rounds {
			if err := runSession(ctx, rt, agent, fmt.Sprintf("s-%d", i)); err != nil {
				return err
			}
		}
		model.steps = length
		if err := runSession(ctx, rt, agent, "long"); err != nil {
			return err
		}
		model.steps = steps
		if err := runSession(ctx, rt, agent, "newest"); err != nil {
			return err
		}
		for i := range rounds {
			for id, samples := range map[string]*[]time.Duration{"long": &long, fmt.Sprintf("s-%d", i): &short} {
				model.forget(id)
				if err := runSession(ctx, rt, agent, id); err != nil {
					return err
				}
				*samples = append(*samples, model.durations(id)[skipped:]...)
			}
		}
		return nil
	})
	return long, short, err
}

// loop measures what a step costs on the memory store: the loop's own time and
// allocations. The floor of an agent with extensions, or with a policy for its context, is the agent without them.
func loop(ctx context.Context, k kind, quick bool) ([]row, error) {
	if k.name != "memory" {
		return nil, nil
	}
	n := 5000
	if quick {
		n = 1000
	}
	if _, err := loopOf(ctx, k, effect, 200); err != nil { // warms up
		return nil, err
	}
	var rows, plain []row
	for _, of := range []work{effect, extended, guarded, bounded} {
		found, err := loopOf(ctx, k, of, n)
		if err != nil {
			return nil, err
		}
		if of == effect {
			plain = found
		} else {
			for i := range found {
				found[i] = found[i].with(plain[i].Value)
			}
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

func loopOf(ctx context.Context, k kind, of work, n int) (rows []row, err error) {
	err = k.onRuntime(ctx, func(rt *local.Runtime, _ *site) error {
		agent := agentOf(newWorker(n), of)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		if err := runSession(ctx, rt, agent, "loop"); err != nil {
			return err
		}
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		per := func(unit string, total float64) {
			rows = append(rows, row{
				Bench: "loop" + string(of), Store: k.name, Runtime: local.Name, N: n, Unit: unit, Value: total / float64(n),
			})
		}
		per("µs/step", float64(took.Microseconds()))
		per("allocs/step", float64(after.Mallocs-before.Mallocs))
		per("alloc bytes/step", float64(after.TotalAlloc-before.TotalAlloc))
		return nil
	})
	return rows, err
}
