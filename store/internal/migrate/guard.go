package migrate

import (
	"sync/atomic"

	"github.com/helixagents/helix/session"
)

// Guard keeps a program that runs from using a store that a newer one has changed in
// a way which this one cannot read. A backend tells it what the store says whenever
// it happens to look, at least with every lease that is taken or renewed, and asks it
// before every operation.
type Guard struct {
	known    int
	outdated atomic.Pointer[session.Error]
}

// NewGuard makes the guard of a program that knows so many steps.
func NewGuard(known int) *Guard { return &Guard{known: known} }

// Note takes in that a store can be used by programs that know at least so many
// steps. It refuses, from then on and for good, if this one knows fewer.
func (g *Guard) Note(readableFrom int) error {
	if readableFrom <= g.known {
		return g.Err()
	}
	err := session.ErrUnavailable.WithMessage(
		"the store has been changed for programs that know its schema %d or later, and this one knows up to %d: "+
			"it has stopped using the store and needs to be updated", readableFrom, g.known)
	err.Retryable = false
	g.outdated.CompareAndSwap(nil, err)
	return g.Err()
}

// Err is the refusal, or nil as long as the store can be used.
func (g *Guard) Err() error {
	if err := g.outdated.Load(); err != nil {
		return err
	}
	return nil
}
