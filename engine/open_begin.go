package engine

import (
	"context"
	"sync/atomic"

	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// begin makes the turn of a run that was started.
func (o *opening) begin(ctx context.Context, started *session.Started) (*Opened, error) {
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
	o.h.hold(t)
	t.reportEndedWaits(ctx, o.p.endedWaits)
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
		if err := t.stepLoader().load(ctx, p.history); err != nil {
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
	base := t.out.Config().Base
	base.At, base.Turn = t.run.StartedAt, t.run.Turn
	var chunks []stream.Chunk
	first, messages := t.initialMessages()
	if t.run.CheckpointID != "" {
		c := base
		c.Kind, c.MessageCount = stream.Rewound, &first
		chunks = append(chunks, c)
	}
	started := base
	if started.Kind = stream.RunStarted; t.run.Kind != session.RunExecute {
		started.Kind = stream.RunResumed
	}
	chunks = append(chunks, started)
	answered, err := t.answeredCalls(ctx)
	if err != nil {
		return err
	}
	for _, c := range answered {
		if c.Status == session.CallSettled { // watchers saw the result in the previous run
			continue
		}
		end := base
		end.MessageID = c.MessageID
		c.ends(&end)
		streamwriter.Fit(&end, t.streams.Limits().MaxChunk)
		chunks = append(chunks, end)
	}
	if len(messages) > 0 {
		c := base
		c.Kind, c.Messages = stream.InputReceived, messages
		streamwriter.Fit(&c, t.streams.Limits().MaxChunk)
		chunks = append(chunks, c)
	}
	if len(t.patches) > 0 {
		c := base
		c.Kind, c.Patches = stream.StatePatch, t.patches
		streamwriter.Fit(&c, t.streams.Limits().MaxChunk)
		chunks = append(chunks, c)
	}
	return t.out.Order(ctx, stream.Batch{
		Producer: stream.Producer{Session: t.key.ID + "/open/" + t.run.ID, Epoch: 1, RunID: t.run.ID},
		First:    1, Chunks: chunks,
	})
}

// initialMessages returns the messages with which the run began, and how many came
// before them.
func (t *turn) initialMessages() (int, []session.Message) {
	messages := t.transcript.Messages()
	first := len(messages)
	if t.resumes { // it began with none; the messages at the end are results
		return first, nil
	}
	for first > 0 && messages[first-1].RunID == t.run.ID {
		first--
	}
	last := first
	for last < len(messages) && messages[last].Role != session.RoleAssistant {
		last++
	}
	return first, messages[first:last]
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
// another process, or this one after a restart, continues it at once.
func (h *Handler) Release(ctx context.Context, runID string) {
	t, ok := h.held(runID)
	if ok {
		t.persistResults(ctx)
		h.release(ctx, t)
		h.drop(t)
	}
}
