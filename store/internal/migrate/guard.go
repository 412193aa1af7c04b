package migrate

import (
	"sync/atomic"

	"github.com/helixagents/helix/session"
)

// Guard prevents a running program from using a store that a newer program has
// changed in a way that this one cannot read. A backend passes it the version that
// it reads from the store, at least whenever a lease is taken or renewed, and asks
// it before every operation.
type Guard struct {
	known    int
	outdated atomic.Pointer[session.Error]
}

// NewGuard returns the guard of a program that knows this number of migrations.
func NewGuard(known int) *Guard { return &Guard{known: known} }

// Note records that programs need to know at least readableFrom migrations to use
// the store. If this one knows fewer, Note and Err return an error from then on.
func (g *Guard) Note(readableFrom int) error {
	if readableFrom <= g.known {
		return g.Err()
	}
	err := session.ErrUnavailable.WithMessage(
		"the store has been migrated and requires schema %d or later, but this program knows up to %d: "+
			"it has stopped using the store and must be updated", readableFrom, g.known)
	err.Retryable = false
	g.outdated.CompareAndSwap(nil, err)
	return g.Err()
}

// Err returns the error that Note has recorded, or nil while the store can be
// used.
func (g *Guard) Err() error {
	if err := g.outdated.Load(); err != nil {
		return err
	}
	return nil
}
