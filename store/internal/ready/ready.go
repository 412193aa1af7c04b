// Package ready is what backends share of telling whether they can be used.
package ready

import (
	"context"
	"time"
)

// How often a store is written to only to see whether it takes writes: whoever asks
// in between is told what was seen. One that did not is tried again sooner.
const (
	Every = 10 * time.Second
	Again = time.Second
)

// Writes remembers whether a store took a write.
type Writes struct {
	every, again time.Duration
	turn         chan struct{} // holds a token while nobody looks
	at           time.Time
	err          error
}

// NewWrites knows of no write yet.
func NewWrites() *Writes {
	w := &Writes{every: Every, again: Again, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// Always has every check write, for tests.
func (w *Writes) Always() { w.every, w.again = 0, 0 }

// Check tries a write, unless that was done lately, and returns what came of it. Of
// several at once one does it for all.
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
	if ctx.Err() == nil { // else it says nothing about the store
		w.at, w.err = time.Now(), err
	}
	return err
}
