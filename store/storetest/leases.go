package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

func leaseCases() []testCase {
	return []testCase{
		{"taken", "starting a run takes the lease with an epoch above all earlier ones", dated, leaseTaken},
		{"store-clock", "a lease expires on the store's clock", clock, leaseExpires},
		{"no-expiry", "a lease without a time to live never expires", clock, leaseForever},
		{"expired-commits", "a holder whose expired lease was not taken over can still commit", clock, expiredCommits},
		{"take-over", "an expired run is taken over: the run stays the same, the owner is new, the epoch is higher, and the old owner is stale", clock, takeOver},
		{"take-over-live", "a live lease is not taken over without force", 0, takeOverLive},
		{"take-over-force", "force takes over a live lease, by epoch", 0, takeOverForce},
		{"take-over-refused", "a takeover of another run, an ended run, an older epoch or a paused session is refused", clock, takeOverRefused},
		{"take-over-released", "a run whose lease was released can be taken over at once", 0, takeOverReleased},
		{"take-over-seen", "a lease that is taken over as it was seen is taken, expired or not, unless it was renewed since", clock, takeOverSeen},
		{"attempts", "attempts count takeovers without progress and restart after progress", 0, takeOverAttempts},
		{"attempts-released", "taking over a run whose lease was released does not count as an attempt", 0, takeOverReleasedAttempts},
		{"renew", "renewing extends the lease, counted from now, and does not change the version", clock, renew},
		{"renew-tree", "renewing a root extends the leases of all sessions of its tree with the same owner, and no others", clock, renewTree},
		{"renew-lost", "renewing a lost lease is stale", clock, renewLost},
		{"renew-many", "leases of several tenants are renewed together, whatever becomes of the others", clock, renewMany},
		{"renew-stops", "renewing a lease reports the stops that were requested in its tree", 0, renewStops},
		{"probe", "probing leases of several tenants reports which could be renewed, and changes nothing", clock, probeLeases},
		{"close", "closing a run releases the lease", 0, closeRun},
		{"close-unsettled", "closing a run without settling the stream keeps the close pending", 0, closeUnsettled},
		{"close-running", "closing a running root releases all leases of its tree with the same owner, and no others", dated, closeTree},
		{"close-lost", "closing a run whose lease was taken over is stale and does not affect the new holder", clock, closeLost},
		{"settle-close", "any process can settle the close of the ended run, and only of that one", 0, settleClose},
		{"now", "the store's clock never goes backwards", dated, nowGrows},
	}
}

func leaseTaken(t *bed) {
	t.create("a")
	last := int64(0)
	for _, run := range []string{"run-1", "run-2", "run-3"} {
		start := t.startOf("a", run)
		started, err := t.store().StartRun(t.Context(), start)
		t.ok(err, "StartRun")
		equal(t, "owner", started.Lease.Owner, start.Owner)
		if started.Lease.Epoch <= last {
			t.Fatalf("epoch %d of %s is not above %d", started.Lease.Epoch, run, last)
		}
		last = started.Lease.Epoch
		state := t.load("a")
		equal(t, "fence in the document", state.Lease.Fence(), started.Lease.Fence())
		if left := state.Lease.ExpiresAt.Sub(t.now()); left <= 50*time.Minute || left > time.Hour+time.Second {
			t.Fatalf("the lease of an hour has %v left", left)
		}
		r := &turn{t: t, id: "a", run: run, fence: started.Lease.Fence(), version: started.Version}
		r.finish(session.RunCompleted)
	}
}

// brief starts a run whose lease expires soon.
func (t *bed) brief(id string, change ...func(*session.StartRun)) *turn {
	t.Helper()
	t.create(id)
	start := t.startOf(id, "run-1")
	start.TTL = t.ttl()
	for _, f := range change {
		f(start)
	}
	return t.begin(start)
}

func (r *turn) takeOver(owner string) *session.TakeOver {
	return &session.TakeOver{SessionID: r.id, RunID: r.run, Owner: owner, TTL: time.Hour, Epoch: r.fence.Epoch}
}

func leaseExpires(t *bed) {
	r := t.brief("a")
	t.pass(2 * t.ttl())
	_, err := t.store().TakeOver(t.Context(), r.takeOver("other"))
	t.ok(err, "take over after expiry")
}

func leaseForever(t *bed) {
	r := t.brief("a", func(s *session.StartRun) { s.TTL = 0 })
	equal(t, "expiry", t.load("a").Lease.ExpiresAt.IsZero(), true)
	t.pass(2 * t.ttl())
	t.unchanged("a", func() {
		_, err := t.store().TakeOver(t.Context(), r.takeOver("other"))
		t.conflict(err, session.ErrAlreadyRunning, t.load("a"), "take over a lease without expiry")
	})
	t.dueAre("leases", t.leases)
}

func expiredCommits(t *bed) {
	r := t.brief("a")
	t.pass(2 * t.ttl())
	r.commit(session.Change{Messages: []session.Message{user("u1", "one")}})
}

func takeOver(t *bed) {
	r := t.brief("a")
	r.commit(session.Change{Messages: []session.Message{user("u1", "one")}})
	t.pass(2 * t.ttl())
	taken, err := t.store().TakeOver(t.Context(), r.takeOver("other"))
	t.ok(err, "take over")
	equal(t, "owner", taken.Lease.Owner, "other")
	if taken.Lease.Epoch <= r.fence.Epoch {
		t.Fatalf("epoch %d is not above %d", taken.Lease.Epoch, r.fence.Epoch)
	}
	state := t.load("a")
	equal(t, "fence in the document", state.Lease.Fence(), taken.Lease.Fence())
	equal(t, "version returned", taken.Version, state.Version)
	equal(t, "current run", state.CurrentRunID, "run-1")
	equal(t, "turn", state.Turn, 1)
	if left := state.Lease.ExpiresAt.Sub(t.now()); left <= 50*time.Minute {
		t.Fatalf("the new lease of an hour has %v left", left)
	}

	// The old holder is fenced off, whatever version it states.
	for _, version := range []int64{r.version, state.Version} {
		request := r.request(session.Change{Messages: []session.Message{user("u2", "zombie")}})
		request.Version = version
		t.unchanged("a", func() {
			_, err := t.store().Commit(t.Context(), request)
			t.conflict(err, session.ErrStale, state, "commit by the old holder")
		})
	}
	r.fence, r.version = taken.Lease.Fence(), taken.Version
	r.commit(session.Change{Messages: []session.Message{user("u3", "three")}})
	t.messagesAre("a", "u1", "u3")
}

func takeOverLive(t *bed) {
	r := t.running("a")
	t.unchanged("a", func() {
		_, err := t.store().TakeOver(t.Context(), r.takeOver("other"))
		t.conflict(err, session.ErrAlreadyRunning, t.load("a"), "take over a live lease")
	})
	r.commit(session.Change{})
}

func takeOverForce(t *bed) {
	r := t.running("a")
	take := r.takeOver("other")
	take.Force = true
	taken, err := t.store().TakeOver(t.Context(), take)
	t.ok(err, "take over by force")
	t.unchanged("a", func() {
		_, err = t.store().TakeOver(t.Context(), take)
		t.conflict(err, session.ErrStale, t.load("a"), "the same takeover again")
	})
	r.fence, r.version = taken.Lease.Fence(), taken.Version
	r.commit(session.Change{})
}

func takeOverRefused(t *bed) {
	r := t.brief("a")
	t.pass(2 * t.ttl())
	refused := func(what string, want *session.Error, change func(*session.TakeOver)) {
		t.Helper()
		take := r.takeOver("other")
		take.Force = true
		change(take)
		t.unchanged("a", func() {
			_, err := t.store().TakeOver(t.Context(), take)
			t.conflict(err, want, t.load("a"), what)
		})
	}
	refused("take over another run", session.ErrStale, func(take *session.TakeOver) { take.RunID = "run-0" })
	refused("take over an older epoch", session.ErrStale, func(take *session.TakeOver) { take.Epoch-- })
	refused("take over a future epoch", session.ErrStale, func(take *session.TakeOver) { take.Epoch++ })
	r.commit(session.Change{Status: session.Paused})
	refused("take over a paused session", session.ErrPaused, func(*session.TakeOver) {})
	r.commit(session.Change{Status: session.Failed, Outcome: &session.Outcome{Status: session.RunFailed}})
	refused("take over a run that has ended", session.ErrStale, func(*session.TakeOver) {})

	take := r.takeOver("other")
	take.SessionID = "nobody"
	_, err := t.store().TakeOver(t.Context(), take)
	t.refused(err, session.ErrNotFound, "take over a run of a session that does not exist")
}

func takeOverReleased(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Messages: []session.Message{user("u1", "one")}})
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, false), "close run")
	state := t.load("a")
	take := r.takeOver("other")
	take.Epoch = state.Lease.Epoch
	taken, err := t.store().TakeOver(t.Context(), take)
	t.ok(err, "take over a run whose lease was released")
	if taken.Lease.Epoch <= r.fence.Epoch {
		t.Fatalf("epoch %d is not above %d", taken.Lease.Epoch, r.fence.Epoch)
	}
	r.fence, r.version = taken.Lease.Fence(), taken.Version
	r.commit(session.Change{Messages: []session.Message{user("u2", "two")}})
}

func takeOverAttempts(t *bed) {
	r := t.running("a")
	take := func() int {
		t.Helper()
		request := r.takeOver("owner")
		request.Force = true
		taken, err := t.store().TakeOver(t.Context(), request)
		t.ok(err, "take over")
		r.fence, r.version = taken.Lease.Fence(), taken.Version
		run, err := t.store().CurrentRun(t.Context(), "a")
		t.ok(err, "CurrentRun")
		equal(t, "attempts in the run's record", run.Attempts, taken.Attempts)
		return taken.Attempts
	}
	first := take()
	if first < 1 {
		t.Fatalf("attempts after the first takeover: %d", first)
	}
	equal(t, "attempts after a takeover without progress", take(), first+1)
	r.commit(session.Change{})
	equal(t, "attempts after progress", take(), 1)
	equal(t, "attempts after another takeover", take(), 2)
	equal(t, "attempts after yet another", take(), 3)
	r.commit(session.Change{})
	equal(t, "attempts after progress", take(), 1)
}

func takeOverReleasedAttempts(t *bed) {
	r := t.running("a")
	take := func() int {
		t.Helper()
		request := r.takeOver("owner")
		request.Force = true
		taken, err := t.store().TakeOver(t.Context(), request)
		t.ok(err, "take over")
		r.fence, r.version = taken.Lease.Fence(), taken.Version
		run, err := t.store().CurrentRun(t.Context(), "a")
		t.ok(err, "CurrentRun")
		equal(t, "attempts in the run's record", run.Attempts, taken.Attempts)
		equal(t, "version in the run's record", run.ProgressVersion, taken.Version)
		return taken.Attempts
	}
	release := func() {
		t.Helper()
		t.ok(t.store().CloseRun(t.Context(), "a", r.fence, false), "close run")
	}
	release()
	equal(t, "attempts after the lease was released", take(), 0)
	equal(t, "attempts after it was lost", take(), 1)
	equal(t, "attempts after it was lost again", take(), 2)
	release()
	equal(t, "attempts after it was released without progress", take(), 2)
	equal(t, "attempts after it was lost once more", take(), 3)
	r.commit(session.Change{})
	release()
	equal(t, "attempts after it was released with progress", take(), 0)
	equal(t, "attempts after it was lost since", take(), 1)
}

func renew(t *bed) {
	r := t.brief("a")
	version := t.load("a").Version
	t.pass(t.ttl() / 2)
	t.ok(t.renew("a", r.fence, time.Hour), "renew")
	state := t.load("a")
	equal(t, "fence", state.Lease.Fence(), r.fence)
	equal(t, "version", state.Version, version)
	if left := state.Lease.ExpiresAt.Sub(t.now()); left < 59*time.Minute || left > 61*time.Minute {
		t.Fatalf("the lease renewed for an hour has %v left", left)
	}
	t.pass(2 * t.ttl())
	_, err := t.store().TakeOver(t.Context(), r.takeOver("other"))
	t.refused(err, session.ErrAlreadyRunning, "take over a renewed lease")
	r.commit(session.Change{})
	t.refused(t.renew("nobody", r.fence, time.Hour), session.ErrNotFound, "renew nothing")
}

// member starts a run of a session of a tree.
func (t *bed) member(id, parent, root, owner string, ttl time.Duration) *turn {
	t.Helper()
	t.create(id, func(s *session.State) { s.ParentID, s.RootID = parent, root })
	request := t.startOf(id, "run-"+id)
	request.Owner, request.TTL = owner, ttl
	return t.begin(request)
}

// trees starts runs of two trees and returns those of the first.
func (t *bed) trees(ttl time.Duration) (root, kid, grandkid *turn) {
	t.Helper()
	root = t.member("root", "", "", "me", ttl)
	kid = t.member("kid", "root", "root", "me", ttl)
	grandkid = t.member("grandkid", "kid", "root", "me", ttl)
	t.member("foreign", "root", "root", "somebody else", ttl)
	t.member("other-root", "", "", "me", ttl)
	t.member("other-kid", "other-root", "other-root", "me", ttl)
	return root, kid, grandkid
}

func renewTree(t *bed) {
	root, _, _ := t.trees(10 * time.Minute)
	t.ok(t.renew("root", root.fence, time.Hour), "renew")
	now := t.now()
	for id, renewed := range map[string]bool{
		"root": true, "kid": true, "grandkid": true, "foreign": false, "other-root": false, "other-kid": false,
	} {
		if left := t.load(id).Lease.ExpiresAt.Sub(now); (left > 50*time.Minute) != renewed {
			t.Fatalf("%s: %v left, renewed should be %v", id, left, renewed)
		}
	}
}

func renewLost(t *bed) {
	r := t.brief("a")
	t.pass(2 * t.ttl())
	taken, err := t.store().TakeOver(t.Context(), r.takeOver("other"))
	t.ok(err, "take over")
	t.unchanged("a", func() {
		t.conflict(t.renew("a", r.fence, time.Hour), session.ErrStale, t.load("a"), "renew a lease that was taken over")
	})
	t.ok(t.store().CloseRun(t.Context(), "a", taken.Lease.Fence(), false), "close run")
	t.refused(t.renew("a", taken.Lease.Fence(), time.Hour), session.ErrStale, "renew a lease that was released")
}

func renewMany(t *bed) {
	lost, kept := t.brief("lost"), t.brief("kept")
	t.pass(2 * t.ttl())
	_, err := t.store().TakeOver(t.Context(), lost.takeOver("other"))
	t.ok(err, "take over")
	tenant := t.tenant
	t.tenant = tenant + "-other"
	foreign := t.brief("kept")
	t.tenant = tenant
	held := func(tenant, id string, fence session.Fence) session.Held {
		return session.Held{Key: session.Key{Tenant: tenant, ID: id}, Fence: fence}
	}
	out := t.Backend.RenewLeases(t.Context(), []session.Held{
		held(tenant, "lost", lost.fence), held(tenant, "nobody", kept.fence), held(tenant, "kept", kept.fence),
		held(tenant, "kept", session.Fence{}), held(tenant+"-other", "kept", foreign.fence),
	}, time.Hour)
	equal(t, "results", len(out), 5)
	for i, want := range []error{session.ErrStale, session.ErrNotFound, nil, session.ErrStale, nil} {
		if !errors.Is(out[i].Err, want) {
			t.Fatalf("renewal %d: got %v, want %v", i, out[i].Err, want)
		}
	}
	for _, of := range []string{tenant, tenant + "-other"} {
		t.tenant = of
		if left := t.load("kept").Lease.ExpiresAt.Sub(t.now()); left < 59*time.Minute {
			t.Fatalf("tenant %s: the lease renewed for an hour has %v left", of, left)
		}
	}
	t.tenant = tenant
	equal(t, "results of nothing", len(t.Backend.RenewLeases(t.Context(), nil, time.Hour)), 0)
}

func takeOverSeen(t *bed) {
	for _, past := range []bool{false, true} {
		kept, taken := t.brief(fmt.Sprint("kept-", past)), t.brief(fmt.Sprint("taken-", past))
		seen := map[*turn]time.Time{kept: t.load(kept.id).Lease.ExpiresAt, taken: t.load(taken.id).Lease.ExpiresAt}
		if past {
			t.pass(2 * t.ttl())
		}
		request := func(r *turn) *session.TakeOver {
			take := r.takeOver("other")
			take.Expires = seen[r]
			return take
		}
		t.pass(2 * time.Millisecond)
		t.ok(t.renew(kept.id, kept.fence, t.ttl()), "renew")
		if past {
			t.pass(2 * t.ttl())
		}
		t.unchanged(kept.id, func() {
			_, err := t.store().TakeOver(t.Context(), request(kept))
			t.conflict(err, session.ErrAlreadyRunning, t.load(kept.id), "take over a lease that was renewed")
		})
		_, err := t.store().TakeOver(t.Context(), request(taken))
		t.ok(err, "take over a lease as it was seen")
		_, err = t.store().TakeOver(t.Context(), request(taken))
		t.refused(err, session.ErrStale, "take it over again")
		forced := request(kept)
		forced.Force = true
		_, err = t.store().TakeOver(t.Context(), forced)
		t.ok(err, "take over a lease that was renewed, with force")
	}
}

func probeLeases(t *bed) {
	lost, kept, gone := t.brief("lost"), t.brief("kept"), t.brief("gone")
	t.pass(2 * t.ttl())
	_, err := t.store().TakeOver(t.Context(), lost.takeOver("other"))
	t.ok(err, "take over")
	t.ok(t.store().CloseRun(t.Context(), "gone", gone.fence, false), "close run")
	tenant := t.tenant
	t.tenant = tenant + "-other"
	foreign := t.brief("kept")
	t.tenant = tenant
	var out []error
	t.unchanged("lost", func() {
		t.unchanged("kept", func() {
			out = t.Backend.ProbeLeases(t.Context(), []session.Held{
				{Key: session.Key{Tenant: tenant, ID: "lost"}, Fence: lost.fence},
				{Key: session.Key{Tenant: tenant, ID: "nobody"}, Fence: kept.fence},
				{Key: session.Key{Tenant: tenant, ID: "kept"}, Fence: kept.fence},
				{Key: session.Key{Tenant: tenant, ID: "kept"}},
				{Key: session.Key{Tenant: tenant + "-other", ID: "kept"}, Fence: foreign.fence},
				{Key: session.Key{Tenant: tenant, ID: "gone"}, Fence: gone.fence},
			})
		})
	})
	equal(t, "results", len(out), 6)
	for i, could := range []bool{false, false, true, false, true, false} {
		if (out[i] == nil) != could {
			t.Fatalf("lease %d: got %v, could be renewed: %t", i, out[i], could)
		}
	}
	equal(t, "results of nothing", len(t.Backend.ProbeLeases(t.Context(), nil)), 0)
	if due := t.due("ExpiredLeases", t.leases); !slices.ContainsFunc(due, func(d session.Due) bool { return d.ID == "kept" }) {
		t.Fatalf("a lease that was probed has not expired any more: %v", keys(due))
	}
}

func renewStops(t *bed) {
	root, kid, _ := t.trees(time.Hour)
	renewed := func() map[string]session.StopKind {
		t.Helper()
		out := t.Backend.RenewLeases(t.Context(), []session.Held{{Key: session.Key{Tenant: t.tenant, ID: "root"}, Fence: root.fence}}, time.Hour)
		t.ok(out[0].Err, "renew")
		stops := map[string]session.StopKind{}
		for _, stop := range out[0].Stops {
			stops[stop.RunID+" "+stop.Reason] = stop.Kind
		}
		return stops
	}
	equal(t, "stops", len(renewed()), 0)
	stop := func(id, reason string, kind session.StopKind) {
		t.Helper()
		_, err := t.store().RequestStop(t.Context(), id, session.Stop{RunID: "run-" + id, Kind: kind, Reason: reason})
		t.ok(err, "RequestStop")
	}
	stop("grandkid", "late", session.StopInterrupt)
	stop("root", "enough", session.StopAbort)
	stop("foreign", "not mine", session.StopAbort)
	stop("kid", "over", session.StopAbort)
	kid.finish(session.RunFailed)
	equal(t, "stops", renewed(), map[string]session.StopKind{"run-root enough": session.StopAbort, "run-grandkid late": session.StopInterrupt})
}

func closeRun(t *bed) {
	r := t.running("a")
	r.commit(outcome(session.RunCompleted))
	epoch := t.load("a").Lease.Epoch
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, true), "close run")
	state := t.load("a")
	equal(t, "owner", state.Lease.Owner, "")
	equal(t, "close pending", state.ClosePending, false)
	equal(t, "status", state.Status, session.Completed)
	if state.Lease.Epoch < epoch {
		t.Fatalf("the epoch went back from %d to %d", epoch, state.Lease.Epoch)
	}
	_, err := session.Merge(t.Context(), t.store(), "a", put("k", `1`))
	t.ok(err, "merge after the run")
	next := t.start("a", "run-2")
	if next.fence.Epoch <= r.fence.Epoch {
		t.Fatalf("the next run's epoch %d is not above %d", next.fence.Epoch, r.fence.Epoch)
	}
	t.refused(t.store().CloseRun(t.Context(), "nobody", r.fence, true), session.ErrNotFound, "close nothing")
}

func closeUnsettled(t *bed) {
	r := t.running("a")
	r.commit(outcome(session.RunCompleted))
	equal(t, "close pending after the outcome", t.load("a").ClosePending, true)
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, false), "close run")
	state := t.load("a")
	equal(t, "owner", state.Lease.Owner, "")
	equal(t, "close pending after an unsettled close", state.ClosePending, true)
	t.ok(t.store().SettleClose(t.Context(), "a", "run-1"), "SettleClose")
	equal(t, "close pending after it was settled", t.load("a").ClosePending, false)
}

func closeTree(t *bed) {
	root, kid, grandkid := t.trees(time.Hour)
	done := t.member("done", "root", "root", "me", time.Hour)
	done.commit(outcome(session.RunCompleted))
	held := func(what string, want map[string]bool) {
		t.Helper()
		for id, want := range want {
			state := t.load(id)
			if (state.Lease.Owner != "") != want || state.Lease.Live(t.now()) != want {
				t.Fatalf("%s: %s has the lease %s, held should be %v", what, id, show(state.Lease), want)
			}
		}
	}
	// A child's lease is independent.
	t.ok(t.store().CloseRun(t.Context(), "grandkid", grandkid.fence, false), "close a child's run")
	held("after a child was closed", map[string]bool{"root": true, "kid": true, "grandkid": false, "done": true})

	t.ok(t.store().CloseRun(t.Context(), "root", root.fence, false), "close run")
	held("after the root was closed", map[string]bool{
		"root": false, "kid": false, "grandkid": false, "done": false, "foreign": true, "other-root": true, "other-kid": true,
	})
	equal(t, "the ended run's lease has no expiry", t.load("done").Lease.ExpiresAt.IsZero(), true)
	t.dueAre("leases", t.leases, "root")
	kid.refuse(kid.request(session.Change{}), session.ErrStale)
	taken, err := t.store().TakeOver(t.Context(), kid.takeOver("other"))
	t.ok(err, "take over a child")
	equal(t, "attempts", taken.Attempts, 0)

	// The end of a run does not release other leases of the tree.
	kid.fence, kid.version = taken.Lease.Fence(), taken.Version
	taken, err = t.store().TakeOver(t.Context(), root.takeOver("other"))
	t.ok(err, "take over the root")
	root.fence, root.version = taken.Lease.Fence(), taken.Version
	root.finish(session.RunCompleted)
	held("after the root has ended", map[string]bool{"root": false, "kid": true})
	kid.commit(session.Change{})
}

func closeLost(t *bed) {
	r := t.brief("a")
	t.pass(2 * t.ttl())
	taken, err := t.store().TakeOver(t.Context(), r.takeOver("other"))
	t.ok(err, "take over")
	t.unchanged("a", func() {
		t.conflict(t.store().CloseRun(t.Context(), "a", r.fence, true), session.ErrStale, t.load("a"), "close a run that was taken")
	})
	r.fence, r.version = taken.Lease.Fence(), taken.Version
	r.commit(session.Change{})
}

func settleClose(t *bed) {
	r := t.running("a")
	r.commit(outcome(session.RunCompleted))
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, false), "close run")
	next := t.start("a", "run-2")
	next.commit(outcome(session.RunCompleted))
	t.ok(t.store().SettleClose(t.Context(), "a", "run-1"), "SettleClose of an earlier run")
	equal(t, "close pending", t.load("a").ClosePending, true)
	t.ok(t.store().SettleClose(t.Context(), "a", "run-2"), "SettleClose")
	equal(t, "close pending", t.load("a").ClosePending, false)
	t.ok(t.store().SettleClose(t.Context(), "a", "run-2"), "SettleClose again")
	if err := t.store().SettleClose(t.Context(), "nobody", "run-1"); err != nil && !errors.Is(err, session.ErrNotFound) {
		t.Fatalf("SettleClose of nothing: %v", err)
	}
}

func nowGrows(t *bed) {
	last := t.now()
	for range 20 {
		now := t.now()
		if now.Before(last) {
			t.Fatalf("the clock went back from %v to %v", last, now)
		}
		last = now
	}
}
