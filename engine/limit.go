package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/engine/internal/usercode"
)

// hookLimit limits the calls of hooks and of the other functions that belong to agents:
// each by its time, and those of an agent that have not returned by their number.
type hookLimit struct {
	limit time.Duration // never changes

	mu   sync.Mutex     // guards what follows
	left map[string]int // by agent: calls that still run though their time is up
}

// maxLeft is how many calls of an agent's functions may still run though their time is up.
// Then none is called any more, so that they do not fill the memory.
const maxLeft = 1000

// errLeft is in the error of a call that still runs: it may use what it was given.
var errLeft = errors.New("it has not returned")

func newHookLimit(limit time.Duration) *hookLimit {
	return &hookLimit{limit: limit, left: map[string]int{}}
}

// callLimited calls a function of an agent, at most for the limit.
func callLimited[V any](ctx context.Context, l *hookLimit, agent string, on *usercode.Pool, call func(context.Context) (V, error)) (V, error) {
	return callShorter(ctx, l, l.limit, agent, on, call)
}

// callShorter is callLimited with a limit of its own, if that is shorter.
func callShorter[V any](
	ctx context.Context, l *hookLimit, limit time.Duration, agent string, on *usercode.Pool, call func(context.Context) (V, error),
) (V, error) {
	limit = min(limit, l.limit)
	return limited(l, limit, agent, call, func(call func(context.Context) (V, error)) (V, error) {
		return usercode.CallWithin(ctx, on, limit, call)
	})
}

// callLimitedKeeping is callLimited for a function whose result may use its context: that
// ends with ctx, or when the time is up before the function has returned.
func callLimitedKeeping[V any](ctx context.Context, l *hookLimit, agent string, on *usercode.Pool, call func(context.Context) (V, error)) (V, error) {
	return limited(l, l.limit, agent, call, func(call func(context.Context) (V, error)) (V, error) {
		return usercode.CallKeeping(ctx, on, l.limit, call)
	})
}

// callLimitedOnce is callLimited outside a turn.
func callLimitedOnce[V any](ctx context.Context, l *hookLimit, agent string, call func(context.Context) (V, error)) (V, error) {
	done := make(chan struct{})
	defer close(done)
	return callLimited(ctx, l, agent, usercode.NewPool(done), call)
}

// limited makes a call with carry, and counts it if it still runs after that.
func limited[V any](
	l *hookLimit, limit time.Duration, agent string, call func(context.Context) (V, error), carry func(func(context.Context) (V, error)) (V, error),
) (V, error) {
	var none V
	if n := l.countLeft(agent, 0); n >= maxLeft {
		return none, fmt.Errorf("%d calls of hooks or other functions of the agent have not returned: %w", n, usercode.ErrTimeout)
	}
	var over atomic.Bool // the call has returned, or is left behind: whatever comes first
	value, err := carry(func(ctx context.Context) (V, error) {
		defer func() {
			if over.Swap(true) {
				l.countLeft(agent, -1)
			}
		}()
		return call(ctx)
	})
	if !over.Swap(true) {
		l.countLeft(agent, 1)
		err = leftError{late(err, limit)}
	} else {
		err = late(err, limit)
	}
	return value, err
}

// leftError is the error of a call that is errLeft.
type leftError struct{ error }

func (e leftError) Unwrap() error { return e.error }

func (e leftError) Is(target error) bool { return target == errLeft }

// countLeft adds to the calls of an agent that are left behind, and returns their number.
func (l *hookLimit) countLeft(agent string, n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left[agent] += n; l.left[agent] == 0 {
		delete(l.left, agent)
	}
	return l.left[agent]
}
