package storetest

import (
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

func openingCases() []testCase {
	return []testCase{
		{"new", "a start that creates its session opens a new stream with its chunks", 0, openingNew},
		{"next", "a start opens the stream that an earlier run has closed, and continues it", 0, openingNext},
		{"turn", "the run writes to its stream, commits and is closed", 0, openingTurn},
		{"readers", "a reader that waits for the stream gets the first chunks", 0, openingReaders},
		{"request", "a start that repeats a request returns its run and adds no chunk", 0, openingRequest},
		{"exists", "a start that creates a session which exists changes nothing", 0, openingExists},
		{"stale", "a start of an earlier version changes nothing", 0, openingStale},
		{"running", "a start during a run changes nothing", 0, openingRunning},
		{"stale-stream", "a start whose stream has a later epoch is refused, and nobody holds the lease", 0, openingStaleStream},
		{"too-large", "a start with a chunk over the limit changes nothing", 0, openingTooLarge},
		{"answered", "a start that waits on a call that was answered changes nothing", 0, openingAnswered},
		{"race", "of concurrent starts one is made, with its chunks", 0, openingRace},
	}
}

// opening returns a start together with chunks.
func (t *bed) opening(start *session.StartRun, chunks ...stream.Chunk) *store.StartRun {
	return &store.StartRun{Tenant: t.tenant, StartRun: start, Batch: stream.Batch{
		Producer: stream.Producer{Session: start.SessionID + "/open/" + start.Run.ID, Epoch: 1, RunID: start.Run.ID}, First: 1, Chunks: chunks,
	}}
}

// opened makes a start that must succeed.
func (t *bed) opened(start *store.StartRun) (*turn, *stream.Info) {
	t.Helper()
	started, info, err := t.Backend.StartRun(t.Context(), start)
	t.ok(err, "start run "+start.Run.ID)
	equal(t, "existing", started.Existing, false)
	return &turn{t: t, id: start.SessionID, run: start.Run.ID, fence: started.Lease.Fence(), version: started.Version}, info
}

// refusesStart requires that a start is refused and changes neither session nor stream.
func (t *bed) refusesStart(start *store.StartRun, want *session.Error, what string) {
	t.Helper()
	id := start.SessionID
	info, chunks := show(t.info(id)), t.deltas(id, 0)
	t.unchanged(id, func() {
		_, _, err := t.Backend.StartRun(t.Context(), start)
		t.refused(err, want, what)
	})
	equal(t, "stream", show(t.info(id)), info)
	equal(t, "chunks", t.deltas(id, 0), chunks)
}

func openingNew(t *bed) {
	start := createAndStart(blank("a"), "run-1")
	start.Messages = []session.Message{user("u1", "go")}
	r, info := t.opened(t.opening(start, text("x"), text("y")))
	state := t.load("a")
	equal(t, "version", state.Version, r.version)
	equal(t, "lease", state.Lease.Fence(), r.fence)
	equal(t, "current run", state.CurrentRunID, "run-1")
	t.messagesAre("a", "u1")
	equal(t, "chunks", t.deltas("a", 0), []string{"x", "y"})
	equal(t, "status returned", info.Status, stream.StatusActive)
	equal(t, "last sequence returned", info.Last, 2)
	equal(t, "floor returned", info.Floor, 0)
	equal(t, "run of the stream", info.RunID, "run-1")
	equal(t, "run of the stream, read", t.info("a").RunID, "run-1")
}

func openingNext(t *bed) {
	first, _ := t.opened(t.opening(createAndStart(blank("a"), "run-1"), text("x")))
	first.commit(outcome(session.RunCompleted))
	t.ok(t.Backend.CloseRun(t.Context(), first.ending(text("y"))), "close")
	next, info := t.opened(t.opening(t.startOf("a", "run-2"), text("z")))
	equal(t, "last sequence returned", info.Last, 3)
	equal(t, "run of the stream", info.RunID, "run-2")
	equal(t, "end returned", info.End == nil && info.Error == nil, true)
	stands := t.info("a")
	equal(t, "status of the stream", stands.Status, stream.StatusActive)
	equal(t, "end of the stream", stands.End == nil, true)
	equal(t, "chunks", t.deltas("a", 0), []string{"x", "y", "z"})
	if next.fence.Epoch <= first.fence.Epoch {
		t.Fatalf("the next run's epoch %d is not above %d", next.fence.Epoch, first.fence.Epoch)
	}
	_, err := t.tryAppend("a", producer("a", first.fence.Epoch), 1, text("late"))
	t.refused(err, session.ErrStale, "a chunk of the run before")
}

func openingTurn(t *bed) {
	r, _ := t.opened(t.opening(createAndStart(blank("a"), "run-1"), text("x")))
	_, last, err := t.Backend.Commit(t.Context(), r.with(1, text("y")))
	t.ok(err, "commit with chunks")
	equal(t, "sequence returned", last, 2)
	r.version, r.commits = r.version+1, 1
	r.commit(outcome(session.RunCompleted))
	t.ok(t.Backend.CloseRun(t.Context(), r.ending(text("z"))), "close")
	t.closedAs(stream.StatusEnded, "x", "y", "z")
}

func openingReaders(t *bed) {
	t.create("b") // the store is in use
	reader := t.read(t.streams(), "a", 0, true)
	t.opened(t.opening(createAndStart(blank("a"), "run-1"), text("x"), text("y")))
	for {
		item := reader.item()
		if item.Frame == stream.FrameCaughtUp { // it may come first
			continue
		}
		equal(t, "text", item.Chunk.Delta, "x")
		break
	}
	reader.chunks(1, "y")
}

func openingRequest(t *bed) {
	start := createAndStart(blank("a"), "run-1")
	start.Run.RequestID = "request"
	t.opened(t.opening(start, text("x")))
	again := createAndStart(blank("a"), "run-2")
	again.Run.RequestID = "request"
	t.unchanged("a", func() {
		started, info, err := t.Backend.StartRun(t.Context(), t.opening(again, text("y")))
		t.ok(err, "start again")
		equal(t, "existing", started.Existing, true)
		equal(t, "run", started.Run.ID, "run-1")
		equal(t, "no stream", info == nil, true)
	})
	equal(t, "chunks", t.deltas("a", 0), []string{"x"})
}

func openingExists(t *bed) {
	r, _ := t.opened(t.opening(createAndStart(blank("a"), "run-1"), text("x")))
	r.finish(session.RunCompleted)
	t.refusesStart(t.opening(createAndStart(blank("a"), "run-2"), text("y")), session.ErrExists, "a start that creates")
}

func openingStale(t *bed) {
	r, _ := t.opened(t.opening(createAndStart(blank("a"), "run-1"), text("x")))
	r.finish(session.RunCompleted)
	start := t.startOf("a", "run-2")
	start.ExpectVersion--
	t.refusesStart(t.opening(start, text("y")), session.ErrStale, "a start of an earlier version")
}

func openingRunning(t *bed) {
	t.opened(t.opening(createAndStart(blank("a"), "run-1"), text("x")))
	t.refusesStart(t.opening(t.startOf("a", "run-2"), text("y")), session.ErrAlreadyRunning, "a start during a run")
}

func openingStaleStream(t *bed) {
	r, _ := t.opened(t.opening(createAndStart(blank("a"), "run-1"), text("x")))
	r.finish(session.RunCompleted)
	t.open("a", producer("a", r.fence.Epoch+100))
	_, _, err := t.Backend.StartRun(t.Context(), t.opening(t.startOf("a", "run-2"), text("y")))
	t.refused(err, session.ErrStale, "a start whose stream has a later epoch")
	equal(t, "owner", t.load("a").Lease.Owner, "")
	equal(t, "chunks", t.deltas("a", 0), []string{"x"})
}

func openingTooLarge(t *bed) {
	r, _ := t.opened(t.opening(createAndStart(blank("a"), "run-1"), text("x")))
	r.finish(session.RunCompleted)
	t.refusesStart(t.opening(t.startOf("a", "run-2"), t.overlong()), session.ErrTooLarge, "a start with a chunk over the limit")
}

func openingAnswered(t *bed) {
	r := t.owning("a")
	t.open("a", producer("a", r.fence.Epoch))
	r.finish(session.RunSuspendedClientTool)
	start := t.startOf("a", "run-2")
	start.Waits = []string{"d1", "p1"}
	t.refusesStart(t.opening(start, text("y")), session.ErrAnswered, "a start that waits on answered calls")
}

func openingRace(t *bed) {
	errs := make([]error, 4)
	together(len(errs), func(i int) {
		start := createAndStart(blank("a"), "run-"+string(rune('a'+i)))
		_, _, errs[i] = t.Backend.StartRun(t.Context(), t.opening(start, text(start.Run.ID)))
	})
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
			continue
		}
		t.refused(err, session.ErrExists, "a start that came later")
	}
	equal(t, "starts that were made", made, 1)
	equal(t, "chunks", t.deltas("a", 0), []string{t.load("a").CurrentRunID})
}
