package redis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
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
		t.Errorf("an entry that was just added is gone: its change may still have come")
	}
	brief := open(t, redis.Config{URL: url, Prefix: prefix}.WithSettling(time.Microsecond))
	list(brief)
	if n := count("user/u"); n != 0 {
		t.Errorf("%d entries of a session that is gone are left", n)
	}
}

func TestLeaseHintMoves(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, prefix, clock := single(t), newPrefix(), &clock{now: time.Now()}
	client := connect(t, url)
	b := open(t, redis.Config{URL: url, Prefix: prefix, Clock: clock.Now}.WithSettling(time.Microsecond))
	run := newTurn(t, b.Sessions(), "a")
	clock.Advance(30 * time.Minute)
	if err := b.Sessions().RenewLease(ctx, "a", run.fence, time.Hour); err != nil {
		t.Fatal(err)
	}
	clock.Advance(45 * time.Minute) // past the end it had at first
	score := func() float64 {
		t.Helper()
		for _, key := range keysOf(t, client, prefix) {
			if strings.HasSuffix(key, ":leases") {
				return client.ZScore(ctx, key, "default\x00a").Val()
			}
		}
		t.Fatal("nobody looks at the lease")
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
		t.Errorf("the lease is looked at again at %.0f, not %.0f", got, want)
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
	// The process dies after the child's commit, before it has told the parent.
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
