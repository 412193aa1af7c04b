package shares

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Everybody has a share of the permits, and all together have no more than there are.
func TestShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New[string](3, 2)
		const alice, bob, anybody = "alice", "bob", ""
		take := func(who string) func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			done, err := func() (func(), error) {
				if who == anybody {
					return s.TakeAny(ctx)
				}
				return s.Take(ctx, who)
			}()
			if (err == nil) != (done != nil) {
				t.Fatalf("%s: %v", who, err)
			}
			return done
		}
		first, second := take(alice), take(alice)
		if first == nil || second == nil || take(alice) != nil {
			t.Fatal("alice has not two permits")
		}
		third := take(bob)
		if third == nil || take(bob) != nil || take(anybody) != nil {
			t.Fatal("there are not three permits")
		}
		first()
		fourth := take(anybody)
		if fourth == nil || take(alice) != nil {
			t.Fatal("a permit was not returned")
		}
		for _, done := range []func(){second, third, fourth} {
			done()
		}
		if len(s.of) != 0 || len(s.all) != 0 {
			t.Errorf("%d are left, and %d permits", len(s.of), len(s.all))
		}
	})
}
