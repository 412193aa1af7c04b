package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

func signalCases() []testCase {
	return []testCase{
		{"here", "stops and wakes are announced to those who listen on the same handle", 0, func(t *bed) { signals(t, t.Backend) }},
		{"second", "stops and wakes are announced to those who listen on another handle", second | hearing, func(t *bed) { signals(t, t.second()) }},
		{"end", "listening ends with its context", 0, signalsEnd},
		{"closed", "listening ends when the backend is closed", alone, signalsClosed},
	}
}

// signalLimit is how long a signal may take to arrive.
const signalLimit = 20 * time.Second

// signals listens on a handle to what is written on the first one.
func signals(t *bed, at store.Backend) {
	heard := make(chan session.Signal, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		at.Signals(ctx, func(signal session.Signal) {
			if signal.Tenant == t.tenant { // other cases use the same handles
				heard <- signal
			}
		})
	}()
	defer func() {
		cancel()
		<-ended
	}()
	await := func(want session.Signal, limit time.Duration) bool {
		t.Helper()
		timer := time.NewTimer(limit)
		defer timer.Stop()
		for {
			select {
			case got := <-heard:
				if got == want {
					return true
				}
			case <-timer.C:
				return false
			}
		}
	}
	key := func(id string) session.Key { return session.Key{Tenant: t.tenant, ID: id} }
	stop := func(id string) {
		t.Helper()
		_, err := t.store().RequestStop(t.Context(), id, session.Stop{RunID: "run-1", Kind: session.StopAbort, Reason: "enough"})
		t.ok(err, "RequestStop")
	}
	// What was written before somebody listens is not announced, so the first ones may be missed.
	begun := time.Now()
	for i := 0; ; i++ {
		id := fmt.Sprint("first-", i)
		t.running(id)
		stop(id)
		if await(session.Signal{Key: key(id), StopOf: "run-1"}, 200*time.Millisecond) {
			break
		}
		if time.Since(begun) > signalLimit {
			t.Fatal("no stop was announced")
		}
	}
	must := func(want session.Signal, what string) {
		t.Helper()
		if !await(want, signalLimit) {
			t.Fatalf("%s was not announced", what)
		}
	}
	t.running("a")
	stop("a")
	must(session.Signal{Key: key("a"), StopOf: "run-1"}, "a stop")
	t.ok(t.store().PutWake(t.Context(), session.Wake{SessionID: "a", ChildID: "kid", RunID: "run-1"}), "PutWake")
	must(session.Signal{Key: key("a")}, "a wake")
	t.create("b")
	r := t.running("c")
	change := outcome(session.RunCompleted)
	change.Wake = &session.Wake{SessionID: "b", ChildID: "c", RunID: "run-1"}
	r.commit(change)
	must(session.Signal{Key: key("b")}, "the wake of a commit")
}

func signalsEnd(t *bed) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.Backend.Signals(ctx, func(session.Signal) {})
	}()
	cancel()
	t.soon(ended)
	t.Backend.Signals(ctx, func(session.Signal) {})
}

func signalsClosed(t *bed) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.Backend.Signals(t.Context(), func(session.Signal) {})
	}()
	t.ok(t.Backend.Close(), "close")
	t.soon(ended)
	t.Backend.Signals(t.Context(), func(session.Signal) {})
}

// soon waits for listening to end.
func (t *bed) soon(ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(signalLimit):
		t.Fatal("it still listens")
	}
}
