package storetest

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// Faults is a backend that forwards everything to another one, counts the writes
// and makes chosen ones fail: before they are applied, as when a connection is
// refused, or afterwards, as when the answer is lost. The stores of other tenants
// are included.
//
// To stop a process around its n-th write, and everything it would do after:
//
//	faults := storetest.NewFaults(backend)
//	faults.Fail(func(op storetest.Op) storetest.When {
//		if op.N == n {
//			faults.Cut()
//			return storetest.After
//		}
//		return storetest.Pass
//	})
//
// The results are then read from the backend itself.
type Faults struct {
	inner store.Backend

	mu     sync.Mutex
	decide func(Op) When
	blind  func() bool // whether reads fail
	failed error
	cut    bool
	log    []Op
	counts map[string]int
}

var _ store.Backend = (*Faults)(nil)

// When says at which point a write fails, if it does.
type When int

// The points of a fault.
const (
	// Pass applies the write.
	Pass When = iota
	// Before fails without applying it.
	Before
	// After applies it and fails nevertheless.
	After
)

// String returns the name of the point.
func (w When) String() string {
	switch w {
	case Before:
		return "before"
	case After:
		return "after"
	}
	return "pass"
}

// Op is one write to the backend.
type Op struct {
	// N counts all writes, Nth those with this name; both start at 1.
	N, Nth int
	// Name is the name of the method; see [Writes] for all of them.
	Name   string
	Tenant string
	// ID is the session, stream or lock that is written to; empty if the write
	// concerns none in particular.
	ID string
}

// Writes returns the name of every write of a backend. They are the names of
// methods; DeleteStream, RenewLock, ReleaseLock, PutBlob and SweepBlobs distinguish
// methods that several interfaces have or may come to have. ProbeLeases, which changes
// nothing, is not among them.
func Writes() []string {
	return []string{
		// session.Store
		"Clone", "Delete", "Edit", "SetStatus",
		"StartRun", "Commit", "TakeOver", "RenewLeases", "CloseRun", "SettleClose",
		"Claim", "Settle", "Ask", "CleanCalls", "RequestStop",
		"UpdateChild", "Submit", "Own", "Disown", "Send", "PutWake", "DeleteWake",
		"PutTasks", "ClaimTask", "RenewTask", "FinishTask", "RetryTask", "DropTask",
		// stream.Manager
		"Append", "End", "Fail", "Reactivate", "Trim", "DeleteStream",
		// blob.Store
		"PutBlob", "SweepBlobs",
		// lock.Manager
		"TryAcquire", "RenewLock", "ReleaseLock",
	}
}

// NewFaults wraps a backend. By default it forwards everything.
func NewFaults(inner store.Backend) *Faults {
	return &Faults{
		inner: inner, counts: map[string]int{},
		failed: session.ErrUnavailable.WithMessage("injected fault: the store is unavailable"),
	}
}

// At returns a decision that only the n-th write fails.
func At(n int, when When) func(Op) When {
	return func(op Op) When {
		if op.N == n {
			return when
		}
		return Pass
	}
}

// On returns a decision that only the nth write with a name fails.
func On(name string, nth int, when When) func(Op) When {
	return func(op Op) When {
		if op.Name == name && op.Nth == nth {
			return when
		}
		return Pass
	}
}

// Fail sets the function that decides which writes fail; nil lets all pass. The
// function is called once per write, for several at once if they are, and may call
// [Faults.Cut].
func (f *Faults) Fail(decide func(Op) When) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide = decide
}

// FailReads sets the function that decides which reads fail; nil lets all pass.
func (f *Faults) FailReads(decide func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind = decide
}

// FailWith sets the error of injected faults. The default is
// [session.ErrUnavailable] with a message that says it was injected.
func (f *Faults) FailWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
}

// Cut makes every later call fail, including reads, until [Faults.Restore]: the
// process has lost its store, or has been killed. Cut may be called from the
// function given to [Faults.Fail]; the write that is being decided is still
// carried out as decided.
func (f *Faults) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = true
}

// Restore lets calls through again.
func (f *Faults) Restore() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = false
}

// Reset forgets the writes counted so far.
func (f *Faults) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log, f.counts = nil, map[string]int{}
}

// Log lists the writes so far, in order, failed ones included.
func (f *Faults) Log() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// Count returns the number of writes so far: of the given names, or of all.
func (f *Faults) Count(names ...string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(names) == 0 {
		return len(f.log)
	}
	n := 0
	for _, name := range names {
		n += f.counts[name]
	}
	return n
}

// next numbers a write and decides whether it fails.
func (f *Faults) next(name, tenant, id string) (When, error) {
	f.mu.Lock()
	if f.cut {
		defer f.mu.Unlock()
		return Before, f.failed
	}
	f.counts[name]++
	op := Op{N: len(f.log) + 1, Nth: f.counts[name], Name: name, Tenant: tenant, ID: id}
	f.log = append(f.log, op)
	decide, failed := f.decide, f.failed
	f.mu.Unlock() // so that decide can call Cut
	if decide == nil {
		return Pass, failed
	}
	return decide(op), failed
}

// alive fails a read after a cut.
func (f *Faults) alive() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut {
		return f.failed
	}
	return nil
}

// write applies a write, or fails it. The result of a write that fails afterwards
// is not returned.
func write[V any](f *Faults, name, tenant, id string, do func() (V, error)) (V, error) {
	var none V
	when, failed := f.next(name, tenant, id)
	if when == Before {
		return none, failed
	}
	out, err := do()
	if err == nil && when == After {
		return none, failed
	}
	return out, err
}

// effect is write for a write without a result.
func effect(f *Faults, name, tenant, id string, do func() error) error {
	_, err := write(f, name, tenant, id, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// read performs a read, unless the store is cut off.
func read[V any](f *Faults, do func() (V, error)) (V, error) {
	var none V
	if err := f.alive(); err != nil {
		return none, err
	}
	f.mu.Lock()
	blind, failed := f.blind, f.failed
	f.mu.Unlock()
	if blind != nil && blind() {
		return none, failed
	}
	return do()
}

// Sessions implements [store.Backend].
func (f *Faults) Sessions() session.Store {
	return faultySessions{f, f.inner.Sessions(), session.DefaultTenant}
}

// Streams implements [store.Backend].
func (f *Faults) Streams() stream.Manager {
	return faultyStreams{f, f.inner.Streams(), session.DefaultTenant}
}

// Blobs implements [store.Backend].
func (f *Faults) Blobs() blob.Store { return faultyBlobs{f, f.inner.Blobs(), session.DefaultTenant} }

// Ready implements [store.Backend].
func (f *Faults) Ready(ctx context.Context) error {
	if err := f.alive(); err != nil {
		return err
	}
	return f.inner.Ready(ctx)
}

// Locks implements [store.Backend].
func (f *Faults) Locks() lock.Manager { return faultyLocks{f, f.inner.Locks()} }

// StartRun implements [store.Backend]. It is three writes, "StartRun", "Reactivate" and
// "Append", in this order: a fault may leave those before it without the rest.
func (f *Faults) StartRun(ctx context.Context, s *store.StartRun) (*session.Started, *stream.Info, error) {
	for i, name := range []string{"StartRun", "Reactivate", "Append"} {
		when, failed := f.next(name, s.Tenant, s.SessionID)
		if when == Pass {
			continue
		}
		made := i // how many of them are
		if when == After {
			made++
		}
		if err := f.startInPart(ctx, s, made); err != nil {
			return nil, nil, err
		}
		return nil, nil, failed
	}
	return f.inner.StartRun(ctx, s)
}

// startInPart makes the first writes of a start.
func (f *Faults) startInPart(ctx context.Context, s *store.StartRun, made int) error {
	switch made {
	case 0:
		return nil
	case 3:
		_, _, err := f.inner.StartRun(ctx, s)
		return err
	}
	started, err := f.inner.Sessions().Tenant(s.Tenant).StartRun(ctx, s.StartRun)
	if err != nil || started.Existing || made == 1 {
		return err
	}
	_, err = f.inner.Streams().Tenant(s.Tenant).Reactivate(ctx, s.SessionID, s.Producer(started))
	return err
}

// Commit implements [store.Backend]. It is two writes, "Append" and "Commit", in
// this order: a fault may leave the first without the second.
func (f *Faults) Commit(ctx context.Context, c *store.Commit) (*session.Committed, int64, error) {
	when, failed := f.next("Append", c.Tenant, c.Stream)
	if when == Before {
		return nil, 0, failed
	}
	if when == Pass {
		switch when, failed = f.next("Commit", c.Tenant, c.SessionID); when {
		case Pass:
			return f.inner.Commit(ctx, c)
		case After:
			if done, last, err := f.inner.Commit(ctx, c); err != nil {
				return done, last, err
			}
			return nil, 0, failed
		}
	}
	ordered, err := f.inner.Streams().Tenant(c.Tenant).Append(ctx, c.Stream, c.Batch)
	if err == nil {
		_, err = ordered.Wait(ctx)
	}
	if err != nil {
		return nil, 0, err
	}
	return nil, 0, failed
}

// CloseRun implements [store.Backend]. It is up to three writes: "Append", then "End"
// or "Fail" if the stream is closed, and "CloseRun". A fault may leave those before
// it without the rest.
func (f *Faults) CloseRun(ctx context.Context, c *store.CloseRun) error {
	steps := []string{"Append", "CloseRun"}
	switch {
	case c.Failure != nil:
		steps = []string{"Append", "Fail", "CloseRun"}
	case c.End != nil:
		steps = []string{"Append", "End", "CloseRun"}
	}
	for i, name := range steps {
		id := c.Stream
		if name == "CloseRun" {
			id = c.SessionID
		}
		when, failed := f.next(name, c.Tenant, id)
		if when == Pass {
			continue
		}
		made := i // how many of them are
		if when == After {
			made++
		}
		if err := f.closeInPart(ctx, c, made, len(steps)); err != nil {
			return err
		}
		return failed
	}
	return f.inner.CloseRun(ctx, c)
}

// closeInPart makes the first writes of a close.
func (f *Faults) closeInPart(ctx context.Context, c *store.CloseRun, made, all int) error {
	switch made {
	case 0:
		return nil
	case all:
		return f.inner.CloseRun(ctx, c)
	}
	part := *c
	if made == 1 {
		part.End, part.Failure = nil, nil
	}
	return part.CloseStream(ctx, f.inner.Streams().Tenant(c.Tenant))
}

// ProbeLeases implements [store.Backend]. It is one write, of the first session.
func (f *Faults) ProbeLeases(ctx context.Context, leases []session.Held) []error {
	if len(leases) == 0 {
		return nil
	}
	out, err := write(f, "ProbeLeases", leases[0].Tenant, leases[0].ID, func() ([]error, error) {
		return f.inner.ProbeLeases(ctx, leases), nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(leases))
	}
	return out
}

// RenewLeases implements [store.Backend]. It is one write, of the first session.
func (f *Faults) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	if len(leases) == 0 {
		return nil
	}
	out, err := write(f, "RenewLeases", leases[0].Tenant, leases[0].ID, func() ([]session.Renewed, error) {
		return f.inner.RenewLeases(ctx, leases, ttl), nil
	})
	if err != nil {
		return session.NotRenewed(leases, err)
	}
	return out
}

// Signals implements [store.Backend]. What it announces fails if the store is cut off.
func (f *Faults) Signals(notify func(session.Signal)) (stop func()) {
	return f.inner.Signals(notify)
}

// Close implements [store.Backend]; it never fails by injection.
func (f *Faults) Close() error { return f.inner.Close() }

type faultySessions struct {
	f      *Faults
	inner  session.Store
	tenant string
}

func (s faultySessions) Tenant(tenant string) session.Store {
	return faultySessions{s.f, s.inner.Tenant(tenant), tenant}
}

func (s faultySessions) Exists(ctx context.Context, id string) (bool, error) {
	return read(s.f, func() (bool, error) { return s.inner.Exists(ctx, id) })
}

func (s faultySessions) Load(ctx context.Context, id string) (*session.State, error) {
	return read(s.f, func() (*session.State, error) { return s.inner.Load(ctx, id) })
}

func (s faultySessions) Clone(ctx context.Context, clone *session.Clone) (*session.State, error) {
	return write(s.f, "Clone", s.tenant, clone.To.ID, func() (*session.State, error) { return s.inner.Clone(ctx, clone) })
}

func (s faultySessions) Delete(ctx context.Context, id string) ([]string, error) {
	return write(s.f, "Delete", s.tenant, id, func() ([]string, error) { return s.inner.Delete(ctx, id) })
}

func (s faultySessions) Edit(ctx context.Context, edit *session.Edit) (*session.Edited, error) {
	return write(s.f, "Edit", s.tenant, edit.SessionID, func() (*session.Edited, error) { return s.inner.Edit(ctx, edit) })
}

func (s faultySessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (session.StatusResult, error) {
	return write(s.f, "SetStatus", s.tenant, id, func() (session.StatusResult, error) { return s.inner.SetStatus(ctx, id, change) })
}

func (s faultySessions) StartRun(ctx context.Context, start *session.StartRun) (*session.Started, error) {
	return write(s.f, "StartRun", s.tenant, start.SessionID, func() (*session.Started, error) { return s.inner.StartRun(ctx, start) })
}

func (s faultySessions) Commit(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	return write(s.f, "Commit", s.tenant, commit.SessionID, func() (*session.Committed, error) { return s.inner.Commit(ctx, commit) })
}

func (s faultySessions) TakeOver(ctx context.Context, take *session.TakeOver) (*session.TakenOver, error) {
	return write(s.f, "TakeOver", s.tenant, take.SessionID, func() (*session.TakenOver, error) { return s.inner.TakeOver(ctx, take) })
}

func (s faultySessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	return effect(s.f, "CloseRun", s.tenant, id, func() error { return s.inner.CloseRun(ctx, id, fence, settled) })
}

func (s faultySessions) SettleClose(ctx context.Context, id, runID string) error {
	return effect(s.f, "SettleClose", s.tenant, id, func() error { return s.inner.SettleClose(ctx, id, runID) })
}

func (s faultySessions) Now(ctx context.Context) (time.Time, error) {
	return read(s.f, func() (time.Time, error) { return s.inner.Now(ctx) })
}

func (s faultySessions) Claim(
	ctx context.Context, id string, version int64, fence session.Fence, messageID, callID string,
) (session.Call, bool, error) {
	type claimed struct {
		call  session.Call
		fresh bool
	}
	out, err := write(s.f, "Claim", s.tenant, id, func() (claimed, error) {
		c, fresh, err := s.inner.Claim(ctx, id, version, fence, messageID, callID)
		return claimed{c, fresh}, err
	})
	return out.call, out.fresh, err
}

func (s faultySessions) Settle(ctx context.Context, id string, fence session.Fence, call session.Call) (session.Call, error) {
	return write(s.f, "Settle", s.tenant, id, func() (session.Call, error) { return s.inner.Settle(ctx, id, fence, call) })
}

func (s faultySessions) Calls(ctx context.Context, id, messageID string) ([]session.Call, error) {
	return read(s.f, func() ([]session.Call, error) { return s.inner.Calls(ctx, id, messageID) })
}

func (s faultySessions) Ask(ctx context.Context, id string, fence session.Fence, ask session.Ask) error {
	return effect(s.f, "Ask", s.tenant, id, func() error { return s.inner.Ask(ctx, id, fence, ask) })
}

func (s faultySessions) CleanCalls(ctx context.Context, before time.Time) (int, error) {
	return write(s.f, "CleanCalls", s.tenant, "", func() (int, error) { return s.inner.CleanCalls(ctx, before) })
}

func (s faultySessions) RequestStop(ctx context.Context, id string, stop session.Stop) (session.Stop, error) {
	return write(s.f, "RequestStop", s.tenant, id, func() (session.Stop, error) { return s.inner.RequestStop(ctx, id, stop) })
}

func (s faultySessions) StopRequest(ctx context.Context, id, runID string) (*session.Stop, error) {
	return read(s.f, func() (*session.Stop, error) { return s.inner.StopRequest(ctx, id, runID) })
}

func (s faultySessions) Messages(ctx context.Context, id string, page session.PageRequest) (session.Page[session.Message], error) {
	return read(s.f, func() (session.Page[session.Message], error) { return s.inner.Messages(ctx, id, page) })
}

func (s faultySessions) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	return read(s.f, func() ([]session.Message, error) { return s.inner.AllMessages(ctx, id) })
}

func (s faultySessions) MessagesFrom(ctx context.Context, id string, number int) ([]session.Message, error) {
	return read(s.f, func() ([]session.Message, error) { return s.inner.MessagesFrom(ctx, id, number) })
}

func (s faultySessions) Run(ctx context.Context, id, runID string) (*session.Run, error) {
	return read(s.f, func() (*session.Run, error) { return s.inner.Run(ctx, id, runID) })
}

func (s faultySessions) CurrentRun(ctx context.Context, id string) (*session.Run, error) {
	return read(s.f, func() (*session.Run, error) { return s.inner.CurrentRun(ctx, id) })
}

func (s faultySessions) RunByRequest(ctx context.Context, id, requestID string) (*session.Run, error) {
	return read(s.f, func() (*session.Run, error) { return s.inner.RunByRequest(ctx, id, requestID) })
}

func (s faultySessions) Runs(ctx context.Context, id string, page session.PageRequest) (session.Page[session.Run], error) {
	return read(s.f, func() (session.Page[session.Run], error) { return s.inner.Runs(ctx, id, page) })
}

func (s faultySessions) Checkpoint(ctx context.Context, id, checkpointID string) (*session.Checkpoint, error) {
	return read(s.f, func() (*session.Checkpoint, error) { return s.inner.Checkpoint(ctx, id, checkpointID) })
}

func (s faultySessions) LatestCheckpoint(ctx context.Context, id string) (*session.Checkpoint, error) {
	return read(s.f, func() (*session.Checkpoint, error) { return s.inner.LatestCheckpoint(ctx, id) })
}

func (s faultySessions) Checkpoints(
	ctx context.Context, id string, page session.PageRequest,
) (session.Page[session.Checkpoint], error) {
	return read(s.f, func() (session.Page[session.Checkpoint], error) { return s.inner.Checkpoints(ctx, id, page) })
}

func (s faultySessions) UpdateChild(
	ctx context.Context, id, childID string, change func(*session.ChildRef) error,
) (*session.ChildRef, error) {
	return write(s.f, "UpdateChild", s.tenant, id, func() (*session.ChildRef, error) {
		return s.inner.UpdateChild(ctx, id, childID, change)
	})
}

func (s faultySessions) Children(ctx context.Context, id string) ([]session.ChildRef, error) {
	return read(s.f, func() ([]session.ChildRef, error) { return s.inner.Children(ctx, id) })
}

func (s faultySessions) Submit(ctx context.Context, id string, submission session.Submission) (session.SubmitOutcome, error) {
	return write(s.f, "Submit", s.tenant, id, func() (session.SubmitOutcome, error) { return s.inner.Submit(ctx, id, submission) })
}

func (s faultySessions) PendingCalls(ctx context.Context, id string, all bool) ([]session.Pending, error) {
	return read(s.f, func() ([]session.Pending, error) { return s.inner.PendingCalls(ctx, id, all) })
}

func (s faultySessions) Own(ctx context.Context, rootID string, owned []session.Ownership) error {
	return effect(s.f, "Own", s.tenant, rootID, func() error { return s.inner.Own(ctx, rootID, owned) })
}

func (s faultySessions) Owner(ctx context.Context, rootID, callID string) (session.Ownership, error) {
	return read(s.f, func() (session.Ownership, error) { return s.inner.Owner(ctx, rootID, callID) })
}

func (s faultySessions) Disown(ctx context.Context, rootID string, callIDs []string) error {
	return effect(s.f, "Disown", s.tenant, rootID, func() error { return s.inner.Disown(ctx, rootID, callIDs) })
}

func (s faultySessions) Send(ctx context.Context, id string, entry session.InboxEntry) error {
	return effect(s.f, "Send", s.tenant, id, func() error { return s.inner.Send(ctx, id, entry) })
}

func (s faultySessions) Inbox(ctx context.Context, id string) ([]session.InboxEntry, error) {
	return read(s.f, func() ([]session.InboxEntry, error) { return s.inner.Inbox(ctx, id) })
}

func (s faultySessions) PutWake(ctx context.Context, wake session.Wake) error {
	return effect(s.f, "PutWake", s.tenant, wake.SessionID, func() error { return s.inner.PutWake(ctx, wake) })
}

func (s faultySessions) DeleteWake(ctx context.Context, wake session.Wake) error {
	return effect(s.f, "DeleteWake", s.tenant, wake.SessionID, func() error { return s.inner.DeleteWake(ctx, wake) })
}

func (s faultySessions) List(ctx context.Context, query session.Query) (session.Page[session.Summary], error) {
	return read(s.f, func() (session.Page[session.Summary], error) { return s.inner.List(ctx, query) })
}

func (s faultySessions) Waiting(ctx context.Context, query session.WaitingQuery) (session.Page[session.Waiting], error) {
	return read(s.f, func() (session.Page[session.Waiting], error) { return s.inner.Waiting(ctx, query) })
}

func (s faultySessions) PutTasks(ctx context.Context, tasks []session.Task) error {
	id := ""
	if len(tasks) > 0 {
		id = tasks[0].SessionID
	}
	return effect(s.f, "PutTasks", s.tenant, id, func() error { return s.inner.PutTasks(ctx, tasks) })
}

func (s faultySessions) ClaimTask(ctx context.Context, claim session.TaskClaim) (*session.Task, error) {
	return write(s.f, "ClaimTask", s.tenant, claim.SessionID, func() (*session.Task, error) { return s.inner.ClaimTask(ctx, claim) })
}

func (s faultySessions) RenewTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, ttl time.Duration) error {
	return effect(s.f, "RenewTask", s.tenant, ref.SessionID, func() error { return s.inner.RenewTask(ctx, ref, fence, ttl) })
}

func (s faultySessions) FinishTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, result session.TaskResult) error {
	return effect(s.f, "FinishTask", s.tenant, ref.SessionID, func() error { return s.inner.FinishTask(ctx, ref, fence, result) })
}

func (s faultySessions) ListTasks(ctx context.Context, query session.TaskQuery) (session.Page[session.Task], error) {
	return read(s.f, func() (session.Page[session.Task], error) { return s.inner.ListTasks(ctx, query) })
}

func (s faultySessions) RetryTask(ctx context.Context, ref session.TaskRef) error {
	return effect(s.f, "RetryTask", s.tenant, ref.SessionID, func() error { return s.inner.RetryTask(ctx, ref) })
}

func (s faultySessions) DropTask(ctx context.Context, ref session.TaskRef, before time.Time) error {
	return effect(s.f, "DropTask", s.tenant, ref.SessionID, func() error { return s.inner.DropTask(ctx, ref, before) })
}

func (s faultySessions) DueTasks(ctx context.Context, request session.TaskRequest) ([]session.Task, error) {
	return read(s.f, func() ([]session.Task, error) { return s.inner.DueTasks(ctx, request) })
}

func (s faultySessions) OldTasks(ctx context.Context, request session.OldTaskRequest) ([]session.Task, error) {
	return read(s.f, func() ([]session.Task, error) { return s.inner.OldTasks(ctx, request) })
}

func (s faultySessions) DueDeadlines(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return read(s.f, func() ([]session.Due, error) { return s.inner.DueDeadlines(ctx, request) })
}

func (s faultySessions) ExpiredLeases(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return read(s.f, func() ([]session.Due, error) { return s.inner.ExpiredLeases(ctx, request) })
}

func (s faultySessions) ExpiredSessions(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return read(s.f, func() ([]session.Due, error) { return s.inner.ExpiredSessions(ctx, request) })
}

func (s faultySessions) PendingCloses(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return read(s.f, func() ([]session.Due, error) { return s.inner.PendingCloses(ctx, request) })
}

func (s faultySessions) Wakes(ctx context.Context, request session.WakeRequest) ([]session.Wake, error) {
	return read(s.f, func() ([]session.Wake, error) { return s.inner.Wakes(ctx, request) })
}

type faultyStreams struct {
	f      *Faults
	inner  stream.Manager
	tenant string
}

func (s faultyStreams) Tenant(tenant string) stream.Manager {
	return faultyStreams{s.f, s.inner.Tenant(tenant), tenant}
}

func (s faultyStreams) Limits() stream.Limits { return s.inner.Limits() }

// Append fails after the batch is durable, or before it is passed on.
func (s faultyStreams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	when, failed := s.f.next("Append", s.tenant, id)
	if when == Before {
		return nil, failed
	}
	out, err := s.inner.Append(ctx, id, batch)
	if err != nil {
		return nil, err
	}
	if when == After {
		if _, err := out.Wait(ctx); err != nil {
			return nil, err
		}
		return nil, failed
	}
	return faultyAppend{s.f, out}, nil
}

type faultyAppend struct {
	f     *Faults
	inner stream.Append
}

func (a faultyAppend) Wait(ctx context.Context) (int64, error) {
	return read(a.f, func() (int64, error) { return a.inner.Wait(ctx) })
}

func (s faultyStreams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		if err := s.f.alive(); err != nil {
			yield(stream.Item{}, err)
			return
		}
		for item, err := range s.inner.Read(ctx, id, from, wait) {
			if err == nil {
				err = s.f.alive()
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

func (s faultyStreams) Chunks(ctx context.Context, id string, from int64, limit int) ([]stream.Item, error) {
	return read(s.f, func() ([]stream.Item, error) { return s.inner.Chunks(ctx, id, from, limit) })
}

func (s faultyStreams) Info(ctx context.Context, id string) (*stream.Info, error) {
	return read(s.f, func() (*stream.Info, error) { return s.inner.Info(ctx, id) })
}

func (s faultyStreams) End(ctx context.Context, id string, by stream.Producer, end stream.End) error {
	return effect(s.f, "End", s.tenant, id, func() error { return s.inner.End(ctx, id, by, end) })
}

func (s faultyStreams) Fail(ctx context.Context, id string, by stream.Producer, failure *session.Error) error {
	return effect(s.f, "Fail", s.tenant, id, func() error { return s.inner.Fail(ctx, id, by, failure) })
}

func (s faultyStreams) Reactivate(ctx context.Context, id string, by stream.Producer) (*stream.Info, error) {
	return write(s.f, "Reactivate", s.tenant, id, func() (*stream.Info, error) { return s.inner.Reactivate(ctx, id, by) })
}

func (s faultyStreams) Trim(ctx context.Context, id string, policy stream.TrimPolicy) (int64, error) {
	return write(s.f, "Trim", s.tenant, id, func() (int64, error) { return s.inner.Trim(ctx, id, policy) })
}

func (s faultyStreams) Delete(ctx context.Context, id string) error {
	return effect(s.f, "DeleteStream", s.tenant, id, func() error { return s.inner.Delete(ctx, id) })
}

type faultyBlobs struct {
	f      *Faults
	inner  blob.Store
	tenant string
}

func (s faultyBlobs) Tenant(tenant string) blob.Store {
	return faultyBlobs{s.f, s.inner.Tenant(tenant), tenant}
}

func (s faultyBlobs) Put(ctx context.Context, put *blob.Put) (blob.Stored, error) {
	return write(s.f, "PutBlob", s.tenant, put.SessionID, func() (blob.Stored, error) { return s.inner.Put(ctx, put) })
}

func (s faultyBlobs) Get(ctx context.Context, sessionID, ref string) ([]byte, error) {
	return read(s.f, func() ([]byte, error) { return s.inner.Get(ctx, sessionID, ref) })
}

func (s faultyBlobs) Missing(ctx context.Context, sessionID string, refs []string) ([]string, error) {
	return read(s.f, func() ([]string, error) { return s.inner.Missing(ctx, sessionID, refs) })
}

func (s faultyBlobs) Size(ctx context.Context, sessionID string) (int64, error) {
	return read(s.f, func() (int64, error) { return s.inner.Size(ctx, sessionID) })
}

func (s faultyBlobs) Referenced(ctx context.Context, ref string) (bool, error) {
	return read(s.f, func() (bool, error) { return s.inner.Referenced(ctx, ref) })
}

func (s faultyBlobs) Sweep(ctx context.Context, age time.Duration, limit int) (int, error) {
	return write(s.f, "SweepBlobs", "", "", func() (int, error) { return s.inner.Sweep(ctx, age, limit) })
}

type faultyLocks struct {
	f     *Faults
	inner lock.Manager
}

func (l faultyLocks) TryAcquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Lock, bool, error) {
	type acquired struct {
		lock lock.Lock
		ok   bool
	}
	out, err := write(l.f, "TryAcquire", "", name, func() (acquired, error) {
		held, ok, err := l.inner.TryAcquire(ctx, name, owner, ttl)
		return acquired{held, ok}, err
	})
	return out.lock, out.ok, err
}

func (l faultyLocks) Renew(ctx context.Context, held lock.Lock, ttl time.Duration) (lock.Lock, error) {
	return write(l.f, "RenewLock", "", held.Name, func() (lock.Lock, error) { return l.inner.Renew(ctx, held, ttl) })
}

func (l faultyLocks) Release(ctx context.Context, held lock.Lock) error {
	return effect(l.f, "ReleaseLock", "", held.Name, func() error { return l.inner.Release(ctx, held) })
}
