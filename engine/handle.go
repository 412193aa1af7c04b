package engine

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// Poll intervals of a handle whose run another process drives.
const (
	pollFirst = 10 * time.Millisecond
	pollMost  = 500 * time.Millisecond
)

// Handle is a handle on a run. It only reads the store and the stream, so any process
// may hold it.
//
// Its fields never change.
type Handle struct {
	backend  store.Backend
	handler  *Handler
	key      session.Key
	streamID string
	run      session.Run
	done     <-chan struct{} // closed when the driver in this process has finished; may be nil
}

var _ helix.Run = (*Handle)(nil)

// NewHandle returns a handle on an opened run. done, if not nil, is closed when the
// run's driver in this process has finished.
func NewHandle(backend store.Backend, handler *Handler, opened *Opened, done <-chan struct{}) *Handle {
	return &Handle{
		backend: backend, handler: handler, key: opened.Key, streamID: opened.StreamID, run: opened.Run, done: done,
	}
}

// Attach returns a handle on a session's current or latest run.
func Attach(ctx context.Context, backend store.Backend, handler *Handler, key session.Key, done func(runID string) <-chan struct{}) (*Handle, error) {
	sessions := backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return nil, err
	}
	run, err := sessions.CurrentRun(ctx, key.ID)
	if err != nil {
		return nil, err
	}
	opened := &Opened{Key: key, StreamID: state.StreamID, Run: *run}
	return NewHandle(backend, handler, opened, done(run.ID)), nil
}

// SessionID implements [helix.Run].
func (h *Handle) SessionID() string { return h.key.ID }

// ID implements [helix.Run].
func (h *Handle) ID() string { return h.run.ID }

// Interrupt implements [helix.Run].
func (h *Handle) Interrupt(ctx context.Context, reason string) error {
	return h.handler.StopRun(ctx, h.key, session.Stop{RunID: h.run.ID, Kind: session.StopInterrupt, Reason: reason})
}

// Abort implements [helix.Run].
func (h *Handle) Abort(ctx context.Context, reason string) error {
	if abort := h.handler.cfg.Abort; abort != nil {
		return abort(ctx, h.key, h.run.ID, reason)
	}
	return h.handler.StopRun(ctx, h.key, session.Stop{RunID: h.run.ID, Kind: session.StopAbort, Reason: reason})
}

// Resume implements [helix.Run].
func (h *Handle) Resume(ctx context.Context, opts helix.ResumeOptions) (helix.Run, error) {
	if h.handler == nil || h.handler.cfg.Resume == nil {
		return nil, errReadsOnly
	}
	return h.handler.cfg.Resume(ctx, h.key, opts)
}

// Retry implements [helix.Run].
func (h *Handle) Retry(ctx context.Context, opts helix.RetryOptions) (helix.Run, error) {
	if h.handler == nil || h.handler.cfg.Retry == nil {
		return nil, errReadsOnly
	}
	return h.handler.cfg.Retry(ctx, h.key, opts)
}

var errReadsOnly = session.ErrInternal.WithMessage("this handle only reads; use the executor")

// Result implements [helix.Run].
func (h *Handle) Result(ctx context.Context) (*helix.Result, error) {
	sessions := h.backend.Sessions().Tenant(h.key.Tenant)
	if h.done != nil {
		select {
		case <-h.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	reached := time.Now() // when the store last answered
	for wait := pollFirst; ; wait = min(2*wait, pollMost) {
		run, err := sessions.Run(ctx, h.key.ID, h.run.ID)
		switch {
		case err == nil && run.Status.Ended() && run.Outcome != nil:
			return h.result(ctx, sessions, run)
		case err == nil:
			reached = time.Now()
		case !session.IsRetryable(err) || time.Since(reached) > patience:
			return nil, err
		}
		if err := retry.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// patience is how long waiting for a result goes on while the store is unavailable: a
// server that restarts must not end a wait of hours.
const patience = 5 * time.Second

// maxContinued bounds how many runs the usage of a result is summed over.
const maxContinued = 1000

func (h *Handle) result(ctx context.Context, sessions session.Store, run *session.Run) (*helix.Result, error) {
	used := run.Usage
	for at := run; at.Kind != session.RunExecute && at.PreviousRunID != "" && at.Turn > run.Turn-maxContinued; {
		before, err := retry.Do(ctx, func() (*session.Run, error) { return sessions.Run(ctx, h.key.ID, at.PreviousRunID) })
		if errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrCorrupt) {
			break // the result of this run stands without it
		}
		if err != nil {
			return nil, err
		}
		used = used.Add(before.Usage)
		at = before
	}
	return &helix.Result{
		SessionID: h.key.ID, RunID: run.ID, Status: run.Status, Output: run.Outcome.Output, Text: run.Outcome.Reply,
		Error: run.Outcome.Error, Pending: run.Outcome.Pending, Children: run.Outcome.Children,
		SuspendedStep: run.Outcome.SuspendedStep, Steps: run.StepCount, Usage: used,
		CompletionReason: run.CompletionReason, FinishReason: run.Outcome.FinishReason,
	}, nil
}

// Text implements [helix.Run].
func (h *Handle) Text(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for item, err := range h.Stream(ctx) {
			switch c := item.Chunk; {
			case err != nil:
				yield("", err)
				return
			case item.Frame == stream.FrameFail:
				yield("", failureOf(item.Error))
				return
			case item.Frame == stream.FrameTruncated:
				yield("", session.ErrTruncated.WithMessage("run %s: its first chunks were trimmed", h.run.ID))
				return
			case c == nil || c.Kind != stream.TextDelta || c.AgentID != h.key.ID:
			case !yield(c.Delta, nil):
				return
			}
		}
	}
}

// failureOf returns the failure of a run as an error that is never nil.
func failureOf(failure *session.Error) error {
	if failure == nil {
		return session.ErrInternal
	}
	return failure
}

// Stream implements [helix.Run].
func (h *Handle) Stream(ctx context.Context) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		finishes := map[string]bool{} // the calls with which agents finish
		for item, err := range h.StreamFrom(ctx, h.run.StartSequence) {
			if err == nil && isFinish(item.Chunk, finishes) {
				continue
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// isFinish reports whether a chunk shows the call with which an agent gives its
// output. Applications do not see that call; the output has a chunk of its own.
func isFinish(c *stream.Chunk, finishes map[string]bool) bool {
	if c == nil {
		return false
	}
	switch c.Kind {
	case stream.ToolArgsStart, stream.ToolArgsDelta, stream.ToolArgsEnd, stream.ToolStart, stream.ToolEnd:
		if c.Tool == session.FinishTool {
			finishes[c.CallID] = true
		}
		return finishes[c.CallID]
	}
	return false
}

// StreamFrom returns the run's stream after a sequence. It has every chunk, so that
// the chunks can be folded into messages.
func (h *Handle) StreamFrom(ctx context.Context, from int64) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		from := max(from, h.run.StartSequence)
		for {
			again := h.follow(ctx, &from, yield)
			if !again {
				return
			}
			// The stream still shows the end of an earlier run.
			if err := retry.Sleep(ctx, pollFirst); err != nil {
				yield(stream.Item{}, err)
				return
			}
		}
	}
}

// follow yields the run's items after a sequence. It reports true when the stream
// ended although the run has not.
func (h *Handle) follow(ctx context.Context, from *int64, yield func(stream.Item, error) bool) (again bool) {
	streams := h.backend.Streams().Tenant(h.key.Tenant)
	for item, err := range streams.Read(ctx, h.streamID, *from, true) {
		if err != nil {
			yield(item, err)
			return false
		}
		if item.Frame == stream.FrameEnd || item.Frame == stream.FrameFail {
			run, err := h.backend.Sessions().Tenant(h.key.Tenant).Run(ctx, h.key.ID, h.run.ID)
			switch {
			case err == nil && run.Status == session.RunRunning:
				return true
			case err == nil && run.Outcome != nil: // the stream's end may be that of a later run
				item = terminalItem(run)
			}
		}
		if h.isOver(item.Chunk) {
			h.finish(ctx, yield)
			return false
		}
		if item.Sequence > *from {
			*from = item.Sequence
		}
		if !yield(item, nil) || item.Terminal() {
			return false
		}
		if h.ends(item.Chunk) {
			h.finish(ctx, yield)
			return false
		}
	}
	return false
}

// ends reports whether a chunk is the run's last.
func (h *Handle) ends(c *stream.Chunk) bool {
	if c == nil || c.RunID != h.run.ID || c.AgentID != h.key.ID {
		return false
	}
	switch c.Kind {
	case stream.RunCompleted, stream.RunInterrupted, stream.RunPaused, stream.Failure:
		return true
	}
	return false
}

// isOver reports whether a chunk begins a later run of the session.
func (h *Handle) isOver(c *stream.Chunk) bool {
	return c != nil && c.AgentID == h.key.ID && c.RunID != h.run.ID && (c.Kind == stream.RunStarted || c.Kind == stream.RunResumed)
}

// finish yields the run's terminal item. It is made from the run's record, because
// the stream may be open for the next run.
func (h *Handle) finish(ctx context.Context, yield func(stream.Item, error) bool) {
	run, err := h.backend.Sessions().Tenant(h.key.Tenant).Run(ctx, h.key.ID, h.run.ID)
	if err != nil {
		yield(stream.Item{}, err)
		return
	}
	yield(terminalItem(run), nil)
}

func terminalItem(run *session.Run) stream.Item {
	if run.Status == session.RunFailed {
		return stream.Item{Frame: stream.FrameFail, Error: run.Outcome.Error}
	}
	end := streamEnd(run.Outcome, &run.Usage)
	return stream.Item{Frame: stream.FrameEnd, End: &end}
}
