package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/helixagents/helix/session"
)

// crew is the goroutines on which a turn runs user code. A goroutine that has done
// its work waits for more until the turn is over: its stack has grown by then,
// which costs a new one more than all else.
type crew struct {
	work chan func()
	gone <-chan struct{} // closed when the turn is over
}

func newCrew(gone <-chan struct{}) *crew { return &crew{work: make(chan func()), gone: gone} }

// run calls do on a goroutine that has nothing to do, or on a new one.
func (c *crew) run(do func()) {
	select {
	case c.work <- do:
	default:
		go c.serve(do)
	}
}

func (c *crew) serve(do func()) {
	for {
		do()
		select {
		case do = <-c.work:
		case <-c.gone:
			return
		}
	}
}

// cancelGrace is how long cancelled user code may take to return before the turn
// goes on without it.
const cancelGrace = 250 * time.Millisecond

// errTimeout ends a context whose time is up; the caller of [await] says what took
// too long.
var errTimeout = errors.New("time is up")

// errExited is what user code answers that ended its goroutine instead of
// returning.
var errExited = errors.New("the goroutine ended without returning")

// await calls user code, which should return when ctx ends, and gives up waiting
// soon after if it does not. A panic becomes an error, and the echo of a cancelled
// context the reason for which it was cancelled.
func await[V any](ctx context.Context, on *crew, call func() (V, error)) (V, error) {
	type answer struct {
		value V
		err   error
	}
	done := make(chan answer, 1) // buffered: an answer that comes too late must not hang
	on.run(func() {
		a := answer{err: errExited}
		defer func() { done <- a }()
		a.err = guard(func() (err error) {
			a.value, err = call()
			return err
		})
	})
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		timer := time.NewTimer(cancelGrace)
		defer timer.Stop()
		select {
		case a = <-done:
		case <-timer.C:
			return a.value, context.Cause(ctx)
		}
	}
	if ctx.Err() != nil && (errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded)) {
		a.err = context.Cause(ctx)
	}
	return a.value, a.err
}

// panicError is a panic of user code.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guard turns a panic of user code into an error that keeps the stack.
func guard(call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	if err = call(); err == nil {
		return nil
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("a nil %T was returned as an error; return a plain nil instead", err)
	}
	text := err.Error() // if this panics, it is user code that does
	if own, ok := errors.AsType[*session.Error](err); ok && own == nil {
		return errors.New(text) // nobody else need beware of what it wraps
	}
	return err
}
