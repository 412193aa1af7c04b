package storetest

import (
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
)

func runCases() []testCase {
	return []testCase{
		{"start", "a run starts on an existing session: record, lease, change and status are one write", 0, startRun},
		{"start-creates", "a run can create its session in the same write", 0, startCreates},
		{"start-create-exists", "a run that creates an existing session is refused and changes nothing", 0, startCreateExists},
		{"start-create-invalid", "a run that creates an invalid session creates nothing", 0, startCreateInvalid},
		{"start-missing", "a run on a session that does not exist is not found", 0, startMissing},
		{"start-invalid", "a run without an id or an owner is refused", 0, startInvalid},
		{"start-again", "a start with a run id that exists is refused and changes nothing", 0, startAgain},
		{"requires", "what a run requires is in its record, in the document and in what sweeps list, until the next run", clock, runRequires},
		{"requires-refused", "a run that requires something without a name is refused and starts nothing", 0, runRequiresRefused},
		{"turns", "turns are numbered 1, 2, 3…, steps restart, and the previous run is kept", 0, turnsContiguous},
		{"stale", "a start is refused if version or run has changed since they were read", 0, startStale},
		{"running", "a start is refused while a run is running, even if its lease has expired", clock, startRunning},
		{"transition", "a start with the status of an ended run is refused", 0, startTransition},
		{"request", "a start with a known request id returns that run and writes nothing", 0, startRequest},
		{"request-first", "a known request id takes precedence over every refusal", 0, startRequestFirst},
		{"rewind", "a start can rewind messages and custom state", 0, startRewind},
		{"waits", "a start that waits on calls is refused when one of them was answered, and changes nothing", 0, startWaits},
		{"resumes", "a resume increments the resume count", 0, startResumes},
		{"record", "every field of a run's record round-trips", 0, runRecord},
		{"missing", "runs that do not exist are not found", 0, runsMissing},
		{"pages", "runs are listed oldest first, in pages", 0, runPages},
	}
}

func startRun(t *bed) {
	before := t.create("a")
	start := t.startOf("a", "run-1")
	start.Messages = []session.Message{user("u1", "hello")}
	start.Writes = put("k", `1`)
	start.Checkpoint = &session.NewCheckpoint{ID: "cp1", Source: session.FromSave}
	started, err := t.store().StartRun(t.Context(), start)
	t.ok(err, "StartRun")
	equal(t, "existing", started.Existing, false)
	equal(t, "turn", started.Turn, 1)
	equal(t, "message count", started.MessageCount, 1)
	equal(t, "checkpoint", started.CheckpointID, "cp1")
	equal(t, "run", started.Run.ID, "run-1")
	equal(t, "run's turn", started.Run.Turn, 1)
	equal(t, "run's status", started.Run.Status, session.RunRunning)
	state := t.load("a")
	equal(t, "version", started.Version, state.Version)
	equal(t, "version after the start", state.Version, before.Version+1)
	equal(t, "status", state.Status, session.Active)
	equal(t, "turn", state.Turn, 1)
	equal(t, "current run", state.CurrentRunID, "run-1")
	equal(t, "step count", state.StepCount, 0)
	equal(t, "lease owner", state.Lease.Owner, "owner-run-1")
	t.messagesAre("a", "u1")
	t.customIs("a", `{"k":1}`)
	run, err := t.store().CurrentRun(t.Context(), "a")
	t.ok(err, "CurrentRun")
	sameJSON(t, "the run as returned and as read", run, &started.Run)
	equal(t, "session of the run", run.SessionID, "a")
	if run.StartedAt.IsZero() {
		t.Fatalf("the run has no start time")
	}
	cp, err := t.store().LatestCheckpoint(t.Context(), "a")
	t.ok(err, "LatestCheckpoint")
	equal(t, "checkpoint", cp.ID, "cp1")
	equal(t, "checkpoint's messages", cp.MessageCount, 1)
}

func startCreates(t *bed) {
	state := full()
	start := createAndStart(state, "run-1")
	start.Messages = []session.Message{user("u1", "hello")}
	start.Writes = put("added", `1`)
	started, err := t.store().StartRun(t.Context(), start)
	t.ok(err, "StartRun")
	equal(t, "turn", started.Turn, 1)
	got := t.load("a")
	equal(t, "version", got.Version, started.Version)
	equal(t, "user", got.UserID, "user-1")
	equal(t, "tenant", got.Tenant, t.tenant)
	equal(t, "status", got.Status, session.Active)
	equal(t, "fence", got.Lease.Fence(), started.Lease.Fence())
	equal(t, "value added", string(got.Custom.Get("added")), `1`)
	equal(t, "initial value", got.Custom.Has("k"), true)
	t.messagesAre("a", "u1")
	r := &turn{t: t, id: "a", run: "run-1", fence: started.Lease.Fence(), version: started.Version}
	r.commit(session.Change{})
}

func startCreateExists(t *bed) {
	t.create("a")
	t.unchanged("a", func() {
		start := createAndStart(blank("a"), "run-1")
		start.Messages = []session.Message{user("u1", "hello")}
		_, err := t.store().StartRun(t.Context(), start)
		t.refused(err, session.ErrExists, "StartRun that creates")
	})
	_, err := t.store().Run(t.Context(), "a", "run-1")
	t.refused(err, session.ErrNotFound, "the refused run")
}

func startCreateInvalid(t *bed) {
	state := blank("a")
	state.Agent = ""
	_, err := t.store().StartRun(t.Context(), createAndStart(state, "run-1"))
	t.refused(err, session.ErrInvalid, "StartRun that creates without an agent")
	start := createAndStart(blank("a"), "run-1")
	start.Messages = []session.Message{{ID: "x", Role: session.RoleUser}}
	_, err = t.store().StartRun(t.Context(), start)
	t.refused(err, session.ErrInvalid, "StartRun with an empty message")
	t.exists("a", false)
}

func startMissing(t *bed) {
	_, err := t.store().StartRun(t.Context(), &session.StartRun{SessionID: "nobody", Run: newRun("run-1"), Owner: "o", TTL: time.Hour})
	t.refused(err, session.ErrNotFound, "StartRun")
	t.exists("nobody", false)
}

func startInvalid(t *bed) {
	t.create("a")
	for what, spoil := range map[string]func(*session.StartRun){
		"no run id": func(s *session.StartRun) { s.Run.ID = "" },
		"no owner":  func(s *session.StartRun) { s.Owner = "" },
	} {
		start := t.startOf("a", "run-1")
		spoil(start)
		t.unchanged("a", func() {
			_, err := t.store().StartRun(t.Context(), start)
			t.refused(err, session.ErrInvalid, "StartRun with "+what)
		})
	}
}

func startAgain(t *bed) {
	r := t.running("a")
	r.finish(session.RunCompleted)
	start := t.startOf("a", "run-1")
	start.Messages = []session.Message{user("u9", "nine")}
	t.unchanged("a", func() {
		_, err := t.store().StartRun(t.Context(), start)
		t.refused(err, session.ErrExists, "StartRun under an id that was used")
	})
}

func turnsContiguous(t *bed) {
	t.create("a")
	for i := 1; i <= 3; i++ {
		r := t.start("a", fmt.Sprintf("run-%d", i))
		state := t.load("a")
		equal(t, "turn", state.Turn, i)
		equal(t, "step count at the start of a turn", state.StepCount, 0)
		r.commit(session.Change{StepCount: new(i * 10)})
		// A failed start takes no turn number.
		_, err := t.store().StartRun(t.Context(), t.startOf("a", "refused"))
		t.refused(err, session.ErrAlreadyRunning, "StartRun during a run")
		r.finish(session.RunCompleted)
	}
	page, err := t.store().Runs(t.Context(), "a", session.PageRequest{})
	t.ok(err, "Runs")
	equal(t, "runs", len(page.Items), 3)
	for i, run := range page.Items {
		equal(t, "turn of a run", run.Turn, i+1)
		equal(t, "steps of a run", run.StepCount, (i+1)*10)
		equal(t, "status of a run", run.Status, session.RunCompleted)
	}
}

func startStale(t *bed) {
	r := t.running("a")
	r.finish(session.RunCompleted)
	for what, spoil := range map[string]func(*session.StartRun){
		"an older version": func(s *session.StartRun) { s.ExpectVersion-- },
		"a future version": func(s *session.StartRun) { s.ExpectVersion++ },
		"another run":      func(s *session.StartRun) { s.ExpectRun = "run-0" },
		"no run":           func(s *session.StartRun) { s.ExpectRun = "" },
	} {
		start := t.startOf("a", "run-2")
		start.Messages = []session.Message{user("u9", "nine")}
		spoil(start)
		t.unchanged("a", func() {
			_, err := t.store().StartRun(t.Context(), start)
			t.conflict(err, session.ErrStale, t.load("a"), "StartRun expecting "+what)
		})
	}
	t.start("a", "run-2")
}

func startRunning(t *bed) {
	t.brief("a")
	for range 2 {
		start := t.startOf("a", "run-2")
		t.unchanged("a", func() {
			_, err := t.store().StartRun(t.Context(), start)
			t.conflict(err, session.ErrAlreadyRunning, t.load("a"), "StartRun during a run")
		})
		t.pass(2 * t.ttl())
	}
}

func startTransition(t *bed) {
	t.create("a", func(s *session.State) { s.Status = session.Completed })
	start := t.startOf("a", "run-1")
	start.Status = session.Interrupted
	t.unchanged("a", func() {
		_, err := t.store().StartRun(t.Context(), start)
		t.refused(err, session.ErrInvalid, "StartRun to interrupted")
	})
}

func startRequest(t *bed) {
	t.create("a")
	start := t.startOf("a", "run-1")
	start.Run.RequestID = "request-1"
	start.Messages = []session.Message{user("u1", "hello")}
	first, err := t.store().StartRun(t.Context(), start)
	t.ok(err, "StartRun")
	t.unchanged("a", func() {
		again := t.startOf("a", "run-2")
		again.Run.RequestID = "request-1"
		again.Messages = start.Messages
		got, err := t.store().StartRun(t.Context(), again)
		t.ok(err, "StartRun with the same request")
		equal(t, "existing", got.Existing, true)
		equal(t, "run", got.Run.ID, first.Run.ID)
		sameJSON(t, "the run's record", &got.Run, &first.Run)
	})
	run, err := t.store().RunByRequest(t.Context(), "a", "request-1")
	t.ok(err, "RunByRequest")
	equal(t, "run", run.ID, "run-1")
	_, err = t.store().RunByRequest(t.Context(), "a", "request-2")
	t.refused(err, session.ErrNotFound, "RunByRequest of an unknown request")
}

func startRequestFirst(t *bed) {
	start := createAndStart(blank("a"), "run-1")
	start.Run.RequestID = "request-1"
	r := t.begin(start)
	r.finish(session.RunCompleted)
	next := t.start("a", "run-2")
	next.finish(session.RunCompleted)

	// A repetition of the start that created the session, and one that expects an
	// outdated version.
	stale := &session.StartRun{SessionID: "a", ExpectVersion: 1, Run: newRun("run-9"), Owner: "o", TTL: time.Hour}
	stale.Run.RequestID = "request-1"
	for what, again := range map[string]*session.StartRun{"create": start, "stale": stale} {
		t.unchanged("a", func() {
			got, err := t.store().StartRun(t.Context(), again)
			t.ok(err, "StartRun again: "+what)
			equal(t, "existing", got.Existing, true)
			equal(t, "run", got.Run.ID, "run-1")
			equal(t, "status of the run", got.Run.Status, session.RunCompleted)
		})
	}
}

func startRewind(t *bed) {
	t.chain("a")
	cp, err := t.store().Checkpoint(t.Context(), "a", "a-cp1")
	t.ok(err, "Checkpoint")
	start := t.startOf("a", "run-2")
	start.Run.Kind, start.Run.CheckpointID, start.Run.PreviousRunID = session.RunResume, cp.ID, "run-1"
	start.KeepMessages, start.State = new(cp.MessageCount), cp.State
	start.Messages = []session.Message{user("u9", "again")}
	start.Writes = push("list", `9`)
	t.begin(start)
	t.messagesAre("a", "u1", "m1", "u9")
	t.customIs("a", `{"list":[1,9]}`)
}

func startWaits(t *bed) {
	for i, w := range waited {
		id := fmt.Sprintf("s%d", i)
		t.owning(id).finish(session.RunInterrupted)
		start := t.startOf(id, "run-2")
		start.Waits = w.on
		if w.answered == nil {
			t.begin(start)
			continue
		}
		t.unchanged(id, func() {
			_, err := t.store().StartRun(t.Context(), start)
			t.answered(err, t.load(id), fmt.Sprintf("a start that waits on %v", w.on), w.answered...)
		})
		_, err := t.store().Run(t.Context(), id, "run-2")
		t.refused(err, session.ErrNotFound, "the run that was refused")
		start.Waits = []string{"c1"}
		t.begin(start)
	}
	start := createAndStart(blank("new"), "run-1")
	start.Waits, start.Own = []string{"c1"}, owned("c1")
	t.begin(start)
}

func startResumes(t *bed) {
	r := t.running("a")
	r.finish(session.RunInterrupted)
	equal(t, "resumes", t.load("a").ResumeCount, 0)
	for i := 1; i <= 2; i++ {
		start := t.startOf("a", fmt.Sprintf("resume-%d", i))
		start.Resumes, start.Run.Kind = true, session.RunResume
		r = t.begin(start)
		equal(t, "resumes", t.load("a").ResumeCount, i)
		r.finish(session.RunInterrupted)
	}
}

func runRecord(t *bed) {
	t.create("a")
	start := t.startOf("a", "run-1")
	start.Run.Kind, start.Run.RequestID, start.Run.PreviousRunID = session.RunRetry, "request <1>", "run-0"
	start.Run.CheckpointID, start.Run.StartSequence = "cp-0", 17
	start.Run.Extra = session.Extra{"fromTheFuture": raw(`[1]`)}
	t.begin(start)
	got, err := t.store().Run(t.Context(), "a", "run-1")
	t.ok(err, "Run")
	equal(t, "kind", got.Kind, session.RunRetry)
	equal(t, "request", got.RequestID, "request <1>")
	equal(t, "previous run", got.PreviousRunID, "run-0")
	equal(t, "checkpoint", got.CheckpointID, "cp-0")
	equal(t, "start sequence", got.StartSequence, 17)
	equal(t, "agent", got.Agent, "tester")
	equal(t, "runtime", got.Runtime, "test")
	equal(t, "unknown field", string(got.Extra["fromTheFuture"]), `[1]`)
}

func runsMissing(t *bed) {
	t.create("a")
	s, ctx := t.store(), t.Context()
	_, err := s.CurrentRun(ctx, "a")
	t.refused(err, session.ErrNotFound, "CurrentRun of a session without runs")
	_, err = s.Run(ctx, "a", "run-1")
	t.refused(err, session.ErrNotFound, "Run")
	_, err = s.RunByRequest(ctx, "a", "request-1")
	t.refused(err, session.ErrNotFound, "RunByRequest")
	page, err := s.Runs(ctx, "a", session.PageRequest{Total: true})
	t.ok(err, "Runs")
	equal(t, "runs", len(page.Items), 0)
	_, err = s.Runs(ctx, "nobody", session.PageRequest{})
	t.refused(err, session.ErrNotFound, "Runs of nothing")
	_, err = s.CurrentRun(ctx, "nobody")
	t.refused(err, session.ErrNotFound, "CurrentRun of nothing")
	t.running("b")
	_, err = s.Run(ctx, "a", "run-1")
	t.refused(err, session.ErrNotFound, "Run of another session")
}

func runPages(t *bed) {
	t.create("a")
	var want []string
	for i := range 5 {
		id := fmt.Sprintf("run-%d", 9-i) // the order of ids differs from the order of turns
		want = append(want, id)
		r := t.start("a", id)
		r.finish(session.RunCompleted)
	}
	get := func(p session.PageRequest) (session.Page[session.Run], error) {
		return t.store().Runs(t.Context(), "a", p)
	}
	for _, limit := range []int{1, 2, 5, 6} {
		equal(t, "runs", pages(t, limit, get, func(r session.Run) string { return r.ID }), want)
	}
	page, err := get(session.PageRequest{Limit: 2, Offset: 3, Total: true})
	t.ok(err, "page by offset")
	equal(t, "items", len(page.Items), 2)
	equal(t, "total", *page.Total, 5)
	current, err := t.store().CurrentRun(t.Context(), "a")
	t.ok(err, "CurrentRun")
	equal(t, "current run", current.ID, "run-5")
	_, err = get(session.PageRequest{Cursor: "not a cursor"})
	t.refused(err, session.ErrInvalid, "an invalid cursor")
}

func runRequires(t *bed) {
	start := createAndStart(blank("a"), "run-1")
	start.Run.Requires, start.TTL = []string{"question", "workspace"}, t.ttl()
	started, err := t.store().StartRun(t.Context(), start)
	t.ok(err, "start")
	equal(t, "what the started run requires", started.Run.Requires, start.Run.Requires)
	run, err := t.store().Run(t.Context(), "a", "run-1")
	t.ok(err, "Run")
	equal(t, "what the record says", run.Requires, start.Run.Requires)
	equal(t, "what the document says", t.load("a").Requires, start.Run.Requires)
	t.pass(2 * t.ttl())
	due, err := t.store().ExpiredLeases(t.Context(), session.SweepRequest{})
	t.ok(err, "ExpiredLeases")
	found := false
	for i := range due {
		if due[i].Tenant == t.tenant && due[i].ID == "a" {
			found = true
			equal(t, "what a sweep lists", due[i].Requires, start.Run.Requires)
		}
	}
	equal(t, "found", found, true)
	fence := started.Lease.Fence()
	_, err = t.store().Commit(t.Context(), &session.Commit{
		SessionID: "a", RunID: "run-1", Key: "end", Version: started.Version, Fence: fence,
		Change: session.Change{Outcome: &session.Outcome{Status: session.RunCompleted}},
	})
	t.ok(err, "commit")
	equal(t, "what the document says after the end", t.load("a").Requires, start.Run.Requires)
	t.ok(t.store().CloseRun(t.Context(), "a", fence, true), "close run")
	clone, err := t.store().Clone(t.Context(), &session.Clone{From: "a", To: *blank("b")})
	t.ok(err, "clone")
	equal(t, "what a copy requires", len(clone.Requires), 0)
	t.start("a", "run-2")
	equal(t, "what the next run requires", len(t.load("a").Requires), 0)
}

func runRequiresRefused(t *bed) {
	for _, name := range []string{"", "two words", "Caps", "a\x00b"} {
		start := createAndStart(blank("a"), "run-1")
		start.Run.Requires = []string{name}
		_, err := t.store().StartRun(t.Context(), start)
		t.refused(err, session.ErrInvalid, "a run that requires "+name)
	}
	t.exists("a", false)
}
