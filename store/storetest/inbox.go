package storetest

import (
	"time"

	"github.com/helixagents/helix/session"
)

func inboxCases() []testCase {
	return []testCase{
		{"send", "an entry keeps every field, is listed oldest first, and does not change the version", 0, send},
		{"send-once", "an entry that is sent again is stored once and does not change", 0, sendOnce},
		{"send-consumed", "an entry that is sent again after it was consumed stays consumed", 0, sendConsumed},
		{"send-running", "entries may be sent while another owner holds the lease", 0, sendRunning},
		{"send-missing", "an entry to a session that does not exist is not found", 0, sendMissing},
		{"wake", "a wake is listed until it is deleted, once per child", 0, wakes},
		{"wake-missing", "a wake for a session that does not exist is not found", 0, wakeMissing},
		{"wake-later", "deleting a delivered wake does not delete that of a later run", 0, wakeLater},
		{"wake-commit", "a child's last commit stores a wake for its parent", 0, wakeCommit},
	}
}

func (t *bed) inboxIs(id string, want ...string) []session.InboxEntry {
	t.Helper()
	entries, err := t.store().Inbox(t.Context(), id)
	t.ok(err, "Inbox")
	got := make([]string, len(entries))
	for i := range entries {
		got[i] = entries[i].ID
	}
	sameJSON(t, "inbox of "+id, got, append([]string{}, want...))
	return entries
}

func send(t *bed) {
	t.create("a")
	version := t.load("a").Version
	t.inboxIs("a")
	first := session.InboxEntry{ID: "z", From: "kid", Kind: "done", Body: raw(`{"html":"<b>&","n":1.0}`), At: noon}
	t.ok(t.store().Send(t.Context(), "a", first), "Send")
	t.ok(t.store().Send(t.Context(), "a", session.InboxEntry{ID: "b", Kind: "note", At: noon.Add(time.Second)}), "Send")
	entries := t.inboxIs("a", "z", "b")
	equal(t, "from", entries[0].From, "kid")
	equal(t, "kind", entries[0].Kind, "done")
	equal(t, "body", string(entries[0].Body), string(first.Body))
	sameTime(t, "at", entries[0].At, noon)
	equal(t, "version", t.load("a").Version, version)
	t.create("b")
	t.inboxIs("b")
}

func sendOnce(t *bed) {
	t.create("a")
	t.ok(t.store().Send(t.Context(), "a", session.InboxEntry{ID: "e1", Kind: "note", Body: raw(`1`), At: noon}), "Send")
	t.ok(t.store().Send(t.Context(), "a", session.InboxEntry{ID: "e1", Kind: "note", Body: raw(`2`), At: noon.Add(1)}), "Send again")
	entries := t.inboxIs("a", "e1")
	equal(t, "body", string(entries[0].Body), `1`)
	// The id is scoped to the session: another one may have the same.
	t.create("b")
	t.ok(t.store().Send(t.Context(), "b", session.InboxEntry{ID: "e1", Kind: "note", Body: raw(`3`), At: noon}), "Send to another")
	equal(t, "body", string(t.inboxIs("b", "e1")[0].Body), `3`)
}

func sendConsumed(t *bed) {
	r := t.running("a")
	entry := session.InboxEntry{ID: "e1", Kind: "note", At: noon}
	t.ok(t.store().Send(t.Context(), "a", entry), "Send")
	r.commit(session.Change{Consume: []string{"e1"}})
	t.ok(t.store().Send(t.Context(), "a", entry), "Send repeated by a sender that does not know it had succeeded")
	t.inboxIs("a")
	equal(t, "inbox", r.commit(session.Change{}).Inbox, false)
}

func sendRunning(t *bed) {
	r := t.running("a")
	t.ok(t.store().Send(t.Context(), "a", session.InboxEntry{ID: "e1", Kind: "note"}), "Send during a run")
	equal(t, "inbox", r.commit(session.Change{}).Inbox, true)
}

func sendMissing(t *bed) {
	t.refused(t.store().Send(t.Context(), "nobody", session.InboxEntry{ID: "e1", Kind: "note"}), session.ErrNotFound, "Send")
	_, err := t.store().Inbox(t.Context(), "nobody")
	t.refused(err, session.ErrNotFound, "Inbox")
	t.exists("nobody", false)
	t.create("a")
	t.refused(t.store().Send(t.Context(), "a", session.InboxEntry{Kind: "note"}), session.ErrInvalid, "Send without an id")
	t.inboxIs("a")
}

// wakes lists those of the case's own tenant.
func (t *bed) wakes(s session.Store) []session.Wake {
	t.Helper()
	all, err := s.Wakes(t.Context(), session.WakeRequest{Limit: everythingDue})
	t.ok(err, "Wakes")
	var own []session.Wake // nil if it has none, whatever other tenants have
	for _, w := range all {
		if w.Tenant == t.tenant {
			own = append(own, w)
		}
	}
	return own
}

func (t *bed) wakesAre(want ...string) []session.Wake {
	t.Helper()
	list := t.wakes(t.store())
	got := make([]string, len(list))
	for i := range list {
		got[i] = list[i].SessionID + "<" + list[i].ChildID
	}
	sameJSON(t, "wakes", got, append([]string{}, want...))
	return list
}

func wakeMissing(t *bed) {
	wake := session.Wake{Tenant: t.tenant, SessionID: "nobody", ChildID: "kid-1", RunID: "run-1", At: noon}
	t.refused(t.store().PutWake(t.Context(), wake), session.ErrNotFound, "PutWake")
	t.wakesAre()
}

func wakes(t *bed) {
	t.create("a")
	version := t.load("a").Version
	t.wakesAre()
	one := session.Wake{Tenant: t.tenant, SessionID: "a", ChildID: "kid-1", RunID: "run-1", At: noon}
	two := session.Wake{Tenant: t.tenant, SessionID: "a", ChildID: "kid-2", RunID: "run-2", At: noon.Add(time.Second)}
	t.ok(t.store().PutWake(t.Context(), two), "PutWake")
	t.ok(t.store().PutWake(t.Context(), one), "PutWake")
	t.ok(t.store().PutWake(t.Context(), one), "PutWake again")
	list := t.wakesAre("a<kid-1", "a<kid-2")
	equal(t, "tenant", list[0].Tenant, t.tenant)
	equal(t, "run", list[0].RunID, "run-1")
	t.ok(t.store().DeleteWake(t.Context(), list[0]), "DeleteWake")
	t.wakesAre("a<kid-2")
	t.ok(t.store().DeleteWake(t.Context(), list[0]), "DeleteWake again")
	t.wakesAre("a<kid-2")
	equal(t, "version", t.load("a").Version, version)
	t.ok(t.delete("a"), "delete")
	t.wakesAre()
}

func wakeLater(t *bed) {
	t.create("a")
	first := session.Wake{Tenant: t.tenant, SessionID: "a", ChildID: "kid", RunID: "run-1", At: noon}
	later := first
	later.RunID = "run-2"
	t.ok(t.store().PutWake(t.Context(), first), "PutWake")
	t.ok(t.store().PutWake(t.Context(), later), "PutWake of a later run")
	equal(t, "run", t.wakesAre("a<kid")[0].RunID, "run-2")
	t.ok(t.store().DeleteWake(t.Context(), first), "DeleteWake of the earlier")
	t.wakesAre("a<kid")
	t.ok(t.store().DeleteWake(t.Context(), later), "DeleteWake")
	t.wakesAre()
}

func wakeCommit(t *bed) {
	t.create("parent")
	t.create("kid", func(s *session.State) { s.ParentID, s.RootID = "parent", "parent" })
	r := t.start("kid", "run-1")
	change := outcome(session.RunCompleted)
	change.Wake = &session.Wake{Tenant: t.tenant, SessionID: "parent", ChildID: "kid", RunID: "run-1", At: noon}
	stale := r.request(change)
	stale.Version--
	r.refuse(stale, session.ErrStale)
	t.wakesAre()
	r.commit(change)
	list := t.wakesAre("parent<kid")
	equal(t, "run", list[0].RunID, "run-1")
	equal(t, "tenant", list[0].Tenant, t.tenant)
}
