package engine

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// compactions are the compactions that this process was asked for: each may cost model calls,
// and nothing but this keeps people from asking again and again.
type compactions struct {
	mu    sync.Mutex
	under map[session.Key]bool // under way
	vain  map[compactionOf]vain
}

// compactionOf is what somebody asks for.
type compactionOf struct {
	session.Key
	force bool
}

// vain is a compaction that led to nothing.
type vain struct {
	of      sessionAt
	until   time.Time // it is not tried again before; zero for as long as the session stays as it is
	outcome helix.Compacted
}

// sessionAt is a session as it was read.
type sessionAt struct {
	version, epoch, created int64
	run                     string
}

func newSessionAt(s *session.State) sessionAt {
	return sessionAt{version: s.Version, epoch: s.Lease.Epoch, created: s.CreatedAt.UnixMicro(), run: s.CurrentRunID}
}

func newCompactions() *compactions {
	return &compactions{under: map[session.Key]bool{}, vain: map[compactionOf]vain{}}
}

// begin refuses a compaction of a session of which one is under way. The caller calls done.
func (c *compactions) begin(key session.Key) (done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under[key] {
		return nil, session.ErrAlreadyRunning.WithMessage("session %s is being compacted", key.ID)
	}
	c.under[key] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.under, key)
	}, nil
}

const (
	// maxVain is how many compactions that led to nothing are remembered.
	maxVain = 1000
	// maxVainReason is how many bytes of a reason are.
	maxVainReason = 1 << 10
	// vainSoon is how long one is remembered that may well succeed soon, and vainLater one that
	// does not before somebody changes something, such as a key.
	vainSoon  = time.Minute
	vainLater = 10 * time.Minute
)

// vainFor is how long a failed compaction is remembered; 0 for as long as the session stays as
// it is.
func vainFor(err error) time.Duration {
	e, known := errors.AsType[*session.Error](err)
	switch {
	case errors.Is(err, errNotShorter):
		return 0
	case session.IsRetryable(err), known && e.Code == session.CodeModelTimeout:
		return vainSoon
	}
	return vainLater
}

// remember notes that a compaction led to nothing, so that it is not paid for once more while
// the session stays as it is.
func (c *compactions) remember(state *session.State, force bool, outcome helix.Compacted, pause time.Duration) {
	v := vain{of: newSessionAt(state), outcome: outcome}
	v.outcome.Reason = session.TrimText(outcome.Reason, maxVainReason)
	if pause > 0 {
		v.until = time.Now().Add(pause)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.vain) >= maxVain {
		now := time.Now()
		maps.DeleteFunc(c.vain, func(_ compactionOf, v vain) bool { return !v.until.IsZero() && now.After(v.until) })
	}
	for of := range c.vain { // any
		if len(c.vain) < maxVain {
			break
		}
		delete(c.vain, of)
	}
	c.vain[compactionOf{session.Key{Tenant: state.Tenant, ID: state.ID}, force}] = v
}

// known returns the outcome of a compaction that led to nothing, if it would again.
func (c *compactions) known(state *session.State, force bool) *helix.Compacted {
	of := compactionOf{session.Key{Tenant: state.Tenant, ID: state.ID}, force}
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.vain[of]
	switch {
	case !ok:
		return nil
	case v.of != newSessionAt(state) || !v.until.IsZero() && time.Now().After(v.until):
		delete(c.vain, of)
		return nil
	}
	return &v.outcome
}
