package storetest

import (
	"fmt"
	"math/rand/v2"

	"github.com/helixagents/helix/session"
)

func checkpointCases() []testCase {
	return []testCase{
		{"create", "CreateCheckpoint marks the session as it is and raises the version", 0, createCheckpoint},
		{"create-refused", "a checkpoint of a session that does not exist is not found", 0, createCheckpointRefused},
		{"create-again", "a repeated checkpoint id is refused and changes nothing", 0, createCheckpointAgain},
		{"latest", "the latest checkpoint is the one written last, not the one with the highest step", 0, latestCheckpoint},
		{"latest-none", "a session without a checkpoint has no latest one", 0, latestNone},
		{"foreign", "a checkpoint of another session is not found", 0, foreignCheckpoint},
		{"list", "checkpoints are listed newest first, in pages, without custom state", 0, listCheckpoints},
		{"chain", "custom state is right at each of hundreds of steps of appends, replaces and deletes", 0, checkpointChain},
		{"chain-rewind", "custom state is right at checkpoints before and after rewinds", 0, checkpointRewind},
		{"chain-direct", "custom state is right at checkpoints between direct writes", 0, checkpointDirect},
		{"between", "the next checkpoint includes what was written without one", 0, checkpointBetween},
		{"immutable", "a checkpoint does not change when the session continues", 0, checkpointImmutable},
		{"undone", "a checkpoint whose messages a rewind has dropped is marked as undone for good and is never the latest", 0, checkpointUndone},
		{"big", "a list of thousands of items is right at every checkpoint", 0, checkpointBig},
	}
}

func createCheckpoint(t *bed) {
	t.numbered("a", 3)
	_, err := session.Merge(t.Context(), t.store(), "a", put("k", `{"deep":[1]}`))
	t.ok(err, "merge")
	before := t.load("a")
	cp, err := session.CreateCheckpoint(t.Context(), t.store(), "a", session.NewCheckpoint{
		ID: "cp1", Step: 7, Source: session.FromSave, StreamSequence: 99,
	})
	t.ok(err, "CreateCheckpoint")
	got, err := t.store().Checkpoint(t.Context(), "a", "cp1")
	t.ok(err, "Checkpoint")
	equal(t, "id", got.ID, "cp1")
	equal(t, "session", got.SessionID, "a")
	equal(t, "step", got.Step, 7)
	equal(t, "source", got.Source, session.FromSave)
	equal(t, "message count", got.MessageCount, 3)
	equal(t, "stream sequence", got.StreamSequence, 99)
	equal(t, "status", got.Status, session.Active)
	t.documentIs("state", got.State, `{"k":{"deep":[1]}}`)
	equal(t, "id returned", cp.ID, "cp1")
	equal(t, "message count returned", cp.MessageCount, 3)
	after := t.load("a")
	equal(t, "version", after.Version, before.Version+1)
	equal(t, "checkpoint's version", got.Version, after.Version)
	equal(t, "checkpoint in the document", after.CheckpointID, "cp1")
}

func createCheckpointRefused(t *bed) {
	_, err := session.CreateCheckpoint(t.Context(), t.store(), "nobody", session.NewCheckpoint{ID: "cp1", Source: session.FromSave})
	t.refused(err, session.ErrNotFound, "CreateCheckpoint")
	_, err = t.store().Checkpoints(t.Context(), "nobody", session.PageRequest{})
	t.refused(err, session.ErrNotFound, "Checkpoints")
	t.exists("nobody", false)
}

func createCheckpointAgain(t *bed) {
	r := t.running("a")
	r.commit(step(1, "cp1", user("u1", "one")))
	r.refuse(r.request(step(2, "cp1", user("u2", "two"))), session.ErrExists)
	r.finish(session.RunCompleted)
	t.unchanged("a", func() {
		_, err := session.CreateCheckpoint(t.Context(), t.store(), "a", session.NewCheckpoint{ID: "cp1", Source: session.FromSave})
		t.refused(err, session.ErrExists, "CreateCheckpoint")
	})
}

func (t *bed) latest(id, want string) *session.Checkpoint {
	t.Helper()
	cp, err := t.store().LatestCheckpoint(t.Context(), id)
	t.ok(err, "LatestCheckpoint")
	equal(t, "latest checkpoint", cp.ID, want)
	return cp
}

func latestCheckpoint(t *bed) {
	r := t.running("a")
	for n := 1; n <= 5; n++ {
		change := step(n, fmt.Sprintf("z-%d", n))
		change.Writes = put("at", fmt.Sprintf(`"turn 1 step %d"`, n))
		r.commit(change)
	}
	t.latest("a", "z-5")
	r.finish(session.RunCompleted)
	r = t.start("a", "run-2")
	change := step(1, "a-1") // lower in step and in the order of ids
	change.Writes = put("at", `"turn 2 step 1"`)
	r.commit(change)
	cp := t.latest("a", "a-1")
	equal(t, "turn", cp.Turn, 2)
	equal(t, "step", cp.Step, 1)
	t.documentIs("state", cp.State, `{"at":"turn 2 step 1"}`)
	old, err := t.store().Checkpoint(t.Context(), "a", "z-5")
	t.ok(err, "Checkpoint")
	equal(t, "turn of the older one", old.Turn, 1)
	t.documentIs("state of the older one", old.State, `{"at":"turn 1 step 5"}`)
}

func latestNone(t *bed) {
	t.create("a")
	if t.load("a").CheckpointID == "" {
		_, err := t.store().LatestCheckpoint(t.Context(), "a")
		t.refused(err, session.ErrNotFound, "LatestCheckpoint")
	}
	_, err := t.store().LatestCheckpoint(t.Context(), "nobody")
	t.refused(err, session.ErrNotFound, "LatestCheckpoint of nothing")
}

func foreignCheckpoint(t *bed) {
	t.chain("a")
	t.chain("b")
	_, err := t.store().Checkpoint(t.Context(), "a", "b-cp1")
	t.refused(err, session.ErrNotFound, "a checkpoint of another session")
	_, err = t.store().Checkpoint(t.Context(), "a", "nothing")
	t.refused(err, session.ErrNotFound, "an unknown checkpoint")
	_, err = t.store().Checkpoint(t.Context(), "nobody", "a-cp1")
	t.refused(err, session.ErrNotFound, "a checkpoint of nothing")
	cp, err := t.store().Checkpoint(t.Context(), "b", "b-cp1")
	t.ok(err, "Checkpoint")
	equal(t, "session", cp.SessionID, "b")
}

func listCheckpoints(t *bed) {
	r := t.running("a")
	var want []string
	for n := 1; n <= 7; n++ {
		id := fmt.Sprintf("cp-%d", (n*5)%7)
		change := step(n, id)
		change.Writes = push("list", `1`)
		r.commit(change)
		want = append([]string{id}, want...)
	}
	get := func(p session.PageRequest) (session.Page[session.Checkpoint], error) {
		page, err := t.store().Checkpoints(t.Context(), "a", p)
		for _, cp := range page.Items {
			if cp.State != nil {
				t.Fatalf("the listing of checkpoint %s has custom state", cp.ID)
			}
		}
		return page, err
	}
	for _, limit := range []int{1, 3, 7, 10} {
		equal(t, "checkpoints", pages(t, limit, get, func(c session.Checkpoint) string { return c.ID }), want)
	}
	page, err := get(session.PageRequest{Limit: 2, Offset: 4, Total: true})
	t.ok(err, "page by offset")
	equal(t, "first item", page.Items[0].ID, want[4])
	equal(t, "total", *page.Total, 7)
	_, err = get(session.PageRequest{Cursor: "not a cursor"})
	t.refused(err, session.ErrInvalid, "an invalid cursor")
}

// model is custom state maintained beside the store's, with its values at
// checkpoints.
type model struct {
	doc session.CustomState
	at  map[string]string
}

func (m *model) apply(t *bed, w session.Writes) {
	t.Helper()
	t.ok(m.doc.Apply(w), "apply to the model")
}

func (m *model) mark(t *bed, id string) {
	t.Helper()
	if m.at == nil {
		m.at = map[string]string{}
	}
	m.at[id] = m.json(t)
}

func (m *model) json(t *bed) string {
	t.Helper()
	out, err := m.doc.MarshalJSON()
	t.ok(err, "encode the model")
	return string(out)
}

// check compares the store with the model, at every checkpoint.
func (m *model) check(t *bed, id string) {
	t.Helper()
	t.customIs(id, m.json(t))
	for checkpoint, want := range m.at {
		cp, err := t.store().Checkpoint(t.Context(), id, checkpoint)
		t.ok(err, "Checkpoint "+checkpoint)
		t.documentIs("state at "+checkpoint, cp.State, want)
	}
}

// randomWrites is one step's writes on a handful of keys.
func randomWrites(random *rand.Rand, doc *session.CustomState) session.Writes {
	var w session.Writes
	for range random.IntN(3) {
		key := fmt.Sprintf("k%d", random.IntN(5))
		value := fmt.Sprintf(`{"n":%d,"pad":"%0*d"}`, random.IntN(1000), random.IntN(40)+1, 0)
		switch n := random.IntN(10); {
		case n < 6 && (!doc.Has(key) || session.IsList(doc.Get(key))):
			w = session.Compose(w, push(key, value))
		case n < 8:
			w = session.Compose(w, put(key, `[`+value+`]`))
		case n < 9:
			w = session.Compose(w, put(key, value))
		default:
			w = session.Compose(w, drop(key))
		}
	}
	w.Warnings = nil
	if doc := doc.Clone(); doc.Apply(w) != nil {
		return session.Writes{} // a key that is no longer a list
	}
	return w
}

func checkpointChain(t *bed) {
	random := rand.New(rand.NewPCG(1, 2))
	r := t.running("a")
	var m model
	for n := 1; n <= 200; n++ {
		change := step(n, fmt.Sprintf("cp%d", n))
		change.Writes = randomWrites(random, &m.doc)
		r.commit(change)
		m.apply(t, change.Writes)
		if n%7 == 0 || n > 195 {
			m.mark(t, change.Checkpoint.ID)
		}
	}
	m.check(t, "a")
}

func checkpointRewind(t *bed) {
	random := rand.New(rand.NewPCG(3, 4))
	r := t.running("a")
	var m model
	var marked []string
	steps := func(run int) {
		for n := 1; n <= 25; n++ {
			change := step(n, fmt.Sprintf("cp%d-%d", run, n))
			change.Writes = randomWrites(random, &m.doc)
			r.commit(change)
			m.apply(t, change.Writes)
			m.mark(t, change.Checkpoint.ID)
			marked = append(marked, change.Checkpoint.ID)
		}
	}
	steps(1)
	for run := 2; run <= 4; run++ {
		r.finish(session.RunFailed)
		cp, err := t.store().Checkpoint(t.Context(), "a", marked[random.IntN(len(marked))])
		t.ok(err, "Checkpoint")
		start := t.startOf("a", fmt.Sprintf("run-%d", run))
		start.State, start.KeepMessages = cp.State, new(cp.MessageCount)
		start.Checkpoint = &session.NewCheckpoint{ID: fmt.Sprintf("start-%d", run), Source: session.FromSave}
		r = t.begin(start)
		m.doc = document(m.at[cp.ID])
		m.mark(t, start.Checkpoint.ID)
		steps(run)
	}
	m.check(t, "a")
}

func checkpointDirect(t *bed) {
	random := rand.New(rand.NewPCG(5, 6))
	t.create("a")
	var m model
	for n := range 60 {
		w := randomWrites(random, &m.doc)
		m.apply(t, w)
		_, err := session.Merge(t.Context(), t.store(), "a", w)
		t.ok(err, "merge")
		switch n % 10 {
		case 4:
			id := fmt.Sprintf("cp%d", n)
			_, err := session.CreateCheckpoint(t.Context(), t.store(), "a", session.NewCheckpoint{ID: id, Source: session.FromSave})
			t.ok(err, "CreateCheckpoint")
			m.mark(t, id)
		case 9:
			state := t.load("a")
			state.Custom = document(m.json(t))
			state.Custom.Set("saved", raw(fmt.Sprint(n)))
			m.apply(t, put("saved", fmt.Sprint(n)))
			t.ok(session.Save(t.Context(), t.store(), state), "save")
			m.mark(t, t.load("a").CheckpointID)
		}
	}
	m.check(t, "a")
}

func checkpointBetween(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Writes: push("list", `1`)})
	r.commit(step(1, "cp1"))
	r.commit(session.Change{Writes: push("list", `2`)})
	r.commit(session.Change{Writes: push("list", `3`)})
	change := step(2, "cp2")
	change.Writes = push("list", `4`)
	r.commit(change)
	for id, want := range map[string]string{"cp1": `{"list":[1]}`, "cp2": `{"list":[1,2,3,4]}`} {
		cp, err := t.store().Checkpoint(t.Context(), "a", id)
		t.ok(err, "Checkpoint")
		t.documentIs("state at "+id, cp.State, want)
	}
}

func checkpointImmutable(t *bed) {
	t.chain("a")
	before, err := t.store().Checkpoint(t.Context(), "a", "a-cp2")
	t.ok(err, "Checkpoint")
	r := t.start("a", "run-2")
	empty := session.CustomState{}
	r.commit(session.Change{KeepMessages: new(0), State: &empty, Status: session.Paused})
	r.commit(step(1, "later"))
	after, err := t.store().Checkpoint(t.Context(), "a", "a-cp2")
	t.ok(err, "Checkpoint")
	before.Undone = true // the only field that may change
	sameJSON(t, "the checkpoint", after, before)
	after.State.Set("scribbled", raw(`1`))
	again, err := t.store().Checkpoint(t.Context(), "a", "a-cp2")
	t.ok(err, "Checkpoint")
	sameJSON(t, "the checkpoint after scribbling on a copy", again, before)
}

func checkpointUndone(t *bed) {
	undone := func(want ...string) {
		t.Helper()
		page, err := t.store().Checkpoints(t.Context(), "a", session.PageRequest{})
		t.ok(err, "Checkpoints")
		got := []string{}
		for _, listed := range page.Items {
			cp, err := t.store().Checkpoint(t.Context(), "a", listed.ID)
			t.ok(err, "Checkpoint")
			equal(t, "undone "+cp.ID, cp.Undone, listed.Undone)
			if cp.Undone {
				got = append(got, cp.ID)
			}
		}
		sameJSON(t, "undone checkpoints", got, append([]string{}, want...))
	}
	r := t.running("a")
	for n := 1; n <= 4; n++ {
		change := step(n, fmt.Sprintf("cp%d", n), user(fmt.Sprintf("u%d", n), "text"))
		change.Writes = put("n", fmt.Sprint(n))
		r.commit(change)
	}
	undone()
	r.commit(session.Change{KeepMessages: new(2)})
	undone("cp4", "cp3")
	equal(t, "undone latest", t.latest("a", "cp2").Undone, false)

	// The same number of messages are not the same messages.
	r.commit(step(5, "cp5", user("u5", "five"), user("u6", "six"), user("u7", "seven")))
	undone("cp4", "cp3")
	equal(t, "undone latest", t.latest("a", "cp5").Undone, false)
	r.finish(session.RunCompleted)
	old, err := t.store().Checkpoint(t.Context(), "a", "cp3")
	t.ok(err, "Checkpoint")
	t.documentIs("state of an undone checkpoint", old.State, `{"n":3}`)
	_, err = t.store().Clone(t.Context(), &session.Clone{From: "a", CheckpointID: "cp3", To: *blank("b")})
	t.refused(err, session.ErrNotFound, "clone at an undone checkpoint")
	t.exists("b", false)
	_, err = t.store().Clone(t.Context(), &session.Clone{From: "a", CheckpointID: "cp2", To: *blank("b")})
	t.ok(err, "clone at a standing checkpoint")

	cp, err := session.CreateCheckpoint(t.Context(), t.store(), "a", session.NewCheckpoint{ID: "cp6"})
	t.ok(err, "CreateCheckpoint")
	equal(t, "undone", cp.Undone, false)
	_, err = session.TruncateMessages(t.Context(), t.store(), "a", 0)
	t.ok(err, "TruncateMessages")
	undone("cp6", "cp5", "cp4", "cp3", "cp2", "cp1")
	_, err = t.store().LatestCheckpoint(t.Context(), "a")
	t.refused(err, session.ErrNotFound, "LatestCheckpoint when all are undone")
}

func checkpointBig(t *bed) {
	r := t.running("a")
	want := session.CustomState{}
	for n := 1; n <= 20; n++ {
		change := step(n, fmt.Sprintf("cp%d", n))
		op := session.Op{Kind: session.OpAppend, Key: "list"}
		for i := range 150 {
			op.Items = append(op.Items, raw(fmt.Sprintf(`{"step":%d,"i":%d}`, n, i)))
		}
		change.Writes.Ops = []session.Op{op}
		r.commit(change)
		t.ok(want.Apply(change.Writes), "apply")
		if n%6 == 0 || n == 20 {
			cp, err := t.store().Checkpoint(t.Context(), "a", change.Checkpoint.ID)
			t.ok(err, "Checkpoint")
			equal(t, "length of the list's JSON", len(compact(string(cp.State.Get("list")))), len(want.Get("list")))
		}
	}
	got := t.load("a")
	equal(t, "the list is as it was written", compact(string(got.Custom.Get("list"))) == string(want.Get("list")), true)
}
