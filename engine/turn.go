package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

// turn is a run in progress as this process knows it. It mirrors the store: every
// change is committed first and mirrored after.
//
// The effects of a turn come in waves. CallModel, Gather, CommitStep and CloseTurn
// run alone; the CallTool and CallChild effects of one wave run at the same time, and
// user code may outlive its call. Each field says which of them may use it:
//
//   - "never changes": set before the handler holds the turn; everybody reads it.
//   - "alone": changed only by effects that run alone, or before the first effect.
//     Calls of a wave read it.
//   - "mu": guarded by the mutex.
type turn struct {
	// These never change.
	h        *Handler
	agent    *helix.Agent
	key      session.Key
	fence    session.Fence
	sessions session.Store // of the tenant
	streams  stream.Manager
	streamID string
	detached bool              // the session is that of a companion that works by itself
	remote   helix.Remote      // the remote agent that the session stands in for, or nil
	resumes  bool              // the run began in the step in which the run before suspended
	patches  []session.Patch   // what the run's start did to custom state
	input    []session.Message // what the run began with, if a marker hides it and there are extensions; see readInput

	// These are set before the first effect, by hold, and never change then.
	values   context.Context //nolint:containedctx // of the caller and of observers; it never ends
	observed *observation    // the run, which guards itself

	// These guard themselves.
	out      *streamwriter.Writer
	pool     *usercode.Pool
	stops    *stopSignal
	progress *progressSignal
	usage    *usageRecorder
	done     chan struct{} // closed when this process has finished with the turn
	finish   func()        // closes done, once
	// blobs is how many bytes the blobs of the tree have, as far as the turn knows; see
	// unknownBlobs.
	blobs atomic.Int64
	// stopUndelivered is set when the stop of a remote agent is not delivered yet.
	stopUndelivered atomic.Bool

	// Alone; prompts have no state of their own, and that of tools guards itself.
	hooks   *hookRunner
	tools   *toolResolver
	prompts *promptBuilder

	run        session.Run         // alone: its usage grows with commits
	state      session.State       // alone; without custom state
	doc        session.CustomState // alone: the committed custom state
	transcript *session.Transcript // alone
	step       int                 // alone: the number of steps committed
	used       session.Usage       // alone: not committed yet
	final      *finalCommit        // alone: prepared, perhaps not applied
	marking    *session.Commit     // alone: of a marker, perhaps not applied
	started    bool                // alone: hooks know that the run began
	inbox      bool                // alone: messages may wait in the inbox
	asked      int                 // alone: the last step for which extensions were asked for messages
	prepared   []session.Message   // alone: what they added, until it is committed
	abort      *session.Stop       // alone: an abort that was requested while the run suspended
	context    contextSize         // alone: how large the conversation is, if the agent has a policy for that
	trimmed    int64               // alone: up to where the stream was trimmed, as far as this turn knows

	mu sync.Mutex
	// flight is the step in flight, or nil; see setFlight. Written under mu by effects that
	// run alone, which read it without; others read it under mu. So are the fields of its
	// calls that say so.
	flight *flight
	// ended is the outcome, once the last commit was made. Written under mu by effects that
	// run alone, which read it without; others read it under mu.
	ended *session.Outcome
	// called are the calls of agents that observers know of. Guarded by mu.
	called map[*observation]bool
	// roots are the sessions above at which answers arrive; see owners. Guarded by mu.
	roots []string
	// rewound says whether the session was ever rewound; nil if that is not known yet.
	// Guarded by mu.
	rewound *bool
	// earlier is what [turn.callsBefore] has read; nil if it has not. Guarded by mu, and
	// never changed.
	earlier map[string]bool
}

// newTurn makes a turn. bytes counts what its stream holds.
func (h *Handler) newTurn(
	agent *helix.Agent, perRun *helix.Hooks, state *session.State, run session.Run, fence session.Fence, bytes *atomic.Int64,
) *turn {
	t := &turn{
		h: h, agent: agent, run: run, fence: fence, done: make(chan struct{}),
		key:      session.Key{Tenant: state.Tenant, ID: state.ID},
		sessions: h.cfg.Backend.Sessions().Tenant(state.Tenant),
		streams:  h.cfg.Backend.Streams().Tenant(state.Tenant),
		streamID: state.StreamID,
		detached: detached(state),
		stops:    &stopSignal{},
		progress: &progressSignal{},
	}
	t.blobs.Store(unknownBlobs)
	t.usage = &usageRecorder{
		sink: h.cfg.Usage, log: h.log, reported: map[string]int{},
		base: usage.Entry{
			Tenant: state.Tenant, SessionID: state.ID, RunID: run.ID, Agent: agent.Name,
			UserID: state.UserID, ParentID: state.ParentID, RootID: state.RootID,
		},
	}
	t.finish = sync.OnceFunc(func() {
		close(t.done)
		t.abandonObservations()
	})
	t.pool = usercode.NewPool(t.done)
	if agent.Model == nil { // every other agent was checked to have a model
		t.remote = h.remote(agent.Name)
	}
	env := t.userEnv()
	t.hooks = newHookRunner(env, h.cfg.Hooks, &agent.Hooks, perRun)
	t.tools = &toolResolver{userEnv: env, agent: agent, sessionID: state.ID, extensions: t.newExtensions(env)}
	if evicts(agent) {
		t.tools.reader = h.readResult
	}
	t.prompts = &promptBuilder{userEnv: env, agent: agent, tools: t.tools, sessionID: state.ID, runID: run.ID}
	t.context = newContextSize(agent)
	t.state = *state
	t.doc = state.Custom
	t.state.Custom = session.CustomState{}
	t.out = streamwriter.New(streamwriter.Config{
		Streams:    t.streams,
		ID:         t.streamID,
		Producer:   stream.Producer{Session: state.ID, Epoch: fence.Epoch, RunID: run.ID},
		Base:       stream.Chunk{AgentID: state.ID, AgentType: state.Agent, RunID: run.ID},
		Bytes:      bytes,
		Last:       run.StartSequence,
		FlushEvery: h.cfg.FlushEvery,
		Log:        h.log,
	})
	return t
}

// size is about how many bytes the session has, with its stream and without its blobs.
func (t *turn) size() int64 { return t.transcript.Bytes() + t.out.Config().Bytes.Load() }

// current is the number of the step that comes next or is in flight. It is 0 for a
// step in which an earlier run suspended: that step costs this run no model call.
func (t *turn) current() int { return t.step + 1 }

// resumed reports whether the step in flight is one in which an earlier run
// suspended.
func (t *turn) resumed() bool { return t.step < 0 }

// detached reports whether a session is that of a companion that works by itself.
func detached(state *session.State) bool { return state.ParentID != "" && state.RootID == "" }

// position is where the machine begins.
func (t *turn) position() machine.Position {
	pos := machine.Position{Epoch: t.fence.Epoch, Step: t.current(), Ended: t.ended != nil, Finish: t.mustFinish(), Resumed: t.resumed()}
	if t.flight != nil {
		pos.Calls = t.flight.plan()
	}
	return pos
}

// mustFinish reports whether the next step can only finish: the step limit is
// reached, or the model replied with text although the agent has an output type.
func (t *turn) mustFinish() bool {
	if t.agent.Output == nil || t.step <= 0 {
		return false
	}
	if limit := stepLimit(t.agent); limit != helix.Unlimited && t.step >= limit {
		return true
	}
	last := t.lastMessage()
	return last.Role == session.RoleAssistant && last.RunID == t.run.ID && len(last.Calls()) == 0
}

// lastMessage is the last message of the transcript that is no marker, or an empty
// one.
func (t *turn) lastMessage() *session.Message {
	messages := t.transcript.Messages()
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Compaction() == nil {
			return &messages[i]
		}
	}
	return &session.Message{}
}

// attrs are the log attributes of the turn.
func (t *turn) attrs(more ...any) []any {
	return append([]any{
		slog.String("tenant", t.key.Tenant), slog.String("session", t.key.ID),
		slog.String("run", t.run.ID), slog.String("agent", t.agent.Name), slog.Int("step", t.current()),
	}, more...)
}

// setFlight sets the step in flight.
func (t *turn) setFlight(f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flight = f
}

// hasEnded reports whether the turn's last commit was made.
func (t *turn) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended != nil
}

// emit writes a chunk of the current step.
func (t *turn) emit(c stream.Chunk) {
	c.Step = t.current()
	t.out.Emit(c)
}
