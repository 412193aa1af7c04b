package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
)

// brief is a model that answers after a second, and says when it is asked.
type brief struct{ asked chan time.Time }

// Generate implements [llm.Model].
func (m *brief) Generate(ctx context.Context, _ *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	m.asked <- time.Now()
	if err := retry.Sleep(ctx, time.Second); err != nil {
		return nil, err
	}
	return &llm.Response{Parts: []session.Part{session.Text("Done.")}, Finish: llm.FinishStop, Model: "brief"}, nil
}

// held measures a process that holds many runs for a while, and is then killed: what its
// heartbeats cost, how many leases expire, and how fast another process continues the runs.
// On Postgres only, which tells what is written to its log.
func held(ctx context.Context, k kind, quick bool) ([]row, error) {
	if k.name != "postgres" {
		return nil, nil
	}
	runs := 10_000
	if quick {
		runs = 1000
	}
	var rows []row
	err := k.on(ctx, func(s *site) error {
		url, err := k.server.get(ctx)
		if err != nil {
			return err
		}
		v, err := startVictim(ctx, victimOf(k, s, url, runs))
		if err != nil {
			return err
		}
		defer v.kill() // a second time, perhaps
		h := &holding{site: s, url: url, victim: v, runs: runs, add: func(unit string, value float64) *row {
			rows = append(rows, row{Bench: "held", Store: k.name, Runtime: local.Name, N: runs, Unit: unit, Value: value})
			return &rows[len(rows)-1]
		}}
		if err := h.hold(ctx, holds); err != nil {
			return err
		}
		return h.continueAll(ctx)
	})
	return rows, err
}

// holding is a process that holds many runs.
type holding struct {
	*site
	url    string
	victim *victim
	runs   int
	add    func(unit string, value float64) *row
}

// hold measures heartbeats for a time.
func (h *holding) hold(ctx context.Context, lasts time.Duration) error {
	pool, err := pgxpool.New(ctx, h.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	from, err := walOf(ctx, pool)
	if err != nil {
		return err
	}
	before, err := h.victim.renewals()
	if err != nil {
		return err
	}
	expired := map[string]bool{}
	for until := time.Now().Add(lasts); time.Now().Before(until); {
		due, err := h.Sessions().ExpiredLeases(ctx, session.SweepRequest{Limit: session.MaxPageSize})
		if err != nil {
			return err
		}
		for _, d := range due {
			expired[d.ID] = true
		}
		if err := retry.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	after, err := h.victim.renewals()
	if err != nil {
		return err
	}
	to, err := walOf(ctx, pool)
	if err != nil {
		return err
	}
	least, err := h.leastHeartbeat(ctx, pool)
	if err != nil {
		return err
	}
	heartbeats := float64(after.Leases-before.Leases) / float64(h.runs)
	if heartbeats == 0 {
		return errors.New("the time is too short for a heartbeat")
	}
	h.add("leases expired", float64(len(expired)))
	h.add("heartbeats", heartbeats)
	ms := h.add("ms/heartbeat", (after.Time-before.Time).Seconds()*1000/heartbeats)
	*ms = ms.with(least.took.Seconds() * 1000)
	h.add("longest call, ms", after.Longest.Seconds()*1000)
	kb := h.add("KB of WAL/heartbeat", float64(to-from)/1000/heartbeats)
	*kb = kb.with(float64(least.wal) / 1000)
	return nil
}

func walOf(ctx context.Context, pool *pgxpool.Pool) (position int64, err error) {
	err = pool.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint").Scan(&position)
	return position, err
}

// heartbeat is what one costs.
type heartbeat struct {
	took time.Duration
	wal  int64
}

// leastHeartbeat measures the least that renewing so many leases can cost if each has a row: a
// table of nothing else, with an index of when they expire, which finds them.
func (h *holding) leastHeartbeat(ctx context.Context, pool *pgxpool.Pool) (least heartbeat, err error) {
	schema := pgx.Identifier{h.name + "_floor"}.Sanitize()
	for _, statement := range []string{
		fmt.Sprintf("CREATE TABLE %s.leases (id bigint PRIMARY KEY, epoch bigint NOT NULL, expires timestamptz NOT NULL) WITH (fillfactor = 50)", schema),
		fmt.Sprintf("CREATE INDEX ON %s.leases (expires)", schema),
		fmt.Sprintf("INSERT INTO %s.leases SELECT i, 1, now() FROM generate_series(1, %d) i", schema, h.runs),
	} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return least, err
		}
	}
	const times, batch = 10, 500
	from, err := walOf(ctx, pool)
	if err != nil {
		return least, err
	}
	began := time.Now()
	for range times {
		for i := 0; i < h.runs; i += batch {
			ids := make([]int64, min(batch, h.runs-i))
			for j := range ids {
				ids[j] = int64(i + j + 1)
			}
			if _, err := pool.Exec(ctx, "UPDATE "+schema+".leases SET expires = now() + interval '5 s' WHERE id = ANY($1) AND epoch = 1", ids); err != nil {
				return least, err
			}
		}
	}
	least.took = time.Since(began) / times
	to, err := walOf(ctx, pool)
	least.wal = (to - from) / times
	return least, err
}

// firstRuns is how many runs a process takes over before others have to have made progress.
const firstRuns = 256

// continueAll kills the process, and measures how fast another one continues its runs.
func (h *holding) continueAll(ctx context.Context) error {
	model := &brief{make(chan time.Time, h.runs)}
	rt, err := local.New(local.Config{Backend: h.Backend, Agents: []*helix.Agent{{Name: "mute", Model: model}}})
	if err != nil {
		return err
	}
	defer rt.Close()
	h.victim.kill()
	died := time.Now()
	for i := range h.runs {
		select {
		case at := <-model.asked:
			switch i + 1 {
			case min(firstRuns, h.runs):
				h.add(fmt.Sprintf("s until %d are continued", i+1), at.Sub(died).Seconds())
			case h.runs:
				h.add("s until all are continued", at.Sub(died).Seconds())
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d runs were continued: %w", i, h.runs, ctx.Err())
		}
	}
	return nil
}
