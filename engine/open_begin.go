package engine

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// start starts the run, together with its stream where nothing has to be done in
// between; shown is then the stream.
func (o *opening) start(ctx context.Context) (started *session.Started, shown *stream.Info, err error) {
	if o.opensAtOnce() {
		backend := o.h.cfg.Backend
		base := stream.Chunk{
			AgentID: o.state.ID, AgentType: o.state.Agent, RunID: o.req.RunID, At: time.Now().UTC(), Turn: o.state.Turn + 1,
		}
		first, messages, _ := initialMessages(o.p.transcript, o.req.RunID)
		chunks := openingChunks(base, &o.p.start.Run, first, messages, nil, o.p.patches, backend.Streams().Limits().MaxChunk)
		started, shown, err = backend.StartRun(ctx, &store.StartRun{
			Tenant: o.req.Tenant, StartRun: &o.p.start, Batch: openingBatch(o.state.ID, o.req.RunID, chunks),
		})
		if !streamwriter.Refused(err) {
			return started, shown, err
		}
		// The stream may have refused the chunks. The run must not fail for that, and if
		// it was refused itself, it is refused again.
	}
	started, err = o.sessions.StartRun(ctx, &o.p.start)
	return started, nil, err
}

// opensAtOnce reports whether the run's first chunks are known before it is started,
// and nothing has to come before them.
func (o *opening) opensAtOnce() bool {
	if o.p.resumes || o.req.Stop != nil || o.p.start.Run.CheckpointID != "" || o.state.StreamID != o.state.ID {
		return false
	}
	if o.req.Agent.Model == nil && o.h.remote(o.req.Agent.Name) != nil {
		return false
	}
	messages := o.p.start.Messages
	return len(messages) == 0 || messages[0].Role != session.RoleTool // else it shows results, which are read first
}

// begin makes the turn of a run that was started; shown is its stream, if it is open.
func (o *opening) begin(ctx context.Context, started *session.Started, shown *stream.Info) (*Opened, error) {
	o.state.Version, o.state.MessageCount, o.state.Lease = started.Version, started.MessageCount, started.Lease
	o.state.Turn, o.state.CurrentRunID, o.state.Status = started.Turn, o.req.RunID, session.Active
	o.state.CheckpointID, o.state.Custom = started.CheckpointID, o.p.doc
	if o.p.start.ExpiresAt != nil {
		o.state.ExpiresAt = *o.p.start.ExpiresAt
	}
	bytes := new(atomic.Int64)
	if c := o.req.caller; c != nil && !c.detached {
		bytes = c.streamed
	} else {
		bytes.Store(o.p.streamed)
	}
	t := o.h.newTurn(o.req.Agent, o.req.Hooks, o.state, started.Run, started.Lease.Fence(), bytes)
	t.transcript, t.inbox, t.resumes, t.patches = o.p.transcript, started.Inbox, o.p.resumes, o.p.patches
	if started.Stop != nil {
		t.stops.request(started.Stop)
	}
	o.h.hold(ctx, t)
	t.reportEndedWaits(ctx, o.p.endedWaits)
	if shown != nil {
		t.trimmed = shown.Floor
		t.out.Restore(shown.Last, shown.Bytes)
		return t.opened(), nil
	}
	if err := t.ready(ctx, o.req, o.p); err != nil {
		o.h.release(ctx, t)
		o.h.drop(t)
		return nil, err
	}
	return t.opened(), nil
}

// ready prepares a turn that was started to be driven.
func (t *turn) ready(ctx context.Context, req *OpenRequest, p *plan) error {
	if err := t.endUndone(ctx); err != nil {
		return err
	}
	if p.resumes {
		if err := t.stepLoader().load(ctx, p.history.Messages); err != nil {
			return err
		}
		for _, c := range t.flight.calls {
			c.unseen = false // watchers saw the results in the previous run
		}
		t.flight.announced = true
	}
	if req.Stop != nil {
		stop := *req.Stop
		stop.RunID = t.run.ID
		if err := t.h.StopRun(ctx, t.key, stop); err != nil {
			return err
		}
	}
	return t.openStream(ctx)
}

// openStream opens the stream for the run and shows watchers that the run begins, and
// with what. The chunks have a producer of their own, so that a process that recovers
// the run writes them only if they are missing.
func (t *turn) openStream(ctx context.Context) error {
	if t.remote != nil { // the stream shows only the remote's chunks
		return nil
	}
	if t.streamID == t.key.ID { // else the caller has opened it
		info, err := t.streams.Reactivate(ctx, t.streamID, t.out.Config().Producer)
		if err != nil {
			return err
		}
		t.trimmed = info.Floor
	}
	first, messages, held := t.initialMessages()
	if !held {
		return nil // the run has committed since, after the stream showed its beginning
	}
	base := t.out.Config().Base
	base.At, base.Turn = t.run.StartedAt, t.run.Turn
	answered, err := t.answeredCalls(ctx)
	if err != nil {
		return err
	}
	chunks := openingChunks(base, &t.run, first, messages, answered, t.patches, t.streams.Limits().MaxChunk)
	return t.out.Order(ctx, openingBatch(t.key.ID, t.run.ID, chunks))
}

// openingBatch is the batch of a run's first chunks.
func openingBatch(id, runID string, chunks []stream.Chunk) stream.Batch {
	return stream.Batch{
		Producer: stream.Producer{Session: id + "/open/" + runID, Epoch: 1, RunID: runID},
		First:    1, Chunks: chunks,
	}
}

// openingChunks are the chunks that show that a run begins: with messages, of which
// first came before, with results of calls that were left open, and with patches of
// custom state.
func openingChunks(
	base stream.Chunk, run *session.Run, first int, messages []session.Message, answered []*call, patches []session.Patch, limit int,
) []stream.Chunk {
	var chunks []stream.Chunk
	if run.CheckpointID != "" {
		c := base
		c.Kind, c.MessageCount = stream.Rewound, &first
		chunks = append(chunks, c)
	}
	started := base
	if started.Kind = stream.RunStarted; run.Kind != session.RunExecute {
		started.Kind = stream.RunResumed
	}
	chunks = append(chunks, started)
	for _, c := range answered {
		if c.Status == session.CallSettled { // watchers saw the result in the previous run
			continue
		}
		end := base
		end.MessageID = c.MessageID
		c.ends(&end)
		streamwriter.Fit(&end, limit)
		chunks = append(chunks, end)
	}
	if len(messages) > 0 {
		c := base
		c.Kind, c.Messages = stream.InputReceived, messages
		streamwriter.Fit(&c, limit)
		chunks = append(chunks, c)
	}
	if len(patches) > 0 {
		c := base
		c.Kind, c.Patches = stream.StatePatch, patches
		streamwriter.Fit(&c, limit)
		chunks = append(chunks, c)
	}
	return chunks
}

// initialMessages returns the messages with which the run began, and how many came
// before them. held is false if the transcript does not hold them, because a marker
// of this run has taken their place.
func (t *turn) initialMessages() (first int, messages []session.Message, held bool) {
	if t.resumes { // it began with none; the messages at the end are results
		return t.transcript.Len(), nil, true
	}
	return initialMessages(t.transcript, t.run.ID)
}

func initialMessages(t *session.Transcript, runID string) (int, []session.Message, bool) {
	messages := t.Messages()
	first := len(messages)
	for first > 0 && messages[first-1].RunID == runID {
		first--
	}
	if first == 0 && t.Before() > 0 {
		return 0, nil, false
	}
	last := first
	for last < len(messages) && !endsInput(&messages[last], runID) {
		last++
	}
	return t.Before() + first, messages[first:last], true
}

// endsInput reports whether a message of a run is the first one with which the run did not
// begin.
func endsInput(m *session.Message, runID string) bool {
	return m.Role == session.RoleAssistant || m.Compaction() != nil || strings.HasPrefix(m.ID, runID+preparedInfix)
}

// Opened returns a turn that this process drives, at its current position, or nil. No effect of
// the turn may be in progress.
func (h *Handler) Opened(runID string) *Opened {
	t, ok := h.held(runID)
	if !ok {
		return nil
	}
	return t.opened()
}

func (t *turn) opened() *Opened {
	return &Opened{Key: t.key, StreamID: t.streamID, Run: t.run, Position: t.position()}
}

// release releases the lease in the middle of a run, so that another process can
// recover the run at once. It does not count as a crash.
func (h *Handler) release(ctx context.Context, t *turn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := t.sessions.CloseRun(ctx, t.key.ID, t.fence, false); err != nil && !lostTurn(err) {
		h.log.WarnContext(ctx, "lease.not_released", t.attrs("error", err)...)
	}
	t.out.Discard()
}

// Release hands a turn over: it releases the lease in the middle of the run, so that
// another process, or this one after a restart, continues it at once. It does nothing if
// the turn was taken over since it was opened, even by this process.
func (h *Handler) Release(ctx context.Context, opened *Opened) {
	t, ok := h.held(opened.Run.ID)
	if ok && t.fence.Epoch == opened.Position.Epoch {
		t.persistResults(ctx)
		h.release(ctx, t)
		h.drop(t)
	}
}
