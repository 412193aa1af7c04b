package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

func documentCases() []testCase {
	return []testCase{
		{"save", "Save replaces the document, raises the version and returns it to the caller", 0, save},
		{"save-checkpoint", "Save writes a checkpoint", 0, saveCheckpoint},
		{"save-stale", "Save of an outdated document is refused with the state of the session, and changes nothing", 0, saveStale},
		{"save-keeps", "Save takes no counters, lease, run or rows from the document", 0, saveKeeps},
		{"save-refused", "Save of a missing or invalid document is refused", 0, saveRefused},
		{"merge", "Merge appends, replaces and deletes keys in order", 0, merge},
		{"merge-keeps-bytes", "values of custom state keep the bytes they were written with", 0, mergeKeepsBytes},
		{"merge-refused", "Merge refuses what cannot be performed and changes nothing", 0, mergeRefused},
		{"merge-not-a-list", "an append to a value that is not a list is refused or causes a warning", 0, mergeNotAList},
		{"metadata", "PatchMetadata sets and deletes entries and does not change the version", 0, patchMetadata},
		{"metadata-many", "patches cannot exceed the metadata limits of a document, and may always remove entries", 0, patchMetadataMany},
		{"tags-twice", "a repeated tag is stored once, however the session is created", 0, tagsTwice},
		{"metadata-running", "PatchMetadata is allowed during a run and survives its commits", 0, patchMetadataRunning},
		{"edit", "an edit applies all its parts in one version", 0, editWhole},
		{"edit-creates", "an edit that creates a session also makes its change, and only one creates it", 0, editCreates},
		{"edit-version", "an edit with a version is refused at any other version with the state of the session, and changes nothing", 0, editAtVersion},
		{"edit-as-read", "an edit of a session as it was read is refused if it was deleted and made again, with the same version, since", clock, editAsRead},
		{"edit-refused", "an edit that is invalid, or contains what only a run may write, changes nothing", 0, editRefused},
		{"edit-beside", "an edit of only metadata and children is allowed during a run and does not raise the version; any other is refused", 0, editBeside},
		{"increment", "the counters count up by one and return the new value", 0, increment},
		{"running", "every direct write is refused while a run holds the lease, and changes nothing", 0, runningRefuses},
		{"after-run", "direct writes are allowed again once the lease is released", 0, afterRun},
		{"expired", "direct writes are refused while a run with an expired lease is in the middle of a step", clock, expiredRefuses},
		{"expired-pause", "an operator can pause and unpause a session whose run has no lease holder", clock, expiredPause},
		{"missing", "every direct write to a session that does not exist is not found", 0, missingRefuses},
	}
}

func save(t *bed) {
	t.create("a", custom(`{"old":1}`))
	state := t.load("a")
	want := full()
	want.Version = state.Version
	t.ok(session.Save(t.Context(), t.store(), want), "save")
	equal(t, "the version the caller gets", want.Version, state.Version+1)
	got := t.load("a")
	equal(t, "version", got.Version, state.Version+1)
	t.sameDocument(got, full())
	sameTime(t, "created at", got.CreatedAt, state.CreatedAt)
	t.ok(session.Save(t.Context(), t.store(), want), "save again with the returned version")
	equal(t, "version", t.load("a").Version, state.Version+2)
}

func saveCheckpoint(t *bed) {
	state := t.create("a")
	state.Custom = document(`{"k":[1,2]}`)
	t.ok(session.Save(t.Context(), t.store(), state), "save")
	cp, err := t.store().LatestCheckpoint(t.Context(), "a")
	t.ok(err, "LatestCheckpoint")
	equal(t, "source", cp.Source, session.FromSave)
	equal(t, "version", cp.Version, state.Version)
	t.documentIs("state", cp.State, `{"k":[1,2]}`)
	got := t.load("a")
	equal(t, "checkpoint in the document", got.CheckpointID, cp.ID)
	equal(t, "checkpoint source in the document", got.CheckpointSource, session.FromSave)
}

func saveStale(t *bed) {
	old := t.create("a")
	fresh := t.load("a")
	fresh.UserID = "winner"
	t.ok(session.Save(t.Context(), t.store(), fresh), "save")
	holds := t.load("a")
	old.UserID = "loser"
	version := old.Version
	t.unchanged("a", func() {
		t.conflict(session.Save(t.Context(), t.store(), old), session.ErrStale, holds, "save of an old document")
	})
	equal(t, "the refused document's version", old.Version, version)
	old.Version = holds.Version + 1
	t.unchanged("a", func() {
		t.conflict(session.Save(t.Context(), t.store(), old), session.ErrStale, holds, "save of a document from the future")
	})
}

func saveKeeps(t *bed) {
	r := t.crowd("a")
	r.finish(session.RunInterrupted)
	_, err := session.IncrementResumes(t.Context(), t.store(), "a")
	t.ok(err, "IncrementResumes")
	before := t.load("a")
	state := t.load("a")
	state.MessageCount, state.Turn, state.ResumeCount = 77, 77, 77
	state.CurrentRunID, state.LastCommit = "other", "other"
	state.Lease = session.Lease{Owner: "thief", Epoch: 77}
	state.Pending, state.AwaitingChildren = nil, nil
	t.ok(session.Save(t.Context(), t.store(), state), "save")
	got := t.load("a")
	equal(t, "message count", got.MessageCount, before.MessageCount)
	equal(t, "turn", got.Turn, before.Turn)
	equal(t, "resume count", got.ResumeCount, before.ResumeCount)
	equal(t, "current run", got.CurrentRunID, before.CurrentRunID)
	equal(t, "lease owner", got.Lease.Owner, "")
	equal(t, "lease epoch", got.Lease.Epoch, before.Lease.Epoch)
	equal(t, "pending", len(got.Pending), len(before.Pending))
	t.messagesAre("a", "u1", "m1")
}

func saveRefused(t *bed) {
	state := blank("nobody")
	state.Version = 1
	t.refused(session.Save(t.Context(), t.store(), state), session.ErrNotFound, "save of a session that does not exist")
	t.exists("nobody", false)
	t.create("a")
	for what, spoil := range map[string]func(*session.State){
		"unknown status": func(s *session.State) { s.Status = "dreaming" },
		"no agent":       func(s *session.State) { s.Agent = "" },
		"empty tag":      func(s *session.State) { s.Tags = []string{""} },
	} {
		state := t.load("a")
		spoil(state)
		t.unchanged("a", func() {
			t.refused(session.Save(t.Context(), t.store(), state), session.ErrInvalid, what)
		})
	}
}

func merge(t *bed) {
	t.create("a", custom(`{"gone":1,"kept":{"x":1},"list":[1],"n":1}`))
	out, err := session.Merge(t.Context(), t.store(), "a", session.Writes{Ops: []session.Op{
		{Kind: session.OpDelete, Key: "gone"},
		{Kind: session.OpAppend, Key: "list", Items: []json.RawMessage{raw(`2`), raw(`{"three":3}`)}},
		{Kind: session.OpAppend, Key: "list", Items: []json.RawMessage{raw(`4`)}},
		{Kind: session.OpAppend, Key: "made", Items: []json.RawMessage{raw(`"first"`)}},
		{Kind: session.OpReplace, Key: "n", Value: raw(`2`)},
		{Kind: session.OpReplace, Key: "n", Value: raw(`3`)},
		{Kind: session.OpDelete, Key: "never-there"},
		{Kind: session.OpReplace, Key: "list2", Value: raw(`[0]`)},
		{Kind: session.OpAppend, Key: "list2", Items: []json.RawMessage{raw(`1`)}},
		{Kind: session.OpReplace, Key: "list3", Value: raw(`[0]`)},
		{Kind: session.OpDelete, Key: "list3"},
		{Kind: session.OpAppend, Key: "list3", Items: []json.RawMessage{raw(`1`)}},
	}})
	t.ok(err, "merge")
	equal(t, "version", out.Version, 2)
	equal(t, "version in the document", t.load("a").Version, 2)
	t.customIs("a", `{"kept":{"x":1},"list":[1,2,{"three":3},4],"list2":[0,1],"list3":[1],"made":["first"],"n":3}`)
	_, err = session.Merge(t.Context(), t.store(), "a", push("list", `5`))
	t.ok(err, "merge again")
	t.customIs("a", `{"kept":{"x":1},"list":[1,2,{"three":3},4,5],"list2":[0,1],"list3":[1],"made":["first"],"n":3}`)
}

func mergeKeepsBytes(t *bed) {
	value := `{ "b" : 1.0, "a": 1e3,  "html":"<a href='x'>&amp;</a>", "dup":1, "uni":"\u00e9\u2028é😀", "big":12345678901234567890 }`
	t.create("a")
	_, err := session.Merge(t.Context(), t.store(), "a", put("k", value))
	t.ok(err, "merge")
	got := t.load("a")
	equal(t, "value", string(got.Custom.Get("k")), value)
	r := t.start("a", "run-1")
	r.commit(session.Change{Writes: put("l", `[ 1.0 ]`)})
	r.commit(session.Change{Writes: push("l", `{ "x" : 1.50 }`)})
	got = t.load("a")
	equal(t, "value after commits", string(got.Custom.Get("k")), value)
	list := document(`{"l":` + string(got.Custom.Get("l")) + `}`)
	equal(t, "list", compact(string(list.Get("l"))), `[1.0,{"x":1.50}]`)
}

func mergeRefused(t *bed) {
	t.create("a", custom(`{"k":1}`))
	for what, op := range map[string]session.Op{
		"no key":            {Kind: session.OpReplace, Value: raw(`1`)},
		"unknown operation": {Kind: "multiply", Key: "k"},
		"broken value":      {Kind: session.OpReplace, Key: "k", Value: raw(`{`)},
		"no value":          {Kind: session.OpReplace, Key: "k"},
		"broken item":       {Kind: session.OpAppend, Key: "l", Items: []json.RawMessage{raw(`1`), raw(`nope`)}},
	} {
		t.unchanged("a", func() {
			_, err := session.Merge(t.Context(), t.store(), "a", session.Writes{Ops: []session.Op{
				{Kind: session.OpReplace, Key: "before", Value: raw(`1`)}, op,
			}})
			t.refused(err, session.ErrInvalid, what)
		})
	}
}

func mergeNotAList(t *bed) {
	t.create("a", custom(`{"k":{"not":"a list"}}`))
	before := t.snapshot("a")
	out, err := session.Merge(t.Context(), t.store(), "a", push("k", `1`))
	if err != nil {
		t.refused(err, session.ErrInvalid, "append to an object")
		t.sameSnapshot("a", before)
		return
	}
	if len(out.Warnings) == 0 {
		t.Fatalf("an append to an object succeeded without a warning; custom state is %s", show(t.load("a").Custom))
	}
}

func patchMetadata(t *bed) {
	t.create("a", func(s *session.State) { s.Metadata = map[string]string{"keep": "1", "drop": "2", "change": "3"} })
	version := t.load("a").Version
	t.ok(session.PatchMetadata(t.Context(), t.store(), "a", map[string]*string{
		"drop": nil, "change": new("4"), "new": new(""), "never-there": nil, "odd <key>\"": new("värde\n"),
	}), "patch")
	got := t.load("a")
	equal(t, "metadata", got.Metadata, map[string]string{"keep": "1", "change": "4", "new": "", "odd <key>\"": "värde\n"})
	equal(t, "version", got.Version, version)
	t.ok(session.PatchMetadata(t.Context(), t.store(), "a", nil), "patch nothing")
	t.refused(session.PatchMetadata(t.Context(), t.store(), "nobody", map[string]*string{"k": new("v")}), session.ErrNotFound, "patch nothing")
}

func patchMetadataMany(t *bed) {
	t.create("a")
	for round := range 6 {
		patch := map[string]*string{}
		is := t.load("a")
		for i := range 20 {
			name := fmt.Sprintf("k%d", 20*round+i)
			patch[name] = new("v")
			if is.Metadata == nil {
				is.Metadata = map[string]string{}
			}
			is.Metadata[name] = "v"
		}
		want := is.Check()
		err := session.PatchMetadata(t.Context(), t.store(), "a", patch)
		if want == nil {
			t.ok(err, "patch")
			equal(t, "entries", len(t.load("a").Metadata), 20*(round+1))
			continue
		}
		t.refused(err, session.ErrInvalid, "a patch of more than a document may have")
		for name := range patch {
			if _, ok := t.load("a").Metadata[name]; ok {
				t.Fatalf("a patch that was refused has set %s", name)
			}
			break
		}
	}
	before := len(t.load("a").Metadata)
	t.ok(session.PatchMetadata(t.Context(), t.store(), "a", map[string]*string{"k0": nil, "k1": new("w")}), "patch that adds nothing")
	after := t.load("a").Metadata
	equal(t, "entries", len(after), before-1)
	equal(t, "entry", after["k1"], "w")
}

func tagsTwice(t *bed) {
	tags, want := []string{"b", "a", "b", "c", "a"}, []string{"b", "a", "c"}
	with := func(id string) *session.State {
		state := blank(id)
		state.Tags = tags
		return state
	}
	t.ok(session.Create(t.Context(), t.store(), with("created")), "create")
	t.begin(createAndStart(with("started"), "run-1"))
	t.create("from")
	_, err := t.store().Clone(t.Context(), &session.Clone{From: "from", To: *with("cloned")})
	t.ok(err, "clone")
	saved := t.create("saved")
	saved.Tags = tags
	t.ok(session.Save(t.Context(), t.store(), saved), "save")
	for _, id := range []string{"created", "started", "cloned", "saved"} {
		equal(t, "tags of what was "+id, t.load(id).Tags, want)
	}
	equal(t, "the caller's tags", tags, []string{"b", "a", "b", "c", "a"})
	for _, tag := range want {
		got := t.listed(session.Query{Tags: []string{tag}})
		slices.Sort(got)
		equal(t, "sessions with the tag "+tag, got, []string{"cloned", "created", "saved", "started"})
	}
}

func patchMetadataRunning(t *bed) {
	r := t.running("a")
	t.ok(session.PatchMetadata(t.Context(), t.store(), "a", map[string]*string{"k": new("v")}), "patch during a run")
	r.commit(session.Change{Messages: []session.Message{user("u1", "one")}})
	equal(t, "metadata after a commit", t.load("a").Metadata, map[string]string{"k": "v"})
	t.ok(session.PatchMetadata(t.Context(), t.store(), "a", map[string]*string{"k": nil, "l": new("w")}), "patch during a run")
	r.finish(session.RunCompleted)
	equal(t, "metadata after the run", t.load("a").Metadata, map[string]string{"l": "w"})
}

func increment(t *bed) {
	t.create("a")
	for want := 1; want <= 3; want++ {
		version := t.load("a").Version
		n, err := session.IncrementSteps(t.Context(), t.store(), "a")
		t.ok(err, "IncrementSteps")
		equal(t, "steps", n, want)
		equal(t, "version", t.load("a").Version, version+1)
	}
	for want := 1; want <= 2; want++ {
		version := t.load("a").Version
		n, err := session.IncrementResumes(t.Context(), t.store(), "a")
		t.ok(err, "IncrementResumes")
		equal(t, "resumes", n, want)
		equal(t, "version", t.load("a").Version, version+1)
	}
	got := t.load("a")
	equal(t, "steps in the document", got.StepCount, 3)
	equal(t, "resumes in the document", got.ResumeCount, 2)
}

// directWrites lists every operation that writes the document outside a turn.
func directWrites(t *bed, id string) map[string]func() error {
	s, ctx := t.store(), t.Context()
	return map[string]func() error{
		"Save": func() error {
			state, err := s.Load(ctx, id)
			if err != nil {
				state = blank(id)
				state.Version = 1
			}
			state.UserID = "changed"
			return session.Save(ctx, s, state)
		},
		"Merge": func() error { _, err := session.Merge(ctx, s, id, put("k", `1`)); return err },
		"SetStatus": func() error {
			out, err := s.SetStatus(ctx, id, session.StatusChange{Expect: session.Statuses(), To: session.Failed})
			if err == nil && !out.OK {
				return errors.New("SetStatus did not apply")
			}
			return err
		},
		"IncrementSteps":   func() error { _, err := session.IncrementSteps(ctx, s, id); return err },
		"IncrementResumes": func() error { _, err := session.IncrementResumes(ctx, s, id); return err },
		"AppendMessages": func() error {
			_, err := session.AppendMessages(ctx, s, id, []session.Message{user("direct", "x")})
			return err
		},
		"DropCalls":        func() error { return session.DropCalls(ctx, s, id, "m1") },
		"TruncateMessages": func() error { _, err := session.TruncateMessages(ctx, s, id, 0); return err },
		"CreateCheckpoint": func() error {
			_, err := session.CreateCheckpoint(ctx, s, id, session.NewCheckpoint{ID: "direct-" + id, Source: session.FromSave})
			return err
		},
	}
}

func runningRefuses(t *bed) {
	r := t.crowd("a")
	for name, write := range directWrites(t, "a") {
		t.unchanged("a", func() {
			t.conflict(write(), session.ErrAlreadyRunning, t.load("a"), name+" during a run")
		})
	}
	r.commit(session.Change{Messages: []session.Message{user("u2", "two")}})
}

func afterRun(t *bed) {
	r := t.crowd("a")
	r.finish(session.RunCompleted)
	for name, write := range directWrites(t, "a") {
		version := t.load("a").Version
		t.ok(write(), name+" after the run")
		equal(t, "version after "+name, t.load("a").Version, version+1)
	}
}

// orphan creates a session whose run is running and whose lease has expired.
func (t *bed) orphan(id string) *turn {
	t.Helper()
	t.create(id)
	start := t.startOf(id, "run-1")
	start.TTL = t.ttl()
	r := t.begin(start)
	t.pass(2 * t.ttl())
	return r
}

func expiredRefuses(t *bed) {
	r := t.orphan("a")
	for name, write := range directWrites(t, "a") {
		t.unchanged("a", func() {
			t.conflict(write(), session.ErrAlreadyRunning, t.load("a"), name+" after the lease expired")
		})
	}
	taken, err := t.store().TakeOver(t.Context(), &session.TakeOver{
		SessionID: "a", RunID: r.run, Owner: "next", Epoch: r.fence.Epoch, TTL: time.Hour,
	})
	t.ok(err, "TakeOver")
	equal(t, "version", taken.Version, r.version)
	// A run whose lease was released is in the middle of a step, too.
	t.ok(t.store().CloseRun(t.Context(), "a", taken.Lease.Fence(), false), "CloseRun")
	for name, write := range directWrites(t, "a") {
		t.unchanged("a", func() {
			t.conflict(write(), session.ErrAlreadyRunning, t.load("a"), name+" after the lease was released")
		})
	}
}

func expiredPause(t *bed) {
	t.orphan("a")
	set := func(to session.Status) (session.StatusResult, error) {
		return t.store().SetStatus(t.Context(), "a", session.StatusChange{Expect: session.Statuses(), To: to})
	}
	out, err := set(session.Paused)
	t.ok(err, "pause")
	equal(t, "paused", out.OK, true)
	for _, to := range []session.Status{session.Failed, session.Interrupted} {
		_, err = set(to)
		t.refused(err, session.ErrAlreadyRunning, "from paused to "+string(to)+" with a run that has not ended")
	}
	out, err = set(session.Active)
	t.ok(err, "unpause")
	equal(t, "active", out.OK, true)
	// While somebody holds the lease, only the holder writes.
	t.running("b")
	_, err = t.store().SetStatus(t.Context(), "b", session.StatusChange{Expect: session.Statuses(), To: session.Paused})
	t.refused(err, session.ErrAlreadyRunning, "pause during a run")
}

func missingRefuses(t *bed) {
	for name, write := range directWrites(t, "nobody") {
		t.refused(write(), session.ErrNotFound, name)
	}
	t.exists("nobody", false)
}
