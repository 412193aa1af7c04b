package server

import (
	"strconv"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := newLimiter(RateLimit{PerSecond: 2, Burst: 3})
	l.now = func() time.Time { return now }
	alice := Identity{User: "alice"}
	for range 3 {
		if _, ok := l.take(alice); !ok {
			t.Fatal("the burst is not there")
		}
	}
	if wait, ok := l.take(alice); ok || wait != 500*time.Millisecond {
		t.Errorf("a fourth request is told %s, %v", wait, ok)
	}
	now = now.Add(500 * time.Millisecond)
	if _, ok := l.take(alice); !ok {
		t.Error("half a second later there is no token")
	}
	now = now.Add(time.Hour)
	for i := range 4 {
		if _, ok := l.take(alice); ok != (i < 3) {
			t.Errorf("after an hour request %d is %v", i+1, ok)
		}
	}
}

// However many identities there are, so many are remembered, and the busiest
// among them.
func TestLimiterIsBounded(t *testing.T) {
	t.Parallel()
	l := newLimiter(RateLimit{PerSecond: 0.001, Burst: 1})
	busy := Identity{User: "busy"}
	l.take(busy)
	for i := range 2 * maxBuckets {
		l.take(Identity{User: strconv.Itoa(i)})
		if _, ok := l.take(busy); ok {
			t.Fatalf("after %d others the busy one starts over", i+1)
		}
	}
	if len(l.by) != maxBuckets || l.order.Len() != maxBuckets {
		t.Errorf("%d identities are remembered, in order %d", len(l.by), l.order.Len())
	}
}
