package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// compact compacts a session for the identity. It counts as a run, because a model may be
// asked for a summary. That ends when the client disconnects: nothing is written before.
func (x *exchange) compact() error {
	in, err := decode(x, readCompact)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(x.caller, max(x.server.cfg.Limits.Operation, wire.MaxCompact))
	defer cancel()
	ctx, end := x.server.untilClosing(ctx)
	defer end()
	state, err := x.named(ctx)
	if err != nil {
		return err
	}
	if _, err := x.agentFor("id", state); err != nil {
		return err
	}
	done, err := x.mayRun(ctx, state.ID, "")
	if err != nil {
		return err
	}
	defer done()
	// A summary takes so long that it must not keep others from reading transcripts.
	release, err := x.hold(ctx, x.server.compactions)
	if err != nil {
		return err
	}
	defer release()
	made, err := x.onceLetGo(ctx, state.ID, func() (*helix.Compacted, error) {
		return x.executor.Sessions().Compact(ctx, state.ID, in.Force)
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return x.notCompacted(state.ID, err)
	}
	x.compacted(state.ID, made)
	return nil
}

// clear clears a session for the identity.
func (x *exchange) clear() error {
	ctx, cancel := x.change()
	defer cancel()
	state, err := x.named(ctx)
	if err != nil {
		return err
	}
	if _, err := x.agentFor("id", state); err != nil && !x.who.Operator { // no agent is needed for it
		return err
	}
	done, err := x.whole(ctx)
	if err != nil {
		return err
	}
	defer done()
	made, err := x.onceLetGo(ctx, state.ID, func() (*helix.Compacted, error) { return x.executor.Sessions().Clear(ctx, state.ID) })
	if err != nil {
		return x.hide(state.ID, err)
	}
	x.compacted(state.ID, made)
	return nil
}

const (
	// letGo is how long a run that has ended may still hold its session, at most letGoTries
	// times as long.
	letGo      = 50 * time.Millisecond
	letGoTries = 20
)

// onceLetGo tries again while a run that has ended still holds the session: its readers know
// of the end a moment earlier.
func (x *exchange) onceLetGo(ctx context.Context, id string, do func() (*helix.Compacted, error)) (*helix.Compacted, error) {
	for try := 1; ; try++ {
		made, err := do()
		if !errors.Is(err, session.ErrAlreadyRunning) || try == letGoTries {
			return made, err
		}
		if run, failed := x.current(ctx, id); failed != nil || run == nil || !run.Status.Ended() {
			return nil, err
		}
		select {
		case <-time.After(letGo):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (x *exchange) compacted(id string, made *helix.Compacted) {
	reason := made.Reason
	if made.Code != "" && !x.seesCauses() {
		reason = wire.Explain(made.Code)
	}
	x.json(http.StatusOK, wire.Compacted{
		SessionID: id, Done: made.Done(), Reason: reason, Code: made.Code, Kind: made.Kind, MarkerID: made.MarkerID, Kept: made.Kept,
		TokensBefore: made.TokensBefore, TokensAfter: made.TokensAfter,
	})
}

// notCompacted returns the response to an error. What the model's provider or the application's
// hook refuses is not a fault of this server.
func (x *exchange) notCompacted(id string, err error) error {
	failure, ok := errors.AsType[*session.Error](err)
	status := http.StatusBadGateway
	switch {
	case ok && failure.Code == session.CodeHook:
		status = http.StatusConflict
	case !ok || category(failure.Code) != "provider":
		return x.hide(id, err)
	}
	out := refuse(status, failure.Code, wire.Explain(failure.Code)).because(err)
	out.err.Retryable = failure.Retryable
	return out
}

// untilClosing returns a context that also ends when the server shuts down, which would
// otherwise wait for what takes minutes. The caller calls end.
func (s *Server) untilClosing(ctx context.Context) (closing context.Context, end func()) {
	closing, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-s.closing:
			cancel(refuse(http.StatusServiceUnavailable, wire.CodeShuttingDown, "the server is shutting down").retry(time.Second))
		case <-closing.Done():
		}
	}()
	return closing, func() {
		cancel(nil)
		<-ended
	}
}
