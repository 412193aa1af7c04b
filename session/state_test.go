package session_test

import (
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

// How long an owner's leases last is read from its token. A token that does not tell it, or
// tells nonsense, leaves it unknown.
func TestLeaseTTL(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{0, time.Nanosecond, 500 * time.Millisecond, 5 * time.Second, 90 * time.Minute} {
		if got := (session.Lease{Owner: session.NewLeaseOwner("a/b:c", ttl)}).TTL(); got != ttl {
			t.Errorf("the leases of an owner that renews them for %s last %s", ttl, got)
		}
	}
	for _, owner := range []string{
		"", session.NewOwner("local"), session.NewOwner("local") + "/", "local:id/soon", "local:id/-5s", "local:id/5", "local:id/5s/5s",
		"local/5s:id", "local:id/9999999999h",
	} {
		if got := (session.Lease{Owner: owner}).TTL(); got != 0 {
			t.Errorf("the leases of %q last %s", owner, got)
		}
	}
}
