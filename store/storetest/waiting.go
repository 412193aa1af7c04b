package storetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

func waitingCases() []testCase {
	return []testCase{
		{"lists", "calls that wait are listed with their tool, input, session, conversation, agent and times", dated, waitingLists},
		{"order", "calls are listed in the order in which they began to wait, or newest first", 0, waitingOrder},
		{"leave", "a call leaves the list when it is answered, resolved, rewound, or its session ends or is deleted", 0, waitingLeave},
		{"stopped", "the calls of a stopped session are listed again once it continues", 0, waitingStopped},
		{"running", "a call is listed while the run that made it continues", 0, waitingRunning},
		{"nested", "calls of sub-agents are listed under the conversation, at any depth", 0, waitingNested},
		{"users", "each user sees the calls of their own conversations, including one that was reassigned to them", 0, waitingUsers},
		{"given", "when a conversation is reassigned to another user, its sub-agents follow", 0, waitingGiven},
		{"tenants", "each tenant has its own calls", 0, waitingTenants},
		{"pages", "pages follow each other by cursor and by offset, each call once", 0, waitingPages},
		{"page-bytes", "a page ends before the call whose input would not fit", 0, waitingPageBytes},
		{"page-moves", "a call answered while a client pages is not listed, and no other is lost", 0, waitingPageMoves},
		{"page-invalid", "an invalid cursor or offset is refused", 0, waitingPageInvalid},
		{"page-far", "an offset past the end leads to an empty page, however large it is", 0, waitingPageFar},
		{"page-corrupt", "a call that cannot be decoded hides no other, on its page or after", corrupt, waitingPageCorrupt},
		{"deep", "cyclic links do not loop for ever", 0, waitingCircle},
	}
}

// inbox lists the calls that wait, as session/call.
func (t *bed) inbox(q session.WaitingQuery) []string {
	t.Helper()
	page, err := t.store().Waiting(t.Context(), q)
	t.ok(err, "Waiting")
	return waitingIDs(page.Items)
}

func waitingIDs(items []session.Waiting) []string {
	out := []string{}
	for i := range items {
		out = append(out, waitingID(items[i]))
	}
	return out
}

func waitingID(w session.Waiting) string { return w.SessionID + "/" + w.Call.CallID }

// asks creates a session that waits for calls.
func (t *bed) asks(id, userID string, callIDs ...string) {
	t.Helper()
	t.create(id, of(userID))
	t.suspendFor(id, callIDs...)
}

// suspendFor makes the first run of a session suspend because of calls.
func (t *bed) suspendFor(id string, callIDs ...string) {
	t.Helper()
	entries := make([]session.Pending, len(callIDs))
	for i, callID := range callIDs {
		entries[i] = waiting(callID)
	}
	r := t.start(id, "run-1")
	r.commit(session.Change{Pending: entries, Outcome: &session.Outcome{Status: session.RunSuspendedClientTool}})
	t.ok(t.store().CloseRun(t.Context(), id, r.fence, true), "close run")
}

func waitingLists(t *bed) {
	deadline := t.now().Add(1000 * t.ttl()).Truncate(1000)
	t.create("a", of("ann"))
	approval := waiting("p1")
	approval.Kind, approval.ApprovalID, approval.Fingerprint, approval.Deadline = session.PendingApproval, "ap1", "f1", deadline
	approval.Input = raw(`{"amount": 1e3, "to":"<bob>"}`)
	r := t.start("a", "run-1")
	r.commit(session.Change{Pending: []session.Pending{approval}, Outcome: &session.Outcome{Status: session.RunSuspendedClientTool}})
	for _, userID := range []string{"ann", ""} {
		page, err := t.store().Waiting(t.Context(), session.WaitingQuery{UserID: userID, PageRequest: session.PageRequest{Total: true}})
		t.ok(err, "Waiting")
		equal(t, "calls", len(page.Items), 1)
		equal(t, "total", *page.Total, 1)
		equal(t, "has more", page.HasMore, false)
		item := page.Items[0]
		equal(t, "session", item.SessionID, "a")
		equal(t, "conversation", item.RootID, "a")
		equal(t, "user", item.UserID, "ann")
		equal(t, "agent", item.Agent, t.load("a").Agent)
		sameJSON(t, "call", &item.Call, new(t.entry("a", "p1")))
		equal(t, "input", string(item.Call.Input), string(approval.Input))
		sameTime(t, "deadline", item.Call.Deadline, deadline)
		equal(t, "since when", item.Call.CreatedAt.IsZero(), false)
	}
	page, err := t.store().Waiting(t.Context(), session.WaitingQuery{UserID: "bob", PageRequest: session.PageRequest{Total: true}})
	t.ok(err, "Waiting")
	equal(t, "another user's", len(page.Items), 0)
	equal(t, "another user's, in all", *page.Total, 0)
	equal(t, "an empty page has items", page.Items != nil, true)
}

func waitingOrder(t *bed) {
	var want []string
	for i := range 5 {
		id := fmt.Sprintf("s%d", (i*3)%5) // in the order of neither their ids nor their creation
		t.create(id, of("ann"), at(noon.Add(-time.Duration(i)*time.Second)))
	}
	for i := range 5 {
		id := fmt.Sprintf("s%d", (i*2)%5)
		t.suspendFor(id, "p1")
		want = append(want, id+"/p1")
	}
	for _, userID := range []string{"ann", ""} {
		equal(t, "the longest first", t.inbox(session.WaitingQuery{UserID: userID}), want)
		newest := slices.Clone(want)
		slices.Reverse(newest)
		equal(t, "the newest first", t.inbox(session.WaitingQuery{UserID: userID, NewestFirst: true}), newest)
	}
}

func waitingLeave(t *bed) {
	ctx := t.Context()
	is := func(when string, want ...string) {
		t.Helper()
		if want == nil {
			want = []string{}
		}
		for _, userID := range []string{"ann", ""} {
			q := session.WaitingQuery{UserID: userID, PageRequest: session.PageRequest{Total: true}}
			got := t.inbox(q)
			slices.Sort(got)
			equal(t, fmt.Sprintf("%s, of %q", when, userID), got, want)
			page, err := t.store().Waiting(ctx, q)
			t.ok(err, "Waiting")
			equal(t, when+": total", *page.Total, len(want))
		}
	}
	is("nothing")
	t.asks("a", "ann", "p1", "p2", "p3")
	is("while they wait", "a/p1", "a/p2", "a/p3")
	equal(t, "outcome", t.submit("a", answer("p1", `1`)), session.SubmitAccepted)
	is("once one is answered", "a/p2", "a/p3")
	r := t.start("a", "run-2")
	r.commit(session.Change{Resolve: []session.Resolution{
		{CallID: "p1", State: session.PendingConsumed}, {CallID: "p2", State: session.PendingTimedOut},
	}})
	is("once one has timed out", "a/p3")
	r.commit(session.Change{Resolve: []session.Resolution{{CallID: "p3", State: session.PendingAbandoned}}})
	is("once one is abandoned")
	r.finish(session.RunCompleted)

	t.create("b", of("ann"))
	r = t.start("b", "run-1")
	entry := waiting("p1")
	entry.MessageID = "m1"
	r.commit(session.Change{
		Messages: []session.Message{user("u1", "x"), reply("m1", "p1")}, Pending: []session.Pending{entry},
		Outcome: &session.Outcome{Status: session.RunSuspendedClientTool},
	})
	is("before a rewind", "b/p1")
	state := t.load("b")
	start := t.startOf("b", "run-2")
	start.ExpectVersion, start.ExpectRun, start.KeepMessages = state.Version, state.CurrentRunID, new(1)
	t.begin(start)
	is("after a rewind")

	t.asks("c", "ann", "p1")
	is("before it fails", "c/p1")
	_, err := t.store().SetStatus(ctx, "c", session.StatusChange{Expect: []session.Status{session.Active}, To: session.Failed})
	t.ok(err, "fail")
	is("after it was aborted or has expired")

	t.create("d", of("ann"))
	t.create("below", of("ann"), func(s *session.State) { s.ParentID, s.RootID = "d", "d" })
	t.suspendFor("below", "p1")
	is("before they are deleted", "below/p1")
	t.ok(t.delete("d"), "delete")
	is("after they are deleted")
	t.asks("d", "ann", "p1")
	is("in another of its id", "d/p1")
}

func waitingStopped(t *bed) {
	t.asks("a", "ann", "p1")
	t.asks("b", "ann", "p1")
	_, err := t.store().SetStatus(t.Context(), "a", session.StatusChange{Expect: []session.Status{session.Active}, To: session.Paused})
	t.ok(err, "pause")
	equal(t, "while one is paused", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"b/p1"})
	_, err = t.store().SetStatus(t.Context(), "a", session.StatusChange{Expect: []session.Status{session.Paused}, To: session.Active})
	t.ok(err, "unpause it")
	equal(t, "once it continues", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"a/p1", "b/p1"})
	t.start("a", "run-2").finish(session.RunInterrupted)
	equal(t, "once it was interrupted", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"b/p1"})
	t.start("a", "run-3")
	equal(t, "once it was resumed", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"a/p1", "b/p1"})
}

func waitingRunning(t *bed) {
	state := blank("a")
	state.UserID = "ann"
	start := createAndStart(state, "run-1")
	start.Pending = []session.Pending{waiting("p1")}
	r := t.begin(start)
	equal(t, "of the start that makes the session", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"a/p1"})
	r.commit(session.Change{Pending: []session.Pending{waiting("p2")}})
	equal(t, "of a commit", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"a/p1", "a/p2"})
	r.commit(session.Change{Pending: []session.Pending{waiting("p2")}})
	equal(t, "of a commit that has it again", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"a/p1", "a/p2"})
	answered := waiting("p3")
	answered.State = session.PendingAnswered
	r.commit(session.Change{Pending: []session.Pending{answered}})
	equal(t, "of a commit that has an answered one", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"a/p1", "a/p2"})
}

func waitingNested(t *bed) {
	t.create("root", of("ann"))
	below := func(id, parent, root string) {
		t.create(id, of("ann"), func(s *session.State) { s.ParentID, s.RootID = parent, root })
	}
	below("child", "root", "root")
	below("grandchild", "child", "root")
	below("companion", "grandchild", "") // with its own lease
	below("last", "companion", "companion")
	want := []string{}
	for _, id := range []string{"last", "companion", "grandchild", "child", "root"} {
		t.suspendFor(id, "p1")
		want = append(want, id+"/p1")
	}
	for _, userID := range []string{"ann", ""} {
		page, err := t.store().Waiting(t.Context(), session.WaitingQuery{UserID: userID})
		t.ok(err, "Waiting")
		equal(t, "calls", waitingIDs(page.Items), want)
		for _, item := range page.Items {
			equal(t, "conversation of "+item.SessionID, item.RootID, "root")
			equal(t, "user of "+item.SessionID, item.UserID, "ann")
		}
	}
}

func waitingUsers(t *bed) {
	ctx := t.Context()
	t.asks("a", "ann", "p1")
	t.asks("b", "bob", "p1")
	t.create("nobodys")
	t.suspendFor("nobodys", "p1")
	equal(t, "one's", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"a/p1"})
	equal(t, "another's", t.inbox(session.WaitingQuery{UserID: "bob"}), []string{"b/p1"})
	equal(t, "everybody's", t.inbox(session.WaitingQuery{}), []string{"a/p1", "b/p1", "nobodys/p1"})
	saved := t.load("a")
	saved.UserID = "bob"
	t.ok(session.Save(ctx, t.store(), saved), "save")
	equal(t, "whose it was", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{})
	got := t.inbox(session.WaitingQuery{UserID: "bob"})
	slices.Sort(got)
	equal(t, "whose it is", got, []string{"a/p1", "b/p1"})
	equal(t, "everybody's, still", len(t.inbox(session.WaitingQuery{})), 3)

	t.create("root", of("ann"))
	t.create("child", of("ann"), func(s *session.State) { s.ParentID, s.RootID = "root", "root" })
	t.suspendFor("child", "p1")
	equal(t, "of an agent below", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"child/p1"})
	saved = t.load("root")
	saved.UserID = "eve"
	t.ok(session.Save(ctx, t.store(), saved), "save")
	equal(t, "of an agent below a conversation that is another's now", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{})
}

func waitingGiven(t *bed) {
	ctx := t.Context()
	below := func(id, parent, root, user string) {
		t.create(id, of(user), func(s *session.State) { s.ParentID, s.RootID = parent, root })
	}
	t.create("root", of("ann"))
	below("child", "root", "root", "ann")
	below("grandchild", "child", "root", "ann")
	below("bobs", "root", "root", "bob")
	below("busy", "child", "", "ann")
	t.suspendFor("grandchild", "p1")
	running := t.start("busy", "run-1")
	saved := t.load("root")
	stale := t.load("root")
	saved.UserID = "eve"
	t.ok(session.Save(ctx, t.store(), saved), "save")
	stale.UserID = "mallory"
	t.refused(session.Save(ctx, t.store(), stale), session.ErrStale, "a save of what has changed")
	for _, c := range []struct {
		user  string
		calls []string
		is    map[session.Activity][]string
	}{
		{"ann", []string{}, nil},
		{"mallory", []string{}, nil},
		{"bob", []string{}, map[session.Activity][]string{session.ActivityNew: {"bobs"}}},
		{"eve", []string{"grandchild/p1"}, map[session.Activity][]string{
			session.ActivityNew: {"child", "root"}, session.ActivityWaiting: {"grandchild"}, session.ActivityRunning: {"busy"},
		}},
	} {
		page, err := t.store().Waiting(ctx, session.WaitingQuery{UserID: c.user, PageRequest: session.PageRequest{Total: true}})
		t.ok(err, "Waiting")
		equal(t, "calls of "+c.user, waitingIDs(page.Items), c.calls)
		equal(t, "total of "+c.user, *page.Total, len(c.calls))
		for _, item := range page.Items {
			equal(t, "user", item.UserID, c.user)
			equal(t, "conversation", item.RootID, "root")
		}
		for _, activity := range session.Activities() {
			list, err := t.store().List(ctx, session.Query{UserID: c.user, Activity: activity})
			t.ok(err, "List")
			got := []string{}
			for i := range list.Items {
				got = append(got, list.Items[i].ID)
			}
			slices.Sort(got)
			equal(t, fmt.Sprintf("sessions of %s that are %s", c.user, activity), got, append([]string{}, c.is[activity]...))
		}
	}
	equal(t, "whose the session below is", t.load("grandchild").UserID, "eve")
	running.commit(session.Change{Pending: []session.Pending{waiting("p2")}})
	equal(t, "a call that a run below makes after", t.inbox(session.WaitingQuery{UserID: "eve"}), []string{"grandchild/p1", "busy/p2"})
	equal(t, "whose it was", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{})
}

func waitingTenants(t *bed) {
	north, south := t.of("north"), t.of("south")
	north.asks("a", "ann", "p1")
	south.asks("a", "ann", "p1", "p2")
	for _, userID := range []string{"ann", ""} {
		q := session.WaitingQuery{UserID: userID}
		equal(t, "one tenant's", north.inbox(q), []string{"a/p1"})
		got := south.inbox(q)
		slices.Sort(got)
		equal(t, "another's", got, []string{"a/p1", "a/p2"})
		equal(t, "a third one's", t.of("west").inbox(q), []string{})
	}
}

func (t *bed) waitingPage(q session.WaitingQuery) func(session.PageRequest) (session.Page[session.Waiting], error) {
	return func(page session.PageRequest) (session.Page[session.Waiting], error) {
		q.PageRequest = page
		return t.store().Waiting(t.Context(), q)
	}
}

func waitingPages(t *bed) {
	for i := range 4 {
		t.asks(fmt.Sprintf("s%d", i), "ann", "p1", "p2")
		t.asks(fmt.Sprintf("other%d", i), "bob", "p1")
	}
	for _, q := range []session.WaitingQuery{{}, {NewestFirst: true}, {UserID: "ann"}, {UserID: "ann", NewestFirst: true}} {
		all := t.inbox(q)
		want := 12
		if q.UserID != "" {
			want = 8
		}
		equal(t, fmt.Sprintf("calls of %+v", q), len(all), want)
		for _, limit := range []int{1, 3, 7, 8, 12} {
			equal(t, fmt.Sprintf("pages of %d for %+v", limit, q), pages(t, limit, t.waitingPage(q), waitingID), all)
		}
		q.Limit, q.Total = 2, true
		page, err := t.store().Waiting(t.Context(), q)
		t.ok(err, "Waiting")
		equal(t, "total", *page.Total, want)
		equal(t, "limit", page.Limit, 2)
	}
}

func waitingPageBytes(t *bed) {
	t.create("a", of("ann"))
	r := t.start("a", "run-1")
	for i := range 30 {
		p := waiting(fmt.Sprintf("p%02d", i))
		p.Input = raw(`"` + strings.Repeat("x", 98) + `"`)
		r.commit(session.Change{Pending: []session.Pending{p}})
	}
	all := t.inbox(session.WaitingQuery{})
	equal(t, "calls", len(all), 30)
	for _, c := range []struct {
		bytes int64
		want  int
	}{{1, 1}, {100, 1}, {250, 2}, {2500, 25}, {3000, 30}, {0, 30}} {
		var got []string
		for cursor := ""; ; {
			page, err := t.store().Waiting(t.Context(), session.WaitingQuery{PageRequest: session.PageRequest{MaxBytes: c.bytes, Cursor: cursor}})
			t.ok(err, "Waiting")
			if cursor == "" {
				equal(t, fmt.Sprintf("calls within %d bytes", c.bytes), len(page.Items), c.want)
			}
			got = append(got, waitingIDs(page.Items)...)
			if !page.HasMore {
				break
			}
			cursor = page.Next
		}
		equal(t, fmt.Sprintf("pages of %d bytes", c.bytes), got, all)
	}
}

func waitingPageMoves(t *bed) {
	for i := range 6 {
		t.asks(fmt.Sprintf("s%d", i), "ann", "p1")
	}
	q := session.WaitingQuery{UserID: "ann", PageRequest: session.PageRequest{Limit: 3}}
	first, err := t.store().Waiting(t.Context(), q)
	t.ok(err, "Waiting")
	equal(t, "the first page", waitingIDs(first.Items), []string{"s0/p1", "s1/p1", "s2/p1"})
	for _, id := range []string{"s0", "s2", "s4"} {
		equal(t, "outcome", t.submit(id, answer("p1", `1`)), session.SubmitAccepted)
	}
	t.asks("s6", "ann", "p1")
	q.Cursor = first.Next
	equal(t, "the rest", t.inbox(q), []string{"s3/p1", "s5/p1", "s6/p1"})
}

func waitingPageInvalid(t *bed) {
	for _, page := range []session.PageRequest{{Cursor: "!"}, {Cursor: "bm9uc2Vuc2U"}, {Offset: -1}} {
		_, err := t.store().Waiting(t.Context(), session.WaitingQuery{PageRequest: page})
		t.refused(err, session.ErrInvalid, fmt.Sprintf("%+v", page))
	}
}

func waitingPageFar(t *bed) {
	t.asks("a", "ann", "p1", "p2")
	for _, offset := range []int{2, 1_000_000, math.MaxInt} {
		for _, userID := range []string{"ann", ""} {
			page, err := t.store().Waiting(t.Context(), session.WaitingQuery{
				UserID: userID, PageRequest: session.PageRequest{Offset: offset, MaxBytes: 1 << 20, Total: true},
			})
			t.ok(err, "Waiting")
			equal(t, fmt.Sprintf("calls from %d on", offset), waitingIDs(page.Items), []string{})
			equal(t, "has more", page.HasMore, false)
			equal(t, "total", *page.Total, 2)
		}
	}
}

func waitingPageCorrupt(t *bed) {
	for _, id := range []string{"a", "bad", "b", "c", "d"} {
		t.asks(id, "ann", "p1")
	}
	t.Corrupt(t.TB, RowPending, t.tenant, "bad")
	for _, userID := range []string{"ann", ""} {
		for limit := 1; limit <= 5; limit++ {
			got := pages(t, limit, t.waitingPage(session.WaitingQuery{UserID: userID}), waitingID)
			equal(t, fmt.Sprintf("pages of %d", limit), got, []string{"a/p1", "b/p1", "c/p1", "d/p1"})
		}
	}
}

func waitingCircle(t *bed) {
	t.create("a", of("ann"), func(s *session.State) { s.ParentID = "b" })
	t.create("b", of("ann"), func(s *session.State) { s.ParentID = "a" })
	t.suspendFor("a", "p1")
	equal(t, "calls", t.inbox(session.WaitingQuery{UserID: "ann"}), []string{"a/p1"})
	t.create("c", of("ann"), func(s *session.State) { s.ParentID, s.RootID = "gone", "gone" })
	t.suspendFor("c", "p1")
	equal(t, "calls below a missing session", t.inbox(session.WaitingQuery{}), []string{"a/p1", "c/p1"})
}
