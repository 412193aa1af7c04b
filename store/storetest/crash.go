package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

func crashCases() []testCase {
	cases := []testCase{
		{"every-write", "the cases below cover every write of a backend", 0, coversEveryWrite},
		{"turn", "a turn that is stopped before or after any of its writes and then taken over ends as if it had not been stopped", 0, crashTurn},
	}
	for _, op := range crashOps() {
		cases = append(cases, testCase{
			op.name, op.name + " that fails before it is applied changes nothing; one that fails afterwards is recognised when it is repeated",
			op.needs, op.crash,
		})
	}
	return cases
}

// crashOp is one write to a session "a" with a run and rows of every kind.
type crashOp struct {
	name string
	// edit marks functions over [session.Documents.Edit], which is then the write.
	edit bool
	// marks marks a [session.Turns.Commit] of a marker.
	marks bool
	needs need
	// idle releases the lease first, for writes that need an idle session.
	idle bool
	do   func(t *bed, b store.Backend, w *world) error
	// again is the result of a repetition: nil for success, otherwise the error.
	again *session.Error
	// twice marks writes that take effect again when repeated: counts, appends,
	// renewals. The others must not change anything.
	twice bool
}

// write returns the name of the store's method that makes the write.
func (op *crashOp) write() string {
	switch {
	case op.edit:
		return "Edit"
	case op.marks:
		return "Commit"
	}
	return op.name
}

// world is the state before a write: a turn, and the document as it was read.
type world struct {
	turn  *turn
	state *session.State
	held  string
	task  *session.Task // which is held
}

func crashOps() []crashOp {
	return []crashOp{
		{name: "Create", edit: true, again: session.ErrExists, do: func(t *bed, b store.Backend, _ *world) error {
			return session.Create(t.Context(), t.sessionsOf(b), blank("new"))
		}},
		{name: "Clone", again: session.ErrExists, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.sessionsOf(b).Clone(t.Context(), &session.Clone{From: "a", To: *blank("new")})
			return err
		}},
		{name: "Delete", again: session.ErrNotFound, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.sessionsOf(b).Delete(t.Context(), "a")
			return err
		}},
		{name: "Save", edit: true, idle: true, again: session.ErrStale, do: func(t *bed, b store.Backend, w *world) error {
			state := *w.state
			state.UserID = "saved"
			return session.Save(t.Context(), t.sessionsOf(b), &state)
		}},
		{name: "Merge", edit: true, idle: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := session.Merge(t.Context(), t.sessionsOf(b), "a", put("merged", `1`))
			return err
		}},
		{name: "SetStatus", idle: true, again: session.ErrStale, do: func(t *bed, b store.Backend, w *world) error {
			out, err := t.sessionsOf(b).SetStatus(t.Context(), "a", session.StatusChange{
				Expect: []session.Status{session.Active}, To: session.Failed, ExpectVersion: w.state.Version,
			})
			if err == nil && !out.OK {
				return session.ErrStale // in the terms of this table
			}
			return err
		}},
		{name: "PatchMetadata", edit: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return session.PatchMetadata(t.Context(), t.sessionsOf(b), "a", map[string]*string{"patched": new("1")})
		}},
		{name: "IncrementSteps", edit: true, idle: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := session.IncrementSteps(t.Context(), t.sessionsOf(b), "a")
			return err
		}},
		{name: "IncrementResumes", edit: true, idle: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := session.IncrementResumes(t.Context(), t.sessionsOf(b), "a")
			return err
		}},
		{name: "StartRun", do: func(t *bed, b store.Backend, _ *world) error {
			start := createAndStart(blank("new"), "run-1")
			start.Run.RequestID = "request-1"
			start.Messages = []session.Message{user("u1", "hello")}
			out, err := t.sessionsOf(b).StartRun(t.Context(), start)
			if err == nil && out.Run.ID != "run-1" {
				return fmt.Errorf("run %s was started", out.Run.ID)
			}
			return err
		}},
		{name: "Commit", do: func(t *bed, b store.Backend, w *world) error {
			change := step(2, "cp-commit", user("committed", "x"))
			change.Writes = push("committed", `1`)
			change.Run = &session.RunChange{Usage: session.Usage{ModelCalls: 1}}
			out, err := t.sessionsOf(b).Commit(t.Context(), w.turn.request(change))
			if err == nil && (out.Version != w.turn.version+1 || out.MessageCount != 3 || out.CheckpointID != "cp-commit") {
				return fmt.Errorf("the outcome is %+v", *out)
			}
			return err
		}},
		{name: "TakeOver", again: session.ErrStale, do: func(t *bed, b store.Backend, w *world) error {
			take := w.turn.takeOver("taker")
			take.Force = true
			_, err := t.sessionsOf(b).TakeOver(t.Context(), take)
			return err
		}},
		{name: "RenewLeases", twice: true, do: func(t *bed, b store.Backend, w *world) error {
			return t.renewAt(t.Context(), b, "a", w.turn.fence, 2*time.Hour)
		}},
		{name: "CloseRun", again: session.ErrStale, do: func(t *bed, b store.Backend, w *world) error {
			return t.sessionsOf(b).CloseRun(t.Context(), "a", w.turn.fence, true)
		}},
		{name: "SettleClose", idle: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return t.sessionsOf(b).SettleClose(t.Context(), "a", "run-1")
		}},
		{name: "Claim", do: func(t *bed, b store.Backend, w *world) error {
			_, _, err := t.sessionsOf(b).Claim(t.Context(), "a", w.turn.version, w.turn.fence, "m1", "c1")
			return err
		}},
		{name: "Settle", do: func(t *bed, b store.Backend, w *world) error {
			_, err := t.sessionsOf(b).Settle(t.Context(), "a", w.turn.fence, settled(call("m1", "c1", 0), `1`))
			return err
		}},
		{name: "Ask", do: func(t *bed, b store.Backend, w *world) error {
			return t.sessionsOf(b).Ask(t.Context(), "a", w.turn.fence, question("c1", 1))
		}},
		{name: "DropCalls", edit: true, idle: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return session.DropCalls(t.Context(), t.sessionsOf(b), "a", "m1")
		}},
		{name: "CleanCalls", needs: alone, idle: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.sessionsOf(b).CleanCalls(t.Context(), noon.AddDate(100, 0, 0))
			return err
		}},
		{name: "RequestStop", do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.sessionsOf(b).RequestStop(t.Context(), "a", session.Stop{RunID: "run-1", Kind: session.StopAbort})
			return err
		}},
		{name: "AppendMessages", edit: true, idle: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := session.AppendMessages(t.Context(), t.sessionsOf(b), "a", []session.Message{user("", "without an id")})
			return err
		}},
		{name: "CommitMarker", marks: true, do: func(t *bed, b store.Backend, w *world) error {
			_, err := t.sessionsOf(b).Commit(t.Context(), w.turn.request(step(2, "cp-marker", t.marker("marker", 1))))
			return err
		}},
		{name: "AppendMarker", edit: true, idle: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := session.AppendMessages(t.Context(), t.sessionsOf(b), "a", []session.Message{t.marker("", 1)})
			return err
		}},
		{name: "TruncateMessages", edit: true, idle: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := session.TruncateMessages(t.Context(), t.sessionsOf(b), "a", 1)
			return err
		}},
		{name: "CreateCheckpoint", edit: true, idle: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := session.CreateCheckpoint(t.Context(), t.sessionsOf(b), "a", session.NewCheckpoint{ID: "made", Source: session.FromSave})
			if errors.Is(err, session.ErrExists) {
				return nil // it exists, which is as good
			}
			return err
		}},
		{name: "PutChildren", edit: true, twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return session.PutChildren(t.Context(), t.sessionsOf(b), "a", []session.ChildRef{child("put")})
		}},
		{name: "UpdateChild", twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.sessionsOf(b).UpdateChild(t.Context(), "a", "a-kid", func(c *session.ChildRef) error {
				c.Status = session.ChildCompleted
				return nil
			})
			return err
		}},
		{name: "Submit", do: func(t *bed, b store.Backend, _ *world) error {
			out, err := t.sessionsOf(b).Submit(t.Context(), "a", answer("p1", `1`))
			if err == nil && out != session.SubmitAccepted && out != session.SubmitAlreadyCompleted {
				return fmt.Errorf("the outcome is %s", out)
			}
			return err
		}},
		{name: "Own", twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return t.sessionsOf(b).Own(t.Context(), "a", []session.Ownership{{CallID: "c2", SessionID: "kid"}})
		}},
		{name: "Disown", twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return t.sessionsOf(b).Disown(t.Context(), "a", []string{"c1"})
		}},
		{name: "Send", do: func(t *bed, b store.Backend, _ *world) error {
			return t.sessionsOf(b).Send(t.Context(), "a", session.InboxEntry{ID: "sent", Kind: "note"})
		}},
		{name: "PutWake", twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return t.sessionsOf(b).PutWake(t.Context(), session.Wake{Tenant: t.tenant, SessionID: "a", ChildID: "woken", At: noon})
		}},
		{name: "DeleteWake", do: func(t *bed, b store.Backend, _ *world) error {
			return t.sessionsOf(b).DeleteWake(t.Context(), session.Wake{Tenant: t.tenant, SessionID: "a", ChildID: "kid"})
		}},
		{name: "PutTasks", do: func(t *bed, b store.Backend, _ *world) error {
			return t.sessionsOf(b).PutTasks(t.Context(), []session.Task{t.task("a", "new-1"), t.task("a", "new-2")})
		}},
		{name: "ClaimTask", again: session.ErrStale, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.sessionsOf(b).ClaimTask(t.Context(), session.TaskClaim{
				TaskRef: session.TaskRef{SessionID: "a", ID: "task"}, Owner: "me", TTL: time.Hour,
			})
			return err
		}},
		{name: "RenewTask", twice: true, do: func(t *bed, b store.Backend, w *world) error {
			return t.sessionsOf(b).RenewTask(t.Context(), w.task.Ref(), w.task.Fence(), time.Hour)
		}},
		{name: "FinishTask", again: session.ErrNotFound, do: func(t *bed, b store.Backend, w *world) error {
			return t.sessionsOf(b).FinishTask(t.Context(), w.task.Ref(), w.task.Fence(), session.TaskResult{Outcome: session.TaskDone})
		}},
		{name: "RetryTask", twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return t.sessionsOf(b).RetryTask(t.Context(), session.TaskRef{SessionID: "a", ID: "task"})
		}},
		{name: "DropTask", again: session.ErrNotFound, do: func(t *bed, b store.Backend, _ *world) error {
			return t.sessionsOf(b).DropTask(t.Context(), session.TaskRef{SessionID: "a", ID: "task"}, time.Time{})
		}},
		{name: "Append", do: func(t *bed, b store.Backend, _ *world) error {
			out, err := t.streamsOf(b).Append(t.Context(), "a", stream.Batch{Producer: producer("a", 1), First: 3, Chunks: numberedTexts(3, 4)})
			if err != nil {
				return err
			}
			last, err := out.Wait(t.Context())
			if err == nil && last != 4 {
				return fmt.Errorf("the last chunk has number %d", last)
			}
			return err
		}},
		{name: "End", twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return t.streamsOf(b).End(t.Context(), "a", producer("a", 1), stream.End{Status: stream.EndCompleted})
		}},
		{name: "Fail", twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			return t.streamsOf(b).Fail(t.Context(), "a", producer("a", 1), session.ErrInternal)
		}},
		{name: "Reactivate", twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.streamsOf(b).Reactivate(t.Context(), "paused", producer("paused", 2))
			return err
		}},
		{name: "Trim", do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.streamsOf(b).Trim(t.Context(), "a", stream.TrimPolicy{Through: 1})
			return err
		}},
		{name: "DeleteStream", again: session.ErrNotFound, do: func(t *bed, b store.Backend, _ *world) error {
			return t.streamsOf(b).Delete(t.Context(), "a")
		}},
		{name: "PutBlob", do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.blobsOf(b).Put(t.Context(), &blob.Put{SessionID: "a", Data: newBlob})
			return err
		}},
		{name: "SweepBlobs", do: func(t *bed, b store.Backend, _ *world) error {
			_, err := t.blobsOf(b).Sweep(t.Context(), 0, 100)
			return err
		}},
		{name: "TryAcquire", twice: true, do: func(t *bed, b store.Backend, _ *world) error {
			_, ok, err := b.Locks().TryAcquire(t.Context(), t.lockName("l"), "me", time.Hour)
			if err == nil && !ok {
				return errors.New("the lock is held by another")
			}
			return err
		}},
		{name: "RenewLock", twice: true, do: func(t *bed, b store.Backend, w *world) error {
			held, _, err := t.Backend.Locks().TryAcquire(t.Context(), t.lockName(w.held), "me", time.Hour)
			if err != nil {
				return err
			}
			_, err = b.Locks().Renew(t.Context(), held, time.Hour)
			return err
		}},
		{name: "ReleaseLock", twice: true, do: func(t *bed, b store.Backend, w *world) error {
			held, _, err := t.Backend.Locks().TryAcquire(t.Context(), t.lockName(w.held), "me", time.Hour)
			if err != nil {
				return err
			}
			return b.Locks().Release(t.Context(), held)
		}},
	}
}

func coversEveryWrite(t *bed) {
	covered := map[string]bool{}
	for _, op := range crashOps() {
		covered[op.write()] = true
	}
	for _, name := range Writes() {
		if !covered[name] {
			t.Fatalf("no crash case makes the write %s", name)
		}
		delete(covered, name)
	}
	if len(covered) > 0 {
		t.Fatalf("crash cases for writes that are not listed: %v", covered)
	}
}

// Blobs of the session, of one that was deleted, and one that is put.
var (
	keptBlob    = []byte("kept")
	droppedBlob = []byte("dropped")
	newBlob     = pattern(blob.PieceBytes+1, 1)

	// crashBlobs are all of them, with their references, which take long to compute.
	crashBlobs = sync.OnceValue(func() (out []knownBlob) {
		for _, data := range [][]byte{keptBlob, droppedBlob, newBlob} {
			out = append(out, knownBlob{blob.RefOf(data), data})
		}
		return out
	})
)

type knownBlob struct {
	ref  string
	data []byte
}

// prepare creates what the write needs.
func (op crashOp) prepare(t *bed) *world {
	t.Helper()
	w := &world{held: "held"}
	if op.name == "RequestStop" {
		w.turn = t.replied("a") // the crowd already has a request
	} else {
		w.turn = t.crowd("a")
	}
	t.append("a", producer("a", 1), 1, numberedTexts(1, 2)...)
	t.append("paused", producer("paused", 1), 1, text("t1"))
	t.end("paused", producer("paused", 1), stream.EndPaused)
	if op.idle {
		r := w.turn
		change := session.Change{Outcome: &session.Outcome{Status: session.RunCompleted}}
		if op.name == "CleanCalls" {
			change.Status = session.Completed // only calls of ended sessions are cleaned
		}
		r.commit(change)
		t.ok(t.store().CloseRun(t.Context(), "a", r.fence, false), "close run")
	}
	w.state = t.load("a")
	t.putBlob("a", keptBlob)
	t.create("dropped")
	t.putBlob("dropped", keptBlob)
	t.putBlob("dropped", droppedBlob)
	t.ok(t.delete("dropped"), "delete")
	t.putTasks(t.task("", "held"))
	w.task = t.hold(session.TaskRef{ID: "held"}, "me")
	return w
}

// reopened returns the data as another process sees it: a handle without any
// cached state.
func (t *bed) reopened() store.Backend {
	if t.Reopen == nil {
		return t.Backend
	}
	return t.second()
}

// photograph returns everything that a write of the table could have changed,
// except locks.
func (t *bed) photograph(b store.Backend) string {
	t.Helper()
	s, m := t.sessionsOf(b), t.streamsOf(b)
	var out strings.Builder
	for _, id := range []string{"a", "new"} {
		out.WriteString(t.snapshotOf(s, id))
	}
	for _, id := range []string{"a", "paused"} {
		info, err := m.Info(t.Context(), id)
		if errors.Is(err, session.ErrNotFound) {
			fmt.Fprintf(&out, "no stream %s\n", id)
			continue
		}
		t.ok(err, "Info")
		items, err := m.Chunks(t.Context(), id, info.Floor, 100)
		t.ok(err, "Chunks")
		fmt.Fprintf(&out, "stream: %s\nchunks: %s\n", show(info), show(items))
	}
	fmt.Fprintf(&out, "blobs: %s\nwakes: %s\ntasks: %s\n", t.photographBlobs(b), show(t.wakes(s)), show(t.tasks(s)))
	return out.String()
}

// photographBlobs returns which blobs the sessions have and can read, and which are
// referenced. A reference without bytes is never right.
func (t *bed) photographBlobs(b store.Backend) string {
	t.Helper()
	var out []string
	blobs := t.blobsOf(b)
	for _, known := range crashBlobs() {
		used, err := blobs.Referenced(t.Context(), known.ref)
		t.ok(err, "Referenced")
		var has []string
		for _, id := range []string{"a", "new", "dropped"} {
			missing, err := blobs.Missing(t.Context(), id, []string{known.ref})
			if !errors.Is(err, session.ErrNotFound) {
				t.ok(err, "Missing")
			}
			if err == nil && len(missing) == 0 {
				t.hasKnown(blobs, id, known)
				has = append(has, id)
			}
		}
		out = append(out, fmt.Sprintf("%.15s referenced %t, by %v", known.ref, used, has))
	}
	for _, id := range []string{"a", "new"} {
		size, err := blobs.Size(t.Context(), id)
		if !errors.Is(err, session.ErrNotFound) {
			t.ok(err, "Size")
		}
		out = append(out, fmt.Sprintf("%s has %d bytes", id, size))
	}
	return strings.Join(out, "; ")
}

// inject makes the write with a fault, and checks that the caller gets the fault.
func (op crashOp) inject(t *bed, w *world, when When) {
	t.Helper()
	faults := NewFaults(t.Backend)
	faults.Fail(On(op.write(), 1, when))
	err := op.do(t, faults, w)
	e := t.refusal(err, session.ErrUnavailable, op.name+" with a fault")
	if !strings.Contains(e.Message, "injected") || !session.IsRetryable(err) {
		t.Fatalf("%s: the caller got %v", op.name, err)
	}
	equal(t, "writes counted", faults.Count(op.write()), 1)
}

func (op crashOp) crash(t *bed) {
	w, b := op.prepare(t), t.reopened()
	was := t.photograph(b)
	op.inject(t, w, Before)
	if is := t.photograph(b); is != was {
		t.Fatalf("the write was not applied, but something changed:\nbefore:\n%s\nafter:\n%s", clip(was), clip(is))
	}
	op.inject(t, w, After)
	was = t.photograph(b)
	err := op.do(t, b, w)
	if op.again != nil {
		t.refused(err, op.again, op.name+" again")
	} else {
		t.ok(err, op.name+" again")
	}
	if op.twice {
		return
	}
	if is := t.photograph(b); is != was {
		t.Fatalf("the write had been applied, but repeating it changed something:\nbefore:\n%s\nafter:\n%s", clip(was), clip(is))
	}
}

// script is a whole turn as its handlers would write it: each step is idempotent
// under a key, so that a takeover can start from the beginning.
type script struct {
	t  *bed
	id string
	b  store.Backend

	fence   session.Fence
	version int64
	stage   int // how many of the turn's commits are applied
}

// The turn's commits, by key.
var scriptCommits = []string{"reply", "results", "last"}

func (p *script) steps() []func() error {
	ctx, s, m := p.t.Context(), p.t.sessionsOf(p.b), p.t.streamsOf(p.b)
	by := func() stream.Producer { return stream.Producer{Session: p.id, Epoch: p.fence.Epoch, RunID: "run-1"} }
	appendText := func(n int) func() error {
		return func() error {
			out, err := m.Append(ctx, p.id, stream.Batch{Producer: by(), First: int64(n), Chunks: numberedTexts(n, n)})
			if err == nil {
				_, err = out.Wait(ctx)
			}
			return err
		}
	}
	commit := func(stage int, change session.Change) error {
		if p.stage > stage {
			return nil // a later commit is applied, so this one is
		}
		out, err := s.Commit(ctx, &session.Commit{
			SessionID: p.id, RunID: "run-1", Key: scriptCommits[stage-1], Version: p.version, Fence: p.fence, Change: change,
		})
		if err == nil {
			p.version, p.stage = out.Version, stage
		}
		return err
	}
	return []func() error{
		func() error {
			request := createAndStart(blank(p.id), "run-1")
			request.Run.RequestID = "request-1"
			request.Messages = []session.Message{user("u1", "go")}
			if _, err := s.StartRun(ctx, request); err != nil {
				return err
			}
			state, err := s.Load(ctx, p.id)
			if err != nil {
				return err
			}
			p.fence, p.version = state.Lease.Fence(), state.Version
			p.stage = slices.Index(scriptCommits, state.LastCommit) + 1
			return nil
		},
		func() error { _, err := m.Reactivate(ctx, p.id, by()); return err },
		appendText(1),
		func() error {
			return commit(1, session.Change{
				Messages: []session.Message{reply("m1", "c1", "c2")},
				Calls:    []session.Call{call("m1", "c1", 0), call("m1", "c2", 1)}, Writes: push("list", `"reply"`),
			})
		},
		func() error { return p.tool(s, "c1") },
		func() error { return p.tool(s, "c2") },
		appendText(2),
		func() error {
			change := step(1, "cp1-"+p.id)
			change.Writes = push("list", `"results"`)
			change.Promote = &session.Promotion{MessageID: "m1", Results: []session.Promoted{{CallID: "c1"}, {CallID: "c2"}}}
			return commit(2, change)
		},
		func() error {
			change := outcome(session.RunCompleted)
			change.Messages = []session.Message{reply("m2")}
			change.Run = &session.RunChange{Usage: session.Usage{ModelCalls: 2}}
			return commit(3, change)
		},
		func() error { return m.End(ctx, p.id, by(), stream.End{Status: stream.EndCompleted}) },
		func() error {
			err := s.CloseRun(ctx, p.id, p.fence, true)
			if errors.Is(err, session.ErrStale) {
				return nil // already released
			}
			return err
		},
	}
}

func (p *script) tool(s session.Store, callID string) error {
	if p.stage >= 2 {
		return nil // its results are committed
	}
	c, _, err := s.Claim(p.t.Context(), p.id, p.version, p.fence, "m1", callID)
	if err != nil {
		return err
	}
	_, err = s.Settle(p.t.Context(), p.id, p.fence, settled(c, `"`+callID+`"`))
	return err
}

// play performs the turn until it has ended or the store fails.
func (p *script) play() error {
	for i, do := range p.steps() {
		if err := do(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func crashTurn(t *bed) {
	clean := NewFaults(t.Backend)
	t.ok((&script{t: t, id: "clean", b: clean}).play(), "the turn without a fault")
	writes := clean.Count()
	want := t.ending("clean")
	points := 0
	for n := 1; n <= writes; n++ {
		for _, when := range []When{Before, After} {
			id := fmt.Sprintf("turn-%d-%s", n, when)
			faults := NewFaults(t.Backend)
			faults.Fail(func(op Op) When {
				if op.N != n {
					return Pass
				}
				faults.Cut() // the process has died
				return when
			})
			err := (&script{t: t, id: id, b: faults}).play()
			t.refused(err, session.ErrUnavailable, id)
			t.ok((&script{t: t, id: id, b: t.Backend}).play(), id+" taken over")
			equal(t, "the end of "+id, t.ending(id), want)
			points++
		}
	}
	t.Logf("%d crash points around %d writes", points, writes)
}

// ending returns what a finished turn has left, without ids and times.
func (t *bed) ending(id string) string {
	t.Helper()
	state := t.load(id)
	run, err := t.store().CurrentRun(t.Context(), id)
	t.ok(err, "CurrentRun")
	rows, err := t.store().Calls(t.Context(), id, "m1")
	t.ok(err, "Calls")
	custom, err := state.Custom.MarshalJSON()
	t.ok(err, "encode")
	return fmt.Sprintf("status %s version %d turn %d close pending %v owner %q\nmessages %v\nstate %s\nrun %s %+v\ncalls %d\nstream %v %s",
		state.Status, state.Version, state.Turn, state.ClosePending, state.Lease.Owner, t.texts(id), custom,
		run.Status, run.Usage, len(rows), t.deltas(id, 0), t.info(id).Status)
}
