package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

func signalCases() []testCase {
	return []testCase{
		{"here", "stops and wakes are announced to those who listen on the same handle", 0, func(t *bed) { signals(t, t.Backend) }},
		{"second", "stops and wakes are announced to those who listen on another handle", second | hearing, func(t *bed) { signals(t, t.second()) }},
		{"end", "after listening was stopped, nothing is announced", 0, signalsEnd},
		{"closed", "listening on a closed backend does nothing", alone, signalsClosed},
	}
}

// signals listens on a handle to what is written on the first one.
func signals(t *bed, at store.Backend) {
	heard := make(chan session.Signal, 1000)
	stop := at.Signals(func(signal session.Signal) {
		if signal.Tenant == t.tenant { // other cases use the same handles
			heard <- signal
		}
	})
	defer stop()
	key := func(id string) session.Key { return session.Key{Tenant: t.tenant, ID: id} }
	request := func(id string) {
		t.Helper()
		_, err := t.store().RequestStop(t.Context(), id, session.Stop{RunID: "run-1", Kind: session.StopAbort, Reason: "enough"})
		t.ok(err, "RequestStop")
	}
	// Another handle may need a moment before it hears, so the first ones may be missed.
	firsts := 0
	eventually.Poll(t, "a stop is announced", func() bool {
		id := fmt.Sprint("first-", firsts)
		firsts++
		t.running(id)
		request(id)
		return len(heard) > 0
	})
	must := func(want session.Signal, what string) {
		t.Helper()
		for eventually.Receive(t, what+" is announced", heard) != want {
		}
	}
	t.running("a")
	request("a")
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
	var heard atomic.Int64
	stop := t.Backend.Signals(func(signal session.Signal) {
		if signal.Tenant == t.tenant {
			heard.Add(1)
		}
	})
	stop()
	stop() // does nothing
	t.running("a")
	_, err := t.store().RequestStop(t.Context(), "a", session.Stop{RunID: "run-1", Kind: session.StopAbort, Reason: "enough"})
	t.ok(err, "RequestStop")
	equal(t, "signals", heard.Load(), 0)
}

func signalsClosed(t *bed) {
	stop := t.Backend.Signals(func(session.Signal) {})
	t.ok(t.Backend.Close(), "close")
	stop()
	t.Backend.Signals(func(session.Signal) { t.Error("a signal of a closed backend") })()
}
