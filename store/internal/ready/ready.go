// Package ready contains what backends share to report whether they can be used.
package ready

import (
	"context"
	"time"
)

// The intervals at which a store is written to only to test whether writes
// succeed; checks in between get the last result. After a failure the next write
// is tried sooner.
const (
	Every = 10 * time.Second
	Again = time.Second
)

// Writes remembers whether the last test write succeeded.
type Writes struct {
	every, again time.Duration
	turn         chan struct{} // has a token while no check is in progress
	at           time.Time
	err          error
}

// NewWrites returns a Writes without a result yet.
func NewWrites() *Writes {
	w := &Writes{every: Every, again: Again, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// Always makes every check write, for tests.
func (w *Writes) Always() { w.every, w.again = 0, 0 }

// Check tries a write, unless one was tried recently, and returns the result.
// Concurrent calls share one write.
func (w *Writes) Check(ctx context.Context, try func(context.Context) error) error {
	select {
	case <-w.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { w.turn <- struct{}{} }()
	wait := w.every
	if w.err != nil {
		wait = w.again
	}
	if !w.at.IsZero() && time.Since(w.at) < wait {
		return w.err
	}
	err := try(ctx)
	if ctx.Err() == nil { // otherwise it says nothing about the store
		w.at, w.err = time.Now(), err
	}
	return err
}
