package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// length is a session length to measure at: sessions of n steps, of each of which
// the last steps count.
type length struct{ n, sessions, last int }

func lengths(quick bool) []length {
	if quick {
		return []length{{10, 20, 6}, {100, 4, 40}, {1000, 1, 150}}
	}
	return []length{{10, 80, 6}, {100, 10, 50}, {1000, 2, 250}, {10000, 1, 500}}
}

// steps measures whole tool steps, each of two commits, at several session
// lengths, and the bytes they leave.
func steps(ctx context.Context, b backend, quick, growing bool) ([]row, error) {
	name := "step"
	if growing {
		name += "-growing-state"
	}
	var rows []row
	for _, l := range lengths(quick) {
		var ours, floors []time.Duration
		var bytes, floorBytes float64
		err := onRuntime(ctx, b, func(rt *local.Runtime, db store.Backend, dir string) error {
			model := newWorker(l.n)
			agent := agentOf(model, growing)
			fl, err := b.floor(dir)
			if err != nil {
				return err
			}
			defer fl.Close()
			if sqlite, ok := fl.(*sqliteFloor); ok {
				sqlite.growing = growing
			}
			before, err := occupied(ctx, b, dir, "helix.db")
			if err != nil {
				return err
			}
			floorBefore, err := occupied(ctx, b, dir, "floor.db")
			if err != nil {
				return err
			}
			model.pause = func(id string, step int) error {
				if step <= l.n-l.last {
					return nil
				}
				began := time.Now()
				if err := fl.reply(ctx, id, step); err != nil {
					return err
				}
				if err := fl.results(ctx, id, step); err != nil {
					return err
				}
				floors = append(floors, time.Since(began))
				return nil
			}
			for i := range l.sessions {
				id := fmt.Sprintf("s-%d", i)
				if err := runSession(ctx, rt, agent, id); err != nil {
					return err
				}
				took := model.durations(id)
				ours = append(ours, took[len(took)-l.last:]...)
			}
			after, err := occupied(ctx, b, dir, "helix.db")
			if err != nil {
				return err
			}
			floorAfter, err := occupied(ctx, b, dir, "floor.db")
			bytes = (after - before) / float64(l.n*l.sessions)
			if b.name != "memory" { // where there is one heap for both
				floorBytes = (floorAfter - floorBefore) / float64(len(floors))
			}
			runtime.KeepAlive(db)
			return err
		})
		if err != nil {
			return nil, err
		}
		r := row{Bench: name, Store: b.name, Runtime: local.Name, N: l.n}
		for _, p := range []float64{50, 99} {
			r.Unit, r.Value = fmt.Sprintf("µs p%.0f", p), percentile(ours, p)
			rows = append(rows, r.with(percentile(floors, p)))
		}
		r.Unit, r.Value = "bytes", bytes
		rows = append(rows, r.with(floorBytes))
	}
	return rows, nil
}

// flat compares a step of a long session with one of a short session, by turns, so
// that both see the same machine. Its floor is the short session's step. None of
// the sessions is the newest, whose rows come last and are a little cheaper to add.
func flat(ctx context.Context, b backend, quick, growing bool) ([]row, error) {
	length, rounds := 10_000, 15
	if quick {
		length, rounds = 1000, 6
	}
	// The first steps of a turn share the machine with the garbage that reading the
	// transcript left, so they do not count.
	const steps, skipped = 60, 25
	name := "flat"
	if growing {
		name += "-growing-state"
	}
	var long, short []time.Duration
	err := onRuntime(ctx, b, func(rt *local.Runtime, _ store.Backend, _ string) error {
		model := newWorker(1)
		agent := agentOf(model, growing)
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
	var rows []row
	for _, p := range []float64{50, 99} {
		r := row{Bench: name, Store: b.name, Runtime: local.Name, N: length, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(long, p)}
		rows = append(rows, r.with(percentile(short, p)))
	}
	return rows, err
}

// occupied is what a store takes: the pages of its database, or, in memory, the
// heap.
func occupied(ctx context.Context, b backend, dir, file string) (float64, error) {
	if b.name == "memory" {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc), nil
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var pages, free, size float64
	err = db.QueryRowContext(ctx, "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size").
		Scan(&pages, &free, &size)
	return (pages - free) * size, err
}

// commits measures one commit of two messages and a checkpoint.
func commits(ctx context.Context, b backend, quick bool) ([]row, error) {
	var rows []row
	for _, l := range lengths(quick) {
		var ours, floors []time.Duration
		err := inDir(func(dir string) error {
			db, err := b.open(dir)
			if err != nil {
				return err
			}
			defer db.Close()
			fl, err := b.floor(dir)
			if err != nil {
				return err
			}
			defer fl.Close()
			for i := range l.sessions {
				id := fmt.Sprintf("s-%d", i)
				took, err := commitSession(ctx, db.Sessions(), id, l.n)
				if err != nil {
					return err
				}
				ours = append(ours, took[len(took)-l.last:]...)
				for n := range l.last {
					began := time.Now()
					if err := fl.both(ctx, id, n); err != nil {
						return err
					}
					floors = append(floors, time.Since(began))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, p := range []float64{50, 99} {
			r := row{Bench: "commit", Store: b.name, Runtime: "none", N: l.n, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(ours, p)}
			rows = append(rows, r.with(percentile(floors, p)))
		}
	}
	return rows, nil
}

// commitSession writes a session of n steps with bare commits.
func commitSession(ctx context.Context, sessions session.Store, id string, n int) ([]time.Duration, error) {
	started, err := sessions.StartRun(ctx, &session.StartRun{
		SessionID: id, Create: &session.State{ID: id, Agent: "bench", StreamID: id, Status: session.Active},
		Run: session.Run{ID: "run-" + id, Kind: session.RunExecute, Status: session.RunRunning, Runtime: local.Name}, Owner: "bench",
	})
	if err != nil {
		return nil, err
	}
	version := started.Version
	took := make([]time.Duration, 0, n)
	for step := 1; step <= n; step++ {
		part := session.Part{Kind: session.PartToolCall, CallID: session.CallID(id, fmt.Sprint(step), 0), Tool: "work", Input: []byte(`{"n":1}`)}
		reply := session.Message{
			ID: session.ReplyID("run-"+id, step), Role: session.RoleAssistant,
			Parts: []session.Part{session.Text(text), part}, RunID: "run-" + id, Step: step, At: time.Now(),
		}
		result := session.ToolResult(part, []byte(`"`+text+`"`))
		key := fmt.Sprintf("run-%s/%d", id, step)
		began := time.Now()
		done, err := sessions.Commit(ctx, &session.Commit{
			SessionID: id, RunID: "run-" + id, Key: key, Version: version, Fence: started.Lease.Fence(),
			Change: session.Change{
				Messages: []session.Message{reply, result}, StepCount: &step,
				Checkpoint: &session.NewCheckpoint{ID: session.CheckpointID(id, step, began, key), Step: step, Source: session.FromStep},
				Run:        &session.RunChange{Usage: session.Usage{ModelCalls: 1}},
			},
		})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		version = done.Version
	}
	return took, nil
}

// loop measures what a step costs on the memory store: the loop's own time and
// allocations.
func loop(ctx context.Context, b backend, quick bool) ([]row, error) {
	if b.name != "memory" {
		return nil, nil
	}
	n := 5000
	if quick {
		n = 1000
	}
	var rows []row
	err := onRuntime(ctx, b, func(rt *local.Runtime, _ store.Backend, _ string) error {
		warm := newWorker(200)
		return runSession(ctx, rt, agentOf(warm, false), "warm")
	})
	if err != nil {
		return nil, err
	}
	err = onRuntime(ctx, b, func(rt *local.Runtime, _ store.Backend, _ string) error {
		model := newWorker(n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		if err := runSession(ctx, rt, agentOf(model, false), "loop"); err != nil {
			return err
		}
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		r := row{Bench: "loop", Store: b.name, Runtime: local.Name, N: n}
		r.Unit, r.Value = "µs/step", float64(took.Microseconds())/float64(n)
		rows = append(rows, r)
		r.Unit, r.Value = "allocs/step", float64(after.Mallocs-before.Mallocs)/float64(n)
		rows = append(rows, r)
		r.Unit, r.Value = "alloc bytes/step", float64(after.TotalAlloc-before.TotalAlloc)/float64(n)
		rows = append(rows, r)
		return nil
	})
	return rows, err
}
