package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

func listingCases() []testCase {
	return []testCase{
		{"newest-first", "sessions are listed newest first", 0, listNewestFirst},
		{"summary", "a summary agrees with the document", 0, listSummary},
		{"filters", "a filter selects the sessions that match it; several filters select those that match all", 0, listFilters},
		{"dates", "sessions are selected by creation time", 0, listDates},
		{"pages", "pages follow each other by cursor and by offset, each session once", 0, listPages},
		{"page-moves", "a session that changes while a client pages is neither lost nor repeated", 0, listPageMoves},
		{"refused", "a refused creation of an existing session does not change the listing", 0, listRefused},
		{"remade", "a session created again under a deleted id is listed by its own creation time", 0, listRemade},
		{"page-invalid", "an invalid cursor or offset is refused", 0, listPageInvalid},
		{"follows", "a listing follows changes of status, tags and metadata", 0, listFollows},
		{"nothing", "a listing that finds nothing is empty, not an error", 0, listNothing},
		{"activity", "sessions are listed with their activity, and selected by it", clock, listActivity},
		{"activity-agrees", "a session's activity agrees with its status and the status of its run", 0, listActivityAgrees},
		{"activity-moves", "a session is listed under its current activity at every moment, and under no other", 0, listActivityMoves},
		{"running-again", "a session is running from each start to the end of that run, and not once it is deleted", 0, listRunningAgain},
		{"running-pages", "running sessions can be paged, counted and combined with other filters", 0, listRunningPages},
		{"running-races", "a running session is listed at every moment, whatever other sessions do", second, listRunningRaces},
		{"user-labels", "a user's sessions are listed by tags and metadata, without those of other users", 0, listUserLabels},
	}
}

func (t *bed) listed(q session.Query) []string {
	t.Helper()
	page, err := t.store().List(t.Context(), q)
	t.ok(err, "List")
	ids := make([]string, len(page.Items))
	for i := range page.Items {
		ids[i] = page.Items[i].ID
	}
	return ids
}

func at(when time.Time) func(*session.State) { return func(s *session.State) { s.CreatedAt = when } }

func listNewestFirst(t *bed) {
	for i, id := range []string{"m", "z", "a", "k"} {
		t.create(id, at(noon.Add(time.Duration(i)*time.Second)))
	}
	equal(t, "sessions", t.listed(session.Query{}), []string{"k", "a", "z", "m"})
}

// paged returns the sessions of all pages of one session each.
func (t *bed) paged() []string {
	t.Helper()
	var ids []string
	for q := (session.Query{PageRequest: session.PageRequest{Limit: 1}}); len(ids) < 20; {
		page, err := t.store().List(t.Context(), q)
		t.ok(err, "List")
		for i := range page.Items {
			ids = append(ids, page.Items[i].ID)
		}
		if !page.HasMore {
			break
		}
		q.Cursor = page.Next
	}
	return ids
}

func listRefused(t *bed) {
	for i, id := range []string{"s0", "s1", "s2", "s3"} {
		t.create(id, at(noon.Add(time.Duration(i)*time.Second)))
	}
	late := session.State{ID: "s0", Agent: "tester", Status: session.Active, CreatedAt: noon.Add(time.Hour)}
	t.refused(session.Create(t.Context(), t.store(), &late), session.ErrExists, "Create")
	_, err := t.store().Clone(t.Context(), &session.Clone{From: "s1", To: late})
	t.refused(err, session.ErrExists, "Clone")
	equal(t, "sessions", t.paged(), []string{"s3", "s2", "s1", "s0"})
}

func listRemade(t *bed) {
	for i, id := range []string{"s0", "s1", "s2", "s3"} {
		t.create(id, at(noon.Add(time.Duration(i)*time.Second)))
	}
	for _, id := range []string{"s0", "s3"} {
		_, err := t.store().Delete(t.Context(), id)
		t.ok(err, "Delete")
	}
	t.create("s0", at(noon.Add(time.Hour)))
	t.create("s3", at(noon.Add(-time.Hour)))
	equal(t, "sessions", t.paged(), []string{"s0", "s2", "s1", "s3"})
	equal(t, "later sessions", t.listed(session.Query{CreatedAfter: noon.Add(time.Minute)}), []string{"s0"})
}

func listSummary(t *bed) {
	t.create("a", func(s *session.State) {
		s.UserID, s.Agent, s.ParentID, s.RootID = "u", "writer", "p", "p"
		s.Tags, s.Metadata = []string{"b", "a"}, map[string]string{"k": "<v>"}
	})
	r := t.start("a", "run-1")
	r.commit(session.Change{Messages: []session.Message{user("u1", "1"), user("u2", "2")}, Status: session.Completed, Outcome: &session.Outcome{Status: session.RunCompleted}})
	page, err := t.store().List(t.Context(), session.Query{})
	t.ok(err, "List")
	equal(t, "sessions", len(page.Items), 1)
	got, state := page.Items[0], t.load("a")
	equal(t, "key", got.Key, session.Key{Tenant: t.tenant, ID: "a"})
	equal(t, "agent", got.Agent, "writer")
	equal(t, "status", got.Status, session.Completed)
	equal(t, "user", got.UserID, "u")
	equal(t, "parent", got.ParentID, "p")
	equal(t, "tags", got.Tags, []string{"b", "a"})
	equal(t, "metadata", got.Metadata, map[string]string{"k": "<v>"})
	equal(t, "turn", got.Turn, 1)
	equal(t, "message count", got.MessageCount, 2)
	sameTime(t, "created at", got.CreatedAt, state.CreatedAt)
	sameTime(t, "updated at", got.UpdatedAt, state.UpdatedAt)
}

func listFilters(t *bed) {
	add := func(id, user, agent string, status session.Status, tags []string, metadata map[string]string, parent string) {
		t.create(id, func(s *session.State) {
			s.UserID, s.Agent, s.Status, s.Tags, s.Metadata = user, agent, status, tags, metadata
			s.ParentID, s.RootID = parent, parent
		})
	}
	add("a", "ann", "writer", session.Active, []string{"x", "y"}, map[string]string{"k": "1", "l": "2"}, "")
	add("b", "bob", "writer", session.Completed, []string{"x"}, map[string]string{"k": "1"}, "")
	add("c", "ann", "reader", session.Failed, []string{"y", "x%"}, map[string]string{"k": "2"}, "a")
	add("d", "ann%", "write_", session.Paused, nil, nil, "a")
	all, err := t.store().List(t.Context(), session.Query{})
	t.ok(err, "List")
	for _, c := range []struct {
		what string
		q    session.Query
		want string
	}{
		{"everything", session.Query{}, "a b c d"},
		{"user", session.Query{UserID: "ann"}, "a c"},
		{"user with a wildcard", session.Query{UserID: "ann%"}, "d"},
		{"agent", session.Query{Agent: "writer"}, "a b"},
		{"agent with a wildcard", session.Query{Agent: "write_"}, "d"},
		{"a status", session.Query{Statuses: []session.Status{session.Failed}}, "c"},
		{"statuses", session.Query{Statuses: []session.Status{session.Active, session.Paused}}, "a d"},
		{"a tag", session.Query{Tags: []string{"x"}}, "a b"},
		{"both tags", session.Query{Tags: []string{"x", "y"}}, "a"},
		{"a tag twice", session.Query{Tags: []string{"x", "x"}}, "a b"},
		{"a tag with a wildcard", session.Query{Tags: []string{"x%"}}, "c"},
		{"no such tag", session.Query{Tags: []string{"z"}}, ""},
		{"metadata", session.Query{Metadata: map[string]string{"k": "1"}}, "a b"},
		{"two entries", session.Query{Metadata: map[string]string{"k": "1", "l": "2"}}, "a"},
		{"no such entry", session.Query{Metadata: map[string]string{"k": ""}}, ""},
		{"parent", session.Query{ParentID: "a"}, "c d"},
		{"roots", session.Query{RootsOnly: true}, "a b"},
		{"several", session.Query{UserID: "ann", Agent: "writer", Tags: []string{"y"}, Statuses: []session.Status{session.Active}}, "a"},
		{"several without a common session", session.Query{UserID: "bob", Tags: []string{"y"}}, ""},
	} {
		got := t.listed(c.q)
		slices.Sort(got)
		equal(t, c.what, strings.Join(got, " "), c.want)
		for _, item := range all.Items {
			equal(t, c.what+" as the domain selects "+item.ID, c.q.Selects(&item), slices.Contains(got, item.ID))
		}
		c.q.Limit, c.q.Total = 1, true
		page, err := t.store().List(t.Context(), c.q)
		t.ok(err, "List")
		equal(t, "total of "+c.what, *page.Total, len(strings.Fields(c.want)))
	}
}

func listDates(t *bed) {
	for i := range 4 {
		t.create(fmt.Sprintf("s%d", i), at(noon.Add(time.Duration(i)*time.Hour)))
	}
	first, third := noon, noon.Add(2*time.Hour)
	equal(t, "after", t.listed(session.Query{CreatedAfter: first.Add(time.Minute), CreatedBefore: third.Add(time.Minute)}), []string{"s2", "s1"})
	equal(t, "after only", t.listed(session.Query{CreatedAfter: third.Add(-time.Microsecond)}), []string{"s3", "s2"})
	equal(t, "before only", t.listed(session.Query{CreatedBefore: first.Add(time.Microsecond)}), []string{"s0"})
	// The zone of a time does not matter.
	zone := time.FixedZone("far", 11*3600)
	equal(t, "before, elsewhere", t.listed(session.Query{CreatedBefore: first.Add(time.Microsecond).In(zone)}), []string{"s0"})
}

func (t *bed) listPage(q session.Query) func(session.PageRequest) (session.Page[session.Summary], error) {
	return func(p session.PageRequest) (session.Page[session.Summary], error) {
		q.PageRequest = p
		return t.store().List(t.Context(), q)
	}
}

func summaryID(s session.Summary) string { return s.ID }

func listPages(t *bed) {
	var want []string
	for i := range 9 {
		id := fmt.Sprintf("s%d", (i*4)%9)
		// Three sessions share each time: a cursor must distinguish them.
		t.create(id, at(noon.Add(time.Duration(i/3)*time.Second)), func(s *session.State) { s.Tags = []string{"t"} })
		want = append(want, id)
	}
	slices.Sort(want)
	all := t.listed(session.Query{})
	for _, limit := range []int{1, 2, 3, 4, 8, 9, 10} {
		for _, q := range []session.Query{{}, {Tags: []string{"t"}}} {
			got := pages(t, limit, t.listPage(q), summaryID)
			equal(t, fmt.Sprintf("pages of %d", limit), got, all)
			slices.Sort(got)
			equal(t, "each session once", got, want)
		}
	}
	page, err := t.store().List(t.Context(), session.Query{PageRequest: session.PageRequest{Offset: 7, Limit: 5, Total: true}})
	t.ok(err, "page by offset")
	equal(t, "items", len(page.Items), 2)
	equal(t, "first", page.Items[0].ID, all[7])
	equal(t, "total", *page.Total, 9)
	equal(t, "has more", page.HasMore, false)
}

func listPageMoves(t *bed) {
	for i := range 6 {
		t.create(fmt.Sprintf("s%d", i), at(noon.Add(time.Duration(i)*time.Second)))
	}
	first, err := t.store().List(t.Context(), session.Query{PageRequest: session.PageRequest{Limit: 3}})
	t.ok(err, "List")
	_, err = session.Merge(t.Context(), t.store(), "s0", put("k", `1`)) // it changes, but keeps its creation time
	t.ok(err, "merge")
	_, err = session.Merge(t.Context(), t.store(), "s5", put("k", `1`))
	t.ok(err, "merge")
	t.create("s9", at(noon.Add(time.Minute)))
	t.ok(t.delete("s3"), "delete the one the cursor points at")
	rest, err := t.store().List(t.Context(), session.Query{PageRequest: session.PageRequest{Limit: 10, Cursor: first.Next}})
	t.ok(err, "List")
	var got []string
	for _, s := range rest.Items {
		got = append(got, s.ID)
	}
	equal(t, "the page after", got, []string{"s2", "s1", "s0"})
}

func listPageInvalid(t *bed) {
	for _, p := range []session.PageRequest{{Cursor: "not a cursor"}, {Cursor: "bm90IGpzb24"}, {Offset: -1}} {
		_, err := t.store().List(t.Context(), session.Query{PageRequest: p})
		t.refused(err, session.ErrInvalid, fmt.Sprintf("page %+v", p))
	}
}

func listFollows(t *bed) {
	t.create("a", func(s *session.State) { s.Tags, s.Metadata = []string{"old"}, map[string]string{"k": "old"} })
	state := t.load("a")
	state.Tags, state.UserID, state.Agent = []string{"new", "newer"}, "someone", "other"
	t.ok(session.Save(t.Context(), t.store(), state), "save")
	t.ok(session.PatchMetadata(t.Context(), t.store(), "a", map[string]*string{"k": new("new"), "l": new("1")}), "patch")
	_, err := t.store().SetStatus(t.Context(), "a", session.StatusChange{Expect: session.Statuses(), To: session.Completed})
	t.ok(err, "SetStatus")
	for _, q := range []session.Query{
		{Tags: []string{"old"}},
		{Metadata: map[string]string{"k": "old"}},
		{Statuses: []session.Status{session.Active}},
		{Agent: "tester"},
	} {
		equal(t, fmt.Sprintf("sessions for %+v", q), len(t.listed(q)), 0)
	}
	for _, q := range []session.Query{
		{Tags: []string{"newer", "new"}},
		{Metadata: map[string]string{"k": "new", "l": "1"}},
		{Statuses: []session.Status{session.Completed}},
		{Agent: "other"},
		{UserID: "someone"},
	} {
		equal(t, fmt.Sprintf("sessions for %+v", q), len(t.listed(q)), 1)
	}
}

func listNothing(t *bed) {
	page, err := t.store().List(t.Context(), session.Query{PageRequest: session.PageRequest{Total: true}})
	t.ok(err, "List")
	equal(t, "items", len(page.Items), 0)
	equal(t, "total", *page.Total, 0)
	equal(t, "has more", page.HasMore, false)
	equal(t, "next", page.Next, "")
}

// of sets a document's user.
func of(userID string) func(*session.State) { return func(s *session.State) { s.UserID = userID } }

// does returns a query by activity.
func does(activity session.Activity, userID string) session.Query {
	return session.Query{Activity: activity, UserID: userID}
}

func listActivity(t *bed) {
	ctx := t.Context()
	ids := []string{"new", "done", "waits", "waits-below", "partly", "stopped", "runs", "child", "expired", "left", "paused", "failed", "others"}
	for i, id := range ids {
		t.create(id, at(noon.Add(time.Duration(i)*time.Second)), of("ann"), func(s *session.State) {
			if id == "child" {
				s.ParentID, s.RootID = "runs", "runs"
			}
			if id == "others" {
				s.UserID = "bob"
			}
		})
	}
	t.start("done", "run-1").finish(session.RunCompleted)
	t.start("waits", "run-1").finish(session.RunSuspendedClientTool)
	t.start("waits-below", "run-1").finish(session.RunSuspendedChildren)
	t.start("partly", "run-1").finish(session.RunSuspendedPartial)
	t.start("stopped", "run-1").finish(session.RunInterrupted)
	t.start("failed", "run-1").finish(session.RunFailed)
	for _, id := range []string{"runs", "child", "others"} {
		t.start(id, "run-1").commit(step(1, "cp-"+id, user("u1", "x")))
	}
	for _, id := range []string{"expired", "paused"} {
		start := t.startOf(id, "run-1")
		start.TTL = t.ttl()
		t.begin(start)
	}
	left := t.start("left", "run-1")
	t.ok(t.store().CloseRun(ctx, "left", left.fence, false), "release the lease")
	t.pass(2 * t.ttl())
	_, err := t.store().SetStatus(ctx, "paused", session.StatusChange{Expect: session.Statuses(), To: session.Paused})
	t.ok(err, "pause")
	for _, c := range []struct {
		what string
		q    session.Query
		want []string
	}{
		{"new", does(session.ActivityNew, ""), []string{"new"}},
		{"a user's new", does(session.ActivityNew, "ann"), []string{"new"}},
		{"running", does(session.ActivityRunning, ""), []string{"others", "left", "expired", "child", "runs"}},
		{"a user's running", does(session.ActivityRunning, "ann"), []string{"left", "expired", "child", "runs"}},
		{"another's running", does(session.ActivityRunning, "bob"), []string{"others"}},
		{"nobody's running", does(session.ActivityRunning, "eve"), []string{}},
		{"waiting", does(session.ActivityWaiting, ""), []string{"partly", "waits-below", "waits"}},
		{"a user's waiting", does(session.ActivityWaiting, "ann"), []string{"partly", "waits-below", "waits"}},
		{"another's waiting", does(session.ActivityWaiting, "bob"), []string{}},
		{"stopped", does(session.ActivityStopped, ""), []string{"paused", "stopped"}},
		{"a user's stopped", does(session.ActivityStopped, "ann"), []string{"paused", "stopped"}},
		{"failed", does(session.ActivityFailed, ""), []string{"failed"}},
		{"a user's failed", does(session.ActivityFailed, "ann"), []string{"failed"}},
		{"done", does(session.ActivityDone, ""), []string{"done"}},
		{"a user's done", does(session.ActivityDone, "ann"), []string{"done"}},
	} {
		equal(t, c.what, t.listed(c.q), c.want)
	}
	roots := does(session.ActivityRunning, "ann")
	roots.RootsOnly = true
	equal(t, "a user's roots", t.listed(roots), []string{"left", "expired", "runs"})
	equal(t, "children", t.listed(session.Query{Activity: session.ActivityRunning, ParentID: "runs"}), []string{"child"})
	equal(t, "children that rest", t.listed(session.Query{Activity: session.ActivityDone, ParentID: "runs"}), []string{})
	interrupted := does(session.ActivityStopped, "")
	interrupted.Statuses = []session.Status{session.Interrupted}
	equal(t, "stopped, of a status", t.listed(interrupted), []string{"stopped"})
	other := t.store().Tenant("elsewhere")
	page, err := other.List(ctx, does(session.ActivityWaiting, ""))
	t.ok(err, "List")
	equal(t, "another tenant's", len(page.Items), 0)
}

// listActivityAgrees compares a store's activity with the domain's rule, for each
// status that a session can have after each way in which its run can end.
func listActivityAgrees(t *bed) {
	ctx := t.Context()
	ends := append([]session.RunStatus{""}, session.RunStatuses()...)
	want := map[string]session.Activity{}
	for _, end := range ends {
		for _, status := range session.Statuses() {
			id := fmt.Sprintf("%s-%s", status, end)
			t.create(id, of("ann"))
			switch end {
			case "":
			case session.RunRunning:
				t.start(id, "run-1")
			default:
				t.start(id, "run-1").finish(end)
			}
			was := t.load(id)
			if end != session.RunRunning && was.Status.CanBecome(status) {
				_, err := t.store().SetStatus(ctx, id, session.StatusChange{Expect: []session.Status{was.Status}, To: status})
				t.ok(err, "set the status")
				was.Status = status
			}
			want[id] = session.ActivityOf(was.Status, end)
			equal(t, "activity of "+id, t.load(id).Activity, want[id])
		}
	}
	page, err := t.store().List(ctx, session.Query{PageRequest: session.PageRequest{Limit: session.MaxPageSize}})
	t.ok(err, "List")
	equal(t, "sessions", len(page.Items), len(want))
	for _, item := range page.Items {
		equal(t, "activity of "+item.ID+" in a list", item.Activity, want[item.ID])
	}
	for _, userID := range []string{"", "ann"} {
		for _, activity := range session.Activities() {
			var ids []string
			for id, is := range want {
				if is == activity {
					ids = append(ids, id)
				}
			}
			q := does(activity, userID)
			q.Limit = session.MaxPageSize
			found := t.listed(q)
			slices.Sort(ids)
			slices.Sort(found)
			equal(t, fmt.Sprintf("%s sessions of %q", activity, userID), found, ids)
		}
	}
}

func listActivityMoves(t *bed) {
	ctx := t.Context()
	is := func(when string, want session.Activity) {
		t.Helper()
		for _, userID := range []string{"", "ann"} {
			for _, activity := range session.Activities() {
				ids := []string{}
				if activity == want {
					ids = []string{"a"}
				}
				equal(t, fmt.Sprintf("%s: %s sessions of %q", when, activity, userID), t.listed(does(activity, userID)), ids)
			}
		}
		equal(t, when+": activity", t.load("a").Activity, want)
	}
	t.create("a", of("ann"))
	is("once it is made", session.ActivityNew)
	r := t.start("a", "run-1")
	is("while it runs", session.ActivityRunning)
	r.finish(session.RunSuspendedClientTool)
	is("while it waits", session.ActivityWaiting)
	_, err := t.store().SetStatus(ctx, "a", session.StatusChange{Expect: []session.Status{session.Active}, To: session.Paused})
	t.ok(err, "pause")
	is("while it is paused", session.ActivityStopped)
	_, err = t.store().SetStatus(ctx, "a", session.StatusChange{Expect: []session.Status{session.Paused}, To: session.Active})
	t.ok(err, "unpause it")
	is("once it may continue", session.ActivityWaiting)
	t.start("a", "run-2").finish(session.RunInterrupted)
	is("once it was interrupted", session.ActivityStopped)
	t.start("a", "run-3").finish(session.RunFailed)
	is("once it has failed", session.ActivityFailed)
	t.start("a", "run-4").finish(session.RunCompleted)
	is("once it is done", session.ActivityDone)
	t.start("a", "run-5").finish(session.RunSuspendedChildren)
	is("while it waits again", session.ActivityWaiting)
	_, err = t.store().SetStatus(ctx, "a", session.StatusChange{Expect: []session.Status{session.Active}, To: session.Failed})
	t.ok(err, "fail it")
	is("once it was aborted", session.ActivityFailed)
	saved := t.load("a")
	saved.UserID = "bob"
	t.ok(session.Save(ctx, t.store(), saved), "save")
	equal(t, "the user it had", t.listed(does(session.ActivityFailed, "ann")), []string{})
	equal(t, "the user it has", t.listed(does(session.ActivityFailed, "bob")), []string{"a"})
	saved = t.load("a")
	saved.Activity = session.ActivityRunning
	t.ok(session.Save(ctx, t.store(), saved), "save")
	equal(t, "an activity that a caller set", t.load("a").Activity, session.ActivityFailed)
	t.ok(t.delete("a"), "delete")
	for _, activity := range session.Activities() {
		equal(t, "once it is deleted", t.listed(does(activity, "")), []string{})
	}
	clone, err := t.store().Clone(ctx, &session.Clone{From: t.create("b", of("ann")).ID, To: session.State{ID: "c", UserID: "ann"}})
	t.ok(err, "clone")
	equal(t, "activity of a copy", clone.Activity, session.ActivityNew)
	equal(t, "the copy and its source", len(t.listed(does(session.ActivityNew, "ann"))), 2)
}

func listRunningAgain(t *bed) {
	q := session.Query{Activity: session.ActivityRunning, UserID: "ann"}
	state := blank("a")
	state.UserID = "ann"
	r := t.begin(createAndStart(state, "run-1"))
	equal(t, "while the first run runs", t.listed(q), []string{"a"})
	r.finish(session.RunCompleted)
	equal(t, "after the first run", t.listed(q), []string{})
	r = t.start("a", "run-2")
	equal(t, "while the second run runs", t.listed(q), []string{"a"})
	r.commit(step(1, "cp", user("u1", "x")))
	equal(t, "after a step", t.listed(q), []string{"a"})
	r.finish(session.RunSuspendedClientTool)
	equal(t, "while it waits", t.listed(q), []string{})
	saved := t.load("a")
	saved.UserID = "bob"
	t.ok(session.Save(t.Context(), t.store(), saved), "save")
	t.start("a", "run-3")
	equal(t, "the user it had", t.listed(q), []string{})
	equal(t, "the user it has", t.listed(session.Query{Activity: session.ActivityRunning, UserID: "bob"}), []string{"a"})
	t.ok(t.delete("a"), "delete")
	equal(t, "once it is deleted", t.listed(session.Query{Activity: session.ActivityRunning}), []string{})
	t.create("a", of("bob"))
	equal(t, "another of its id, at rest", t.listed(session.Query{Activity: session.ActivityRunning}), []string{})
	t.start("a", "run-1")
	equal(t, "another of its id", t.listed(session.Query{Activity: session.ActivityRunning, UserID: "bob"}), []string{"a"})
}

func listRunningPages(t *bed) {
	var want []string
	for i := range 7 {
		id := fmt.Sprintf("s%d", (i*4)%7)
		t.create(id, at(noon.Add(time.Duration(i/2)*time.Second)), of("ann"), func(s *session.State) {
			s.Tags, s.Metadata = []string{"t", id}, map[string]string{"k": "v"}
		})
		r := t.start(id, "run-1")
		if i%3 == 2 {
			r.finish(session.RunCompleted)
			continue
		}
		want = append(want, id)
	}
	for _, q := range []session.Query{
		{Activity: session.ActivityRunning},
		{Activity: session.ActivityRunning, UserID: "ann"},
		{Activity: session.ActivityRunning, UserID: "ann", Tags: []string{"t"}},
		{Activity: session.ActivityRunning, Metadata: map[string]string{"k": "v"}},
	} {
		all := t.listed(q)
		for _, limit := range []int{1, 2, 5, 6} {
			equal(t, fmt.Sprintf("pages of %d for %+v", limit, q), pages(t, limit, t.listPage(q), summaryID), all)
		}
		slices.Sort(all)
		slices.Sort(want)
		equal(t, "running sessions", all, want)
		q.Limit, q.Total = 2, true
		page, err := t.store().List(t.Context(), q)
		t.ok(err, "List")
		equal(t, "items", len(page.Items), 2)
		equal(t, "has more", page.HasMore, true)
		equal(t, "total", *page.Total, len(want))
	}
	equal(t, "one by its tag", len(t.listed(session.Query{Activity: session.ActivityRunning, Tags: []string{"s0"}})), 1)
}

// listRunningRaces starts and ends runs of some sessions, and requires that a
// session which runs all the time is in every listing made at the same time.
func listRunningRaces(t *bed) {
	t.create("steady", of("ann"))
	r := t.start("steady", "run-1")
	for i := range 4 {
		t.create(fmt.Sprintf("busy%d", i), of("ann"))
	}
	stores := []session.Store{t.store(), t.sessionsOf(t.second())}
	together(6, func(i int) {
		for n := range 6 {
			switch i {
			case 4, 5:
				page, err := stores[i-4].List(t.Context(), session.Query{Activity: session.ActivityRunning, UserID: "ann", RootsOnly: true})
				if err != nil {
					t.Errorf("List: %v", err)
					return
				}
				if !slices.ContainsFunc(page.Items, func(s session.Summary) bool { return s.ID == "steady" }) {
					t.Errorf("a session that is running is not listed")
				}
			default:
				id := fmt.Sprintf("busy%d", i)
				busy := t.start(id, fmt.Sprintf("run-%d", n))
				page, err := stores[i%2].List(t.Context(), session.Query{Activity: session.ActivityRunning, UserID: "ann"})
				if err != nil || !slices.ContainsFunc(page.Items, func(s session.Summary) bool { return s.ID == id }) {
					t.Errorf("a session that has just started is not listed: %v", err)
				}
				busy.finish(session.RunCompleted)
			}
		}
	})
	equal(t, "when all is quiet", t.listed(session.Query{Activity: session.ActivityRunning, UserID: "ann"}), []string{"steady"})
	r.finish(session.RunCompleted)
	equal(t, "in the end", t.listed(session.Query{Activity: session.ActivityRunning, UserID: "ann"}), []string{})
}

func listUserLabels(t *bed) {
	for i := range 8 {
		t.create(fmt.Sprintf("s%d", i), at(noon.Add(time.Duration(i)*time.Second)), func(s *session.State) {
			s.UserID = []string{"ann", "bob"}[i%2]
			s.Tags, s.Metadata = []string{"t", fmt.Sprintf("n%d", i/4)}, map[string]string{"k": "v", "n": fmt.Sprint(i / 4)}
		})
	}
	for _, c := range []struct {
		q    session.Query
		want []string
	}{
		{session.Query{Tags: []string{"t"}}, []string{"s6", "s4", "s2", "s0"}},
		{session.Query{Tags: []string{"t", "n1"}}, []string{"s6", "s4"}},
		{session.Query{Metadata: map[string]string{"k": "v"}}, []string{"s6", "s4", "s2", "s0"}},
		{session.Query{Metadata: map[string]string{"k": "v", "n": "0"}}, []string{"s2", "s0"}},
		{session.Query{Tags: []string{"n1"}, Metadata: map[string]string{"n": "0"}}, []string{}},
		{session.Query{Tags: []string{"t"}, CreatedAfter: noon.Add(time.Second)}, []string{"s6", "s4", "s2"}},
	} {
		c.q.UserID, c.q.Total = "ann", true
		page, err := t.store().List(t.Context(), c.q)
		t.ok(err, "List")
		equal(t, fmt.Sprintf("total for %+v", c.q), *page.Total, len(c.want))
		equal(t, fmt.Sprintf("sessions for %+v", c.q), t.listed(c.q), c.want)
		if len(c.want) > 1 {
			equal(t, fmt.Sprintf("pages for %+v", c.q), pages(t, 1, t.listPage(c.q), summaryID), c.want)
		}
	}
}
