// Package usercode calls functions that applications wrote: tools, hooks, models,
// policies. Such a function may panic, ignore the end of its context, end its
// goroutine, or return an error that panics when it is read. None of that reaches
// the caller.
package usercode

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/helixagents/helix/session"
)

// grace is how long cancelled user code may take to return before [Call] returns
// without it.
const grace = 250 * time.Millisecond

// ErrTimeout is the cause with which callers end the context of user code whose
// time is up. They turn it into an error that says what took too long.
var ErrTimeout = errors.New("time is up")

// errExited is the error of user code that ended its goroutine instead of
// returning.
var errExited = errors.New("the goroutine ended without returning")

// Pool is the goroutines on which a turn runs user code. A goroutine waits for more
// work until done is closed: its stack has grown by then, which is what makes a new
// goroutine expensive.
type Pool struct {
	work chan task
	done <-chan struct{}
}

// task is one call of user code.
type task interface{ run() }

// NewPool returns a pool whose goroutines end when done is closed.
func NewPool(done <-chan struct{}) *Pool { return &Pool{work: make(chan task), done: done} }

// run runs a task on an idle goroutine, or on a new one.
func (p *Pool) run(t task) {
	select {
	case p.work <- t:
	default:
		go p.serve(t)
	}
}

func (p *Pool) serve(t task) {
	for {
		t.run()
		select {
		case t = <-p.work:
		case <-p.done:
			return
		}
	}
}

// pending is a call whose answer is not there yet.
type pending[V any] struct {
	call  func() (V, error)
	done  chan struct{} // closed when the fields below are set
	value V
	err   error
}

func (p *pending[V]) run() {
	defer close(p.done)
	p.err = errExited
	p.err = Guard(func() (err error) {
		p.value, err = p.call()
		return err
	})
}

// Call runs user code on a pool. The code should return when ctx ends; if it does
// not, Call returns soon after without it. A panic becomes a [PanicError], and an
// error that repeats the end of ctx becomes the cause of that end.
func Call[V any](ctx context.Context, on *Pool, call func() (V, error)) (V, error) {
	p := &pending[V]{call: call, done: make(chan struct{})}
	on.run(p)
	select {
	case <-p.done:
	case <-ctx.Done():
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
		case <-timer.C:
			var none V // the code may still set p's
			return none, context.Cause(ctx)
		}
	}
	err := p.err
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		err = context.Cause(ctx)
	}
	return p.value, err
}

// CallOnce runs user code outside a turn, with a pool of its own and at most for
// limit.
func CallOnce[V any](ctx context.Context, limit time.Duration, call func(context.Context) (V, error)) (V, error) {
	done := make(chan struct{})
	defer close(done)
	return CallWithin(ctx, NewPool(done), limit, call)
}

// CallWithin is [Call] with a limit of its own, after which the error is
// [ErrTimeout].
func CallWithin[V any](ctx context.Context, on *Pool, limit time.Duration, call func(context.Context) (V, error)) (V, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrTimeout)
	defer cancel()
	return Call(ctx, on, func() (V, error) { return call(ctx) })
}

// CallKeeping is [CallWithin] for code whose result may use its context: if the code
// returns in time, the context ends no sooner than ctx.
func CallKeeping[V any](ctx context.Context, on *Pool, limit time.Duration, call func(context.Context) (V, error)) (V, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(ErrTimeout) })
	value, err := Call(ctx, on, func() (V, error) { return call(ctx) })
	if !timer.Stop() || err != nil {
		cancel(nil)
	}
	return value, err
}

// PanicError is a panic of user code.
type PanicError struct {
	Value any
	Stack []byte
}

func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Guard runs user code on the caller's goroutine and turns a panic into a
// [PanicError]. It also replaces errors that are not safe to use: a nil pointer in
// an error, and an error that wraps a nil *session.Error.
func Guard(call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	if err = call(); err == nil {
		return nil
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("a nil %T was returned as an error; return a plain nil instead", err)
	}
	text := err.Error() // if this panics, the panic is the error
	if own, ok := errors.AsType[*session.Error](err); ok && own == nil {
		return errors.New(text)
	}
	return err
}
