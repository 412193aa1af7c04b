// Package shares limits how many of those who need much memory work at the same time, so that
// none of them keeps the others from it.
package shares

import (
	"context"
	"sync"
)

// Permits limits concurrency by its capacity.
type Permits chan struct{}

// Take waits for a permit. The caller calls done to return it.
func (p Permits) Take(ctx context.Context) (done func(), err error) {
	select {
	case p <- struct{}{}:
		return func() { <-p }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Shares are permits of which everybody has at most a few at a time.
type Shares[K comparable] struct {
	all  Permits
	each int

	mu sync.Mutex
	of map[K]*share
}

// share is what somebody has of the permits. It exists while it is used.
type share struct {
	Permits
	users int // who hold a permit or wait for one
}

// New returns as many permits as all says, of which everybody has at most each.
func New[K comparable](all, each int) *Shares[K] {
	return &Shares[K]{all: make(Permits, all), each: each, of: map[K]*share{}}
}

// TakeAny waits for a permit for somebody who is not known, and is limited only together with
// all others. The caller calls done to return it.
func (s *Shares[K]) TakeAny(ctx context.Context) (done func(), err error) { return s.all.Take(ctx) }

// Take waits for a permit. The caller calls done to return it.
func (s *Shares[K]) Take(ctx context.Context, who K) (done func(), err error) {
	own := s.join(who)
	mine, err := own.Take(ctx)
	if err != nil {
		s.leave(who, own)
		return nil, err
	}
	taken, err := s.all.Take(ctx)
	if err != nil {
		mine()
		s.leave(who, own)
		return nil, err
	}
	return func() {
		taken()
		mine()
		s.leave(who, own)
	}, nil
}

func (s *Shares[K]) join(who K) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[who]
	if own == nil {
		own = &share{Permits: make(Permits, s.each)}
		s.of[who] = own
	}
	own.users++
	return own
}

func (s *Shares[K]) leave(who K, own *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(s.of, who)
	}
}
