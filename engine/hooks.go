package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/session"
)

// hookCall calls one kind of hook of a set, if the set has it.
type hookCall func(hooks *helix.Hooks, h *helix.HookContext) error

// fire calls one hook of every set, in order, on one draft. A hook that fails or
// panics is logged; the first error is returned for those callers to whom it
// matters.
func (t *turn) fire(ctx context.Context, name, key string, draft *helix.Draft, call hookCall) error {
	var first error
	for _, hooks := range t.hooks {
		if err := t.fireOne(ctx, name, key, draft, hooks, call); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// fireOne calls the hook of one set and logs its failure.
func (t *turn) fireOne(ctx context.Context, name, key string, draft *helix.Draft, hooks *helix.Hooks, call hookCall) error {
	h := &helix.HookContext{Scope: t.scope(key, t.env(key, draft))}
	_, err := usercode.Call(ctx, t.pool, func() (struct{}, error) { return struct{}{}, call(hooks, h) })
	if err == nil {
		return nil
	}
	attrs := t.attrs("hook", name, "error", err)
	if p, ok := errors.AsType[*usercode.PanicError](err); ok {
		attrs = append(attrs, "stack", string(p.Stack))
	}
	t.h.log.ErrorContext(ctx, "hook failed", attrs...)
	return err
}

// observe fires a hook whose failure changes nothing and returns what it did to
// the state that the step has written so far. What a hook that failed had written
// is dropped, and that alone.
func (t *turn) observe(ctx context.Context, name, key string, earlier []session.Writes, call hookCall) session.Writes {
	var written session.Writes
	for _, hooks := range t.hooks {
		draft := helix.NewDraft(&t.doc, append(slices.Clip(earlier), written)...)
		err := t.fireOne(ctx, name, key, draft, hooks, call)
		writes, draftErr := draft.Close()
		if draftErr != nil {
			t.h.log.ErrorContext(ctx, "hook failed to change state", t.attrs("hook", name, "error", draftErr)...)
		}
		if err == nil && draftErr == nil {
			written = session.Compose(written, writes)
		}
	}
	return written
}

// note fires a hook outside of tool calls and keeps what it did for the next
// commit.
func (t *turn) note(ctx context.Context, name, key string, call hookCall) {
	t.writes = session.Compose(t.writes, t.observe(ctx, name, key, []session.Writes{t.writes}, call))
}
