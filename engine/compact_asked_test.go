package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// A compaction in vain is remembered for the session as it was, and a limited number of them.
func TestCompactionsInVain(t *testing.T) {
	t.Parallel()
	c := newCompactions()
	state := session.State{Tenant: "t", ID: "s", Version: 3, CurrentRunID: "r", CreatedAt: time.Unix(7, 0)}
	state.Lease.Epoch = 5
	outcome := helix.Compacted{Kind: session.CompactionSummary, Code: session.CodeAuth, Reason: "no key"}
	if c.known(&state, false) != nil {
		t.Error("what was not tried is known")
	}
	c.remember(&state, false, outcome, 0)
	if got := c.known(&state, false); got == nil || *got != outcome {
		t.Errorf("known is %+v", got)
	}
	if c.known(&state, true) != nil {
		t.Error("with force another summary is asked for")
	}
	for name, change := range map[string]func(*session.State){
		"version": func(s *session.State) { s.Version++ },
		"run":     func(s *session.State) { s.CurrentRunID = "q" },
		"epoch":   func(s *session.State) { s.Lease.Epoch++ },
		"created": func(s *session.State) { s.CreatedAt = s.CreatedAt.Add(time.Microsecond) },
		"tenant":  func(s *session.State) { s.Tenant = "u" },
	} {
		c.remember(&state, false, outcome, 0)
		other := state
		change(&other)
		if c.known(&other, false) != nil {
			t.Errorf("a session with another %s is known", name)
		}
	}
	c.remember(&state, false, outcome, vainSoon)
	key := compactionOf{session.Key{Tenant: "t", ID: "s"}, false}
	v := c.vain[key]
	if v.until.IsZero() || c.known(&state, false) == nil {
		t.Errorf("what may succeed later is known until %v", v.until)
	}
	v.until = time.Now().Add(-time.Second)
	c.vain[key] = v
	if c.known(&state, false) != nil {
		t.Error("what may succeed later is known for ever")
	}
	for i := range 3 * maxVain {
		other := state
		other.ID = fmt.Sprint("s", i)
		c.remember(&other, false, outcome, time.Duration(i%2)*vainSoon)
		if c.known(&other, false) == nil {
			t.Fatalf("session %d is not known", i)
		}
	}
	if len(c.vain) > maxVain {
		t.Errorf("%d are remembered", len(c.vain))
	}
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"not shorter": {errNotShorter, 0},
		"unavailable": {llm.Error(session.CodeProviderDown, true, "later"), vainSoon},
		"too slow":    {llm.Error(session.CodeModelTimeout, false, "hangs"), vainSoon},
		"no key":      {llm.Error(session.CodeAuth, false, "no key"), vainLater},
	} {
		if got := vainFor(c.err); got != c.want {
			t.Errorf("%s is remembered for %s, want %s", name, got, c.want)
		}
	}
}
