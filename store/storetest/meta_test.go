package storetest

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/stream"
)

// A suite that cannot fail proves nothing: each test here adds a bug to a correct
// backend and requires that the cases that guard against it fail.

// planted is a backend with a bug in its session store, stream manager or blob store.
type planted struct {
	store.Backend
	sessions func(session.Store) session.Store
	streams  func(stream.Manager) stream.Manager
	blobs    func(blob.Store) blob.Store
}

func (p planted) Sessions() session.Store {
	if p.sessions == nil {
		return p.Backend.Sessions()
	}
	return plantedSessions{p.sessions(p.Backend.Sessions()), p.sessions}
}

func (p planted) Streams() stream.Manager {
	if p.streams == nil {
		return p.Backend.Streams()
	}
	return plantedStreams{p.streams(p.Backend.Streams()), p.streams}
}

func (p planted) Blobs() blob.Store {
	if p.blobs == nil {
		return p.Backend.Blobs()
	}
	return plantedBlobs{p.blobs(p.Backend.Blobs()), p.blobs}
}

type plantedBlobs struct {
	blob.Store
	plant func(blob.Store) blob.Store
}

func (p plantedBlobs) Tenant(tenant string) blob.Store {
	return plantedBlobs{p.plant(p.Store.Tenant(tenant)), p.plant}
}

type plantedSessions struct {
	session.Store
	plant func(session.Store) session.Store
}

func (p plantedSessions) Tenant(tenant string) session.Store {
	return plantedSessions{p.plant(p.Store.Tenant(tenant)), p.plant}
}

type plantedStreams struct {
	stream.Manager
	plant func(stream.Manager) stream.Manager
}

func (p plantedStreams) Tenant(tenant string) stream.Manager {
	return plantedStreams{p.plant(p.Manager.Tenant(tenant)), p.plant}
}

func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	kept := &sync.Map{}
	for name, bug := range map[string]struct {
		plant planted
		cases []string
	}{
		"a lost version check": {
			planted{sessions: func(s session.Store) session.Store { return anyVersion{s} }},
			[]string{"commit/stale", "races/commit", "linearize/commit"},
		},
		"a lost fence": {
			planted{sessions: func(s session.Store) session.Store { return anyFence{s} }},
			[]string{"commit/stale", "leases/take-over"},
		},
		"commits that forget their key": {
			planted{sessions: func(s session.Store) session.Store { return forgetful{s} }},
			[]string{"commit/repeated", "crash/Commit", "races/commit-same", "linearize/commit"},
		},
		"two winners of a submission": {
			planted{sessions: func(s session.Store) session.Store { return everyoneWins{s} }},
			[]string{"submissions/already", "races/submit", "linearize/submit"},
		},
		"an interrupt that overrides an abort": {
			planted{sessions: func(s session.Store) session.Store { return lastStop{s} }},
			[]string{"stops/abort-overrides", "linearize/stop"},
		},
		"a status set without comparing": {
			planted{sessions: func(s session.Store) session.Store { return blindStatus{s} }},
			[]string{"cas/unexpected", "races/status", "linearize/cas"},
		},
		"a takeover by anyone": {
			planted{sessions: func(s session.Store) session.Store { return anyEpoch{s} }},
			[]string{"leases/take-over-force", "linearize/lease"},
		},
		"a commit that restores a deleted session": {
			planted{sessions: func(s session.Store) session.Store { return necromancer{s} }},
			[]string{"lifecycle/delete-for-good"},
		},
		"the latest checkpoint by its step": {
			planted{sessions: func(s session.Store) session.Store { return highestStep{s} }},
			[]string{"checkpoints/latest"},
		},
		"a sweep that always begins at the front": {
			planted{sessions: func(s session.Store) session.Store { return stuckSweep{s} }},
			[]string{"sweeps/pages", "sweeps/pages-vanished"},
		},
		"a root that ignores its tree's calls": {
			planted{sessions: func(s session.Store) session.Store { return ownWaits{s, false} }},
			[]string{"commit/waits-tree", "commit/waits-rewind", "commit/waits-own", "races/disown-suspend"},
		},
		"a root that checks its tree's calls before it commits": {
			planted{sessions: func(s session.Store) session.Store { return ownWaits{s, true} }},
			[]string{"races/disown-suspend"},
		},
		"a sweep without companions": {
			planted{sessions: func(s session.Store) session.Store { return noCompanions{s} }},
			[]string{"sweeps/leases-companion"},
		},
		"normalised JSON": {
			planted{sessions: func(s session.Store) session.Store { return normalising{s} }},
			[]string{"commit/messages", "hostile/json"},
		},
		"numbers with gaps": {
			planted{streams: func(m stream.Manager) stream.Manager { return gaps{m} }},
			[]string{"streams/append", "streams/read-all", "streams/concurrent"},
		},
		"a store that keeps the slice of chunks": {
			planted{streams: func(m stream.Manager) stream.Manager { return keeping{m, kept} }},
			[]string{"streams/append-reused"},
		},
		"an append that is applied twice": {
			planted{streams: func(m stream.Manager) stream.Manager { return repeating{m} }},
			[]string{"streams/repeat", "streams/repeat-front", "crash/Append", "races/append"},
		},
		"bytes for whoever knows the reference": {
			planted{blobs: func(s blob.Store) blob.Store { return generous{s} }},
			[]string{"blobs/own", "blobs/missing"},
		},
		"a limit for single blobs": {
			planted{blobs: func(s blob.Store) blob.Store { return noTotal{s} }},
			[]string{"blobs/limit", "blobs/limit-race"},
		},
		"small blobs that count nothing": {
			planted{blobs: func(s blob.Store) blob.Store { return weightless{s} }},
			[]string{"blobs/small"},
		},
		"a put that trusts bytes which others have": {
			planted{blobs: func(s blob.Store) blob.Store { return trusting{s} }},
			[]string{"blobs/sweep-race"},
		},
		"a sweep that is early": {
			planted{blobs: func(s blob.Store) blob.Store { return hasty{s} }},
			[]string{"blobs/sweep"},
		},
		"clones without blobs": {
			planted{sessions: func(s session.Store) session.Store { return bareClones{s} }},
			[]string{"blobs/clone", "blobs/clone-child", "blobs/sweep-race"},
		},
		"one queue for all tenants and kinds of tasks": {
			planted{sessions: func(s session.Store) session.Store { return oneQueue{s} }},
			[]string{"tasks/due-fair", "tasks/due-kinds", "tasks/due-pages"},
		},
		"tasks that need an agent": {
			planted{sessions: func(s session.Store) session.Store { return agentsOnly{s} }},
			[]string{"tasks/framework", "tasks/due-kinds"},
		},
		"a task that anybody finishes": {
			planted{sessions: func(s session.Store) session.Store { return anyHolder{s} }},
			[]string{"tasks/fence"},
		},
		"a silently short read": {
			planted{streams: func(m stream.Manager) stream.Manager { return shortReads{m} }},
			[]string{"streams/trim-truncated"},
		},
	} {
		for _, c := range bug.cases {
			t.Run(strings.ReplaceAll(name, " ", "-")+"/"+c, func(t *testing.T) {
				t.Parallel()
				open := func(t testing.TB) Harness {
					h := openMemory(t)
					plant := bug.plant
					plant.Backend = h.Backend
					h.Backend = plant
					h.Reopen = func(testing.TB) store.Backend { return plant }
					return h
				}
				// A race may not show the bug in every attempt, but within a few.
				for range 20 {
					if runAlone(t, c, open).failed {
						return
					}
				}
				t.Errorf("the case passes a backend with %s", name)
			})
		}
	}
}

func TestEveryCaseIsNamedOnceAndDescribed(t *testing.T) {
	t.Parallel()
	for _, g := range groups() {
		seen := map[string]bool{}
		for _, c := range g.cases {
			if seen[c.name] || strings.ContainsAny(c.name, " /") {
				t.Errorf("case %s/%s is named twice or oddly", g.name, c.name)
			}
			seen[c.name] = true
			if c.about == "" || strings.Contains(c.about, "\n") {
				t.Errorf("case %s/%s has no description of one line", g.name, c.name)
			}
		}
	}
}

// TestClockIsMarked requires that a case that looks at the clock says so, and no other.
func TestClockIsMarked(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*bed){
		"now": func(t *bed) { t.now() }, "pass": func(t *bed) { t.pass(time.Second) }, "ttl": func(t *bed) { t.in("other").ttl() }, "nothing": func(*bed) {},
	} {
		for _, needs := range []need{0, second, clock, dated, alone | dated} {
			rec := record(t, openMemory, testCase{name, "it looks at the clock", needs, look})
			right := (needs&(clock|dated) != 0) == (name != "nothing")
			if rec.failed == right {
				t.Errorf("%s with the needs %b: %s", name, needs, rec.log.String())
			}
		}
	}
}

func TestMissingCapabilitiesSkipAloud(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB) Harness { return Harness{Backend: openMemory(t).Backend} }
	for _, name := range []string{"lifecycle/persist", "hostile/corrupt-message", "races/commit"} {
		got := runAlone(t, name, open)
		if !got.skipped || !strings.Contains(got.log.String(), "SKIPPED") {
			t.Errorf("%s: skipped is %v, it says %q", name, got.skipped, got.log.String())
		}
	}
	got := runAlone(t, "commit/version", open)
	if got.failed || got.skipped {
		t.Errorf("commit/version needs nothing: %s", got.log.String())
	}
}

func TestTimePassesWithoutAdvance(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"leases/take-over", "sweeps/deadlines", "locks/expire"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runAlone(t, name, func(t testing.TB) Harness {
				backend := memory.New(memory.Config{})
				t.Cleanup(func() { backend.Close() })
				return Harness{Backend: backend}
			})
			if got.failed || got.skipped {
				t.Error(got.log.String())
			}
		})
	}
}

// runAlone runs one case and records how it went.
func runAlone(t *testing.T, name string, open Open) *recorder {
	t.Helper()
	for _, g := range groups() {
		for _, c := range g.cases {
			if g.name+"/"+c.name != name {
				continue
			}
			return record(t, open, c)
		}
	}
	t.Fatalf("case %s does not exist", name)
	return nil
}

// record runs a case and records how it went.
func record(t *testing.T, open Open, c testCase) *recorder {
	t.Helper()
	rec := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer rec.cleanup()
		newSuite(rec, open).run(rec, c)
	}()
	<-done
	return rec
}

// recorder is a test that records its failure and continues.
type recorder struct {
	testing.TB // for everything that is not recorded

	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.log, format+"\n", args...)
}

func (r *recorder) fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Logf(format string, args ...any) { r.note(format, args...) }
func (r *recorder) Log(args ...any)                 { r.note("%s", fmt.Sprintln(args...)) }

func (r *recorder) Errorf(format string, args ...any) {
	r.note(format, args...)
	r.fail()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprintln(args...)) }

func (r *recorder) Skipf(format string, args ...any) {
	r.note(format, args...)
	r.skipped = true
	runtime.Goexit()
}

func (r *recorder) Skipped() bool { return r.skipped }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) cleanup() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// The bugs.

// oneQueue lists the tasks that have been due longest, and only then looks whose they are.
type oneQueue struct{ session.Store }

func (s oneQueue) DueTasks(ctx context.Context, request session.TaskRequest) ([]session.Task, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	due, err := s.OldTasks(ctx, session.OldTaskRequest{Before: now, Limit: request.Size()})
	return slices.DeleteFunc(due, func(t session.Task) bool { return !slices.Contains(request.Kinds, t.OfKind()) }), err
}

// agentsOnly does not list the framework's own tasks.
type agentsOnly struct{ session.Store }

func (s agentsOnly) DueTasks(ctx context.Context, request session.TaskRequest) ([]session.Task, error) {
	request.Kinds = slices.DeleteFunc(slices.Clone(request.Kinds), func(k session.TaskKind) bool { return k.Agent == "" })
	return s.Store.DueTasks(ctx, request)
}

// anyHolder does not check who holds a task.
type anyHolder struct{ session.Store }

func (s anyHolder) FinishTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, result session.TaskResult) error {
	page, err := s.ListTasks(ctx, session.TaskQuery{Limit: session.MaxPageSize})
	if err != nil {
		return err
	}
	for i := range page.Items {
		if page.Items[i].Ref() == ref {
			fence = page.Items[i].Fence()
		}
	}
	return s.Store.FinishTask(ctx, ref, fence, result)
}

type anyVersion struct{ session.Store }

func (s anyVersion) Commit(ctx context.Context, c *session.Commit) (*session.Committed, error) {
	for range 50 {
		state, err := s.Load(ctx, c.SessionID)
		if err != nil {
			return nil, err
		}
		patched := *c
		patched.Version = state.Version
		out, err := s.Store.Commit(ctx, &patched)
		if err == nil || state.Lease.Fence() != c.Fence {
			return out, err
		}
	}
	return s.Store.Commit(ctx, c)
}

type anyFence struct{ session.Store }

func (s anyFence) Commit(ctx context.Context, c *session.Commit) (*session.Committed, error) {
	state, err := s.Load(ctx, c.SessionID)
	if err != nil {
		return nil, err
	}
	patched := *c
	patched.Fence = state.Lease.Fence()
	return s.Store.Commit(ctx, &patched)
}

type forgetful struct{ session.Store }

func (s forgetful) Commit(ctx context.Context, c *session.Commit) (*session.Committed, error) {
	patched := *c
	patched.Key = session.NewRunID()
	return s.Store.Commit(ctx, &patched)
}

type stuckSweep struct{ session.Store }

func (s stuckSweep) ExpiredLeases(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	request.After = nil
	return s.Store.ExpiredLeases(ctx, request)
}

type noCompanions struct{ session.Store }

func (s noCompanions) ExpiredLeases(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	due, err := s.Store.ExpiredLeases(ctx, request)
	return slices.DeleteFunc(due, func(d session.Due) bool {
		state, err := s.Tenant(d.Tenant).Load(ctx, d.ID)
		return err == nil && state.ParentID != ""
	}), err
}

// ownWaits commits without checking the calls of a root's tree, or checks them in
// a separate step.
type ownWaits struct {
	session.Store
	looks bool
}

func (s ownWaits) Commit(ctx context.Context, c *session.Commit) (*session.Committed, error) {
	patched := *c
	patched.Waits = nil
	for _, callID := range c.Waits {
		o, err := s.Owner(ctx, c.SessionID, callID)
		if err != nil || s.looks && !o.CompletedAt.IsZero() {
			patched.Waits = append(patched.Waits, callID)
		}
	}
	runtime.Gosched()
	return s.Store.Commit(ctx, &patched)
}

type everyoneWins struct{ session.Store }

func (s everyoneWins) Submit(ctx context.Context, id string, submission session.Submission) (session.SubmitOutcome, error) {
	out, err := s.Store.Submit(ctx, id, submission)
	if out == session.SubmitAlreadyCompleted {
		out = session.SubmitAccepted
	}
	return out, err
}

type lastStop struct{ session.Store }

func (s lastStop) RequestStop(ctx context.Context, id string, stop session.Stop) (session.Stop, error) {
	if _, err := s.Store.RequestStop(ctx, id, stop); err != nil {
		return session.Stop{}, err
	}
	return stop, nil
}

type blindStatus struct{ session.Store }

func (s blindStatus) SetStatus(ctx context.Context, id string, change session.StatusChange) (session.StatusResult, error) {
	change.Expect, change.ExpectVersion = session.Statuses(), 0
	return s.Store.SetStatus(ctx, id, change)
}

type anyEpoch struct{ session.Store }

func (s anyEpoch) TakeOver(ctx context.Context, take *session.TakeOver) (*session.TakenOver, error) {
	state, err := s.Load(ctx, take.SessionID)
	if err != nil {
		return nil, err
	}
	patched := *take
	patched.Epoch = state.Lease.Epoch
	return s.Store.TakeOver(ctx, &patched)
}

type necromancer struct{ session.Store }

func (s necromancer) Commit(ctx context.Context, c *session.Commit) (*session.Committed, error) {
	if ok, err := s.Exists(ctx, c.SessionID); err == nil && !ok {
		return &session.Committed{}, session.Create(ctx, s, blank(c.SessionID))
	}
	return s.Store.Commit(ctx, c)
}

type highestStep struct{ session.Store }

func (s highestStep) LatestCheckpoint(ctx context.Context, id string) (*session.Checkpoint, error) {
	page, err := s.Checkpoints(ctx, id, session.PageRequest{Limit: session.MaxPageSize})
	if err != nil || len(page.Items) == 0 {
		return nil, session.ErrNotFound
	}
	best := page.Items[0]
	for _, cp := range page.Items {
		if cp.Step > best.Step {
			best = cp
		}
	}
	return s.Checkpoint(ctx, id, best.ID)
}

type normalising struct{ session.Store }

func (s normalising) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	messages, err := s.Store.AllMessages(ctx, id)
	for i := range messages {
		for j := range messages[i].Parts {
			p := &messages[i].Parts[j]
			p.Input = raw(compact(string(p.Input)))
		}
	}
	return messages, err
}

type gaps struct{ stream.Manager }

func (m gaps) Chunks(ctx context.Context, id string, from int64, limit int) ([]stream.Item, error) {
	items, err := m.Manager.Chunks(ctx, id, from, limit)
	for i := range items {
		items[i].Sequence *= 2
	}
	return items, err
}

func (m gaps) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		for item, err := range m.Manager.Read(ctx, id, from, wait) {
			item.Sequence *= 2
			if !yield(item, err) {
				return
			}
		}
	}
}

type repeating struct{ stream.Manager }

func (m repeating) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	batch.Producer.Session = session.NewID() // a producer that has never written
	return m.Manager.Append(ctx, id, batch)
}

// keeping reads the last chunk of a stream from the slice that was appended.
type keeping struct {
	stream.Manager
	kept *sync.Map // by id of the stream: []stream.Chunk
}

func (m keeping) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	m.kept.Store(id, batch.Chunks)
	return m.Manager.Append(ctx, id, batch)
}

func (m keeping) Chunks(ctx context.Context, id string, from int64, limit int) ([]stream.Item, error) {
	items, err := m.Manager.Chunks(ctx, id, from, limit)
	if chunks, ok := m.kept.Load(id); ok && len(items) > 0 {
		chunks := chunks.([]stream.Chunk)
		items[len(items)-1].Chunk = &chunks[len(chunks)-1]
	}
	return items, err
}

type shortReads struct{ stream.Manager }

func (m shortReads) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	if info, err := m.Info(ctx, id); err == nil {
		from = max(from, info.Floor)
	}
	return m.Manager.Read(ctx, id, from, wait)
}

// generous gives a session every blob of the tenant.
type generous struct{ blob.Store }

func (g generous) Get(ctx context.Context, id, ref string) ([]byte, error) {
	data, err := g.Store.Get(ctx, id, ref)
	for _, other := range []string{"a", "b"} {
		if err != nil {
			data, err = g.Store.Get(ctx, other, ref)
		}
	}
	return data, err
}

func (g generous) Missing(ctx context.Context, id string, refs []string) (out []string, err error) {
	for _, ref := range refs {
		if used, err := g.Referenced(ctx, ref); err != nil || !used {
			out = append(out, ref)
		}
	}
	return out, err
}

// noTotal holds single blobs to the limit of all.
type noTotal struct{ blob.Store }

func (n noTotal) Put(ctx context.Context, put *blob.Put) (blob.Stored, error) {
	without := *put
	if int64(len(put.Data)) <= put.Limit {
		without.Limit = 0
	}
	return n.Store.Put(ctx, &without)
}

// weightless holds only blobs to the limit that are larger than what a reference costs.
type weightless struct{ blob.Store }

func (w weightless) Put(ctx context.Context, put *blob.Put) (blob.Stored, error) {
	without := *put
	if len(put.Data) < blob.MinCharge {
		without.Limit = 0
	}
	return w.Store.Put(ctx, &without)
}

// trusting does not write bytes that another session has, although it may lose them in the
// meantime.
type trusting struct{ blob.Store }

func (s trusting) Put(ctx context.Context, put *blob.Put) (blob.Stored, error) {
	used, err := s.Referenced(ctx, blob.RefOf(put.Data))
	if err != nil {
		return blob.Stored{}, err
	}
	time.Sleep(time.Millisecond) // waits: the fault shows if another session acts in between
	only := *put
	only.Elsewhere = only.Elsewhere || used
	return s.Store.Put(ctx, &only)
}

// hasty sweeps what has just lost its reference.
type hasty struct{ blob.Store }

func (h hasty) Sweep(ctx context.Context, _ time.Duration, limit int) (int, error) {
	return h.Store.Sweep(ctx, 0, limit)
}

// bareClones forgets what belongs to the source.
type bareClones struct{ session.Store }

func (b bareClones) Clone(ctx context.Context, clone *session.Clone) (*session.State, error) {
	to := clone.To
	if to.Agent == "" {
		to.Agent = "tester"
	}
	if err := session.Create(ctx, b.Store, &to); err != nil {
		return nil, err
	}
	return b.Load(ctx, to.ID)
}
