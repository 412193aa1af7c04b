package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/retry"
	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

// turn is a run in progress as this process knows it. What it holds mirrors the
// store; every change is committed first and mirrored after.
type turn struct {
	h        *Handler
	agent    *helix.Agent
	hooks    *hookRunner
	tools    *toolResolver
	prompts  *promptBuilder
	key      session.Key
	run      session.Run
	fence    session.Fence
	sessions session.Store
	streams  stream.Manager
	streamID string
	out      *streamwriter.Writer
	gone     chan struct{} // closed when this process has done with the turn
	leave    func()        // closes gone
	pool     *usercode.Pool
	remote   helix.Remote // that the session stands in for, or nil

	mu         sync.Mutex
	state      session.State // without custom state
	doc        session.Document
	transcript *session.Transcript
	step       int // steps committed
	flight     *flight
	usage      session.Usage // not committed yet
	ended      *session.Outcome
	final      *finalCommit // prepared, perhaps not applied
	started    bool         // hooks know
	resumes    bool         // the run began in the step that the one before suspended in
	stop       *session.Stop
	cancels    map[int]context.CancelCauseFunc
	cancelID   int
	reported   map[string]int  // custom usage of the step, by effect and name
	inbox      bool            // messages wait to be taken in
	children   []*turn         // those of other agents that a call of this turn waits for
	abort      *session.Stop   // accepted at the last moment of a run that suspended
	roots      []string        // see owners
	patches    []session.Patch // what the run's start did to custom state
	owes       bool            // a remote agent is to be told to stop
	above      *turn           // the turn whose call waits for this one, if it is driven here
	back       *bool           // whether the session has ever gone back; see everBack
	trimmed    int64           // how far the stream was trimmed, as far as this turn knows
	progressed chan struct{}   // of a turn that was taken over: closed by the first commit since, here or below; nil once it is
}

// flight is the step in flight: a reply and its calls.
type flight struct {
	step      int
	reply     session.Message
	calls     []*call
	committed bool // the reply is in the store
	// replyCommit and resultsCommit are kept once prepared, so that a commit whose
	// fate is unknown is sent again as it was; next is what follows it.
	replyCommit   *session.Change
	resultsCommit *session.Change
	next          machine.Next
	announced     bool // watchers know which calls wait
	// round is the last in which answers were taken in, gathered what that led to.
	round    int
	gathered machine.Result
}

// waits reports whether the step has calls that may have to wait for somebody.
func (f *flight) waits() bool {
	return slices.ContainsFunc(f.calls, func(c *call) bool { return machine.Waits(c.Kind) })
}

// call is one call of the step in flight.
type call struct {
	session.Call
	part    session.Part
	claimed bool // begun by this very turn, not found begun
	running chan struct{}
	ending  bool     // it has its result and is about to settle it
	found   bool     // settled before this turn was taken up, and not announced since
	result  *settled // what it came to, if that could not be settled yet: it is not run again
	settled *settled

	pending *session.Pending // what the store knows of a wait for a person
	expired bool             // its result is that nobody answered in time
	left    bool             // its result is that nobody answered before the step was left
	waited  bool             // how long it waited has been reported
	child   *waitingChild    // what the call waits for, if that is another agent
	writes  session.Writes   // by hooks, before another agent was called

	companion *companionCall // what the call asks of a companion, once that is known
}

// refused reports whether the call was refused as the reply arrived.
func (c *call) refused() bool { return c.Rejected != nil }

// settled is a call's result.
type settled struct {
	message session.Message
	writes  session.Writes
	err     *session.Error
	took    time.Duration
	stored  bool // the row in the store has it
}

var errStopped = errors.New("the run was stopped")

// newTurn makes a turn. bytes counts what its stream holds.
func (h *Handler) newTurn(
	agent *helix.Agent, perRun *helix.Hooks, state *session.State, run session.Run, fence session.Fence, bytes *atomic.Int64,
) *turn {
	t := &turn{
		h: h, agent: agent, run: run, fence: fence, gone: make(chan struct{}),
		key:      session.Key{Tenant: state.Tenant, ID: state.ID},
		sessions: h.cfg.Backend.Sessions().Tenant(state.Tenant),
		streams:  h.cfg.Backend.Streams().Tenant(state.Tenant),
		streamID: state.StreamID,
		cancels:  map[int]context.CancelCauseFunc{},
		reported: map[string]int{},
	}
	t.leave = sync.OnceFunc(func() { close(t.gone) })
	t.pool = usercode.NewPool(t.gone)
	if agent.Model == nil { // any other was checked to have one
		t.remote = h.remote(agent.Name)
	}
	env := t.userEnv()
	t.hooks = newHookRunner(env, h.cfg.Hooks, &agent.Hooks, perRun)
	t.tools = &toolResolver{userEnv: env, agent: agent, sessionID: state.ID}
	t.prompts = &promptBuilder{userEnv: env, agent: agent, tools: t.tools, sessionID: state.ID, runID: run.ID}
	t.state = *state
	t.doc = state.Custom
	t.state.Custom = session.Document{}
	t.out = streamwriter.New(streamwriter.Config{
		Streams:    t.streams,
		ID:         t.streamID,
		Producer:   stream.Producer{Session: state.ID, Epoch: fence.Epoch, RunID: run.ID},
		Base:       stream.Chunk{AgentID: state.ID, AgentType: state.Agent, RunID: run.ID},
		Bytes:      bytes,
		Last:       run.StartSequence,
		FlushEvery: h.cfg.FlushEvery,
		Now:        h.cfg.Now,
		Log:        h.log,
	})
	return t
}

// size is about how large the session is, with its stream.
func (t *turn) size() int64 { return t.transcript.Bytes() + t.out.Config().Bytes.Load() }

// current is the number of the step that is due or in flight. That of a step which
// an earlier run suspended in is 0: it costs this run no model call.
func (t *turn) current() int { return t.step + 1 }

// resumed reports whether the step in flight is one that an earlier run suspended in.
func (t *turn) resumed() bool { return t.step < 0 }

// detached reports whether the turn is that of a companion that works by itself.
func (t *turn) detached() bool { return detached(&t.state) }

func detached(state *session.State) bool { return state.ParentID != "" && state.RootID == "" }

// position is where the machine takes the turn up.
func (t *turn) position() machine.Position {
	pos := machine.Position{Step: t.current(), Ended: t.ended != nil, Finish: t.mustFinish(), Resumed: t.resumed()}
	if t.flight != nil {
		pos.Calls = t.flight.plan()
	}
	return pos
}

// mustFinish reports whether the step that is due can only finish: the limit is
// reached, or the model answered in words where an output is owed.
func (t *turn) mustFinish() bool {
	if t.agent.Output == nil || t.step <= 0 {
		return false
	}
	if limit := t.agent.StepLimit(); limit != helix.Unlimited && t.step >= limit {
		return true
	}
	messages := t.transcript.Messages()
	last := &messages[len(messages)-1]
	return last.Role == session.RoleAssistant && last.RunID == t.run.ID && len(last.Calls()) == 0
}

func (f *flight) plan() []machine.PlannedCall {
	plan := make([]machine.PlannedCall, len(f.calls))
	for i, c := range f.calls {
		plan[i] = machine.PlannedCall{ID: c.ID, Kind: c.Kind, Last: c.FinishWith}
	}
	return plan
}

func (f *flight) call(id string) *call {
	for _, c := range f.calls {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// attrs are the log attributes of the turn.
func (t *turn) attrs(more ...any) []any {
	return append([]any{
		slog.String("tenant", t.key.Tenant), slog.String("session", t.key.ID),
		slog.String("run", t.run.ID), slog.Int("step", t.current()),
	}, more...)
}

// halt makes the turn stop: what is in flight is cancelled, and the next commit
// records the stop.
func (t *turn) halt(stop *session.Stop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop == nil || (t.stop.Kind == session.StopInterrupt && stop.Kind == session.StopAbort) {
		t.stop = stop
	}
	for _, cancel := range t.cancels {
		cancel(errStopped)
	}
	for _, child := range t.children {
		child.halt(t.stop)
	}
}

// adopt makes a turn stop with this one.
func (t *turn) adopt(child *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.children = append(t.children, child)
	child.mu.Lock()
	child.above = t
	child.mu.Unlock()
	if t.stop != nil {
		child.halt(t.stop)
	}
}

// noteProgress tells whoever took the turn over, or one that waits for it, that it
// got somewhere.
func (t *turn) noteProgress() {
	for at := t; at != nil; {
		at.mu.Lock()
		if at.progressed != nil {
			close(at.progressed)
			at.progressed = nil
		}
		above := at.above
		at.mu.Unlock()
		at = above
	}
}

// disown ends that.
func (t *turn) disown(child *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.children = slices.DeleteFunc(t.children, func(other *turn) bool { return other == child })
}

// over reports whether the turn's last commit was made.
func (t *turn) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended != nil
}

// stopRequest is the request to stop the turn, or nil.
func (t *turn) stopRequest() *session.Stop {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stop
}

// stoppable is ctx, cancelled when the turn is stopped.
func (t *turn) stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cancelID++
	id := t.cancelID
	t.cancels[id] = cancel
	if t.stop != nil {
		cancel(errStopped)
	}
	return ctx, func() {
		t.mu.Lock()
		delete(t.cancels, id)
		t.mu.Unlock()
		cancel(nil)
	}
}

// commit flushes the stream and applies a change, in that order, and mirrors it.
// A commit whose fate is unknown is sent again: its key tells whether it was
// applied.
func (t *turn) commit(ctx context.Context, key string, change session.Change) (*session.Committed, error) {
	if change.Outcome != nil && !change.Outcome.Status.Suspended() && t.detached() && !t.terminated(ctx) {
		change.Wake = &session.Wake{Tenant: t.key.Tenant, SessionID: t.state.ParentID, ChildID: t.key.ID, RunID: t.run.ID}
	}
	if change.Outcome != nil {
		change.ExpiresAt = t.expiry()
	}
	commit := &session.Commit{
		SessionID: t.key.ID, RunID: t.run.ID,
		// Whoever took the turn over makes commits for the same effects, with other content:
		// they are not this one made before.
		Key: key + "@" + strconv.FormatInt(t.fence.Epoch, 10), Version: t.state.Version, Fence: t.fence, Change: change,
	}
	done, err := t.write(ctx, commit)
	if err != nil {
		return nil, err
	}
	t.mirror(&change, done)
	t.noteProgress()
	if !change.Writes.Empty() && t.agent.State == nil {
		if _, told := t.h.undeclared.LoadOrStore(t.agent.Name, true); !told {
			t.h.log.WarnContext(ctx, "state of an agent that declares none: set Agent.State", t.attrs("agent", t.agent.Name)...)
		}
	}
	t.capStream(ctx, change.Checkpoint)
	if change.Outcome != nil {
		t.h.logEnd(ctx, &t.state, t.run.ID, change.Outcome)
	}
	for _, warning := range slices.Concat(change.Writes.Warnings, done.Warnings) {
		t.h.log.WarnContext(ctx, "state write", t.attrs("warning", warning)...)
	}
	for _, r := range change.Resolve {
		if r.State == session.PendingAbandoned {
			t.tellAborted(ctx, r.CallID)
		}
	}
	switch {
	case done.Stop == nil:
	case change.Outcome == nil:
		t.halt(done.Stop)
	case change.Outcome.Status.Suspended() && done.Stop.Kind == session.StopAbort:
		t.abort = done.Stop
	}
	return done, nil
}

// expiry is when the session expires if nobody comes back to it after the run, or nil
// if the run leaves that as it is: the agent's sessions do not expire, or the caller
// has said when this one does.
func (t *turn) expiry() *time.Time {
	if t.agent.SessionExpiry <= 0 || t.state.ParentID != "" || !t.state.ExpiresAt.IsZero() {
		return nil
	}
	return new(t.h.cfg.Now().UTC().Add(t.agent.SessionExpiry))
}

// write makes a commit together with the chunks that go before it.
func (t *turn) write(ctx context.Context, commit *session.Commit) (done *session.Committed, err error) {
	alone := func() (*session.Committed, error) { return t.sessions.Commit(ctx, commit) }
	carried, err := t.out.Carry(ctx, func(batch stream.Batch) (last int64, err error) {
		if len(batch.Chunks) == 0 {
			done, err = retry.Do(ctx, alone)
			return 0, err
		}
		return retry.Do(ctx, func() (int64, error) {
			var err error
			done, last, err = t.h.cfg.Backend.Commit(ctx, &store.Commit{
				Tenant: t.key.Tenant, Commit: commit, Stream: t.streamID, Batch: batch,
			})
			return last, err
		})
	})
	if carried && streamwriter.Refused(err) {
		// The stream may have refused the chunks. The session matters more than its being
		// shown: without them, it is the commit's own error, if it is one.
		if err := t.out.Wait(ctx); err != nil {
			return nil, err
		}
		return retry.Do(ctx, alone)
	}
	return done, err
}

// mirror brings what the turn holds up to what was committed.
func (t *turn) mirror(change *session.Change, done *session.Committed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Version, t.state.MessageCount = done.Version, done.MessageCount
	t.inbox = done.Inbox
	if done.CheckpointID != "" {
		t.state.CheckpointID = done.CheckpointID
	}
	for i := range change.Messages {
		t.extend(change.Messages[i])
	}
	if change.Promote != nil {
		for _, promoted := range change.Promote.Results {
			if promoted.Message != nil {
				t.extend(*promoted.Message)
			} else if c := t.flight.call(promoted.CallID); c != nil {
				t.extend(c.settled.message)
			}
		}
	}
	// The store has applied the same operations, so this cannot fail.
	if err := t.doc.Apply(change.Writes); err != nil {
		t.h.log.Error("state mirror", t.attrs("error", err)...)
	}
	if change.StepCount != nil {
		t.step = *change.StepCount
		clear(t.reported)
	}
	if change.Run != nil {
		t.run.Usage = t.run.Usage.Add(change.Run.Usage)
	}
	if change.Status != "" {
		t.state.Status = change.Status
	}
	if change.ExpiresAt != nil {
		t.state.ExpiresAt = *change.ExpiresAt
	}
	if change.Outcome != nil {
		t.ended = change.Outcome
		t.state.Finish(change.Outcome)
	}
	t.usage, t.hooks.written = session.Usage{}, session.Writes{}
}

// extend adds a committed message to the transcript.
func (t *turn) extend(m session.Message) {
	if err := t.transcript.Append(m); err != nil {
		t.h.log.Error("transcript mirror", t.attrs("error", err)...)
	}
}

// capStream drops the oldest chunks of the session's own stream that are more than it
// may keep, once a checkpoint is committed: history holds what was shown up to it. Not
// every step does, so that a trim is worth its write.
func (t *turn) capStream(ctx context.Context, committed *session.NewCheckpoint) {
	most := t.h.cfg.MaxChunks
	if most <= 0 || committed == nil || t.streamID != t.key.ID {
		return
	}
	through := committed.StreamSequence - most
	if through <= t.trimmed+most/10 {
		return
	}
	floor, err := t.streams.Trim(ctx, t.streamID, stream.TrimPolicy{Through: through})
	if err != nil {
		t.h.log.WarnContext(ctx, "stream.trim_failed", t.attrs("error", err)...)
		return
	}
	t.trimmed = floor
}

// checkpoint is the checkpoint that a commit of a step writes.
func (t *turn) checkpoint(step int, key string) *session.NewCheckpoint {
	return &session.NewCheckpoint{
		ID:     session.CheckpointID(t.key.ID, step, t.h.cfg.Now(), key),
		Step:   step,
		Source: session.FromStep, StreamSequence: t.out.Sequence(),
	}
}

// runChange takes the usage that was not committed yet.
func (t *turn) runChange(reason session.CompletionReason) *session.RunChange {
	return &session.RunChange{CompletionReason: reason, Usage: t.usage}
}

// emit writes a chunk of the step that is due or in flight.
func (t *turn) emit(c stream.Chunk) {
	c.Step = t.current()
	t.out.Emit(c)
}

// record reports usage of a step.
func (t *turn) record(ctx context.Context, step int, e usage.Entry) {
	e.Tenant, e.SessionID, e.RunID, e.Agent = t.key.Tenant, t.key.ID, t.run.ID, t.agent.Name
	e.UserID, e.Step, e.At = t.state.UserID, step, t.h.cfg.Now().UTC()
	e.ParentID, e.RootID = t.state.ParentID, t.state.RootID
	err := usercode.Guard(func() error {
		t.h.cfg.Usage.Record(ctx, e)
		return nil
	})
	if err != nil {
		t.h.log.ErrorContext(ctx, "usage sink failed", t.attrs("error", err)...)
	}
}
