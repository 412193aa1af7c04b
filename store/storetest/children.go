package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
)

func childCases() []testCase {
	return []testCase{
		{"put", "references keep every field, are listed oldest first, and do not change the version", 0, putChildren},
		{"put-again", "putting a reference again replaces it", 0, putChildrenAgain},
		{"put-running", "references may be written while another owner holds the lease", 0, putChildrenRunning},
		{"update", "UpdateChild changes one reference and returns it", 0, updateChild},
		{"update-refused", "UpdateChild of a missing reference, or by a function that fails, changes nothing", 0, updateChildRefused},
		{"awaited", "Load returns the children that a session waits for, and only those", 0, awaitedChildren},
		{"remote", "the remote field of a child round-trips byte for byte", 0, remoteChild},
	}
}

// child returns a reference to a sub-agent's session.
func child(id string) session.ChildRef {
	return session.ChildRef{
		SessionID: id, Agent: "kid", CallID: "call-" + id, RunID: "run-" + id,
		Mode: session.ChildEphemeral, Status: session.ChildRunning, CreatedAt: noon, UpdatedAt: noon,
	}
}

func (t *bed) children(id string) []session.ChildRef {
	t.Helper()
	refs, err := t.store().Children(t.Context(), id)
	t.ok(err, "Children")
	return refs
}

func putChildren(t *bed) {
	t.create("a")
	version := t.load("a").Version
	full := child("z-kid")
	full.Mode, full.Status = session.ChildPersistent, session.ChildWaiting
	full.Name, full.Blocking, full.Awaited, full.StopPending = "bob <the companion>", true, true, true
	full.UpdatedAt = noon.Add(time.Minute)
	full.Extra = session.Extra{"fromTheFuture": raw(`{"a":1}`)}
	later := child("a-kid")
	later.CreatedAt = noon.Add(time.Second)
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{full}), "PutChildren")
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{later}), "PutChildren")
	refs := t.children("a")
	equal(t, "references", len(refs), 2)
	equal(t, "the oldest", refs[0].SessionID, "z-kid")
	sameTime(t, "created at", refs[0].CreatedAt, full.CreatedAt)
	refs[0].UpdatedAt = full.UpdatedAt // the store may record the time of the write
	sameJSON(t, "reference", &refs[0], &full)
	equal(t, "version", t.load("a").Version, version)
	t.refused(session.PutChildren(t.Context(), t.store(), "nobody", []session.ChildRef{full}), session.ErrNotFound, "PutChildren to nothing")
	_, err := t.store().Children(t.Context(), "nobody")
	t.refused(err, session.ErrNotFound, "Children of nothing")
	t.create("b")
	equal(t, "references of a session without", len(t.children("b")), 0)
}

func putChildrenAgain(t *bed) {
	t.create("a")
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{child("kid-1"), child("kid-2")}), "PutChildren")
	changed := child("kid-1")
	changed.Status, changed.RunID = session.ChildCompleted, "run-2"
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{changed}), "PutChildren again")
	refs := t.children("a")
	equal(t, "references", len(refs), 2)
	for _, ref := range refs {
		want := session.ChildRunning
		if ref.SessionID == "kid-1" {
			want = session.ChildCompleted
		}
		equal(t, "status of "+ref.SessionID, ref.Status, want)
	}
}

func putChildrenRunning(t *bed) {
	r := t.running("a")
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{child("kid")}), "PutChildren during a run")
	_, err := t.store().UpdateChild(t.Context(), "a", "kid", func(c *session.ChildRef) error {
		c.Status = session.ChildCompleted
		return nil
	})
	t.ok(err, "UpdateChild during a run")
	r.commit(session.Change{})
	equal(t, "status", t.children("a")[0].Status, session.ChildCompleted)
}

func updateChild(t *bed) {
	t.create("a")
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{child("kid-1"), child("kid-2")}), "PutChildren")
	version := t.load("a").Version
	got, err := t.store().UpdateChild(t.Context(), "a", "kid-2", func(c *session.ChildRef) error {
		if c.SessionID != "kid-2" || c.Status != session.ChildRunning {
			return fmt.Errorf("the function got %s", show(c))
		}
		c.Status, c.StopPending = session.ChildTerminated, true
		return nil
	})
	t.ok(err, "UpdateChild")
	equal(t, "status", got.Status, session.ChildTerminated)
	equal(t, "version", t.load("a").Version, version)
	for _, ref := range t.children("a") {
		equal(t, "stop pending of "+ref.SessionID, ref.StopPending, ref.SessionID == "kid-2")
	}
}

func updateChildRefused(t *bed) {
	t.create("a")
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{child("kid")}), "PutChildren")
	wrong := errors.New("not today")
	t.unchanged("a", func() {
		_, err := t.store().UpdateChild(t.Context(), "a", "kid", func(c *session.ChildRef) error {
			c.Status = session.ChildFailed
			return wrong
		})
		if !errors.Is(err, wrong) {
			t.Fatalf("the function's error is not returned: %v", err)
		}
		_, err = t.store().UpdateChild(t.Context(), "a", "nobody", func(*session.ChildRef) error { return nil })
		t.refused(err, session.ErrNotFound, "UpdateChild of an unknown child")
	})
	_, err := t.store().UpdateChild(t.Context(), "nobody", "kid", func(*session.ChildRef) error { return nil })
	t.refused(err, session.ErrNotFound, "UpdateChild in no session")
}

func awaitedChildren(t *bed) {
	t.create("a")
	awaited := child("kid-2")
	awaited.Awaited, awaited.Status = true, session.ChildWaiting
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{child("kid-1"), awaited, child("kid-3")}), "PutChildren")
	got := t.load("a").AwaitingChildren
	equal(t, "awaited", len(got), 1)
	equal(t, "awaited", got[0].SessionID, "kid-2")
	_, err := t.store().UpdateChild(t.Context(), "a", "kid-2", func(c *session.ChildRef) error { c.Awaited = false; return nil })
	t.ok(err, "UpdateChild")
	equal(t, "awaited", len(t.load("a").AwaitingChildren), 0)
}

func remoteChild(t *bed) {
	t.create("a")
	ref := child("kid")
	ref.Remote = raw(`{"url":"https://example.com/?a=1&b=<2>","from":12345678901234567890}`)
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{ref}), "PutChildren")
	equal(t, "remote", string(t.children("a")[0].Remote), string(ref.Remote))
}
