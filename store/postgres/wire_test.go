package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// wire counts round trips: how often an answer was waited for. A read that follows
// a write begins one.
type wire struct {
	net.Conn
	trips *atomic.Int64
	wrote atomic.Bool
}

func (w *wire) Write(p []byte) (int, error) {
	if !w.wrote.Swap(true) {
		w.trips.Add(1)
	}
	return w.Conn.Write(p)
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.wrote.Store(false)
	}
	return n, err
}

// openWire opens a backend on one connection whose round trips are counted.
func openWire(t *testing.T) (*Backend, *atomic.Int64) {
	t.Helper()
	config, err := pgxpool.ParseConfig(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	trips := &atomic.Int64{}
	config.MaxConns = 1
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, trips: trips}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return openTest(t, func(c *Config) { c.Pool, c.NoListen, c.PollInterval = pool, true, time.Hour }), trips
}

// TestRoundTrips counts the round trips of a turn's operations.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	b, trips := openWire(t)
	turn := newWireTurn(t, b)
	b.notifier.close()     // notifications are not part of writes
	for cycle := range 3 { // the first ones prepare statements
		turn.n++
		for _, op := range turn.operations() {
			trips.Store(0)
			if err := op.do(t.Context()); err != nil {
				t.Fatalf("%s: %v", op.name, err)
			}
			if got := trips.Load(); cycle == 2 && got != op.want {
				t.Errorf("%s: %d round trips, want %d", op.name, got, op.want)
			}
		}
	}
}

// TestRoundTripsOfRuns counts the round trips of starting and closing runs, the first
// of a session and those that follow.
func TestRoundTripsOfRuns(t *testing.T) {
	t.Parallel()
	b, trips := openWire(t)
	b.notifier.close()     // notifications are not part of writes
	for cycle := range 3 { // the first ones prepare statements
		id := fmt.Sprint("s-", cycle)
		expect := func(what string, want int64, do func() error) {
			t.Helper()
			trips.Store(0)
			if err := do(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := trips.Load(); cycle == 2 && got != want {
				t.Errorf("%s took %d round trips, want %d", what, got, want)
			}
		}
		chunks := []stream.Chunk{{Kind: stream.TextDelta, Delta: "a"}}
		var version int64
		for n := range 3 {
			run := fmt.Sprint("run-", n)
			start := &session.StartRun{
				SessionID: id, ExpectVersion: version, Run: session.Run{ID: run, Kind: session.RunExecute}, Owner: "me", TTL: time.Hour,
				Change: session.Change{
					Messages: []session.Message{session.UserText("go")}, Status: session.Active, Checkpoint: &session.NewCheckpoint{ID: run},
				},
			}
			if n == 0 {
				start.Create = &session.State{ID: id, Agent: "tester", Status: session.Active}
			} else {
				start.ExpectRun = fmt.Sprint("run-", n-1)
			}
			var started *session.Started
			expect("a start", 2, func() (err error) {
				started, _, err = b.StartRun(t.Context(), &store.StartRun{StartRun: start, Batch: stream.Batch{
					Producer: stream.Producer{Session: id + "/open/" + run, Epoch: 1, RunID: run}, First: 1, Chunks: chunks,
				}})
				return err
			})
			fence, by := started.Lease.Fence(), stream.Producer{Session: id, Epoch: started.Lease.Epoch, RunID: run}
			expect("the last commit", 1, func() error {
				done, _, err := b.Commit(t.Context(), &store.Commit{
					Commit: &session.Commit{
						SessionID: id, RunID: run, Key: "last", Version: started.Version, Fence: fence,
						Change: session.Change{Status: session.Completed, Outcome: &session.Outcome{Status: session.RunCompleted}},
					},
					Stream: id, Batch: stream.Batch{Producer: by, First: 1, Chunks: chunks},
				})
				if err == nil {
					version = done.Version
				}
				return err
			})
			expect("a close", 1, func() error {
				return b.CloseRun(t.Context(), &store.CloseRun{
					SessionID: id, Fence: fence, Stream: id, By: by, End: &stream.End{Status: stream.EndCompleted},
					Batch: stream.Batch{Producer: stream.Producer{Session: id + "/close/" + run, Epoch: by.Epoch, RunID: run}, First: 1, Chunks: chunks},
				})
			})
		}
	}
}

// wireTurn is a turn whose operations are counted; n is its step.
type wireTurn struct {
	*runner
	streams stream.Manager
	by      stream.Producer
	n       int
	offset  int // chunks of other producers in the stream
}

func newWireTurn(t *testing.T, b *Backend) *wireTurn {
	t.Helper()
	r := newRunner(t, b, "a")
	turn := &wireTurn{runner: r, streams: b.Streams(), by: stream.Producer{Session: "a", Epoch: r.fence.Epoch, RunID: "run"}}
	if _, err := turn.streams.Reactivate(t.Context(), "a", turn.by); err != nil {
		t.Fatal(err)
	}
	return turn
}

func (w *wireTurn) call() session.Call {
	return session.Call{MessageID: fmt.Sprint("reply-", w.n), ID: fmt.Sprint("call-", w.n), Tool: "t", Kind: session.CallServer}
}

func (w *wireTurn) change(ctx context.Context, change session.Change) error {
	w.step++
	out, err := w.s.Commit(ctx, &session.Commit{
		SessionID: "a", RunID: "run", Key: fmt.Sprint(w.step), Version: w.version, Fence: w.fence, Change: change,
	})
	if err == nil {
		w.version = out.Version
	}
	return err
}

type wireOperation struct {
	name string
	want int64
	do   func(context.Context) error
}

// operations returns those of a step with one call, and reads.
func (w *wireTurn) operations() []wireOperation {
	return []wireOperation{
		{"reply commit", 1, w.reply},
		{"claim", 1, func(ctx context.Context) error {
			_, _, err := w.s.Claim(ctx, "a", w.version, w.fence, w.call().MessageID, w.call().ID)
			return err
		}},
		{"settle", 1, func(ctx context.Context) error {
			call := w.call()
			call.Result = new(session.ToolResult(session.Part{CallID: call.ID, Tool: "t"}, []byte(`1`)))
			_, err := w.s.Settle(ctx, "a", w.fence, call)
			return err
		}},
		{"suspending commit that is refused", 1, func(ctx context.Context) error {
			err := w.change(ctx, session.Change{Waits: []string{"answered"}, Outcome: &session.Outcome{Status: session.RunSuspendedClientTool}})
			if !errors.Is(err, session.ErrAnswered) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		}},
		{"results commit", 1, w.results},
		{"stale commit", 1, func(ctx context.Context) error {
			w.version--
			err := w.change(ctx, session.Change{})
			w.version++
			if !errors.Is(err, session.ErrStale) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		}},
		{"load", 1, func(ctx context.Context) error { _, err := w.s.Load(ctx, "a"); return err }},
		{"messages", 1, func(ctx context.Context) error { _, err := w.s.AllMessages(ctx, "a"); return err }},
		{"renew leases", 1, func(ctx context.Context) error { return renewLease(ctx, w.s.b, "a", w.fence, time.Hour) }},
		{"info", 1, func(ctx context.Context) error { _, err := w.streams.Info(ctx, "a"); return err }},
		{"append", 1, func(ctx context.Context) error {
			a, err := w.streams.Append(ctx, "a", w.batch(4*w.n-3))
			if err == nil {
				_, err = a.Wait(ctx)
			}
			return err
		}},
		{"commit with chunks", 1, w.commitWith(4*w.n - 1)},
	}
}

// batch returns two chunks; first is the number of the first one.
func (w *wireTurn) batch(first int) stream.Batch {
	return stream.Batch{
		Producer: w.by, First: int64(first),
		Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: "a"}, {Kind: stream.TextDelta, Delta: "b"}},
	}
}

func (w *wireTurn) commitWith(first int) func(context.Context) error {
	return func(ctx context.Context) error {
		w.step++
		out, last, err := w.s.b.Commit(ctx, &store.Commit{
			Commit: &session.Commit{
				SessionID: "a", RunID: "run", Key: fmt.Sprint(w.step), Version: w.version, Fence: w.fence,
				Change: session.Change{StepCount: &w.n},
			},
			Stream: "a", Batch: w.batch(first),
		})
		if err != nil {
			return err
		}
		if w.version++; out.Version != w.version || last != int64(first+w.offset)+1 {
			return fmt.Errorf("version %d, last chunk %d", out.Version, last)
		}
		return nil
	}
}

func (w *wireTurn) reply(ctx context.Context) error {
	call := w.call()
	return w.change(ctx, session.Change{
		Messages: []session.Message{{
			ID: call.MessageID, Role: session.RoleAssistant,
			Parts: []session.Part{{Kind: session.PartToolCall, CallID: call.ID, Tool: "t", Input: []byte(`{}`)}},
		}},
		Calls: []session.Call{call}, StepCount: &w.n, Own: []session.Ownership{{CallID: call.ID, SessionID: "a"}},
		Pending: []session.Pending{
			{CallID: call.ID, Kind: session.PendingClientTool},
			{CallID: "answered", Kind: session.PendingClientTool, State: session.PendingAnswered},
		},
		Children: []session.ChildRef{{SessionID: "kid", Agent: "a", Mode: session.ChildEphemeral, Status: session.ChildRunning}},
	})
}

func (w *wireTurn) results(ctx context.Context) error {
	call := w.call()
	return w.change(ctx, session.Change{
		Promote: &session.Promotion{MessageID: call.MessageID, Results: []session.Promoted{{CallID: call.ID}}},
		Resolve: []session.Resolution{{CallID: call.ID, State: session.PendingConsumed}}, Disown: []string{call.ID},
		Writes:     session.Writes{Ops: []session.Op{{Kind: session.OpAppend, Key: "list", Items: []json.RawMessage{[]byte("1")}}}},
		Checkpoint: &session.NewCheckpoint{ID: fmt.Sprint("cp-", w.n), Step: w.n, Source: session.FromStep},
		Run:        &session.RunChange{Usage: session.Usage{ModelCalls: 1}},
	})
}
