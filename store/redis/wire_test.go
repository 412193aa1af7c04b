package redis_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/storetest"
	"github.com/helixagents/helix/stream"
)

// wire counts round trips: how often something is sent after something was read.
type wire struct {
	mu    sync.Mutex
	trips int
}

func (w *wire) dial(_ context.Context, network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return &counted{Conn: c, wire: w, answered: true}, err
}

func (w *wire) count(do func()) int {
	w.mu.Lock()
	before := w.trips
	w.mu.Unlock()
	do()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trips - before
}

// counted is a connection whose round trips are counted.
type counted struct {
	net.Conn
	wire     *wire
	answered bool
}

func (c *counted) Write(b []byte) (int, error) {
	c.wire.mu.Lock()
	if c.answered {
		c.wire.trips++
	}
	c.answered = false
	c.wire.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.mu.Lock()
	c.answered = true
	c.wire.mu.Unlock()
	return n, err
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		w := &wire{}
		options, err := goredis.ParseURL(single(t))
		if err != nil {
			t.Fatal(err)
		}
		options.Dialer = w.dial
		client := goredis.NewClient(options)
		t.Cleanup(func() { _ = client.Close() })
		roundTrips(t, w, client, map[string]int{"StartRun": 2, "last commit": 1, "RenewLeases": 1, "close": 1})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		w := &wire{}
		options, err := goredis.ParseURL(cluster(t))
		if err != nil {
			t.Fatal(err)
		}
		client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{options.Addr}, Dialer: w.dial})
		t.Cleanup(func() { _ = client.Close() })
		// Index entries are on other nodes, each with its own round trip.
		roundTrips(t, w, client, map[string]int{"StartRun": 4, "last commit": 3, "RenewLeases": 3, "close": 2})
	})
}

func renewLease(ctx context.Context, b *redis.Backend, id string, fence session.Fence, ttl time.Duration) error {
	return b.RenewLeases(ctx, []session.Held{{Key: session.Key{ID: id}, Fence: fence}}, ttl)[0].Err
}

// TestRenewalsTogether counts the round trips of renewing hundreds of leases.
func TestRenewalsTogether(t *testing.T) {
	t.Parallel()
	ctx, w := context.Background(), &wire{}
	options, err := goredis.ParseURL(single(t))
	if err != nil {
		t.Fatal(err)
	}
	options.Dialer = w.dial
	client := goredis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	b := open(t, redis.Config{Client: client, Prefix: newPrefix()})
	var leases []session.Held
	for i := range 200 {
		run := newTurn(t, b.Sessions(), fmt.Sprint("s-", i))
		leases = append(leases, session.Held{Key: session.Key{ID: run.id}, Fence: run.fence})
	}
	before, err := b.Sessions().Load(ctx, "s-199")
	if err != nil {
		t.Fatal(err)
	}
	var out []session.Renewed
	if trips := w.count(func() { out = b.RenewLeases(ctx, leases, 2*time.Hour) }); trips != 1 {
		t.Errorf("%d round trips", trips)
	}
	for i, renewed := range out {
		if renewed.Err != nil || len(renewed.Stops) > 0 {
			t.Fatalf("lease %d: %+v", i, renewed)
		}
	}
	after, err := b.Sessions().Load(ctx, "s-199")
	if err != nil || after.Lease.ExpiresAt.Sub(before.Lease.ExpiresAt) < 30*time.Minute {
		t.Errorf("got %+v, %v, had %+v", after, err, before)
	}
}

func roundTrips(t *testing.T, w *wire, client goredis.UniversalClient, limits map[string]int) {
	ctx := context.Background()
	b := open(t, redis.Config{Client: client, Prefix: newPrefix()})
	s, m := b.Sessions(), b.Streams()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// All connections are opened, and all nodes have the scripts, before the counting starts.
	for i := range 20 {
		other := newTurn(t, s, fmt.Sprint("warm-", i))
		check(second(m.Reactivate(ctx, other.id, other.by())))
	}
	run := newTurn(t, s, "warm")
	run.commit(session.Change{})
	_, err := m.Reactivate(ctx, "warm", run.by())
	check(err)
	check(second(s.List(ctx, session.Query{})))

	expect := func(what string, most int, do func()) {
		t.Helper()
		if n := w.count(do); n > most {
			t.Errorf("%s took %d round trips, not %d", what, n, most)
		}
	}
	expect("StartRun with a stream", limits["StartRun"], func() {
		check(third(b.StartRun(ctx, &store.StartRun{
			StartRun: startOf("opened", ""), Batch: stream.Batch{
				Producer: stream.Producer{Session: "opened/open/run-1", Epoch: 1, RunID: "run-1"}, First: 1,
				Chunks: []stream.Chunk{{Kind: stream.RunStarted}},
			},
		})))
	})
	expect("StartRun", limits["StartRun"], func() { run = newTurn(t, s, "a") })
	_, err = m.Reactivate(ctx, "a", run.by())
	check(err)
	message := session.Message{ID: "m1", Role: session.RoleAssistant, Parts: []session.Part{
		session.Text("hello"), {Kind: session.PartToolCall, CallID: "c1", Tool: "t", Input: []byte(`{}`)},
	}}
	expect("a reply commit", 1, func() {
		run.commit(session.Change{Messages: []session.Message{message}, Calls: []session.Call{{MessageID: "m1", ID: "c1", Tool: "t"}}})
	})
	expect("Claim", 1, func() {
		_, _, err := s.Claim(ctx, "a", run.version, run.fence, "m1", "c1")
		check(err)
	})
	expect("Settle", 1, func() {
		result := session.ToolResult(session.Part{CallID: "c1", Tool: "t"}, []byte(`1`))
		_, err := s.Settle(ctx, "a", run.fence, session.Call{MessageID: "m1", ID: "c1", Tool: "t", Result: &result})
		check(err)
	})
	expect("a results commit", 1, func() {
		run.commit(session.Change{
			Promote:    &session.Promotion{MessageID: "m1", Results: []session.Promoted{{CallID: "c1"}}},
			Writes:     session.Writes{Ops: []session.Op{{Kind: session.OpAppend, Key: "k", Items: []json.RawMessage{json.RawMessage(`1`)}}}},
			Checkpoint: &session.NewCheckpoint{ID: "cp1"}, Run: &session.RunChange{Usage: session.Usage{ModelCalls: 1}},
		})
	})
	expect("a batch of chunks", 1, func() {
		var chunks []stream.Chunk
		for i := range 20 {
			chunks = append(chunks, stream.Chunk{Kind: stream.TextDelta, Delta: fmt.Sprint(i)})
		}
		out, err := m.Append(ctx, "a", stream.Batch{Producer: run.by(), First: 1, Chunks: chunks})
		check(err)
		check(second(out.Wait(ctx)))
	})
	together := func(first int64, change session.Change) *store.Commit {
		chunks := []stream.Chunk{{Kind: stream.TextDelta, Delta: "x"}, {Kind: stream.TextDelta, Delta: "y"}}
		return &store.Commit{Commit: run.request(change), Stream: "a", Batch: stream.Batch{Producer: run.by(), First: first, Chunks: chunks}}
	}
	expect("a commit with chunks", 1, func() {
		run.commitTogether(b, together(21, session.Change{StepCount: new(1)}))
	})
	expect("Load", 1, func() { check(second(s.Load(ctx, "a"))) })
	expect("AllMessages", 1, func() { check(second(s.AllMessages(ctx, "a"))) })
	expect("RenewLeases", limits["RenewLeases"], func() { check(renewLease(ctx, b, "a", run.fence, time.Hour)) })
	expect("the last commit, with chunks", limits["last commit"], func() {
		run.commitTogether(b, together(23, session.Change{Status: session.Completed, Outcome: &session.Outcome{Status: session.RunCompleted}}))
	})
	expect("a close", limits["close"], func() { check(b.CloseRun(ctx, run.closing("a"))) })
	run = newTurn(t, s, "b")
	expect("the last commit", limits["last commit"], func() {
		run.commit(session.Change{Status: session.Completed, Outcome: &session.Outcome{Status: session.RunCompleted}})
	})
}

func second[V any](_ V, err error) error { return err }

func third[V, W any](_ V, _ W, err error) error { return err }

// closing returns the close of a run that has ended.
func (r *turn) closing(streamID string) *store.CloseRun {
	return &store.CloseRun{
		SessionID: r.id, Fence: r.fence, Stream: streamID, By: r.by(), End: &stream.End{Status: stream.EndCompleted},
		Batch: stream.Batch{
			Producer: stream.Producer{Session: r.id + "/close/run-1", Epoch: r.fence.Epoch, RunID: "run-1"}, First: 1,
			Chunks: []stream.Chunk{{Kind: stream.RunCompleted}},
		},
	}
}

// turn is a run in progress.
type turn struct {
	t       testing.TB
	s       session.Store
	id      string
	fence   session.Fence
	version int64
	n       int
}

func newTurn(t testing.TB, s session.Store, id string) *turn { return newTurnOf(t, s, id, "") }

// newTurnOf is newTurn for a companion of a parent.
func newTurnOf(t testing.TB, s session.Store, id, parent string) *turn {
	t.Helper()
	started, err := s.StartRun(context.Background(), startOf(id, parent))
	if err != nil {
		t.Fatal(err)
	}
	return &turn{t: t, s: s, id: id, fence: started.Lease.Fence(), version: started.Version}
}

// startOf returns the start of a run that creates its session.
func startOf(id, parent string) *session.StartRun {
	return &session.StartRun{
		SessionID: id,
		Create:    &session.State{ID: id, Agent: "tester", Status: session.Active, UserID: "u", Tags: []string{"t"}, ParentID: parent},
		Run:       session.Run{ID: "run-1", Kind: session.RunExecute, Runtime: "test"}, Owner: "me", TTL: time.Hour,
	}
}

func (r *turn) by() stream.Producer {
	return stream.Producer{Session: r.id, Epoch: r.fence.Epoch, RunID: "run-1"}
}

func (r *turn) request(change session.Change) *session.Commit {
	return &session.Commit{
		SessionID: r.id, RunID: "run-1", Key: fmt.Sprint(r.n + 1), Version: r.version, Fence: r.fence, Change: change,
	}
}

func (r *turn) commit(change session.Change) {
	r.t.Helper()
	out, err := r.s.Commit(context.Background(), r.request(change))
	if err != nil {
		r.t.Fatal(err)
	}
	r.n++
	r.version = out.Version
}

func (r *turn) commitTogether(b *redis.Backend, commit *store.Commit) {
	r.t.Helper()
	out, last, err := b.Commit(context.Background(), commit)
	if err != nil {
		r.t.Fatal(err)
	}
	if want := commit.Batch.First + int64(len(commit.Batch.Chunks)) - 1; last != want {
		r.t.Errorf("the last chunk is at %d, not %d", last, want)
	}
	r.n++
	r.version = out.Version
}

// The cost of a tree's lease depends on its active members.
func TestRenewalOfALargeTree(t *testing.T) {
	t.Parallel()
	ctx, w := context.Background(), &wire{}
	options, err := goredis.ParseURL(single(t))
	if err != nil {
		t.Fatal(err)
	}
	options.Dialer = w.dial
	client := goredis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	prefix, clock := newPrefix(), storetest.NewClock()
	b := open(t, redis.Config{Client: client, Prefix: prefix, Clock: clock.Now}.WithSettling(time.Microsecond))
	s := b.Sessions()
	run := newTurn(t, s, "root")
	const ended, living = 700, 40
	for i := range ended + living {
		id := fmt.Sprintf("kid-%03d", i)
		kid := &session.State{ID: id, Agent: "tester", Status: session.Active, ParentID: "root", RootID: "root"}
		if i < ended {
			err = session.Create(ctx, s, kid)
		} else {
			_, err = s.StartRun(ctx, &session.StartRun{
				SessionID: id, Create: kid, Run: session.Run{ID: "run", Kind: session.RunExecute, Runtime: "test"}, Owner: "me", TTL: time.Hour,
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if _, err := s.Delete(ctx, fmt.Sprintf("kid-%03d", i)); err != nil {
			t.Fatal(err)
		}
	}
	clock.Advance(time.Minute)
	trips := w.count(func() { err = renewLease(ctx, b, "root", run.fence, time.Hour) })
	if err != nil || trips > 6 {
		t.Errorf("a renewal took %d round trips, %v", trips, err)
	}
	root, err := s.Load(ctx, "root")
	if err != nil {
		t.Fatal(err)
	}
	for i := range living {
		kid, err := s.Load(ctx, fmt.Sprintf("kid-%03d", ended+i))
		if err != nil || !kid.Lease.ExpiresAt.Equal(root.Lease.ExpiresAt) {
			t.Fatalf("kid %d has the lease %+v, %v", i, kid.Lease, err)
		}
	}
	if n := client.ZCard(ctx, prefix+":{+list/default}:root/root").Val(); n != ended+living-10 {
		t.Errorf("the tree lists %d members", n)
	}
}
