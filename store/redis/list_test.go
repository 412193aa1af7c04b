package redis_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
)

// reads counts what a client reads in pipelines, by a count for each command.
type reads struct {
	count func(goredis.Cmder) int
	n     atomic.Int64
}

func (*reads) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (*reads) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (r *reads) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		for _, cmd := range cmds {
			r.n.Add(int64(r.count(cmd)))
		}
		return next(ctx, cmds)
	}
}

// countingClient returns a client whose reads are counted.
func countingClient(t *testing.T, count func(goredis.Cmder) int) (*goredis.Client, *reads) {
	t.Helper()
	client := newClient(t)
	r := &reads{count: count}
	client.AddHook(r)
	return client, r
}

// headerReads counts the headers of sessions that a command reads.
func headerReads(cmd goredis.Cmder) int {
	if cmd.Name() == "hmget" {
		return 1
	}
	return 0
}

// inputReads counts the inputs of calls that a command reads.
func inputReads(cmd goredis.Cmder) int {
	n := 0
	for _, arg := range cmd.Args() {
		if cmd.Name() == "hmget" && strings.HasSuffix(fmt.Sprint(arg), "\x00i") {
			n++
		}
	}
	return n
}

// TestListingsOfAUser requires that listings of one user's sessions read none of
// other users, and that listings of running sessions read none at rest.
func TestListingsOfAUser(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, reads := countingClient(t, headerReads)
	b := open(t, redis.Config{Client: client, Prefix: newPrefix()}.WithSettling(time.Microsecond))
	s := b.Sessions()
	add := func(id, user string) {
		t.Helper()
		state := session.State{
			ID: id, Agent: "a", Status: session.Active, UserID: user, Tags: []string{"t"}, Metadata: map[string]string{"k": "v"},
		}
		if err := session.Create(ctx, s, &state); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 120 {
		add(fmt.Sprintf("bobs%d", i), "bob")
	}
	for i := range 5 {
		add(fmt.Sprintf("anns%d", i), "ann")
	}
	start := func(id string) *turn {
		t.Helper()
		state, err := s.Load(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		started, err := s.StartRun(ctx, &session.StartRun{
			SessionID: id, ExpectVersion: state.Version, ExpectRun: state.CurrentRunID,
			Run: session.Run{ID: "run-1"}, Owner: "me", TTL: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		return &turn{t: t, s: s, id: id, fence: started.Lease.Fence(), version: started.Version}
	}
	start("bobs1")
	start("anns1")
	ended := start("anns2")
	ended.commit(session.Change{Status: session.Completed, Outcome: &session.Outcome{Status: session.RunCompleted}})
	list := func(q session.Query, want int, most int64) {
		t.Helper()
		reads.n.Store(0)
		page, err := s.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Items) != want {
			t.Errorf("%+v: %d sessions are listed, want %d", q, len(page.Items), want)
		}
		if n := reads.n.Load(); n > most {
			t.Errorf("%+v: %d sessions are read, want at most %d", q, n, most)
		}
	}
	total := session.PageRequest{Total: true} // which reads all of them once more
	list(session.Query{UserID: "ann", Tags: []string{"t"}, PageRequest: total}, 5, 10)
	list(session.Query{UserID: "ann", Metadata: map[string]string{"k": "v"}, PageRequest: total}, 5, 10)
	list(session.Query{UserID: "ann", Activity: session.ActivityRunning, RootsOnly: true}, 1, 2)
	list(session.Query{UserID: "ann", Activity: session.ActivityRunning, RootsOnly: true}, 1, 1) // the untrue entry was removed
	list(session.Query{Activity: session.ActivityRunning}, 2, 3)
	list(session.Query{Activity: session.ActivityRunning}, 2, 2)
}

// TestFillIndexes lists sessions that an earlier version of the program has
// written, which maintains neither the indexes by activity nor those of waiting
// calls.
func TestFillIndexes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	prefix := newPrefix()
	var s session.Store
	reopen := func() *redis.Backend {
		t.Helper()
		b := open(t, redis.Config{Client: client, Prefix: prefix})
		s = b.Sessions()
		return b
	}
	// fill makes a listing, which has the indexes filled in the background, and waits
	// for that.
	fill := func(b *redis.Backend) {
		t.Helper()
		if _, err := b.Sessions().Waiting(ctx, session.WaitingQuery{}); err != nil {
			t.Fatal(err)
		}
		b.Filled()
	}
	reopen()
	ask := func(id string, status session.RunStatus) {
		t.Helper()
		started, err := s.StartRun(ctx, &session.StartRun{
			SessionID: id, Create: &session.State{ID: id, Agent: "a", Status: session.Active, UserID: "ann"},
			Run: session.Run{ID: "run-1"}, Owner: "me", TTL: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		r := &turn{t: t, s: s, id: id, fence: started.Lease.Fence(), version: started.Version}
		change := session.Change{Status: status.SessionStatus(), Outcome: &session.Outcome{Status: status}}
		if status.Suspended() {
			change.Status, change.Pending = "", []session.Pending{{CallID: "p1", Tool: "ask", Kind: session.PendingClientTool}}
		}
		r.commit(change)
	}
	// Removes what the older program does not maintain. The time of the last filling
	// is moved back.
	forget := func() {
		t.Helper()
		slot := prefix + ":{+list/" + session.DefaultTenant + "}:"
		keys, err := client.Keys(ctx, slot+"activity/*").Result()
		if err == nil {
			err = client.Del(ctx, append(keys, slot+"waiting", slot+"waiting/ann")...).Err()
		}
		if err == nil && client.HExists(ctx, slot+"filled", "last").Val() {
			err = client.HSet(ctx, slot+"filled", "last", time.Now().Add(-2*time.Hour).UnixMicro()).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(s session.Store, activity session.Activity, sessions, calls int) {
		t.Helper()
		for _, userID := range []string{"ann", ""} {
			page, err := s.List(ctx, session.Query{Activity: activity, UserID: userID})
			if err != nil || len(page.Items) != sessions {
				t.Errorf("%d sessions of %q are %s, %v; want %d", len(page.Items), userID, activity, err, sessions)
			}
			waiting, err := s.Waiting(ctx, session.WaitingQuery{UserID: userID})
			if err != nil || len(waiting.Items) != calls {
				t.Errorf("%d calls of %q wait, %v; want %d", len(waiting.Items), userID, err, calls)
			}
		}
	}
	for i := range 250 {
		ask(fmt.Sprintf("done%d", i), session.RunCompleted)
	}
	ask("waits", session.RunSuspendedClientTool)
	forget()
	slot := prefix + ":{+list/" + session.DefaultTenant + "}:"
	if err := client.Set(ctx, slot+"filling", "another process", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	fill(reopen())
	want(s, session.ActivityWaiting, 0, 0) // another process fills
	if n := client.Exists(ctx, slot+"filled").Val(); n != 0 {
		t.Error("the hash was written without the lock")
	}
	if err := client.Del(ctx, slot+"filling").Err(); err != nil {
		t.Fatal(err)
	}
	// Entries without sessions, with the same creation time, more than one turn reads.
	left := make([]goredis.Z, 2500)
	for i := range left {
		left[i] = goredis.Z{Score: float64(time.Now().Add(time.Hour).Unix() * 1e6), Member: fmt.Sprintf("left%d", i)}
	}
	if err := client.ZAdd(ctx, slot+"all", left...).Err(); err != nil {
		t.Fatal(err)
	}
	fill(reopen())
	want(s, session.ActivityWaiting, 1, 1)
	want(s, session.ActivityDone, 50, 1) // a page
	if n := client.Exists(ctx, slot+"filling").Val(); n != 0 {
		t.Error("the lock is left")
	}
	ask("waits-too", session.RunSuspendedClientTool)
	want(s, session.ActivityWaiting, 2, 2)
	forget() // what an older program does during the deployment
	want(s, session.ActivityWaiting, 0, 0)
	fill(reopen())
	want(s, session.ActivityWaiting, 2, 2)
}

// TestFillBeside lists while the sessions cannot be walked: a filling that is in
// progress, or hangs, blocks no request, and closing the backend ends it.
func TestFillBeside(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	walks := &heldWalks{began: make(chan struct{}, 100)}
	client.AddHook(walks)
	b, err := redis.OpenConfig(redis.Config{Client: client, Prefix: newPrefix()})
	if err != nil {
		t.Fatal(err)
	}
	s := b.Sessions()
	for range 10 {
		if _, err := s.Waiting(ctx, session.WaitingQuery{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(ctx, session.Query{Activity: session.ActivityWaiting}); err != nil {
			t.Fatal(err)
		}
	}
	<-walks.began
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(walks.began); n != 0 {
		t.Errorf("the sessions are walked %d times at once", n+1)
	}
}

// heldWalks blocks walks over all sessions until their context ends.
type heldWalks struct{ began chan struct{} }

func (*heldWalks) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h *heldWalks) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if cmd.Name() == "zrange" && strings.HasSuffix(fmt.Sprint(cmd.Args()[1]), ":all") {
			h.began <- struct{}{}
			<-ctx.Done()
			cmd.SetErr(ctx.Err())
			return ctx.Err()
		}
		return next(ctx, cmd)
	}
}

func (*heldWalks) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// rangeCounts remembers the largest range of an index that a client requests; a
// negative count means all of it.
type rangeCounts struct{ most atomic.Int64 }

func (*rangeCounts) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (r *rangeCounts) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "zrange" {
			for i := range args {
				if args[i] == "limit" && i+2 < len(args) {
					n, _ := strconv.ParseInt(fmt.Sprint(args[i+2]), 10, 64)
					if n < 0 {
						n = math.MaxInt64
					}
					r.most.Store(max(r.most.Load(), n))
				}
			}
		}
		return next(ctx, cmd)
	}
}

func (*rangeCounts) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// TestWaitingOffset requires that no offset makes the store read the whole index
// at once.
func TestWaitingOffset(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	ranges := &rangeCounts{}
	client.AddHook(ranges)
	s := open(t, redis.Config{Client: client, Prefix: newPrefix()}).Sessions()
	for _, offset := range []int{0, 1_000_000, math.MaxInt - 51, math.MaxInt} {
		for _, bytes := range []int64{0, 1 << 20} {
			page := session.PageRequest{Offset: offset, MaxBytes: bytes}
			if _, err := s.Waiting(ctx, session.WaitingQuery{PageRequest: page}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.List(ctx, session.Query{PageRequest: page}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := ranges.most.Load(); n < 1 || n > 1000 {
		t.Errorf("a range has %d entries", n)
	}
}

// TestWaitingReads requires that a page of waiting calls reads only the inputs of
// its own calls, and that answered or resolved calls leave the indexes without a
// reader.
func TestWaitingReads(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, reads := countingClient(t, inputReads)
	prefix := newPrefix()
	b := open(t, redis.Config{Client: client, Prefix: prefix})
	s := b.Sessions()
	started, err := s.StartRun(ctx, &session.StartRun{
		SessionID: "a", Create: &session.State{ID: "a", Agent: "a", Status: session.Active, UserID: "ann"},
		Run: session.Run{ID: "run-1"}, Owner: "me", TTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &turn{t: t, s: s, id: "a", fence: started.Lease.Fence(), version: started.Version}
	var calls []session.Pending
	for i := range 30 {
		calls = append(calls, session.Pending{
			CallID: fmt.Sprintf("p%02d", i), Tool: "ask", Kind: session.PendingClientTool, Input: []byte(`"` + strings.Repeat("x", 98) + `"`),
		})
	}
	r.commit(session.Change{Pending: calls})
	for _, c := range []struct {
		page  session.PageRequest
		items int
	}{
		{session.PageRequest{Limit: 3, Total: true}, 3},
		{session.PageRequest{Limit: 3, Offset: 20}, 3},
		{session.PageRequest{MaxBytes: 250}, 2},
		{session.PageRequest{Offset: 30}, 0},
	} {
		reads.n.Store(0)
		page, err := s.Waiting(ctx, session.WaitingQuery{UserID: "ann", PageRequest: c.page})
		if err != nil || len(page.Items) != c.items {
			t.Errorf("%+v: %d calls, %v; want %d", c.page, len(page.Items), err, c.items)
		}
		if n := reads.n.Load(); n != int64(c.items) {
			t.Errorf("%+v: %d inputs are read for %d calls", c.page, n, c.items)
		}
	}
	entries := func(when string, want int64) {
		t.Helper()
		for _, index := range []string{"waiting", "waiting/ann"} {
			if n := client.ZCard(ctx, prefix+":{+list/"+session.DefaultTenant+"}:"+index).Val(); n != want {
				t.Errorf("%s: %s has %d entries, want %d", when, index, n, want)
			}
		}
	}
	entries("while they wait", 30)
	if _, err := s.Submit(ctx, "a", session.Submission{CallID: "p00", Response: session.Response{Kind: session.PendingClientTool, Result: []byte(`1`)}}); err != nil {
		t.Fatal(err)
	}
	entries("once one is answered", 29)
	r.commit(session.Change{Resolve: []session.Resolution{
		{CallID: "p00", State: session.PendingConsumed}, {CallID: "p01", State: session.PendingAbandoned}, {CallID: "p02", State: session.PendingTimedOut},
	}})
	entries("once two are resolved", 27)
}
