package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

func readyCases() []testCase {
	return []testCase{
		{"ready", "a working backend is ready, and the check leaves no trace", 0, isReady},
		{"closed", "a closed backend is not ready", alone, closedNotReady},
		{"cancelled", "a check whose context has ended does not report a backend as ready", 0, cancelledNotReady},
		{"outdated", "a program that has become too old for its store stops using it, at the latest when it takes or renews a lease", alone | outdate, outdatedStops},
	}
}

func isReady(t *bed) {
	t.create("a")
	before := t.snapshot("a")
	together(8, func(int) {
		if err := t.Backend.Ready(t.Context()); err != nil {
			t.Errorf("Ready: %v", err)
		}
	})
	t.sameSnapshot("a", before)
	equal(t, "sessions", t.listed(session.Query{}), []string{"a"})
}

func closedNotReady(t *bed) {
	t.ok(t.Backend.Ready(t.Context()), "Ready")
	t.ok(t.Backend.Close(), "Close")
	t.refused(t.Backend.Ready(t.Context()), session.ErrClosed, "Ready once it is closed")
}

func cancelledNotReady(t *bed) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := t.Backend.Ready(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Ready with a context that has ended: %v", err)
	}
}

func outdatedStops(t *bed) {
	ctx := t.Context()
	r := t.running("a")
	p := stream.Producer{Session: "a", Epoch: r.fence.Epoch, RunID: r.run}
	t.append("a", p, 1, text("t1"))
	t.create("b")
	t.ok(t.Backend.Ready(ctx), "Ready")
	r.commit(step(1, "cp1", user("u1", "x")))
	stopped := func(err error, what string) {
		t.Helper()
		if e := t.refusal(err, session.ErrUnavailable, what); e.Retryable {
			t.Fatalf("%s: the error is retryable: %v", what, err)
		}
	}
	start := func() error {
		_, err := t.store().StartRun(ctx, createAndStart(blank("c"), "run-1"))
		return err
	}
	var checks []func()
	for what, do := range map[string]func(b store.Backend) error{
		"RenewLeases": func(b store.Backend) error { return t.renewAt(ctx, b, "a", r.fence, time.Hour) },
		"TakeOver": func(b store.Backend) error {
			_, err := t.sessionsOf(b).TakeOver(ctx, &session.TakeOver{SessionID: "a", RunID: r.run, Owner: "taker", Epoch: r.fence.Epoch, TTL: time.Hour, Force: true})
			return err
		},
		"StartRun": func(b store.Backend) error {
			_, err := t.sessionsOf(b).StartRun(ctx, createAndStart(blank("d"), "run-1"))
			return err
		},
		"Ready": func(b store.Backend) error { return b.Ready(ctx) },
	} {
		b := t.Reopen(t) // one that has not noticed
		if what == "RenewLeases" {
			t.ok(do(b), what)
		}
		checks = append(checks, func() { stopped(do(b), what+" by a program that is too old") })
	}
	t.Outdate(t)
	for _, check := range checks {
		check()
	}
	stopped(start(), "StartRun")
	// From then on it refuses everything.
	_, err := t.store().Commit(ctx, r.request(step(2, "cp2", user("u2", "x"))))
	stopped(err, "Commit")
	_, err = t.store().Load(ctx, "a")
	stopped(err, "Load")
	_, err = t.store().List(ctx, session.Query{})
	stopped(err, "List")
	_, err = t.tryAppend("a", p, 2, text("t2"))
	stopped(err, "Append")
	_, err, _ = t.read(t.streams(), "a", 0, false).next()
	stopped(err, "Read")
	stopped(t.Backend.Ready(ctx), "Ready")
	stopped(t.renew("a", r.fence, time.Hour), "RenewLeases")
	_, _, err = t.Backend.Locks().TryAcquire(ctx, fmt.Sprint("lock of ", t.tenant), "me", time.Minute)
	stopped(err, "TryAcquire")
	t.ok(t.Backend.Close(), "Close")
}
