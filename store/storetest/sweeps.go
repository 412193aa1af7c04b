package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

func sweepCases() []testCase {
	return []testCase{
		{"deadlines", "due deadlines are listed with their call, the longest due first, until they are resolved", clock, dueDeadlines},
		{"deadlines-answered", "answered and resolved calls are not due, nor are calls without a deadline", clock, dueAnswered},
		{"leases", "expired leases of running sessions are listed, the longest due first", clock, expiredLeases},
		{"leases-not", "children, ended runs, and renewed, taken over and endless leases are not listed", clock, expiredNot},
		{"leases-companion", "a child without a root has its own lease, which is listed; a child with a root is not", clock, expiredCompanion},
		{"leases-released", "a running run whose lease was released is listed at once", 0, releasedLease},
		{"sessions", "expired sessions that have not ended are listed", clock, expiredSessions},
		{"sessions-moved", "a run's start and its commits move a session's expiry, or remove it", clock, expiryMoved},
		{"sessions-refused", "a refused creation of an existing session does not change what is due", clock, expiredRefused},
		{"closes", "pending closes are listed until they are settled", 0, owedCloses},
		{"tenants", "sweeps span all tenants, whichever the store is scoped to", alone | clock, sweepTenants},
		{"agents", "a sweep lists the sessions of the agents that are wanted, and what is to be aborted of any agent", clock, sweepAgents},
		{"ahead", "a sweep that looks ahead also lists what is due soon", clock, sweepAhead},
		{"limit", "a sweep lists no more than the limit, the longest due first", alone | clock, sweepLimit},
		{"limit-default", "a sweep without a limit lists 100", alone | dated, sweepDefault},
		{"pages", "a sweep continues after an entry, by time, tenant, session and call, without repetitions or omissions", alone | clock, sweepPages},
		{"pages-vanished", "a sweep continues after an entry that is no longer due or no longer exists", alone | clock, sweepVanished},
		{"since", "what is due has the time since when", clock, dueSince},
		{"deleted", "a deleted session has nothing due", clock, sweepDeleted},
		{"nothing", "sweeps of an empty store are empty", alone, sweepNothing},
	}
}

func keys(due []session.Due) []string {
	out := make([]string, len(due))
	for i, d := range due {
		out[i] = d.ID
		if d.CallID != "" {
			out[i] += "/" + d.CallID
		}
	}
	return out
}

type sweep func(request session.SweepRequest) ([]session.Due, error)

// everythingDue is a limit that no sweep of the suite reaches.
const everythingDue = 100_000

// due returns what a sweep lists of the case's own tenant, because sweeps see all
// tenants.
func (t *bed) due(what string, list sweep) []session.Due {
	t.Helper()
	all, err := list(session.SweepRequest{Limit: everythingDue})
	t.ok(err, what)
	return slices.DeleteFunc(all, func(d session.Due) bool { return d.Tenant != t.tenant })
}

func (t *bed) dueAre(what string, list sweep, want ...string) []session.Due {
	t.Helper()
	got := t.due(what, list)
	sameJSON(t, what, keys(got), append([]string{}, want...))
	return got
}

// noneBefore fails the case if something is due before the time at, on the store's clock. It checks nothing if
// that time has passed, as it may with the clock of a busy server.
func (t *bed) noneBefore(at time.Time, what string, list sweep) {
	t.Helper()
	if got := t.due(what, list); t.now().Before(at) {
		sameJSON(t, what, keys(got), []string{})
	}
}

func (t *bed) deadlines(request session.SweepRequest) ([]session.Due, error) {
	return t.store().DueDeadlines(t.Context(), request)
}

func (t *bed) leases(request session.SweepRequest) ([]session.Due, error) {
	return t.store().ExpiredLeases(t.Context(), request)
}

func (t *bed) sessions(request session.SweepRequest) ([]session.Due, error) {
	return t.store().ExpiredSessions(t.Context(), request)
}

func (t *bed) closes(request session.SweepRequest) ([]session.Due, error) {
	return t.store().PendingCloses(t.Context(), request)
}

// sweeps returns those that list sessions, by name.
func (t *bed) sweeps() map[string]sweep {
	return map[string]sweep{
		"DueDeadlines": t.deadlines, "ExpiredLeases": t.leases, "ExpiredSessions": t.sessions, "PendingCloses": t.closes,
	}
}

func due(callID string, deadline time.Time) session.Pending {
	p := waiting(callID)
	p.Deadline = deadline
	return p
}

func dueDeadlines(t *bed) {
	now := t.now().Truncate(time.Microsecond)
	t.asking("a", due("p1", now.Add(t.ttl())), due("p2", now.Add(time.Hour*24*365)))
	r := t.running("b")
	r.commit(session.Change{Pending: []session.Pending{due("p1", now.Add(t.ttl()/2))}})
	t.noneBefore(now.Add(t.ttl()/2), "deadlines before their time", t.deadlines)
	t.pass(2 * t.ttl())
	got := t.dueAre("deadlines", t.deadlines, "b/p1", "a/p1")
	equal(t, "tenant", got[0].Tenant, t.tenant)
	equal(t, "agent", got[0].Agent, "tester")
	equal(t, "run", got[0].RunID, "run-1")
	equal(t, "runtime", got[0].Runtime, "test")
	sameTime(t, "at", got[1].At, now.Add(t.ttl()))
	r.commit(session.Change{Resolve: []session.Resolution{{CallID: "p1", State: session.PendingTimedOut}}})
	t.dueAre("deadlines after one was resolved", t.deadlines, "a/p1")
}

func dueAnswered(t *bed) {
	soon := t.now().Add(t.ttl())
	t.asking("a", due("p1", soon), due("p2", soon), waiting("p3"))
	t.submit("a", answer("p1", `1`))
	t.pass(2 * t.ttl())
	t.dueAre("deadlines", t.deadlines, "a/p2")
	equal(t, "an answer that comes before the timeout was consumed", t.submit("a", answer("p2", `2`)), session.SubmitAccepted)
	t.dueAre("deadlines after the answer", t.deadlines)
}

func expiredLeases(t *bed) {
	t.brief("a")
	t.pass(t.ttl() / 4)
	b := t.brief("b")
	t.noneBefore(t.load("a").Lease.ExpiresAt, "leases before their time", t.leases)
	t.pass(2 * t.ttl())
	got := t.dueAre("leases", t.leases, "a", "b")
	equal(t, "tenant", got[1].Tenant, t.tenant)
	equal(t, "agent", got[1].Agent, "tester")
	equal(t, "run", got[1].RunID, "run-1")
	equal(t, "runtime", got[1].Runtime, "test")
	equal(t, "fence", got[1].Lease.Fence(), b.fence)
	_, err := t.store().TakeOver(t.Context(), &session.TakeOver{
		SessionID: "a", RunID: got[0].RunID, Owner: "sweeper", TTL: time.Hour, Epoch: got[0].Lease.Epoch,
	})
	t.ok(err, "take over what was listed")
	t.dueAre("leases after one was taken over", t.leases, "b")
	b.commit(session.Change{}) // it is late, and continues
	t.ok(t.renew("b", b.fence, time.Hour), "renew")
	t.dueAre("leases after the other was renewed", t.leases)
}

func expiredNot(t *bed) {
	kid := func(s *session.State) { s.ParentID, s.RootID = "root", "root" }
	t.create("kid", kid)
	start := t.startOf("kid", "run-kid")
	start.TTL = t.ttl()
	t.begin(start)
	ended := t.brief("ended")
	ended.commit(outcome(session.RunCompleted))
	suspended := t.brief("suspended")
	suspended.commit(outcome(session.RunSuspendedClientTool))
	t.brief("endless", func(s *session.StartRun) { s.TTL = 0 })
	paused := t.brief("paused")
	paused.commit(session.Change{Status: session.Paused})
	t.create("idle")
	t.brief("orphan")
	t.pass(2 * t.ttl())
	t.dueAre("leases", t.leases, "orphan")
}

func expiredCompanion(t *bed) {
	ttl := t.ttl()
	t.member("root", "", "", "me", time.Hour)
	t.member("kid", "root", "root", "me", ttl)
	companion := t.member("companion", "root", "", "me", ttl)
	t.member("companion-kid", "companion", "companion", "me", ttl)
	t.member("released", "root", "", "me", time.Hour)
	t.pass(2 * ttl)
	got := t.dueAre("leases", t.leases, "companion")
	equal(t, "fence", got[0].Lease.Fence(), companion.fence)
	t.ok(t.renew("companion", companion.fence, ttl), "renew")
	t.noneBefore(t.load("companion").Lease.ExpiresAt, "leases after it was renewed", t.leases)
	t.pass(2 * ttl)
	t.dueAre("leases after it has expired again", t.leases, "companion")
	taken, err := t.store().TakeOver(t.Context(), companion.takeOver("you"))
	t.ok(err, "take over what was listed")
	t.dueAre("leases after it was taken", t.leases)
	t.ok(t.store().CloseRun(t.Context(), "companion", taken.Lease.Fence(), false), "close run")
	t.dueAre("leases after it was released", t.leases, "companion")
	// It is still a child: it is not listed as a root, and is deleted with its parent.
	page, err := t.store().List(t.Context(), session.Query{RootsOnly: true})
	t.ok(err, "List")
	equal(t, "roots", len(page.Items), 1)
	t.ok(t.delete("root"), "delete")
	t.dueAre("leases after the tree was deleted", t.leases)
	t.exists("companion", false)
}

func releasedLease(t *bed) {
	r := t.running("a")
	t.dueAre("leases of a live run", t.leases)
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, false), "close run")
	got := t.dueAre("leases after a clean shutdown", t.leases, "a")
	_, err := t.store().TakeOver(t.Context(), &session.TakeOver{
		SessionID: "a", RunID: got[0].RunID, Owner: "sweeper", TTL: time.Hour, Epoch: got[0].Lease.Epoch,
	})
	t.ok(err, "take over what was listed")
	t.dueAre("leases after it was taken", t.leases)
}

func expiredSessions(t *bed) {
	soon := t.now().Truncate(time.Microsecond).Add(t.ttl())
	expires := func(at time.Time, status session.Status) func(*session.State) {
		return func(s *session.State) { s.ExpiresAt, s.Status = at, status }
	}
	t.create("second", expires(soon, session.Active))
	t.create("first", expires(soon.Add(-t.ttl()/2), session.Interrupted))
	t.create("never", expires(time.Time{}, session.Active))
	t.create("later", expires(soon.Add(24*time.Hour), session.Active))
	t.create("completed", expires(soon, session.Completed))
	t.create("failed", expires(soon, session.Failed))
	t.noneBefore(soon.Add(-t.ttl()/2), "sessions before their time", t.sessions)
	t.pass(2 * t.ttl())
	got := t.dueAre("sessions", t.sessions, "first", "second")
	sameTime(t, "at", got[1].At, soon)
	_, err := t.store().SetStatus(t.Context(), "first", session.StatusChange{Expect: session.Statuses(), To: session.Failed})
	t.ok(err, "SetStatus")
	t.dueAre("sessions after one ended", t.sessions, "second")
	state := t.load("second")
	state.ExpiresAt = t.now().Add(time.Hour)
	t.ok(session.Save(t.Context(), t.store(), state), "save")
	t.dueAre("sessions after the other was prolonged", t.sessions)
}

func expiryMoved(t *bed) {
	now := t.now().Truncate(time.Microsecond)
	soon, late := now.Add(t.ttl()), now.Add(24*time.Hour)
	for _, id := range []string{"prolonged", "removed", "given", "left"} {
		t.create(id, func(s *session.State) {
			if id != "given" {
				s.ExpiresAt = soon
			}
		})
		start := t.startOf(id, "run-"+id)
		if id == "removed" || id == "given" {
			start.ExpiresAt = new(time.Time{})
		}
		r := t.begin(start)
		change := outcome(session.RunSuspendedClientTool)
		switch id {
		case "prolonged":
			change.ExpiresAt = &late
		case "given":
			change.ExpiresAt = &soon
		}
		r.commit(change)
		t.ok(t.store().CloseRun(t.Context(), id, r.fence, true), "close run")
	}
	sameTime(t, "an expiry that a commit moved", t.load("prolonged").ExpiresAt, late)
	sameTime(t, "one that a start removed", t.load("removed").ExpiresAt, time.Time{})
	sameTime(t, "one that a commit set", t.load("given").ExpiresAt, soon)
	sameTime(t, "one that was not changed", t.load("left").ExpiresAt, soon)
	t.noneBefore(soon, "sessions before their time", t.sessions)
	t.pass(2 * t.ttl())
	t.dueAre("sessions", t.sessions, "given", "left")
	start := t.startOf("left", "run-2")
	start.ExpiresAt = &late
	t.begin(start)
	t.dueAre("sessions after one was used", t.sessions, "given")
	bad := t.startOf("given", "run-2")
	bad.ExpiresAt = new(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	_, err := t.store().StartRun(t.Context(), bad)
	t.refused(err, session.ErrInvalid, "a start with an expiry that not every store can keep")
	t.dueAre("sessions after a start was refused", t.sessions, "given")
}

func owedCloses(t *bed) {
	t.running("running")
	for _, id := range []string{"b", "a", "settled"} {
		r := t.running(id)
		r.commit(outcome(session.RunCompleted))
		t.ok(t.store().CloseRun(t.Context(), id, r.fence, id == "settled"), "close run")
	}
	got := t.due("PendingCloses", t.closes)
	equal(t, "pending closes", len(got), 2)
	for _, d := range got {
		equal(t, "tenant", d.Tenant, t.tenant)
		equal(t, "run", d.RunID, "run-1")
		t.ok(t.store().SettleClose(t.Context(), d.ID, d.RunID), "SettleClose")
	}
	t.dueAre("closes after they were settled", t.closes)
}

// in returns the same case in the tenant with exactly that name.
func (t *bed) in(tenant string) *bed {
	other := *t
	other.tenant = tenant
	return &other
}

func sweepTenants(t *bed) {
	soon := t.now().Add(t.ttl())
	for i, tenant := range []string{"north", "south"} {
		sub := t.in(tenant)
		sub.create("expires", func(s *session.State) { s.ExpiresAt = soon.Add(time.Duration(i) * time.Microsecond) })
		sub.asking("asks", due("p1", soon.Add(time.Duration(i)*time.Microsecond)))
		owing := sub.running("owes")
		owing.commit(outcome(session.RunCompleted))
		sub.brief("orphan")
		t.ok(sub.store().PutWake(t.Context(), session.Wake{Tenant: tenant, SessionID: "orphan", ChildID: "kid", At: noon.Add(time.Duration(i) * time.Second)}), "PutWake")
	}
	t.pass(2 * t.ttl())
	for _, scope := range []string{session.DefaultTenant, "north", "east"} {
		sub := t.in(scope)
		for what, list := range sub.sweeps() {
			got, err := list(session.SweepRequest{Limit: 100})
			t.ok(err, what)
			equal(t, what, len(got), 2)
			equal(t, what+": first tenant", got[0].Tenant, "north")
			equal(t, what+": second tenant", got[1].Tenant, "south")
		}
		list, err := sub.store().Wakes(t.Context(), session.WakeRequest{Limit: 100})
		t.ok(err, "Wakes")
		equal(t, "wakes", len(list), 2)
		equal(t, "tenant of the first wake", list[0].Tenant, "north")
		equal(t, "tenant of the second wake", list[1].Tenant, "south")
	}
}

func sweepAhead(t *bed) {
	soon, later := t.now().Add(t.ttl()), t.now().Add(t.ttl()+30*time.Minute)
	for id, at := range map[string]time.Time{"soon": soon, "later": later} {
		t.create(id+"/expires", func(s *session.State) { s.ExpiresAt = at })
		t.create(id + "/asks")
		r, change := t.start(id+"/asks", "run-1"), outcome(session.RunSuspendedClientTool)
		change.Pending = []session.Pending{due("p1", at)}
		r.commit(change)
		t.create(id + "/runs")
		start := t.startOf(id+"/runs", "run-1")
		start.TTL = max(at.Sub(t.now()), time.Millisecond)
		t.begin(start)
	}
	t.pass(2 * t.ttl())
	for what, list := range map[string]sweep{"expires": t.sessions, "asks": t.deadlines, "runs": t.leases} {
		for ahead, want := range map[time.Duration][]string{
			-time.Hour: nil, 0: {"soon/" + what}, time.Second: {"soon/" + what},
			time.Hour: {"soon/" + what, "later/" + what}, 100 * 365 * 24 * time.Hour: {"soon/" + what, "later/" + what},
		} {
			page, err := list(session.SweepRequest{Limit: everythingDue, Ahead: ahead})
			t.ok(err, what)
			var got []string
			for _, d := range page {
				if d.Tenant == t.tenant {
					got = append(got, d.ID)
				}
			}
			equal(t, fmt.Sprint(what, " within ", ahead), strings.Join(got, " "), strings.Join(want, " "))
		}
		page, err := list(session.SweepRequest{Limit: everythingDue, Ahead: time.Hour, After: &session.Due{At: t.now().Add(time.Second)}})
		t.ok(err, what)
		page = slices.DeleteFunc(page, func(d session.Due) bool { return d.Tenant != t.tenant })
		if got := keys(page); len(got) != 1 || !strings.HasPrefix(got[0], "later/"+what) {
			t.Fatalf("%s after the next second: %v", what, got)
		}
	}
}

func sweepAgents(t *bed) {
	soon := t.now().Add(t.ttl())
	for _, agent := range []string{"cook", "waiter", "gone"} {
		named := func(s *session.State) { s.Agent = agent }
		t.create(agent+"/expires", named, func(s *session.State) { s.ExpiresAt = soon })
		for _, id := range []string{agent + "/asks", agent + "/owes"} {
			t.create(id, named)
			r, change := t.start(id, "run-1"), outcome(session.RunSuspendedClientTool)
			if id == agent+"/asks" {
				change.Pending = []session.Pending{due("p1", soon)}
			}
			r.commit(change)
			t.ok(t.store().CloseRun(t.Context(), id, r.fence, change.Pending != nil), "close run")
		}
		for i, kind := range []session.StopKind{"", session.StopInterrupt, session.StopAbort} {
			id := fmt.Sprint(agent, "/runs/", i)
			t.create(id, named)
			start := t.startOf(id, "run-1")
			start.TTL = t.ttl()
			t.begin(start)
			if kind != "" {
				_, err := t.store().RequestStop(t.Context(), id, session.Stop{RunID: "run-1", Kind: kind})
				t.ok(err, "RequestStop")
			}
		}
	}
	t.pass(2 * t.ttl())
	all := map[string]sweep{"expires": t.sessions, "asks": t.deadlines, "owes": t.closes, "runs": t.leases}
	for what, list := range all {
		for _, c := range []struct{ agents, want []string }{
			{nil, []string{"cook", "gone", "waiter"}},
			{[]string{}, nil},
			{[]string{"nobody", ""}, nil},
			{[]string{"cook", "nobody", "waiter"}, []string{"cook", "waiter"}},
			{[]string{"gone"}, []string{"gone"}},
		} {
			var want, got []string
			for _, agent := range []string{"cook", "gone", "waiter"} {
				switch {
				case what != "runs" && slices.Contains(c.want, agent):
					want = append(want, agent+"/"+what)
				case what == "runs" && slices.Contains(c.want, agent):
					want = append(want, agent+"/runs/0", agent+"/runs/1 interrupt", agent+"/runs/2 abort")
				case what == "runs":
					want = append(want, agent+"/runs/2 abort")
				}
			}
			request := session.SweepRequest{Limit: 2, Agents: c.agents}
			for {
				page, err := list(request)
				t.ok(err, what)
				for _, d := range page {
					if d.Tenant == t.tenant {
						got = append(got, strings.TrimSpace(d.ID+" "+string(d.Stop)))
					}
				}
				if len(page) < request.Limit {
					break
				}
				request.After = &page[len(page)-1]
			}
			slices.Sort(got)
			sameJSON(t, fmt.Sprintf("%s of %q", what, c.agents), got, want)
		}
	}
	for runtime, want := range map[string][]string{"test": {"cook/runs/0", "cook/runs/1", "cook/runs/2"}, "other": {"cook/runs/2"}} {
		page, err := t.leases(session.SweepRequest{Limit: everythingDue, Agents: []string{"cook"}, Runtime: runtime})
		t.ok(err, "ExpiredLeases")
		page = slices.DeleteFunc(page, func(d session.Due) bool { return d.Tenant != t.tenant || d.Agent != "cook" })
		got := keys(page)
		slices.Sort(got)
		sameJSON(t, "runs of the runtime "+runtime, got, want)
	}
}

func sweepLimit(t *bed) {
	base := t.now().Truncate(time.Microsecond)
	for i := range 5 {
		when := base.Add(time.Duration(5-i) * time.Millisecond)
		t.create(fmt.Sprintf("s%d", i), func(s *session.State) { s.ExpiresAt = when })
		t.asking(fmt.Sprintf("a%d", i), due("p", when))
	}
	t.pass(t.ttl())
	got, err := t.sessions(session.SweepRequest{Limit: 2})
	t.ok(err, "ExpiredSessions")
	equal(t, "sessions", keys(got), []string{"s4", "s3"})
	got, err = t.deadlines(session.SweepRequest{Limit: 3})
	t.ok(err, "DueDeadlines")
	equal(t, "deadlines", keys(got), []string{"a4/p", "a3/p", "a2/p"})
}

func sweepDefault(t *bed) {
	past := t.now().Add(-time.Hour)
	for i := range 101 {
		id := fmt.Sprintf("s%03d", i)
		t.create(id, func(s *session.State) { s.ExpiresAt = past })
		t.ok(t.store().PutWake(t.Context(), session.Wake{SessionID: id, ChildID: "kid", At: noon}), "PutWake")
	}
	for _, limit := range []int{0, -1} {
		got, err := t.sessions(session.SweepRequest{Limit: limit})
		t.ok(err, "ExpiredSessions")
		equal(t, "sessions", len(got), 100)
		got, err = t.sessions(session.SweepRequest{Limit: limit, After: &got[99]})
		t.ok(err, "ExpiredSessions")
		equal(t, "the other sessions", keys(got), []string{"s100"})
		wakes, err := t.store().Wakes(t.Context(), session.WakeRequest{Limit: limit})
		t.ok(err, "Wakes")
		equal(t, "wakes", len(wakes), 100)
		wakes, err = t.store().Wakes(t.Context(), session.WakeRequest{Limit: limit, After: &wakes[99]})
		t.ok(err, "Wakes")
		equal(t, "the other wakes", len(wakes), 1)
		equal(t, "the other wake", wakes[0].SessionID, "s100")
	}
}

// sweptPages collects the pages of a sweep and checks that each has the requested
// size and follows the previous one.
func sweptPages[V any](t *bed, what string, limit int, compare func(a, b *V) int, page func(after *V) ([]V, error)) (all []V) {
	t.Helper()
	var after *V
	for {
		got, err := page(after)
		t.ok(err, what)
		if len(got) > limit {
			t.Fatalf("%s: a page of %d, %d were asked for", what, len(got), limit)
		}
		for i := range got {
			if after != nil && compare(after, &got[i]) >= 0 {
				t.Fatalf("%s: %s comes after %s", what, show(got[i]), show(*after))
			}
			after = &got[i]
		}
		all = append(all, got...)
		if len(got) < limit {
			return all
		}
	}
}

func sweepPages(t *bed) {
	soon := t.now().Truncate(time.Microsecond).Add(t.ttl())
	// Most of it becomes due at one time, and was written in another order than that
	// of its keys.
	tenants, ids := []string{"b", "a", "a.b"}, []string{"z", "y", "x", "Z"}
	for _, tenant := range tenants {
		sub := t.in(tenant)
		for i, id := range ids {
			when := soon
			if i == 1 {
				when = soon.Add(-time.Millisecond)
			}
			sub.create("expires-"+id, func(s *session.State) { s.ExpiresAt = when })
			sub.asking("asks-"+id, due("p2", when), due("p1", when))
			sub.brief("orphan-" + id)
			sub.running("owes-" + id).commit(outcome(session.RunCompleted))
			for _, child := range []string{"kid-2", "kid-1"} {
				t.ok(sub.store().PutWake(t.Context(), session.Wake{SessionID: "owes-" + id, ChildID: child, At: when}), "PutWake")
			}
		}
	}
	t.pass(2 * t.ttl())
	got, err := t.deadlines(session.SweepRequest{Limit: everythingDue})
	t.ok(err, "DueDeadlines")
	var order []string
	for _, ids := range [][]string{{"y"}, {"Z", "x", "z"}} {
		for _, tenant := range []string{"a", "a.b", "b"} {
			for _, id := range ids {
				order = append(order, tenant+": asks-"+id+"/p1", tenant+": asks-"+id+"/p2")
			}
		}
	}
	for i, key := range keys(got) {
		equal(t, fmt.Sprintf("deadline %d", i), got[i].Tenant+": "+key, order[i])
	}
	for what, list := range t.sweeps() {
		want, err := list(session.SweepRequest{Limit: everythingDue})
		t.ok(err, what)
		count := len(tenants) * len(ids)
		if what == "DueDeadlines" {
			count *= 2
		}
		equal(t, what, len(want), count)
		for _, limit := range []int{1, 2, 5, count, count + 1} {
			all := sweptPages(t, what, limit, (*session.Due).Compare, func(after *session.Due) ([]session.Due, error) {
				return list(session.SweepRequest{Limit: limit, After: after})
			})
			sameJSON(t, fmt.Sprintf("%s in pages of %d", what, limit), all, want)
		}
	}
	for _, limit := range []int{1, 5, 24, 25} {
		all := sweptPages(t, "Wakes", limit, (*session.Wake).Compare, func(after *session.Wake) ([]session.Wake, error) {
			return t.store().Wakes(t.Context(), session.WakeRequest{Limit: limit, After: after})
		})
		equal(t, "wakes", len(all), 2*len(tenants)*len(ids))
	}
}

func sweepVanished(t *bed) {
	soon := t.now().Truncate(time.Microsecond).Add(t.ttl())
	for i := range 6 {
		t.create(fmt.Sprintf("s%d", i), func(s *session.State) { s.ExpiresAt = soon })
		t.brief(fmt.Sprintf("r%d", i), func(s *session.StartRun) { s.TTL += time.Duration(i) * time.Millisecond })
		t.ok(t.store().PutWake(t.Context(), session.Wake{SessionID: "s0", ChildID: fmt.Sprintf("kid-%d", i), At: noon}), "PutWake")
	}
	t.pass(2 * t.ttl())
	page := func(list sweep, after *session.Due, want ...string) []session.Due {
		t.Helper()
		got, err := list(session.SweepRequest{Limit: 2, After: after})
		t.ok(err, "sweep")
		equal(t, "page", keys(got), want)
		return got
	}

	got := page(t.sessions, nil, "s0", "s1")
	for _, id := range []string{"s1", "s3"} {
		t.ok(t.delete(id), "delete")
	}
	got = page(t.sessions, &got[1], "s2", "s4")
	page(t.sessions, &got[1], "s5")
	page(t.sessions, nil, "s0", "s2")

	got = page(t.leases, nil, "r0", "r1")
	for _, due := range got {
		_, err := t.store().TakeOver(t.Context(), &session.TakeOver{
			SessionID: due.ID, RunID: due.RunID, Owner: "sweeper", TTL: time.Hour, Epoch: due.Lease.Epoch,
		})
		t.ok(err, "take over what was listed")
	}
	got = page(t.leases, &got[1], "r2", "r3")
	page(t.leases, &got[1], "r4", "r5")
	page(t.leases, nil, "r2", "r3")

	wakes, err := t.store().Wakes(t.Context(), session.WakeRequest{Limit: 2})
	t.ok(err, "Wakes")
	for _, wake := range wakes {
		t.ok(t.store().DeleteWake(t.Context(), wake), "DeleteWake")
	}
	wakes, err = t.store().Wakes(t.Context(), session.WakeRequest{Limit: 2, After: &wakes[1]})
	t.ok(err, "Wakes")
	equal(t, "wakes of the next page", len(wakes), 2)
	equal(t, "the next wake", wakes[0].ChildID, "kid-2")
}

func dueSince(t *bed) {
	// within runs f and returns the times before and after it.
	within := func(f func()) (from, to time.Time) {
		from = t.now()
		f()
		return from, t.now()
	}
	t.brief("orphan")
	expires := t.load("orphan").Lease.ExpiresAt
	released := t.running("released")
	owing := t.running("owing")
	t.pass(t.ttl() / 4)
	releasedFrom, releasedTo := within(func() {
		t.ok(t.store().CloseRun(t.Context(), "released", released.fence, false), "close run")
	})
	endedFrom, endedTo := within(func() { owing.commit(outcome(session.RunCompleted)) })
	t.pass(2 * t.ttl())
	t.ok(t.store().CloseRun(t.Context(), "owing", owing.fence, false), "close run")

	// On a busy machine a server's clock may reach the expiry before the release.
	leases := t.due("leases", t.leases)
	equal(t, "leases", len(leases), 2)
	equal(t, "they are in order", leases[1].At.Before(leases[0].At), false)
	if leases[0].ID == "orphan" {
		slices.Reverse(leases)
	}
	sameJSON(t, "leases", keys(leases), []string{"released", "orphan"})
	t.between("the released lease is due since", leases[0].At, releasedFrom, releasedTo)
	sameTime(t, "the lease expired", leases[1].At, expires)
	t.between("the close is pending since", t.dueAre("closes", t.closes, "owing")[0].At, endedFrom, endedTo)
}

func sweepDeleted(t *bed) {
	soon := t.now().Add(t.ttl())
	start := createAndStart(blank("a"), "run-1")
	start.TTL = t.ttl()
	start.Create.ExpiresAt = soon
	r := t.begin(start)
	r.commit(session.Change{Pending: []session.Pending{due("p1", soon)}})
	t.ok(t.store().PutWake(t.Context(), session.Wake{Tenant: t.tenant, SessionID: "a", ChildID: "kid"}), "PutWake")
	t.pass(2 * t.ttl())
	t.dueAre("leases", t.leases, "a")
	t.ok(t.delete("a"), "delete")
	t.dueAre("leases", t.leases)
	t.dueAre("deadlines", t.deadlines)
	t.dueAre("sessions", t.sessions)
	t.dueAre("closes", t.closes)
	t.wakesAre()
}

func sweepNothing(t *bed) {
	t.create("idle")
	t.dueAre("leases", t.leases)
	t.dueAre("deadlines", t.deadlines)
	t.dueAre("sessions", t.sessions)
	t.dueAre("closes", t.closes)
	t.wakesAre()
}

func expiredRefused(t *bed) {
	t.create("s0", func(s *session.State) { s.ExpiresAt = t.now().Add(t.ttl()) })
	t.create("s1")
	late := session.State{ID: "s0", Agent: "tester", Status: session.Active, ExpiresAt: t.now().AddDate(10, 0, 0)}
	t.refused(session.Create(t.Context(), t.store(), &late), session.ErrExists, "Create")
	_, err := t.store().Clone(t.Context(), &session.Clone{From: "s1", To: late})
	t.refused(err, session.ErrExists, "Clone")
	_, err = t.store().StartRun(t.Context(), &session.StartRun{
		SessionID: "s0", Create: &late, Owner: "o", TTL: time.Hour, Run: session.Run{ID: "run-1", Kind: session.RunExecute, Runtime: "test"},
	})
	t.refused(err, session.ErrExists, "StartRun")
	t.pass(2 * t.ttl())
	t.dueAre("expired sessions", t.sessions, "s0")
}
