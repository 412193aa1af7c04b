package storetest

import (
	"time"

	"github.com/helixagents/helix/session"
)

// edit makes an edit that must succeed.
func (t *bed) edit(e *session.Edit) *session.Edited {
	t.Helper()
	out, err := t.store().Edit(t.Context(), e)
	t.ok(err, "edit")
	return out
}

// wholeEdit returns an edit of session a with all that an edit may have.
func wholeEdit() *session.Edit {
	const id = "a"
	return &session.Edit{
		SessionID: id, Metadata: map[string]*string{"k": new("v"), "gone": nil}, Steps: 2, Resumes: 1,
		Change: session.Change{
			Messages: []session.Message{user("e1", "one"), user("e2", "two")}, Writes: put("k", `1`),
			Children: []session.ChildRef{child("kid")}, Own: []session.Ownership{{CallID: "c1", SessionID: id}},
			Checkpoint: &session.NewCheckpoint{ID: "edited", Step: 7, Source: session.FromSave},
		},
	}
}

func editWhole(t *bed) {
	t.create("a", func(s *session.State) { s.Metadata = map[string]string{"gone": "1", "stays": "2"} })
	r := t.start("a", "run-1")
	r.finish(session.RunCompleted)
	was := t.load("a")
	out := t.edit(wholeEdit())
	is := t.load("a")
	equal(t, "version", is.Version, was.Version+1)
	equal(t, "version returned", out.Version, is.Version)
	equal(t, "messages returned", out.MessageCount, was.MessageCount+2)
	equal(t, "checkpoint returned", out.CheckpointID, "edited")
	equal(t, "counters returned", []int{out.StepCount, out.ResumeCount}, []int{is.StepCount, is.ResumeCount})
	equal(t, "counters", []int{is.StepCount, is.ResumeCount}, []int{was.StepCount + 2, was.ResumeCount + 1})
	equal(t, "metadata", is.Metadata, map[string]string{"k": "v", "stays": "2"})
	equal(t, "status", is.Status, was.Status)
	equal(t, "last commit", is.LastCommit, "")
	t.documentIs("custom state", &is.Custom, `{"k":1}`)
	t.messagesAre("a", "e1", "e2")
	refs, err := t.store().Children(t.Context(), "a")
	t.ok(err, "Children")
	equal(t, "children", len(refs), 1)
	owned, err := t.store().Owner(t.Context(), "a", "c1")
	t.ok(err, "Owner")
	equal(t, "owner", owned.SessionID, "a")
	cp, err := t.store().Checkpoint(t.Context(), "a", "edited")
	t.ok(err, "Checkpoint")
	equal(t, "run of the checkpoint", cp.RunID, "run-1")
	equal(t, "messages at the checkpoint", cp.MessageCount, 2)
	equal(t, "version of the checkpoint", cp.Version, is.Version)
}

func editCreates(t *bed) {
	e := wholeEdit()
	e.Create = blank("a")
	e.Create.Custom.Set("l", raw(`2`))
	e.Create.Tags = []string{"t", "t"}
	e.Create.StepCount = 3
	out := t.edit(e)
	is := t.load("a")
	equal(t, "version", []int64{is.Version, out.Version}, []int64{1, 1})
	equal(t, "counters", []int{is.StepCount, is.ResumeCount}, []int{5, 1})
	equal(t, "labels", show(is.Tags)+show(is.Metadata), show([]string{"t"})+show(map[string]string{"k": "v"}))
	t.documentIs("custom state", &is.Custom, `{"k":1,"l":2}`)
	t.messagesAre("a", "e1", "e2")
	t.unchanged("a", func() {
		_, err := t.store().Edit(t.Context(), e)
		t.conflict(err, session.ErrExists, is, "an edit that creates what exists")
	})
}

func editAtVersion(t *bed) {
	t.create("a")
	_, err := session.Merge(t.Context(), t.store(), "a", put("k", `1`))
	t.ok(err, "merge")
	holds := t.load("a")
	e := wholeEdit()
	for _, version := range []int64{holds.Version - 1, holds.Version + 1} {
		e.Version = version
		t.unchanged("a", func() {
			_, err := t.store().Edit(t.Context(), e)
			t.conflict(err, session.ErrStale, holds, "an edit of another version")
		})
	}
	e.Version = holds.Version
	equal(t, "version", t.edit(e).Version, holds.Version+1)
}

func editAsRead(t *bed) {
	for _, run := range []bool{false, true} {
		made := func() *session.State {
			t.create("a")
			if run {
				t.start("a", "run-1").finish(session.RunCompleted)
			}
			return t.load("a")
		}
		was := made()
		e := wholeEdit()
		e.Version, e.Read = was.Version, was
		equal(t, "version", t.edit(e).Version, was.Version+1)
		_, err := t.store().Delete(t.Context(), "a")
		t.ok(err, "delete")
		if !run { // without an epoch, sessions differ by when they were made
			t.pass(time.Millisecond)
		}
		is := made()
		equal(t, "version of the session that was made again", is.Version, was.Version)
		t.unchanged("a", func() {
			_, err := t.store().Edit(t.Context(), e)
			t.conflict(err, session.ErrStale, is, "an edit of the session that was deleted")
		})
		e.Read = is
		t.edit(e)
		_, err = t.store().Delete(t.Context(), "a")
		t.ok(err, "delete")
	}
}

func editRefused(t *bed) {
	t.create("a", func(s *session.State) { s.Custom.Set("k", raw(`{}`)) })
	t.ok(errorOf(session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("e2", "two")})), "append")
	for what, change := range map[string]func(*session.Edit){
		"an existing message":      func(*session.Edit) {},
		"an append to an object":   func(e *session.Edit) { e.Messages = nil; e.Writes = push("k", `1`) },
		"more messages than exist": func(e *session.Edit) { e.KeepMessages = new(9) },
		"a step count":             func(e *session.Edit) { e.StepCount = new(1) },
		"calls":                    func(e *session.Edit) { e.Calls = []session.Call{call("m1", "c1", 0)} },
		"waits":                    func(e *session.Edit) { e.Pending = []session.Pending{waiting("p1")} },
		"a run":                    func(e *session.Edit) { e.Run = &session.RunChange{} },
		"an outcome":               func(e *session.Edit) { e.Outcome = &session.Outcome{Status: session.RunFailed} },
		"another session":          func(e *session.Edit) { e.Document = blank("b") },
		"a negative count":         func(e *session.Edit) { e.Messages = nil; e.Steps = -1 },
	} {
		e := wholeEdit()
		change(e)
		t.unchanged("a", func() {
			_, err := t.store().Edit(t.Context(), e)
			t.refused(err, session.ErrInvalid, "an edit with "+what)
		})
	}
}

func editBeside(t *bed) {
	t.create("a")
	r := t.start("a", "run-1")
	version := t.load("a").Version
	e := &session.Edit{SessionID: "a", Metadata: map[string]*string{"k": new("v")}, Change: session.Change{Children: []session.ChildRef{child("kid")}}}
	t.edit(e)
	is := t.load("a")
	equal(t, "version", is.Version, version)
	equal(t, "metadata", is.Metadata["k"], "v")
	refs, err := t.store().Children(t.Context(), "a")
	t.ok(err, "Children")
	equal(t, "children", len(refs), 1)
	e.Messages = []session.Message{user("u9", "nine")}
	t.unchanged("a", func() {
		_, err := t.store().Edit(t.Context(), e)
		t.conflict(err, session.ErrAlreadyRunning, is, "an edit with messages during a run")
	})
	r.commit(session.Change{Messages: []session.Message{user("u2", "two")}})
}
