package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// agreementCases are details on which two stores once differed.
func agreementCases() []testCase {
	return []testCase{
		{"remote", "a remote child stays remote, whatever replaces its reference", 0, remoteStays},
		{"wake-nobody", "a wake for a session that does not exist stores nothing", 0, wakeNobody},
		{"wake-tenant", "a wake is deleted only in the store's tenant, whatever its Tenant field says", 0, wakeTenant},
		{"empty-append", "an append of no items does nothing, whatever the value of the key", 0, emptyAppend},
		{"pending-run", "a pending entry has the run of its commit", 0, pendingRun},
		{"tags", "a repeated tag counts once", 0, tagsOnce},
		{"bounds", "labels and times past the limits are refused by every write, and nothing is written", 0, refusedBounds},
		{"metadata-name", "metadata without a name is refused", 0, metadataName},
		{"saw", "a conflict reports the state of the session", 0, refusalSaw},
		{"stop-at-end", "the commit that ends a run returns a stop request that was accepted", 0, stopAtEnd},
		{"deleted-ids", "Delete returns the ids of the deleted sessions, and deletes their streams", 0, deletedIDs},
		{"text", "text that some store could not return is refused, with the field's name", 0, refusedText},
		{"corrupt-rewind", "a row that cannot be decoded does not prevent a rewind", corrupt, corruptRewind},
		{"corrupt-trim", "a chunk that cannot be decoded does not prevent trimming by age", corrupt | dated, corruptTrim},
	}
}

func remoteStays(t *bed) {
	t.create("a")
	s, ctx := t.store(), t.Context()
	remote := child("kid")
	remote.Remote = raw(`{"url":"x"}`)
	t.ok(session.PutChildren(ctx, s, "a", []session.ChildRef{remote}), "PutChildren")
	t.ok(session.PutChildren(ctx, s, "a", []session.ChildRef{child("kid")}), "PutChildren without it")
	equal(t, "remote", string(t.children("a")[0].Remote), `{"url":"x"}`)
	_, err := s.UpdateChild(ctx, "a", "kid", func(c *session.ChildRef) error { c.Remote = nil; return nil })
	t.ok(err, "UpdateChild")
	equal(t, "remote", string(t.children("a")[0].Remote), `{"url":"x"}`)
	_, err = s.UpdateChild(ctx, "a", "kid", func(c *session.ChildRef) error { c.Remote = raw(`{"url":"y"}`); return nil })
	t.ok(err, "UpdateChild")
	t.start("a", "run-1").commit(session.Change{Children: []session.ChildRef{child("kid")}})
	equal(t, "remote", string(t.children("a")[0].Remote), `{"url":"y"}`)
}

func wakeNobody(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Wake: &session.Wake{SessionID: "gone", ChildID: "a", RunID: r.run}})
	t.quiet(t.store().PutWake(t.Context(), session.Wake{SessionID: "gone", ChildID: "a"}), "PutWake")
	equal(t, "wakes", len(t.wakes(t.store())), 0)
	t.create("gone")
	equal(t, "wakes once there is such a session", len(t.wakes(t.store())), 0)
}

func wakeTenant(t *bed) {
	t.create("a")
	wake := session.Wake{Tenant: t.tenant, SessionID: "a", ChildID: "kid", RunID: "r"}
	t.ok(t.store().PutWake(t.Context(), wake), "PutWake")
	t.ok(t.of("other").store().DeleteWake(t.Context(), wake), "DeleteWake in another tenant")
	equal(t, "wakes", len(t.wakes(t.store())), 1)
	t.ok(t.of("other").store().Tenant(wake.Tenant).DeleteWake(t.Context(), wake), "DeleteWake in its own")
	equal(t, "wakes", len(t.wakes(t.store())), 0)
}

func emptyAppend(t *bed) {
	t.create("a", custom(`{"l":[1],"n":1}`))
	for _, key := range []string{"n", "l", "new"} {
		_, err := session.Merge(t.Context(), t.store(), "a", push(key))
		t.ok(err, "append nothing to "+key)
	}
	t.customIs("a", `{"l":[1],"n":1}`)
	r := t.start("a", "run-1")
	change := step(1, "cp1")
	change.Writes = session.Writes{Ops: append(push("new").Ops, push("l", `2`).Ops...)}
	r.commit(change)
	t.customIs("a", `{"l":[1,2],"n":1}`)
	cp, err := t.store().Checkpoint(t.Context(), "a", "cp1")
	t.ok(err, "Checkpoint")
	t.documentIs("state at the checkpoint", cp.State, `{"l":[1,2],"n":1}`)
}

func pendingRun(t *bed) {
	start := createAndStart(blank("a"), "run-1")
	start.Pending = []session.Pending{waiting("p1")}
	r := t.begin(start)
	other := waiting("p3")
	other.RunID = "another"
	r.commit(session.Change{Pending: []session.Pending{waiting("p2"), other}})
	entries, err := t.store().PendingCalls(t.Context(), "a", true)
	t.ok(err, "PendingCalls")
	for i, want := range []string{"run-1", "run-1", "another"} {
		equal(t, "run of "+entries[i].CallID, entries[i].RunID, want)
	}
}

func tagsOnce(t *bed) {
	state := t.create("a", func(s *session.State) { s.Tags = []string{"x", "y", "x"} })
	equal(t, "tags", state.Tags, []string{"x", "y"})
	state.Tags = []string{"z", "z", "x"}
	t.ok(session.Save(t.Context(), t.store(), state), "Save")
	equal(t, "tags", t.load("a").Tags, []string{"z", "x"})
	equal(t, "sessions with the tag", len(t.listed(session.Query{Tags: []string{"z"}})), 1)
	copied, err := t.store().Clone(t.Context(), &session.Clone{From: "a", To: session.State{ID: "b", Tags: []string{"q", "q"}}})
	t.ok(err, "Clone")
	equal(t, "tags of the copy", copied.Tags, []string{"q"})
}

func refusedBounds(t *bed) {
	t.create("a")
	s, ctx := t.store(), t.Context()
	var tags []string
	metadata, patch := map[string]string{}, map[string]*string{}
	for i := range session.MaxTags + 1 {
		tags = append(tags, fmt.Sprint("tag-", i))
	}
	for i := range session.MaxMetadata + 1 {
		metadata[fmt.Sprint("name-", i)], patch[fmt.Sprint("name-", i)] = "value", new("value")
	}
	for what, spoil := range map[string]func(*session.State){
		"tags":     func(s *session.State) { s.Tags = tags },
		"metadata": func(s *session.State) { s.Metadata = metadata },
		"metadata name": func(s *session.State) {
			s.Metadata = map[string]string{strings.Repeat("x", session.MaxMetadataName+1): ""}
		},
		"metadata value": func(s *session.State) {
			s.Metadata = map[string]string{"x": strings.Repeat("x", session.MaxMetadataValue+1)}
		},
		"expiresAt": func(s *session.State) { s.ExpiresAt = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC) },
		"createdAt": func(s *session.State) { s.CreatedAt = time.Date(1677, 12, 31, 23, 59, 59, 0, time.UTC) },
	} {
		fresh, known := blank("new"), t.load("a")
		spoil(fresh)
		spoil(known)
		t.unchanged("a", func() {
			_, starting := s.StartRun(ctx, createAndStart(fresh, "run-1"))
			_, cloning := s.Clone(ctx, &session.Clone{From: "a", To: *fresh})
			for write, err := range map[string]error{
				"Create": session.Create(ctx, s, fresh), "StartRun": starting, "Clone": cloning, "Save": session.Save(ctx, s, known),
			} {
				t.refused(err, session.ErrInvalid, write+": "+what)
				equal(t, "the field of "+write, session.AsError(err).Field, what)
			}
		})
		t.exists("new", false)
	}
	t.unchanged("a", func() {
		t.refused(session.PatchMetadata(ctx, s, "a", patch), session.ErrInvalid, "PatchMetadata")
		t.refused(session.PatchMetadata(ctx, s, "a", map[string]*string{"x": new(strings.Repeat("x", session.MaxMetadataValue+1))}),
			session.ErrInvalid, "PatchMetadata of a long value")
	})
	most := blank("most") // what is just within the limits is accepted
	most.Tags, most.ExpiresAt = tags[1:], time.Date(2261, 12, 31, 23, 59, 59, 0, time.UTC)
	delete(metadata, "name-0")
	most.Metadata = metadata
	t.ok(session.Create(ctx, s, most), "Create within the limits")
	got := t.load("most")
	equal(t, "tags", len(got.Tags), session.MaxTags)
	equal(t, "metadata", len(got.Metadata), session.MaxMetadata)
	sameTime(t, "expiry", got.ExpiresAt, most.ExpiresAt)
}

func metadataName(t *bed) {
	t.create("a")
	t.unchanged("a", func() {
		t.refused(session.PatchMetadata(t.Context(), t.store(), "a", map[string]*string{"": new("v")}), session.ErrInvalid, "PatchMetadata")
		t.refused(session.PatchMetadata(t.Context(), t.store(), "a", map[string]*string{"": nil}), session.ErrInvalid, "PatchMetadata that deletes")
	})
	state := blank("b")
	state.Metadata = map[string]string{"": "v"}
	t.refused(session.Create(t.Context(), t.store(), state), session.ErrInvalid, "Create")
}

func refusalSaw(t *bed) {
	held := t.create("a")
	s, ctx := t.store(), t.Context()
	t.conflict(session.Create(ctx, s, blank("a")), session.ErrExists, held, "Create")
	t.create("b")
	_, err := s.Clone(ctx, &session.Clone{From: "b", To: *blank("a")})
	t.conflict(err, session.ErrExists, held, "Clone")
	_, err = s.StartRun(ctx, createAndStart(blank("a"), "run-1"))
	t.conflict(err, session.ErrExists, held, "StartRun")
	r := t.start("a", "run-1")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1")}, Checkpoint: &session.NewCheckpoint{ID: "cp1"}})
	equal(t, "outcome", t.submit("a", answer("p1", `1`)), session.SubmitAccepted)
	_, err = s.Commit(ctx, r.request(session.Change{Waits: []string{"p1"}}))
	t.conflict(err, session.ErrAnswered, t.load("a"), "Commit that waits")
}

func stopAtEnd(t *bed) {
	for _, status := range []session.RunStatus{session.RunSuspendedClientTool, session.RunCompleted} {
		id := string(status)
		r := t.running(id)
		_, err := t.store().RequestStop(t.Context(), id, session.Stop{RunID: r.run, Kind: session.StopAbort, Reason: "enough"})
		t.ok(err, "RequestStop")
		out := r.commit(outcome(status))
		if out.Stop == nil || out.Stop.Kind != session.StopAbort || out.Stop.Reason != "enough" {
			t.Fatalf("a stop before the commit that ends the run as %s: got %s", status, show(out.Stop))
		}
		stop, err := t.store().StopRequest(t.Context(), id, r.run)
		t.ok(err, "StopRequest")
		equal(t, "the request is consumed", stop == nil, true)
	}
}

func deletedIDs(t *bed) {
	t.create("root")
	t.create("kid", func(s *session.State) { s.ParentID, s.RootID = "root", "root" })
	t.create("other")
	for _, id := range []string{"root", "kid", "other"} {
		t.append(id, producer(id, 1), 1, text("x"))
	}
	ids, err := t.store().Delete(t.Context(), "root")
	t.ok(err, "Delete")
	equal(t, "deleted", len(ids), 2)
	for _, id := range ids {
		if id != "root" && id != "kid" {
			t.Fatalf("deleted %v", ids)
		}
		t.gone(id)
	}
	equal(t, "the other's stream", t.deltas("other", 0), []string{"x"})
}

func refusedText(t *bed) {
	t.create("a")
	s, ctx := t.store(), t.Context()
	running := t.running("b")
	create := func(change func(*session.State)) error {
		state := blank("new")
		change(state)
		return session.Create(ctx, s, state)
	}
	message := func(change func(*session.Message)) error {
		m := reply("m", "c")
		change(&m)
		_, err := session.AppendMessages(ctx, s, "a", []session.Message{m})
		return err
	}
	for _, bad := range []string{"x\x00y", "x\xffy"} {
		broken := raw("\"\xff\"")
		for field, err := range map[string]error{
			"agent":          create(func(s *session.State) { s.Agent = bad }),
			"user id":        create(func(s *session.State) { s.UserID = bad }),
			"tag":            create(func(s *session.State) { s.Tags = []string{bad} }),
			"metadata name":  create(func(s *session.State) { s.Metadata = map[string]string{bad: "v"} }),
			"metadata value": session.PatchMetadata(ctx, s, "a", map[string]*string{"k": &bad}),
			"output":         create(func(s *session.State) { s.Output = broken }),
			"message id":     message(func(m *session.Message) { m.ID = bad }),
			"tool call id":   message(func(m *session.Message) { m.Parts[1].CallID = bad }),
			"tool input":     message(func(m *session.Message) { m.Parts[1].Input = broken }),
			"state key":      errorOf(session.Merge(ctx, s, "a", put(bad, `1`))),
			"inbox kind":     s.Send(ctx, "a", session.InboxEntry{ID: "e", Kind: bad}),
			"body":           s.Send(ctx, "a", session.InboxEntry{ID: "e", Kind: "k", Body: broken}),
			"stop reason":    errorOf(s.RequestStop(ctx, "b", session.Stop{RunID: running.run, Kind: session.StopAbort, Reason: bad})),
			"lock name":      errorOf3(t.Backend.Locks().TryAcquire(ctx, bad, "o", time.Hour)),
		} {
			e := t.refusal(err, session.ErrInvalid, fmt.Sprintf("%s with %q", field, bad))
			equal(t, "field", e.Field, field)
		}
		_, err := session.Merge(ctx, s, "a", put("k", string(broken)))
		t.refused(err, session.ErrInvalid, "a state value that is not UTF-8")
	}
	t.exists("new", false)
}

func errorOf[V any](_ V, err error) error          { return err }
func errorOf3[V, W any](_ V, _ W, err error) error { return err }

func corruptRewind(t *bed) {
	t.create("bad")
	r := t.start("bad", "run-1")
	entry := waiting("p1")
	entry.MessageID = "m1"
	awaited := child("kid")
	awaited.Awaited, awaited.CallID = true, "c1"
	r.commit(session.Change{
		Messages: []session.Message{user("u1", "x"), reply("m1", "c1")}, Pending: []session.Pending{entry},
		Children: []session.ChildRef{awaited},
	})
	t.Corrupt(t.TB, RowPending, t.tenant, "bad")
	t.Corrupt(t.TB, RowMessage, t.tenant, "bad")
	t.Corrupt(t.TB, RowChild, t.tenant, "bad")
	r.commit(session.Change{KeepMessages: new(1)})
	t.messagesAre("bad", "u1")
	state := t.load("bad")
	equal(t, "awaited calls and children", state.Suspension().Waiting(), false)
}

func corruptTrim(t *bed) {
	for i := int64(1); i <= 3; i++ {
		t.append("bad", producer("bad", 1), i, text("t"))
	}
	t.Corrupt(t.TB, RowChunk, t.tenant, "bad")
	t.append("bad", producer("bad", 1), 4, text("t4"))
	floor, err := t.streams().Trim(t.Context(), "bad", stream.TrimPolicy{Before: t.now().Add(time.Hour)})
	t.ok(err, "Trim")
	equal(t, "floor", floor, 4)
}
