package runtimetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// Mortal wraps a backend for a process that may die: after kill, writes through it do not
// arrive.
func Mortal(backend store.Backend) (mortal store.Backend, kill func()) {
	b := newFrail(backend, false)
	return b, b.kill
}

// KeepLeases wraps a backend for processes that keep their leases and holds of tasks, if they are
// short, however slow the machine is. When such a process dies, the test ends them, by renewing them
// for a millisecond.
func KeepLeases(backend store.Backend) store.Backend { return newFrail(backend, true) }

// process is a runtime that can be killed.
type process struct {
	helix.Runtime
	kill   func()
	faults *faults
}

// writes returns how many writes an executor has attempted.
func writes(x Executor) int64 { return x.(*process).faults.writes.Load() }

// Kill implements [Executor]: it lets nothing more reach the backend and then stops
// what would have vanished with the process.
func (p *process) Kill() {
	p.kill()
	_ = p.Close()
}

var errDead = errors.New("runtimetest: this process is dead")

// frail is a backend that fails on demand.
type frail struct {
	store.Backend
	faults *faults
}

// faults is what a frail backend does wrong. It is shared by its tenants' views.
type faults struct {
	dead    atomic.Bool
	writes  atomic.Int64 // that were attempted; a lease that is renewed counts
	noRenew atomic.Bool  // leases cannot be renewed
	// noAppend makes streams unavailable: of what is appended every other batch is
	// lost, and of the rest the answer. refused counts them.
	noAppend atomic.Bool
	refused  atomic.Int64
	noSweep  atomic.Bool // nothing that is due and no expired lease is ever found
	noStop   atomic.Bool // no run can be told to stop
	deaf     atomic.Bool // nothing that is written elsewhere is announced
	// taking, if set, is called before a run is taken over, started after one was started.
	taking  func(take *session.TakeOver)
	started func(start *session.StartRun)
	// committing and committed, if set, are called before each commit and after each
	// that was made, notCommitted after each that was not.
	committing   func(commit *session.Commit)
	committed    func(commit *session.Commit)
	notCommitted func(commit *session.Commit)
	// closing, if set, is called before a run is closed, appending before chunks are
	// appended.
	closing   func()
	appending func()
	// renewing, if set, is called before leases are renewed, closed after a run was closed.
	renewing func()
	closed   func()
	// reading, if set, is called before a transcript is read. rows counts the messages
	// that were read.
	reading func(id string)
	rows    atomic.Int64
	leases  *leases
}

func (f *faults) tellCommitted(commit *session.Commit, err error) {
	tell := f.committed
	if err != nil {
		tell = f.notCommitted
	}
	if tell != nil {
		tell(commit)
	}
}

func newFrail(backend store.Backend, keepLeases bool) *frail {
	return &frail{Backend: backend, faults: &faults{leases: newLeases(backend, keepLeases)}}
}

// newFrail returns a backend that fails on demand.
func (s *Stage) newFrail(backend store.Backend) *frail {
	return newFrail(backend, !s.config.FakeTime)
}

func (b *frail) kill() {
	if !b.faults.dead.Swap(true) {
		b.faults.leases.kill()
	}
}

func (f *faults) check() error {
	if f.dead.Load() {
		return errDead
	}
	return nil
}

// write is called before a write.
func (f *faults) write() error {
	if err := f.check(); err != nil {
		return err
	}
	f.writes.Add(1)
	return nil
}

// Sessions implements [store.Backend].
func (b *frail) Sessions() session.Store {
	return &frailSessions{b.Backend.Sessions(), b.faults, session.DefaultTenant}
}

// Streams implements [store.Backend].
func (b *frail) Streams() stream.Manager { return &frailStreams{b.Backend.Streams(), b.faults} }

// Blobs implements [store.Backend].
func (b *frail) Blobs() blob.Store { return &frailBlobs{b.Backend.Blobs(), b.faults} }

// StartRun implements [store.Backend]. Its parts are made one after the other if the
// test wants to be between them.
func (b *frail) StartRun(ctx context.Context, start *store.StartRun) (*session.Started, *stream.Info, error) {
	f := b.faults
	if f.noAppend.Load() || f.appending != nil || f.started != nil {
		return store.StartThenOpen(ctx, b, start)
	}
	if err := f.write(); err != nil {
		return nil, nil, err
	}
	long := *start.StartRun
	long.TTL = f.leases.length(long.TTL)
	started, info, err := b.Backend.StartRun(f.leases.toEnd(ctx), &store.StartRun{Tenant: start.Tenant, StartRun: &long, Batch: start.Batch})
	if err != nil {
		return nil, nil, err
	}
	if !started.Existing {
		f.leases.addTaken(ctx, start.TTL, start.Tenant, start.SessionID, started.Lease)
	}
	return started, info, nil
}

// Commit implements [store.Backend].
func (b *frail) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	if b.faults.noAppend.Load() {
		return store.AppendThenCommit(ctx, b, commit)
	}
	if err := b.faults.write(); err != nil {
		return nil, 0, err
	}
	if b.faults.committing != nil {
		b.faults.committing(commit.Commit)
	}
	done, last, err := b.Backend.Commit(ctx, commit)
	b.faults.tellCommitted(commit.Commit, err)
	return done, last, err
}

// CloseRun implements [store.Backend]. Its parts are made one after the other if the
// test wants to be between them.
func (b *frail) CloseRun(ctx context.Context, end *store.CloseRun) error {
	f := b.faults
	if f.noAppend.Load() || f.appending != nil || f.closing != nil || f.closed != nil {
		return store.EndThenCloseRun(ctx, b, end)
	}
	if err := f.write(); err != nil {
		return err
	}
	return b.Backend.CloseRun(ctx, end)
}

// RenewLeases implements [store.Backend].
func (b *frail) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	if err := b.faults.check(); err != nil {
		return session.NotRenewed(leases, err)
	}
	b.faults.writes.Add(int64(len(leases)))
	if b.faults.noRenew.Load() && ttl != lastMoment {
		b.faults.leases.end()
		return session.NotRenewed(leases, session.ErrUnavailable)
	}
	if b.faults.renewing != nil {
		b.faults.renewing()
	}
	renewed := b.Backend.RenewLeases(b.faults.leases.toEnd(ctx), leases, b.faults.leases.length(ttl))
	for i, held := range leases {
		if renewed[i].Err == nil {
			b.faults.leases.add(ttl, held.Tenant, held.ID, session.Lease{Owner: held.Owner, Epoch: held.Epoch})
		}
	}
	b.faults.leases.endIfDead()
	return renewed
}

// Signals implements [store.Backend].
func (b *frail) Signals(notify func(session.Signal)) (stop func()) {
	return b.Backend.Signals(func(signal session.Signal) {
		if b.faults.check() == nil && !b.faults.deaf.Load() {
			notify(signal)
		}
	})
}

// frailBlobs fails whatever a runtime puts.
type frailBlobs struct {
	blob.Store
	faults *faults
}

// Tenant implements [blob.Store].
func (s *frailBlobs) Tenant(tenant string) blob.Store {
	return &frailBlobs{s.Store.Tenant(tenant), s.faults}
}

// Put implements [blob.Store].
func (s *frailBlobs) Put(ctx context.Context, put *blob.Put) (blob.Stored, error) {
	if err := s.faults.write(); err != nil {
		return blob.Stored{}, err
	}
	return s.Store.Put(ctx, put)
}

// frailSessions fails whatever a runtime writes.
type frailSessions struct {
	session.Store
	faults *faults
	tenant string
}

// Tenant implements [session.Store].
func (s *frailSessions) Tenant(tenant string) session.Store {
	return &frailSessions{s.Store.Tenant(tenant), s.faults, tenant}
}

// StartRun implements [session.Turns].
func (s *frailSessions) StartRun(ctx context.Context, start *session.StartRun) (*session.Started, error) {
	if err := s.faults.write(); err != nil {
		return nil, err
	}
	long := *start
	long.TTL = s.faults.leases.length(long.TTL)
	started, err := s.Store.StartRun(s.faults.leases.toEnd(ctx), &long)
	if err != nil {
		return nil, err
	}
	if !started.Existing {
		s.faults.leases.addTaken(ctx, start.TTL, s.tenant, start.SessionID, started.Lease)
	}
	if s.faults.started != nil {
		s.faults.started(start)
	}
	return started, nil
}

// Commit implements [session.Turns].
func (s *frailSessions) Commit(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	if err := s.faults.write(); err != nil {
		return nil, err
	}
	if s.faults.committing != nil {
		s.faults.committing(commit)
	}
	done, err := s.Store.Commit(ctx, commit)
	s.faults.tellCommitted(commit, err)
	return done, err
}

// TakeOver implements [session.Turns].
func (s *frailSessions) TakeOver(ctx context.Context, take *session.TakeOver) (*session.TakenOver, error) {
	if err := s.faults.write(); err != nil {
		return nil, err
	}
	if s.faults.taking != nil {
		s.faults.taking(take)
		if err := s.faults.check(); err != nil { // it died over that
			return nil, err
		}
	}
	long := *take
	long.TTL = s.faults.leases.length(long.TTL)
	taken, err := s.Store.TakeOver(s.faults.leases.toEnd(ctx), &long)
	if err != nil {
		return nil, err
	}
	s.faults.leases.addTaken(ctx, take.TTL, s.tenant, take.SessionID, taken.Lease)
	return taken, nil
}

// CloseRun implements [session.Turns].
func (s *frailSessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	if s.faults.closing != nil {
		s.faults.closing()
	}
	err := s.Store.CloseRun(ctx, id, fence, settled)
	if err == nil && s.faults.closed != nil {
		s.faults.closed()
	}
	return err
}

// SettleClose implements [session.Turns].
func (s *frailSessions) SettleClose(ctx context.Context, id, runID string) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.SettleClose(ctx, id, runID)
}

// Claim implements [session.Calls].
func (s *frailSessions) Claim(
	ctx context.Context, id string, version int64, fence session.Fence, messageID, callID string,
) (session.Call, bool, error) {
	if err := s.faults.write(); err != nil {
		return session.Call{}, false, err
	}
	return s.Store.Claim(ctx, id, version, fence, messageID, callID)
}

// Settle implements [session.Calls].
func (s *frailSessions) Settle(ctx context.Context, id string, fence session.Fence, call session.Call) (session.Call, error) {
	if err := s.faults.write(); err != nil {
		return session.Call{}, err
	}
	return s.Store.Settle(ctx, id, fence, call)
}

// Ask implements [session.Calls].
func (s *frailSessions) Ask(ctx context.Context, id string, fence session.Fence, ask session.Ask) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.Ask(ctx, id, fence, ask)
}

// SetStatus implements [session.Documents].
func (s *frailSessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (session.StatusResult, error) {
	if err := s.faults.write(); err != nil {
		return session.StatusResult{}, err
	}
	return s.Store.SetStatus(ctx, id, change)
}

// Delete implements [session.Lifecycle].
func (s *frailSessions) Delete(ctx context.Context, id string) ([]string, error) {
	if err := s.faults.write(); err != nil {
		return nil, err
	}
	return s.Store.Delete(ctx, id)
}

// RequestStop implements [session.Stops].
func (s *frailSessions) RequestStop(ctx context.Context, id string, stop session.Stop) (session.Stop, error) {
	if err := s.faults.write(); err != nil {
		return session.Stop{}, err
	}
	if s.faults.noStop.Load() {
		return session.Stop{}, session.ErrUnavailable
	}
	return s.Store.RequestStop(ctx, id, stop)
}

// UpdateChild implements [session.Children].
func (s *frailSessions) UpdateChild(ctx context.Context, id, childID string, change func(*session.ChildRef) error) (*session.ChildRef, error) {
	if err := s.faults.write(); err != nil {
		return nil, err
	}
	return s.Store.UpdateChild(ctx, id, childID, change)
}

// Submit implements [session.Submissions].
func (s *frailSessions) Submit(ctx context.Context, id string, submission session.Submission) (session.SubmitOutcome, error) {
	if err := s.faults.write(); err != nil {
		return "", err
	}
	return s.Store.Submit(ctx, id, submission)
}

// Own implements [session.Submissions].
func (s *frailSessions) Own(ctx context.Context, rootID string, owned []session.Ownership) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.Own(ctx, rootID, owned)
}

// Disown implements [session.Submissions].
func (s *frailSessions) Disown(ctx context.Context, rootID string, callIDs []string) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.Disown(ctx, rootID, callIDs)
}

// Send implements [session.Inboxes].
func (s *frailSessions) Send(ctx context.Context, id string, entry session.InboxEntry) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.Send(ctx, id, entry)
}

// PutWake implements [session.Inboxes].
func (s *frailSessions) PutWake(ctx context.Context, wake session.Wake) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.PutWake(ctx, wake)
}

// DeleteWake implements [session.Inboxes].
func (s *frailSessions) DeleteWake(ctx context.Context, wake session.Wake) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.DeleteWake(ctx, wake)
}

// PutTasks implements [session.Tasks].
func (s *frailSessions) PutTasks(ctx context.Context, tasks []session.Task) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.PutTasks(ctx, tasks)
}

// ClaimTask implements [session.Tasks].
func (s *frailSessions) ClaimTask(ctx context.Context, claim session.TaskClaim) (*session.Task, error) {
	if err := s.faults.check(); err != nil {
		return nil, err
	}
	ttl := claim.TTL
	claim.TTL = s.faults.leases.length(ttl)
	task, err := s.Store.ClaimTask(ctx, claim)
	if err == nil && task != nil { // without a task that is due it writes nothing
		s.faults.writes.Add(1)
		s.faults.leases.addTask(ttl, s.tenant, task)
	}
	return task, err
}

// RenewTask implements [session.Tasks].
func (s *frailSessions) RenewTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, ttl time.Duration) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	err := s.Store.RenewTask(s.faults.leases.toEnd(ctx), ref, fence, s.faults.leases.length(ttl))
	s.faults.leases.endIfDead()
	return err
}

// FinishTask implements [session.Tasks].
func (s *frailSessions) FinishTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, result session.TaskResult) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.FinishTask(ctx, ref, fence, result)
}

// RetryTask implements [session.Tasks].
func (s *frailSessions) RetryTask(ctx context.Context, ref session.TaskRef) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.RetryTask(ctx, ref)
}

// DropTask implements [session.Tasks].
func (s *frailSessions) DropTask(ctx context.Context, ref session.TaskRef, before time.Time) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Store.DropTask(ctx, ref, before)
}

// AllMessages implements [session.Transcripts].
func (s *frailSessions) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	return s.noteRead(id, func() ([]session.Message, error) { return s.Store.AllMessages(ctx, id) })
}

// MessagesFrom implements [session.Transcripts].
func (s *frailSessions) MessagesFrom(ctx context.Context, id string, number int) ([]session.Message, error) {
	return s.noteRead(id, func() ([]session.Message, error) { return s.Store.MessagesFrom(ctx, id, number) })
}

// Messages implements [session.Transcripts].
func (s *frailSessions) Messages(ctx context.Context, id string, page session.PageRequest) (out session.Page[session.Message], err error) {
	out, err = s.Store.Messages(ctx, id, page)
	s.faults.rows.Add(int64(len(out.Items)))
	return out, err
}

func (s *frailSessions) noteRead(id string, read func() ([]session.Message, error)) ([]session.Message, error) {
	if s.faults.reading != nil {
		s.faults.reading(id)
	}
	messages, err := read()
	s.faults.rows.Add(int64(len(messages)))
	return messages, err
}

// DueDeadlines implements [session.Sweeps].
func (s *frailSessions) DueDeadlines(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	if s.faults.noSweep.Load() {
		return nil, nil
	}
	return s.Store.DueDeadlines(ctx, request)
}

// ExpiredSessions implements [session.Sweeps].
func (s *frailSessions) ExpiredSessions(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	if s.faults.noSweep.Load() {
		return nil, nil
	}
	return s.Store.ExpiredSessions(ctx, request)
}

// PendingCloses implements [session.Sweeps].
func (s *frailSessions) PendingCloses(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	if s.faults.noSweep.Load() {
		return nil, nil
	}
	return s.Store.PendingCloses(ctx, request)
}

// Wakes implements [session.Sweeps].
func (s *frailSessions) Wakes(ctx context.Context, request session.WakeRequest) ([]session.Wake, error) {
	if s.faults.noSweep.Load() {
		return nil, nil
	}
	return s.Store.Wakes(ctx, request)
}

// ExpiredLeases implements [session.Sweeps].
func (s *frailSessions) ExpiredLeases(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	if s.faults.noSweep.Load() || s.faults.leases.keep && request.Ahead >= keptLease { // those that end too late are kept on purpose
		return nil, nil
	}
	return s.Store.ExpiredLeases(ctx, request)
}

// frailStreams fails whatever is written to a stream.
type frailStreams struct {
	stream.Manager
	faults *faults
}

// Tenant implements [stream.Manager].
func (s *frailStreams) Tenant(tenant string) stream.Manager {
	return &frailStreams{s.Manager.Tenant(tenant), s.faults}
}

// Append implements [stream.Manager].
func (s *frailStreams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	if err := s.faults.write(); err != nil {
		return nil, err
	}
	if s.faults.appending != nil {
		s.faults.appending()
	}
	if !s.faults.noAppend.Load() {
		return s.Manager.Append(ctx, id, batch)
	}
	if s.faults.refused.Add(1)%2 == 0 {
		if appended, err := s.Manager.Append(ctx, id, batch); err == nil {
			_, _ = appended.Wait(ctx)
		}
	}
	return nil, session.ErrUnavailable
}

// End implements [stream.Manager].
func (s *frailStreams) End(ctx context.Context, id string, by stream.Producer, end stream.End) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Manager.End(ctx, id, by, end)
}

// Fail implements [stream.Manager].
func (s *frailStreams) Fail(ctx context.Context, id string, by stream.Producer, failure *session.Error) error {
	if err := s.faults.write(); err != nil {
		return err
	}
	return s.Manager.Fail(ctx, id, by, failure)
}

// Reactivate implements [stream.Manager].
func (s *frailStreams) Reactivate(ctx context.Context, id string, by stream.Producer) (*stream.Info, error) {
	if err := s.faults.write(); err != nil {
		return nil, err
	}
	return s.Manager.Reactivate(ctx, id, by)
}
