package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

func lifecycleCases() []testCase {
	return []testCase{
		{"create-and-load", "a created session is loaded as it was passed in, at version 1", 0, createAndLoad},
		{"create-every-field", "every field of the document that a caller may set round-trips", 0, createEveryField},
		{"create-default-tenant", "the default tenant behaves like any other", alone, createAndLoad},
		{"create-exists", "creating a session whose id exists is refused and changes nothing", 0, createExists},
		{"create-invalid", "an invalid document is refused with the field's name, and nothing is stored", 0, createInvalid},
		{"create-copies", "later changes by the caller to a document do not reach the store", 0, createCopies},
		{"load-missing", "loading a session that does not exist is not found", 0, loadMissing},
		{"load-copies", "changes to a loaded document do not reach the store", 0, loadCopies},
		{"ids", "ids are compared byte by byte: case, slashes, prefixes", 0, distinctIDs},
		{"delete", "deleting a session deletes everything that belongs to it", 0, deleteSession},
		{"delete-missing", "deleting a session that does not exist is not found", 0, deleteMissing},
		{"delete-cascades", "deleting a session deletes the tree of its children, and no other session", 0, deleteCascades},
		{"delete-recreate", "a session created again under a deleted id starts empty", 0, deleteRecreate},
		{"delete-for-good", "no write restores a deleted session", 0, deleteForGood},
		{"clone-latest", "a clone copies messages and custom state unchanged, and nothing else", 0, cloneLatest},
		{"clone-checkpoint", "a clone at a checkpoint has the messages and custom state of that point", 0, cloneCheckpoint},
		{"clone-messages", "a clone by message count takes custom state from the last checkpoint within that count", 0, cloneMessages},
		{"clone-independent", "source and clone are independent, in both directions", 0, cloneIndependent},
		{"clone-refused", "a clone of a missing session, of a foreign checkpoint or onto an existing id is refused", 0, cloneRefused},
		{"close", "after Close calls fail with ErrClosed", alone, closeRefuses},
		{"persist", "data is still there when the store is opened again", alone | persistent | second, persists},
		{"second-handle", "what one handle wrote can be read immediately by another", second, secondHandle},
		{"remade", "the lease of a deleted session is not valid for a new session with its id", 0, remade},
	}
}

func createAndLoad(t *bed) {
	state := blank("a")
	state.Custom = document(`{"n":1,"list":[1,2]}`)
	t.exists("a", false)
	t.ok(session.Create(t.Context(), t.store(), state), "create")
	t.exists("a", true)
	got := t.load("a")
	equal(t, "version", got.Version, 1)
	equal(t, "id", got.ID, "a")
	equal(t, "tenant", got.Tenant, t.tenant)
	equal(t, "agent", got.Agent, "tester")
	equal(t, "status", got.Status, session.Active)
	equal(t, "message count", got.MessageCount, 0)
	equal(t, "turn", got.Turn, 0)
	t.documentIs("custom state", &got.Custom, `{"list":[1,2],"n":1}`)
	if got.CreatedAt.IsZero() || got.UpdatedAt.IsZero() {
		t.Fatalf("created at %v, updated at %v: want the store's time", got.CreatedAt, got.UpdatedAt)
	}
	t.messagesAre("a")
}

// full returns the document of a session "a" with every field set that a caller
// may set.
func full() *session.State {
	s := blank("a")
	s.StreamID, s.ParentID, s.RootID = "root", "parent", "root"
	s.Custom = document(`{"k":{"deep":[1,{"x":null}]},"z":"<b>&\u2028"}`)
	s.Output = raw(`{"out":[1,2]}`)
	s.Error = &session.Error{Code: session.CodeToolFailed, Category: "tool", Message: "broke <it>"}
	s.FailureReason = "session_expired"
	s.Interrupt = &session.InterruptContext{RunID: "r", Reason: "because", Step: 3, At: noon}
	s.SuspendedStep = "m1"
	s.Tracing = &session.TracingContext{TraceID: "t", RootSpanID: "s"}
	s.WorkspaceRef = raw(`{"ws":1}`)
	s.Mode = "legacy"
	s.UserID = "user-1"
	s.Tags = []string{"beta", "alpha"}
	s.Metadata = map[string]string{"k": "v", "empty": ""}
	s.ExpiresAt = noon.Add(time.Hour)
	s.Extra = session.Extra{"fromTheFuture": raw(`{"a":[1]}`)}
	return s
}

func createEveryField(t *bed) {
	want := full()
	t.ok(session.Create(t.Context(), t.store(), full()), "create")
	t.sameDocument(t.load("a"), want)
}

// sameDocument compares the fields that a caller may set; the store sets the
// others.
func (t *bed) sameDocument(got, want *session.State) {
	t.Helper()
	g, w := *got, *want
	g.Activity, w.Activity = "", ""
	for _, s := range []*session.State{&g, &w} {
		s.Tenant, s.Version, s.CreatedAt, s.UpdatedAt = "", 0, time.Time{}, time.Time{}
		s.CheckpointID, s.CheckpointedAt, s.CheckpointSource = "", time.Time{}, ""
		s.Lease, s.LastCommit, s.CurrentRunID, s.Turn, s.MessageCount = session.Lease{}, "", "", 0, 0
	}
	sameJSON(t, "document", &g, &w)
}

func createExists(t *bed) {
	t.create("a", custom(`{"first":true}`))
	t.unchanged("a", func() {
		other := blank("a")
		other.Agent, other.Custom = "other", document(`{"first":false}`)
		t.refused(session.Create(t.Context(), t.store(), other), session.ErrExists, "create again")
	})
}

func createInvalid(t *bed) {
	for what, spoil := range map[string]func(*session.State){
		"no agent":              func(s *session.State) { s.Agent = "" },
		"no status":             func(s *session.State) { s.Status = "" },
		"unknown status":        func(s *session.State) { s.Status = "dreaming" },
		"empty tag":             func(s *session.State) { s.Tags = []string{""} },
		"bad parent":            func(s *session.State) { s.ParentID = "../x" },
		"bad root":              func(s *session.State) { s.RootID = "a b" },
		"a tag that is a novel": func(s *session.State) { s.Tags = []string{strings.Repeat("x", session.MaxIDBytes+1)} },
	} {
		state := blank("a")
		spoil(state)
		t.refused(session.Create(t.Context(), t.store(), state), session.ErrInvalid, what)
		t.exists("a", false)
	}
}

func createCopies(t *bed) {
	state := full()
	t.ok(session.Create(t.Context(), t.store(), state), "create")
	before := t.snapshot("a")
	scribble(state)
	t.sameSnapshot("a", before)
}

// scribble changes everything of a document that could be shared.
func scribble(s *session.State) {
	s.Custom.Set("scribbled", raw(`true`))
	s.Metadata["k"] = "scribbled"
	s.Tags[0] = "scribbled"
	s.Error.Message = "scribbled"
	s.Interrupt.Reason = "scribbled"
	s.Tracing.TraceID = "scribbled"
	s.Output[1] = 'X'
	s.WorkspaceRef[1] = 'X'
}

func loadMissing(t *bed) {
	_, err := t.store().Load(t.Context(), "nobody")
	t.refused(err, session.ErrNotFound, "load")
	t.exists("nobody", false)
}

func loadCopies(t *bed) {
	t.ok(session.Create(t.Context(), t.store(), full()), "create")
	before := t.snapshot("a")
	scribble(t.load("a"))
	t.sameSnapshot("a", before)
}

func distinctIDs(t *bed) {
	ids := []string{
		"a", "A", "a/b", "a/b/c", "a-b", "a.b", "a:b", "a@b", "ab", "a--b", "a-", strings.Repeat("x", session.MaxIDBytes),
	}
	for i, id := range ids {
		t.create(id, custom(fmt.Sprintf(`{"i":%d}`, i)))
	}
	for i, id := range ids {
		t.customIs(id, fmt.Sprintf(`{"i":%d}`, i))
	}
	t.ok(t.delete("a"), "delete")
	for _, id := range ids[1:] {
		t.exists(id, true)
	}
}

// crowd creates a session that owns a row of every kind.
func (t *bed) crowd(id string) *turn {
	t.Helper()
	t.create(id)
	r := t.start(id, "run-1")
	r.commit(session.Change{
		Messages: []session.Message{user("u1", "hello"), reply("m1", "c1", "c2")},
		Writes:   put("k", `"v"`), StepCount: new(1),
		Calls:      []session.Call{call("m1", "c1", 0), call("m1", "c2", 1)},
		Pending:    []session.Pending{waiting("p1")},
		Own:        []session.Ownership{{CallID: "c1", SessionID: id}},
		Children:   []session.ChildRef{{SessionID: id + "-kid", Agent: "kid", Mode: session.ChildEphemeral, Status: session.ChildRunning}},
		Checkpoint: &session.NewCheckpoint{ID: "cp-" + id, Step: 1, Source: session.FromStep},
		Tasks:      []session.Task{t.task(id, "task")},
	})
	ctx := t.Context()
	t.ok(t.store().Send(ctx, id, session.InboxEntry{ID: "e1", Kind: "note", Body: raw(`1`)}), "Send")
	_, err := t.store().RequestStop(ctx, id, session.Stop{RunID: "run-1", Kind: session.StopInterrupt})
	t.ok(err, "RequestStop")
	t.ok(t.store().PutWake(ctx, session.Wake{Tenant: t.tenant, SessionID: id, ChildID: "kid"}), "PutWake")
	return r
}

func deleteSession(t *bed) {
	t.crowd("a")
	t.crowd("b")
	before := t.snapshot("b")
	t.ok(t.delete("a"), "delete")
	t.gone("a")
	t.sameSnapshot("b", before)
}

// gone checks that nothing is left of a session.
func (t *bed) gone(id string) {
	t.Helper()
	s, ctx := t.store(), t.Context()
	t.exists(id, false)
	reads := map[string]func() error{
		"Load":             func() error { _, err := s.Load(ctx, id); return err },
		"AllMessages":      func() error { _, err := s.AllMessages(ctx, id); return err },
		"MessagesFrom":     func() error { _, err := s.MessagesFrom(ctx, id, 1); return err },
		"CurrentRun":       func() error { _, err := s.CurrentRun(ctx, id); return err },
		"Run":              func() error { _, err := s.Run(ctx, id, "run-1"); return err },
		"LatestCheckpoint": func() error { _, err := s.LatestCheckpoint(ctx, id); return err },
		"Checkpoint":       func() error { _, err := s.Checkpoint(ctx, id, "cp-"+id); return err },
		"Messages":         func() error { _, err := s.Messages(ctx, id, session.PageRequest{}); return err },
		"MessageCount":     func() error { _, err := session.MessageCount(ctx, s, id); return err },
		"Runs":             func() error { _, err := s.Runs(ctx, id, session.PageRequest{}); return err },
		"RunByRequest":     func() error { _, err := s.RunByRequest(ctx, id, "request-1"); return err },
		"Checkpoints":      func() error { _, err := s.Checkpoints(ctx, id, session.PageRequest{}); return err },
		"Children":         func() error { _, err := s.Children(ctx, id); return err },
		"PendingCalls":     func() error { _, err := s.PendingCalls(ctx, id, true); return err },
		"Inbox":            func() error { _, err := s.Inbox(ctx, id); return err },
		"Calls":            func() error { _, err := s.Calls(ctx, id, "m1"); return err },
		"StopRequest":      func() error { _, err := s.StopRequest(ctx, id, "run-1"); return err },
		"Stream":           func() error { _, err := t.streams().Info(ctx, id); return err },
		"Owner":            func() error { _, err := s.Owner(ctx, id, "c1"); return err },
		"Delete":           func() error { return t.delete(id) },
	}
	for what, read := range reads {
		t.refused(read(), session.ErrNotFound, what+" of a deleted session")
	}
	page, err := s.List(ctx, session.Query{})
	t.ok(err, "List")
	for _, item := range page.Items {
		if item.ID == id {
			t.Fatalf("session %s is deleted and still listed", id)
		}
	}
	for _, task := range t.tasks(s) {
		if task.SessionID == id {
			t.Fatalf("session %s is deleted and still has task %s", id, task.ID)
		}
	}
}

func deleteMissing(t *bed) {
	t.refused(t.delete("nobody"), session.ErrNotFound, "delete")
}

func deleteCascades(t *bed) {
	under := func(parent string) func(*session.State) {
		return func(s *session.State) { s.ParentID, s.RootID = parent, "root" }
	}
	t.create("root")
	t.create("kid-1", under("root"))
	t.create("kid-2", under("root"))
	t.create("grandkid", under("kid-1"))
	t.create("root-sub-unrelated") // its id looks like that of a child, but it is none
	t.create("stranger", func(s *session.State) { s.ParentID, s.RootID = "someone", "someone" })

	t.ok(t.delete("kid-1"), "delete a child")
	for id, want := range map[string]bool{"root": true, "kid-1": false, "grandkid": false, "kid-2": true} {
		t.exists(id, want)
	}
	t.ok(t.delete("root"), "delete the root")
	for id, want := range map[string]bool{"root": false, "kid-2": false, "root-sub-unrelated": true, "stranger": true} {
		t.exists(id, want)
	}
}

func deleteRecreate(t *bed) {
	t.crowd("a")
	t.ok(t.delete("a"), "delete")
	t.create("a")
	state := t.load("a")
	equal(t, "version", state.Version, 1)
	equal(t, "turn", state.Turn, 0)
	equal(t, "current run", state.CurrentRunID, "")
	equal(t, "last commit", state.LastCommit, "")
	equal(t, "pending", len(state.Pending), 0)
	t.documentIs("custom state", &state.Custom, `{}`)
	t.messagesAre("a")
	ctx, s := t.Context(), t.store()
	runs, err := s.Runs(ctx, "a", session.PageRequest{})
	t.ok(err, "Runs")
	equal(t, "runs", len(runs.Items), 0)
	calls, err := s.Calls(ctx, "a", "m1")
	t.ok(err, "Calls")
	equal(t, "calls", len(calls), 0)
	children, err := s.Children(ctx, "a")
	t.ok(err, "Children")
	equal(t, "children", len(children), 0)
	inbox, err := s.Inbox(ctx, "a")
	t.ok(err, "Inbox")
	equal(t, "inbox", len(inbox), 0)
	stop, err := s.StopRequest(ctx, "a", "run-1")
	t.ok(err, "StopRequest")
	if stop != nil {
		t.Fatalf("a stop request of the deleted session still exists: %+v", *stop)
	}
	// Turns start at 1 again.
	started, err := s.StartRun(ctx, t.startOf("a", "run-1"))
	t.ok(err, "StartRun")
	equal(t, "turn", started.Turn, 1)
	equal(t, "existing", started.Existing, false)
}

// namedWrite is an operation that writes.
type namedWrite struct {
	name string
	do   func() error
}

// everyWrite lists the operations that are refused if the session does not exist,
// as the holder of a turn would make them.
func everyWrite(t *bed, r *turn) []namedWrite {
	s, ctx, id := t.store(), t.Context(), r.id
	return []namedWrite{
		{"Commit", func() error {
			_, err := s.Commit(ctx, r.request(session.Change{Messages: []session.Message{user("u2", "late")}}))
			return err
		}},
		{"StartRun", func() error {
			_, err := s.StartRun(ctx, &session.StartRun{
				SessionID: id, ExpectVersion: r.version, ExpectRun: r.run, Run: newRun("run-2"), Owner: "x", TTL: time.Hour,
			})
			return err
		}},
		{"TakeOver", func() error {
			_, err := s.TakeOver(ctx, &session.TakeOver{SessionID: id, RunID: r.run, Owner: "x", Epoch: r.fence.Epoch, Force: true})
			return err
		}},
		{"RenewLeases", func() error { return t.renewAt(ctx, t.Backend, id, r.fence, time.Hour) }},
		{"CloseRun", func() error { return s.CloseRun(ctx, id, r.fence, true) }},
		{"Claim", func() error { _, _, err := s.Claim(ctx, id, r.version, r.fence, "m1", "c1"); return err }},
		{"Settle", func() error { _, err := s.Settle(ctx, id, r.fence, settled(call("m1", "c1", 0), `1`)); return err }},
		{"Save", func() error { st := blank(id); st.Version = r.version; return session.Save(ctx, s, st) }},
		{"Merge", func() error { _, err := session.Merge(ctx, s, id, put("k", `1`)); return err }},
		{"SetStatus", func() error {
			_, err := s.SetStatus(ctx, id, session.StatusChange{Expect: session.Statuses(), To: session.Failed})
			return err
		}},
		{"PatchMetadata", func() error { return session.PatchMetadata(ctx, s, id, map[string]*string{"k": new("v")}) }},
		{"IncrementSteps", func() error { _, err := session.IncrementSteps(ctx, s, id); return err }},
		{"IncrementResumes", func() error { _, err := session.IncrementResumes(ctx, s, id); return err }},
		{"RequestStop", func() error {
			_, err := s.RequestStop(ctx, id, session.Stop{RunID: r.run, Kind: session.StopAbort})
			return err
		}},
		{"AppendMessages", func() error {
			_, err := session.AppendMessages(ctx, s, id, []session.Message{user("u9", "x")})
			return err
		}},
		{"TruncateMessages", func() error { _, err := session.TruncateMessages(ctx, s, id, 0); return err }},
		{"CreateCheckpoint", func() error {
			_, err := session.CreateCheckpoint(ctx, s, id, session.NewCheckpoint{ID: "cp9", Source: session.FromSave})
			return err
		}},
		{"PutChildren", func() error { return session.PutChildren(ctx, s, id, []session.ChildRef{child("k")}) }},
		{"UpdateChild", func() error {
			_, err := s.UpdateChild(ctx, id, id+"-kid", func(*session.ChildRef) error { return nil })
			return err
		}},
		{"Submit", func() error { _, err := s.Submit(ctx, id, answer("p1", `1`)); return err }},
		{"Own", func() error { return s.Own(ctx, id, []session.Ownership{{CallID: "c9", SessionID: id}}) }},
		{"Send", func() error { return s.Send(ctx, id, session.InboxEntry{ID: "e9", Kind: "note"}) }},
	}
}

func deleteForGood(t *bed) {
	r := t.crowd("a")
	t.ok(t.delete("a"), "delete")
	s, ctx := t.store(), t.Context()
	for _, w := range everyWrite(t, r) {
		t.refused(w.do(), session.ErrNotFound, w.name+" to a deleted session")
	}
	// These have nothing to refuse, and must store nothing.
	t.quiet(s.SettleClose(ctx, "a", r.run), "SettleClose")
	t.quiet(session.DropCalls(ctx, s, "a", "m1"), "DropCalls")
	t.quiet(s.Disown(ctx, "a", []string{"c1"}), "Disown")
	t.quiet(s.PutWake(ctx, session.Wake{Tenant: t.tenant, SessionID: "a", ChildID: "kid"}), "PutWake")
	_, err := t.tryAppend("a", producer("a", r.fence.Epoch), 1, text("late"))
	t.refused(err, session.ErrNotFound, "append to the stream of a deleted session")
	t.gone("a")
}

// quiet accepts success and not found, because both are correct for a write
// without a target.
func (t *bed) quiet(err error, what string) {
	t.Helper()
	if err != nil {
		t.refused(err, session.ErrNotFound, what)
	}
}

// chain creates a session with three checkpoints: cp1 after u1 m1, cp2 after u2
// m2, cp3 after u3.
func (t *bed) chain(id string) {
	t.Helper()
	t.create(id)
	r := t.start(id, "run-1")
	first := step(1, id+"-cp1", user("u1", "one"), reply("m1"))
	first.Writes = push("list", `1`)
	r.commit(first)
	second := step(2, id+"-cp2", user("u2", "two"), reply("m2"))
	second.Writes = push("list", `2`)
	r.commit(second)
	third := step(3, id+"-cp3", user("u3", "three"))
	third.Writes = put("list", `"gone"`)
	r.commit(third)
	r.finish(session.RunCompleted)
}

func cloneLatest(t *bed) {
	t.crowd("a")
	before := t.snapshot("a")
	to := blank("b")
	to.UserID, to.Tags, to.Metadata = "someone", []string{"copy"}, map[string]string{"from": "a"}
	to.Custom = document(`{"ignored":true}`)
	to.Turn, to.Version, to.MessageCount = 7, 7, 7
	got, err := t.store().Clone(t.Context(), &session.Clone{From: "a", To: *to})
	t.ok(err, "clone")
	t.sameSnapshot("a", before)

	sameJSON(t, "the clone as returned and as loaded", got, t.load("b"))
	equal(t, "id", got.ID, "b")
	equal(t, "version", got.Version, 1)
	equal(t, "turn", got.Turn, 0)
	equal(t, "user", got.UserID, "someone")
	equal(t, "tags", got.Tags, []string{"copy"})
	equal(t, "metadata", got.Metadata, map[string]string{"from": "a"})
	equal(t, "current run", got.CurrentRunID, "")
	equal(t, "last commit", got.LastCommit, "")
	equal(t, "lease owner", got.Lease.Owner, "")
	equal(t, "pending", len(got.Pending), 0)
	t.customIs("b", `{"k":"v"}`)
	t.messagesAre("b", "u1", "m1")
	t.copied("b")

	a, err := t.store().AllMessages(t.Context(), "a")
	t.ok(err, "AllMessages")
	b, err := t.store().AllMessages(t.Context(), "b")
	t.ok(err, "AllMessages")
	for i := range a {
		if !a[i].Equal(&b[i]) {
			t.Fatalf("message %d was not copied byte for byte: %s, want %s", i, show(&b[i]), show(&a[i]))
		}
	}
}

// copied checks what a clone must not have, and its one checkpoint.
func (t *bed) copied(id string) {
	t.Helper()
	s, ctx := t.store(), t.Context()
	runs, err := s.Runs(ctx, id, session.PageRequest{})
	t.ok(err, "Runs")
	equal(t, "runs of the clone", len(runs.Items), 0)
	pending, err := s.PendingCalls(ctx, id, true)
	t.ok(err, "PendingCalls")
	equal(t, "pending calls of the clone", len(pending), 0)
	children, err := s.Children(ctx, id)
	t.ok(err, "Children")
	equal(t, "children of the clone", len(children), 0)
	calls, err := s.Calls(ctx, id, "m1")
	t.ok(err, "Calls")
	equal(t, "calls of the clone", len(calls), 0)
	inbox, err := s.Inbox(ctx, id)
	t.ok(err, "Inbox")
	equal(t, "inbox of the clone", len(inbox), 0)
	checkpoints, err := s.Checkpoints(ctx, id, session.PageRequest{})
	t.ok(err, "Checkpoints")
	equal(t, "checkpoints of the clone", len(checkpoints.Items), 1)
	latest, err := s.LatestCheckpoint(ctx, id)
	t.ok(err, "LatestCheckpoint")
	state := t.load(id)
	equal(t, "the checkpoint's message count", latest.MessageCount, state.MessageCount)
	want, err := state.Custom.MarshalJSON()
	t.ok(err, "encode")
	t.documentIs("the checkpoint's custom state", latest.State, string(want))
}

func cloneCheckpoint(t *bed) {
	t.chain("a")
	for at, want := range map[string]struct {
		custom   string
		messages []string
	}{
		"a-cp1": {`{"list":[1]}`, []string{"u1", "m1"}},
		"a-cp2": {`{"list":[1,2]}`, []string{"u1", "m1", "u2", "m2"}},
		"a-cp3": {`{"list":"gone"}`, []string{"u1", "m1", "u2", "m2", "u3"}},
	} {
		to := "copy-at-" + at
		_, err := t.store().Clone(t.Context(), &session.Clone{From: "a", CheckpointID: at, To: *blank(to)})
		t.ok(err, "clone at "+at)
		t.customIs(to, want.custom)
		t.messagesAre(to, want.messages...)
		t.copied(to)
	}
}

func cloneMessages(t *bed) {
	t.chain("a")
	for n, want := range map[int]string{
		2: `{"list":[1]}`, 3: `{"list":[1]}`, 4: `{"list":[1,2]}`, 5: `{"list":"gone"}`,
	} {
		to := fmt.Sprintf("copy-of-%d", n)
		_, err := t.store().Clone(t.Context(), &session.Clone{From: "a", MessageCount: new(n), To: *blank(to)})
		t.ok(err, "clone")
		t.customIs(to, want)
		t.messagesAre(to, t.texts("a")[:n]...)
		t.copied(to)
	}
}

func cloneIndependent(t *bed) {
	t.chain("a")
	_, err := t.store().Clone(t.Context(), &session.Clone{From: "a", To: *blank("b")})
	t.ok(err, "clone")
	before := t.snapshot("a")
	r := t.start("b", "run-b")
	keep := 1
	r.commit(session.Change{KeepMessages: &keep, Messages: []session.Message{user("u9", "nine")}, Writes: put("list", `[]`)})
	r.finish(session.RunCompleted)
	t.sameSnapshot("a", before)
	before = t.snapshot("b")
	_, err = session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("u10", "ten")})
	t.ok(err, "append to the source")
	_, err = session.Merge(t.Context(), t.store(), "a", drop("list"))
	t.ok(err, "merge into the source")
	t.sameSnapshot("b", before)
	t.ok(t.delete("a"), "delete the source")
	t.sameSnapshot("b", before)
}

func cloneRefused(t *bed) {
	t.chain("a")
	t.chain("b")
	ctx, s := t.Context(), t.store()
	_, err := s.Clone(ctx, &session.Clone{From: "nobody", To: *blank("c")})
	t.refused(err, session.ErrNotFound, "clone of a session that does not exist")
	_, err = s.Clone(ctx, &session.Clone{From: "a", CheckpointID: "b-cp1", To: *blank("c")})
	t.refused(err, session.ErrNotFound, "clone at another session's checkpoint")
	_, err = s.Clone(ctx, &session.Clone{From: "a", CheckpointID: "nothing", To: *blank("c")})
	t.refused(err, session.ErrNotFound, "clone at an unknown checkpoint")
	_, err = s.Clone(ctx, &session.Clone{From: "a", MessageCount: new(99), To: *blank("c")})
	t.refused(err, session.ErrInvalid, "clone of more messages than there are")
	_, err = s.Clone(ctx, &session.Clone{From: "a", To: session.State{ID: "c d", Agent: "tester", Status: session.Active}})
	t.refused(err, session.ErrInvalid, "clone into an invalid id")
	t.exists("c", false)
	t.unchanged("b", func() {
		_, err = s.Clone(ctx, &session.Clone{From: "a", To: *blank("b")})
		t.refused(err, session.ErrExists, "clone onto an existing id")
	})
	t.unchanged("a", func() {
		_, err = s.Clone(ctx, &session.Clone{From: "a", To: *blank("a")})
		t.refused(err, session.ErrExists, "clone onto itself")
	})
}

func closeRefuses(t *bed) {
	t.create("a")
	t.ok(t.Backend.Close(), "close")
	_, err := t.store().Load(t.Context(), "a")
	t.refused(err, session.ErrClosed, "Load after Close")
	t.refused(session.Create(t.Context(), t.store(), blank("b")), session.ErrClosed, "Create after Close")
	_, err = t.streams().Info(t.Context(), "a")
	t.refused(err, session.ErrClosed, "Info after Close")
	_, err = t.tryAppend("a", producer("a", 1), 1, text("x"))
	t.refused(err, session.ErrClosed, "Append after Close")
	_, _, err = t.Backend.Locks().TryAcquire(t.Context(), "l", "o", time.Minute)
	t.refused(err, session.ErrClosed, "TryAcquire after Close")
}

func persists(t *bed) {
	t.crowd("a")
	t.append("a", producer("a", 1), 1, text("one"), text("two"))
	before := t.snapshot("a")
	t.ok(t.Backend.Close(), "close")
	b := t.Reopen(t.TB)
	if after := t.snapshotOf(b.Sessions(), "a"); after != before {
		t.Fatalf("the data after opening again differs from what was written:\nbefore:\n%s\nafter:\n%s", before, after)
	}
	items, err := b.Streams().Chunks(t.Context(), "a", 0, 10)
	t.ok(err, "Chunks")
	equal(t, "chunks", len(items), 2)
}

func secondHandle(t *bed) {
	other := t.sessionsOf(t.second())
	r := t.crowd("a")
	equal(t, "what the second handle reads", t.snapshotOf(other, "a"), t.snapshot("a"))
	out, err := other.Commit(t.Context(), r.request(session.Change{Messages: []session.Message{user("u2", "two")}}))
	t.ok(err, "commit on the second handle")
	equal(t, "what the first handle reads", t.snapshot("a"), t.snapshotOf(other, "a"))
	equal(t, "version", t.load("a").Version, out.Version)
	_, err = other.Delete(t.Context(), "a")
	t.ok(err, "delete on the second handle")
	t.gone("a")
}

func remade(t *bed) {
	old := t.streamed("a")
	for range 3 { // however often its lease changed hands
		taken, err := t.store().TakeOver(t.Context(), &session.TakeOver{
			SessionID: "a", RunID: old.run, Owner: old.fence.Owner, Epoch: old.fence.Epoch, Force: true,
		})
		t.ok(err, "TakeOver")
		old.fence = taken.Lease.Fence()
	}
	_, err := t.store().Delete(t.Context(), "a")
	t.ok(err, "Delete")
	r := t.streamed("a") // the same owner and the same run id
	equal(t, "owner", r.fence.Owner, old.fence.Owner)

	commit := old.request(session.Change{})
	commit.Version = r.version
	_, err = t.store().Commit(t.Context(), commit)
	t.refused(err, session.ErrStale, "a commit under the lease of the session before")
	t.refused(t.renew("a", old.fence, time.Minute), session.ErrStale, "renewing that lease")
	t.refused(t.store().CloseRun(t.Context(), "a", old.fence, true), session.ErrStale, "releasing that lease")
	_, err = t.tryAppend("a", producer("a", old.fence.Epoch), 57, text("late"))
	t.refused(err, session.ErrStale, "chunks of the run before")
	t.append("a", producer("a", r.fence.Epoch), 1, text("first"))
	t.stands(r, r.version, "first")
}
