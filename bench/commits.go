package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// commits measures one commit of two messages and a checkpoint, by turns with its
// floor.
func commits(ctx context.Context, k kind, quick bool) ([]row, error) {
	var rows []row
	for _, l := range lengths(quick) {
		var ours, floors []time.Duration
		err := k.on(ctx, func(s *site) error {
			if err := warm(ctx, s, 1); err != nil {
				return err
			}
			for i := range l.sessions {
				c, err := newCommitter(ctx, s, fmt.Sprintf("s-%d", i))
				if err != nil {
					return err
				}
				if err := c.skip(ctx, l.n-l.last); err != nil {
					return err
				}
				for range l.last {
					c.prepare(1)
					if err := c.turn(ctx); err != nil {
						return err
					}
					if err := c.floorTurn(ctx, 1); err != nil {
						return err
					}
				}
				ours, floors = append(ours, c.ours...), append(floors, c.floors...)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, commitRows("commit", k, l.n, ours, floors)...)
	}
	return rows, nil
}

// clients is how many sessions commit at the same time.
const clients = 16

// sharedCommits measures the same while many sessions commit at once, by turns
// with as many that write bare. Each goes first as often as the other: what was
// done before leaves garbage to collect.
func sharedCommits(ctx context.Context, k kind, quick bool) ([]row, error) {
	// Of each session the last steps count, a few at a turn.
	all := []struct{ length, rounds, last, turn int }{{10, 24, 5, 5}, {10_000, 1, 150, 5}}
	if quick {
		all[0].rounds, all[1].length, all[1].last = 3, 200, 50
	}
	var rows []row
	for _, l := range all {
		var ours, floors []time.Duration
		err := k.on(ctx, func(s *site) error {
			if err := warm(ctx, s, clients); err != nil {
				return err
			}
			for round := range l.rounds {
				var all [clients]*committer
				err := each(clients, func(i int) (err error) {
					if all[i], err = newCommitter(ctx, s, fmt.Sprintf("s-%d-%d", round, i)); err != nil {
						return err
					}
					return all[i].fill(ctx, l.length-l.last)
				})
				if err != nil {
					return err
				}
				for turn := range l.last / l.turn {
					for _, c := range all {
						c.prepare(l.turn)
					}
					turns := []func(i int) error{
						func(i int) error { return all[i].turn(ctx) },
						func(i int) error { return all[i].floorTurn(ctx, l.turn) },
					}
					if (round+turn)%2 == 1 {
						slices.Reverse(turns)
					}
					for _, turn := range turns {
						if err := each(clients, turn); err != nil {
							return err
						}
					}
				}
				for _, c := range all {
					ours, floors = append(ours, c.ours...), append(floors, c.floors...)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, commitRows(fmt.Sprintf("commit-%d", clients), k, l.length, ours, floors)...)
	}
	return rows, nil
}

func commitRows(name string, k kind, n int, ours, floors []time.Duration) (rows []row) {
	for _, p := range []float64{50, 99} {
		r := row{Bench: name, Store: k.name, Runtime: "none", N: n, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(ours, p)}
		rows = append(rows, r.with(percentile(floors, p)))
	}
	return rows
}

// warm has connections opened and statements prepared on both sides.
func warm(ctx context.Context, s *site, clients int) error {
	return each(clients, func(i int) error {
		c, err := newCommitter(ctx, s, fmt.Sprintf("warm-%d", i))
		if err != nil {
			return err
		}
		const enough = 30
		c.prepare(enough)
		if err := c.turn(ctx); err != nil {
			return err
		}
		return c.floorTurn(ctx, enough)
	})
}

// committer writes a session with bare commits, and its floor.
type committer struct {
	sessions     session.Store
	floor        floor
	id           string
	fence        session.Fence
	version      int64
	step         int
	floorStep    int
	ready        []*session.Commit
	ours, floors []time.Duration
}

func newCommitter(ctx context.Context, s *site, id string) (*committer, error) {
	started, err := beginSession(ctx, s, id)
	if err != nil {
		return nil, err
	}
	c := &committer{sessions: s.Sessions(), floor: s.floor, id: id, fence: started.Lease.Fence(), version: started.Version}
	return c, s.floor.begin(ctx, id)
}

// skip makes n commits, and as many bare writes, that do not count.
func (c *committer) skip(ctx context.Context, n int) error {
	c.prepare(n)
	err := c.turn(ctx)
	c.ours = nil
	if err != nil {
		return err
	}
	return c.skipFloor(ctx, n)
}

// skipFloor makes n bare writes that do not count: the floor of a long session is a
// write to one that is as long.
func (c *committer) skipFloor(ctx context.Context, n int) error {
	err := c.floorTurn(ctx, n)
	c.floors = nil
	return err
}

// fill writes the messages of n steps with a tenth of the commits, for so many
// sessions would take too long otherwise, and the rows of as many bare writes.
func (c *committer) fill(ctx context.Context, n int) error {
	for end := c.step + n; c.step < end; {
		var commit *session.Commit
		for range min(10, end-c.step) {
			c.step++
			next := c.next()
			if commit != nil {
				next.Messages = append(commit.Messages, next.Messages...)
			}
			commit = next
		}
		done, err := c.sessions.Commit(ctx, commit)
		if err != nil {
			return err
		}
		c.version = done.Version
	}
	return c.skipFloor(ctx, n)
}

// prepare puts the next n commits together, which is not what is measured: it would
// take time of the clients that commit meanwhile.
func (c *committer) prepare(n int) {
	for range n {
		c.step++
		c.ready = append(c.ready, c.next())
	}
}

// turn makes the commits that were prepared.
func (c *committer) turn(ctx context.Context) error {
	for _, commit := range c.ready {
		commit.Version = c.version
		err := timed(&c.ours, func() error {
			done, err := c.sessions.Commit(ctx, commit)
			if err == nil {
				c.version = done.Version
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	c.ready = c.ready[:0]
	return nil
}

// floorTurn makes n bare writes.
func (c *committer) floorTurn(ctx context.Context, n int) error {
	for range n {
		if err := timed(&c.floors, func() error { return c.floor.both(ctx, c.id, c.floorStep) }); err != nil {
			return err
		}
		c.floorStep++
	}
	return nil
}

// next is the commit of a step.
func (c *committer) next() *session.Commit {
	run, step, now := "run-"+c.id, c.step, time.Now()
	part := session.Part{Kind: session.PartToolCall, CallID: session.CallID(c.id, fmt.Sprint(step), 0), Tool: "work", Input: []byte(`{"n":1}`)}
	reply := session.Message{
		ID: session.ReplyID(run, step), Role: session.RoleAssistant,
		Parts: []session.Part{session.Text(text), part}, RunID: run, Step: step, At: now,
	}
	result := session.ToolResult(part, []byte(`"`+text+`"`))
	key := fmt.Sprintf("%s/%d", run, step)
	return &session.Commit{
		SessionID: c.id, RunID: run, Key: key, Version: c.version, Fence: c.fence,
		Change: session.Change{
			Messages: []session.Message{reply, result}, StepCount: &step,
			Checkpoint: &session.NewCheckpoint{ID: session.CheckpointID(c.id, step, now, key), Step: step, Source: session.FromStep},
			Run:        &session.RunChange{Usage: session.Usage{ModelCalls: 1}},
		},
	}
}
