package engine

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/session"
)

// observers tells the runtime's observers of activities. Without observers, nothing is
// made or called.
type observers struct {
	list []helix.Observer
	log  *slog.Logger
}

// observation is an activity that observers know of. Nil is one that they do not.
type observation struct {
	log  *slog.Logger
	ends []func(*helix.Ending)
	once sync.Once
}

// begin tells the observers that an activity begins.
func (o *observers) begin(ctx context.Context, a *helix.Activity) (context.Context, *observation) {
	seen := &observation{log: o.log}
	return o.tell(ctx, o.list, a, seen), seen
}

// tell tells some of the observers, each with the context that the one before it returned,
// and returns the context of the last.
func (o *observers) tell(ctx context.Context, list []helix.Observer, a *helix.Activity, seen *observation) (inner context.Context) {
	if len(list) == 0 {
		return ctx
	}
	err := usercode.Guard(func() error {
		var end func(*helix.Ending)
		if inner, end = list[0].Begin(ctx, a); end != nil {
			seen.ends = append(seen.ends, end)
		}
		return nil
	})
	if err != nil {
		o.log.ErrorContext(ctx, "observer.failed", "activity", a.ID, "error", err)
	}
	if inner == nil {
		inner = ctx
	}
	return o.tell(inner, list[1:], a, seen)
}

// end tells the observers, the last one first, that the activity is over. Only the first
// end counts.
func (o *observation) end(e helix.Ending) {
	if o == nil {
		return
	}
	o.once.Do(func() {
		if e.Ended.IsZero() {
			e.Ended = time.Now().UTC()
		}
		for _, end := range slices.Backward(o.ends) {
			ending := e // an observer may keep or change its own
			if err := usercode.Guard(func() error { end(&ending); return nil }); err != nil {
				o.log.Error("observer.failed", "error", err)
			}
		}
	})
}

// observe begins an activity of the turn. The effect's key and the lease's epoch make its
// id, so that a repetition by the next process has another one.
func (t *turn) observe(ctx context.Context, kind helix.ActivityKind, key, name, callID string, attempt int) (context.Context, *observation) {
	if len(t.h.observers.list) == 0 {
		return ctx, nil
	}
	a := &helix.Activity{Kind: kind, ID: key, Name: name, CallID: callID, Attempt: attempt, Epoch: t.fence.Epoch, Began: time.Now().UTC()}
	t.identify(&a.Scope, key)
	switch {
	case kind == helix.ActivityRun:
		a.Began = t.run.StartedAt
	case attempt > 0:
		a.ID = t.underLease(key + "/" + strconv.Itoa(attempt))
	default:
		a.ID = t.underLease(key)
	}
	return t.h.observers.begin(ctx, a)
}

// begin makes ctx, without its end, the context whose values the turn's effects have,
// and tells the observers that this process works on the run.
func (t *turn) begin(ctx context.Context) {
	t.values, t.observed = t.observe(context.WithoutCancel(ctx), helix.ActivityRun, t.run.ID, t.agent.Name, "", 0)
}

// reportEnd tells the observers how the run ended, with the times that its record has:
// whichever process reports the end, and however often, reports the same.
func (t *turn) reportEnd(ctx context.Context) error {
	if t.observed == nil {
		return nil
	}
	run, err := t.sessions.Run(ctx, t.key.ID, t.run.ID)
	if err != nil {
		return err
	}
	t.observed.end(helix.Ending{Ended: run.EndedAt, Error: t.ended.Error, Status: run.Status, Usage: run.Usage})
	return nil
}

// noteCalled keeps the observation of a call of another agent until the call ends, or this
// process no longer works on the turn, which may have happened.
func (t *turn) noteCalled(seen *observation) {
	t.mu.Lock()
	if t.called == nil {
		t.called = map[*observation]bool{}
	}
	t.called[seen] = true
	t.mu.Unlock()
	select {
	case <-t.done:
		seen.end(helix.Ending{Lost: true})
	default:
	}
}

// abandonObservations tells the observers that this process no longer works on the turn,
// and on the calls of agents that have not ended.
func (t *turn) abandonObservations() {
	t.mu.Lock()
	called := t.called
	t.called = nil
	t.mu.Unlock()
	for seen := range called {
		seen.end(helix.Ending{Lost: true})
	}
	t.observed.end(helix.Ending{Lost: true})
}

// endingOf is the end of an activity that failed with err, if it is not nil.
func endingOf(err error) helix.Ending {
	if err == nil {
		return helix.Ending{}
	}
	return helix.Ending{Error: session.AsError(err), Lost: lostTurn(err)}
}

// inTurn returns the context of an effect with the values of the turn's context.
func (t *turn) inTurn(ctx context.Context) context.Context { return turnContext{ctx, t.values} }

// turnContext ends with the effect and has the values of the turn, which are those of
// the caller that began the run and of observers.
type turnContext struct {
	context.Context //nolint:containedctx // it is a context

	values context.Context //nolint:containedctx // the turn's, for as long as the turn lasts
}

// Value implements [context.Context]. Package context asks for the context that ends a
// context, several times per step: that is the effect's, and looking for it among the
// values first would allocate each time.
func (c turnContext) Value(key any) any {
	if ends, ok := c.Context.Value(key).(context.Context); ok {
		return ends
	}
	if value := c.values.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}
