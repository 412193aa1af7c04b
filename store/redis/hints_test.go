package redis_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/storetest"
)

func TestHintsAreRemovedLazily(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, prefix := single(t), newPrefix()
	client := connect(t, url)
	count := func(index string) int64 { return client.ZCard(ctx, prefix+":{+list/default}:"+index).Val() }
	list := func(b *redis.Backend) {
		t.Helper()
		page, err := b.Sessions().List(ctx, session.Query{UserID: "u"})
		if err != nil || len(page.Items) != 0 {
			t.Fatalf("List: %v, %v", page.Items, err)
		}
	}
	lasting := open(t, redis.Config{URL: url, Prefix: prefix})
	newTurn(t, lasting.Sessions(), "a")
	if _, err := lasting.Sessions().Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	list(lasting)
	if n := count("user/u"); n != 1 {
		t.Errorf("an entry that was just added was removed: its change may still be in progress")
	}
	brief := open(t, redis.Config{URL: url, Prefix: prefix}.WithSettling(time.Microsecond))
	list(brief)
	if n := count("user/u"); n != 0 {
		t.Errorf("%d entries of a deleted session are left", n)
	}
}

// TestHintsInParts requires that no script blocks the server for as long as many
// index entries take.
func TestHintsInParts(t *testing.T) {
	t.Parallel()
	b := open(t, redis.Config{URL: single(t), Prefix: newPrefix()})
	for entries, want := range map[int][]int{1: {1}, 256: {256}, 257: {256, 1}, 1000: {256, 256, 256, 232}} {
		if got := b.ScriptsFor(entries); !slices.Equal(got, want) {
			t.Errorf("%d entries are added by scripts with %v, want %v", entries, got, want)
		}
	}
}

func TestLeaseHintMoves(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, prefix, clock := single(t), newPrefix(), storetest.NewClock()
	client := connect(t, url)
	b := open(t, redis.Config{URL: url, Prefix: prefix, Clock: clock.Now}.WithSettling(time.Microsecond))
	run := newTurn(t, b.Sessions(), "a")
	clock.Advance(30 * time.Minute)
	if err := renewLease(ctx, b, "a", run.fence, time.Hour); err != nil {
		t.Fatal(err)
	}
	clock.Advance(45 * time.Minute) // past its first end
	score := func() float64 {
		t.Helper()
		for _, key := range keysOf(t, client, prefix) {
			if strings.HasSuffix(key, ":leases") {
				return client.ZScore(ctx, key, "default\x00a").Val()
			}
		}
		t.Fatal("no sweep examines the lease")
		return 0
	}
	before := score()
	if due, err := b.Sessions().ExpiredLeases(ctx, session.SweepRequest{}); err != nil || len(due) != 0 {
		t.Fatalf("a lease that was renewed is listed: %v, %v", due, err)
	}
	state, err := b.Sessions().Load(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := score(), float64(state.Lease.ExpiresAt.UnixMicro()); got != want || got == before {
		t.Errorf("the lease is examined again at %.0f, not %.0f", got, want)
	}
	clock.Advance(time.Hour)
	if due, err := b.Sessions().ExpiredLeases(ctx, session.SweepRequest{}); err != nil || len(due) != 1 {
		t.Errorf("the lease has expired and is not listed: %v, %v", due, err)
	}
}

func TestWakeLeftBehind(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, redis.Config{URL: cluster(t), Prefix: newPrefix()})
	s := b.Sessions()
	newTurn(t, s, "parent")
	run := newTurn(t, s, "kid")
	// The process dies after the child's commit, before it has notified the parent.
	wake := session.Wake{SessionID: "parent", ChildID: "kid", RunID: "run-1"}
	if err := b.CommitAlone(ctx, run.request(session.Change{Wake: &wake})); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wakes, err := s.Wakes(ctx, session.WakeRequest{})
		if err != nil || len(wakes) != 1 || wakes[0].SessionID != "parent" || wakes[0].RunID != "run-1" {
			t.Fatalf("Wakes: %v, %v", wakes, err)
		}
	}
	if err := s.DeleteWake(ctx, wake); err != nil {
		t.Fatal(err)
	}
	if wakes, err := s.Wakes(ctx, session.WakeRequest{}); err != nil || len(wakes) != 0 {
		t.Errorf("Wakes after it was delivered: %v, %v", wakes, err)
	}
}

// A run that begins while an entry of an earlier one exists gets it moved to the
// end of its own lease, once a reader found it to be too early.
func TestSweepEntriesMoveLater(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, prefix, clock := single(t), newPrefix(), storetest.NewClock()
	client := connect(t, url)
	b := open(t, redis.Config{URL: url, Prefix: prefix, Clock: clock.Now}.WithSettling(time.Microsecond))
	s := b.Sessions()
	state := session.State{ID: "a", Agent: "a", Status: session.Active, ExpiresAt: clock.Now().Add(time.Hour)}
	if err := session.Create(ctx, s, &state); err != nil {
		t.Fatal(err)
	}
	loaded, err := s.Load(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	loaded.ExpiresAt = clock.Now().Add(3 * time.Hour)
	if err := session.Save(ctx, s, loaded); err != nil {
		t.Fatal(err)
	}
	scores := func() (out []float64) {
		for _, key := range keysOf(t, client, prefix) {
			if strings.HasSuffix(key, ":expiries") {
				out = append(out, client.ZScore(ctx, key, "default\x00a").Val())
			}
		}
		return out
	}
	early := scores()
	clock.Advance(2 * time.Hour)
	for range 2 {
		if due, err := s.ExpiredSessions(ctx, session.SweepRequest{}); err != nil || len(due) != 0 {
			t.Fatalf("a session that was prolonged is listed: %v, %v", due, err)
		}
	}
	if late := scores(); len(late) != 1 || late[0] != early[0]+float64(2*time.Hour/time.Microsecond) {
		t.Errorf("the entry has moved from %.0f to %.0f", early, late)
	}
	clock.Advance(2 * time.Hour)
	if due, err := s.ExpiredSessions(ctx, session.SweepRequest{}); err != nil || len(due) != 1 {
		t.Errorf("the session has expired and is not listed: %v, %v", due, err)
	}
}

// An entry in the wrong position, as a process may leave it that dies between its
// entries and its change, is moved by the first reader that finds it, and does not
// disturb pages.
func TestMisplacedEntries(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, prefix := single(t), newPrefix()
	client := connect(t, url)
	b := open(t, redis.Config{URL: url, Prefix: prefix})
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for i, id := range []string{"s0", "s1", "s2"} {
		state := session.State{ID: id, Agent: "a", Status: session.Active, CreatedAt: noon.Add(time.Duration(i) * time.Second)}
		if err := session.Create(ctx, b.Sessions(), &state); err != nil {
			t.Fatal(err)
		}
	}
	for _, score := range []time.Time{noon.Add(time.Hour), noon.Add(-time.Hour)} {
		for _, id := range []string{"s0", "s2"} {
			client.ZAdd(ctx, prefix+":{+list/default}:all", goredis.Z{Score: float64(score.UnixMicro()), Member: id})
			got, q := "", session.Query{PageRequest: session.PageRequest{Limit: 1}}
			for len(got) < 20 {
				page, err := b.Sessions().List(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				got += page.Items[0].ID + " "
				if q.Cursor = page.Next; !page.HasMore {
					break
				}
			}
			if score.After(noon) && got != "s2 s1 s0 " {
				t.Errorf("%s at %s: listed %s", id, score, got)
			}
			if page, err := b.Sessions().List(ctx, session.Query{}); err != nil || page.Items[0].ID != "s2" || page.Items[2].ID != "s0" {
				t.Errorf("%s at %s: listed %v afterwards, %v", id, score, page.Items, err)
			}
		}
	}
}

// A read that began too long ago removes no entries.
func TestHintsOfTheLate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, prefix := single(t), newPrefix()
	client := connect(t, url)
	index := prefix + ":{+list/default}:user/u"
	late := open(t, redis.Config{URL: url, Prefix: prefix}.WithSettling(time.Microsecond).WithLate(time.Nanosecond))
	newTurn(t, late.Sessions(), "a")
	client.ZAdd(ctx, index, goredis.Z{Score: 1, Member: "nobody"})
	if _, err := late.Sessions().List(ctx, session.Query{UserID: "u"}); err != nil {
		t.Fatal(err)
	}
	if n := client.ZCard(ctx, index).Val(); n != 2 {
		t.Errorf("%d entries are left of one that is true and one that is not", n)
	}
}

// Entries that a reader has removed while their change was delayed are added
// again.
func TestHintsOfAChangeHeldUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, prefix := single(t), newPrefix()
	client, held := connect(t, url), connect(t, url)
	index := prefix + ":{+list/default}:status/paused"
	meanwhile := &pause{}
	held.AddHook(meanwhile)
	b := open(t, redis.Config{Client: held, Prefix: prefix}.WithLate(time.Nanosecond))
	run := newTurn(t, b.Sessions(), "a")
	meanwhile.next.Store(new(func() {
		if n := client.ZRem(ctx, index, "a").Val(); n != 1 {
			t.Errorf("the change had %d entries", n)
		}
	}))
	run.commit(session.Change{Status: session.Paused})
	if err := client.ZScore(ctx, index, "a").Err(); err != nil {
		t.Errorf("the session is paused and in no index: %v", err)
	}
}

// If two processes create the same session at once, the one that is refused leaves
// the entries of the other in their positions.
func TestMadeTwiceAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, prefix := single(t), newPrefix()
	slow := connect(t, url)
	meanwhile := &pause{}
	slow.AddHook(meanwhile)
	one, other := open(t, redis.Config{URL: url, Prefix: prefix}), open(t, redis.Config{Client: slow, Prefix: prefix})
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	made := func(at time.Time) *session.State {
		return &session.State{ID: "a", Agent: "a", Status: session.Active, CreatedAt: at}
	}
	meanwhile.next.Store(new(func() {
		if err := session.Create(ctx, one.Sessions(), made(noon)); err != nil {
			t.Error(err)
		}
	}))
	if err := session.Create(ctx, other.Sessions(), made(noon.Add(time.Hour))); !errors.Is(err, session.ErrExists) {
		t.Fatalf("it was created twice: %v", err)
	}
	for _, index := range []string{"all", "agent/a", "status/active"} {
		if got := connect(t, url).ZScore(ctx, prefix+":{+list/default}:"+index, "a").Val(); got != float64(noon.UnixMicro()) {
			t.Errorf("%s has it at %.0f", index, got)
		}
	}
}

// pause runs a function once, after the next request.
type pause struct{ next atomic.Pointer[func()] }

func (p *pause) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (p *pause) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		defer p.over()
		return next(ctx, cmd)
	}
}

func (p *pause) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		defer p.over()
		return next(ctx, cmds)
	}
}

func (p *pause) over() {
	if do := p.next.Swap(nil); do != nil {
		(*do)()
	}
}

// A moved wake is found, even if its entry was removed before.
func TestMovedWakeIsFound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, redis.Config{URL: single(t), Prefix: newPrefix()}.WithSettling(time.Microsecond))
	newTurn(t, b.Sessions(), "parent")
	newTurn(t, b.Sessions(), "kid")
	wake := session.Wake{SessionID: "parent", ChildID: "kid", RunID: "run-1", At: time.Now()}
	if err := b.MoveWake(ctx, &wake); err != nil {
		t.Fatal(err)
	}
	if wakes, err := b.Sessions().Wakes(ctx, session.WakeRequest{}); err != nil || len(wakes) != 1 {
		t.Errorf("Wakes: %v, %v", wakes, err)
	}
}

// A server that has lost the script that adds entries does not apply a change
// without them, even if the caller dies at that moment.
func TestHintsPrecedeAfterFlush(t *testing.T) {
	t.Parallel()
	ctx, address := context.Background(), start(t)
	client := admin(t, address)
	dying := admin(t, address)
	died := &death{}
	dying.AddHook(died)
	b := open(t, redis.Config{Client: dying, Prefix: "flushed"})
	run := newTurn(t, b.Sessions(), "a")
	if err := client.ScriptFlush(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if err := renewLease(ctx, b, "a", run.fence, time.Hour); err != nil { // which restores the other script
		t.Fatal(err)
	}
	died.come.Store(true)
	_, err := b.Sessions().Commit(ctx, run.request(session.Change{Status: session.Paused}))
	status := client.HGet(ctx, "flushed:{default/a}:h", "status").Val()
	if has := client.ZScore(ctx, "flushed:{+list/default}:status/paused", "a").Err(); has != nil && status == "paused" {
		t.Errorf("the session is paused and in no index: %v, %v", has, err)
	}
}

// death blocks everything but pipelines, once it is set.
type death struct{ come atomic.Bool }

func (d *death) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (d *death) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if d.come.Load() {
			cmd.SetErr(errDead)
			return errDead
		}
		return next(ctx, cmd)
	}
}

func (d *death) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

var errDead = errors.New("the process is dead")

// A sweep's lost entry is restored by a renewal, and a lease that ends sooner is
// found by a sweep that would look too late.
func TestRenewalRemindsSweepers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, prefix, clock := single(t), newPrefix(), storetest.NewClock()
	client := connect(t, url)
	b := open(t, redis.Config{URL: url, Prefix: prefix, Clock: clock.Now})
	runs := []*turn{newTurn(t, b.Sessions(), "a"), newTurnOf(t, b.Sessions(), "companion", "a")}
	for _, key := range keysOf(t, client, prefix) {
		if strings.HasSuffix(key, ":leases") {
			client.Del(ctx, key)
		}
	}
	for _, ttl := range []time.Duration{2 * time.Hour, time.Minute} {
		for _, run := range runs {
			if err := renewLease(ctx, b, run.id, run.fence, ttl); err != nil {
				t.Fatal(err)
			}
		}
		clock.Advance(ttl - time.Second)
		if due, err := b.Sessions().ExpiredLeases(ctx, session.SweepRequest{}); err != nil || len(due) != 0 {
			t.Errorf("a lease of %s is listed too early: %v, %v", ttl, due, err)
		}
	}
	clock.Advance(2 * time.Second)
	if due, err := b.Sessions().ExpiredLeases(ctx, session.SweepRequest{}); err != nil || len(due) != len(runs) {
		t.Errorf("the leases have expired and are not all listed: %v, %v", due, err)
	}
}
