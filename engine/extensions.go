package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
)

// How long a method of an extension may take.
const (
	attachLimit  = 10 * time.Second
	prepareLimit = 2 * time.Second
	tasksLimit   = 5 * time.Second
	gateLimit    = 5 * time.Second
	filterLimit  = 10 * time.Second
	findLimit    = 5 * time.Second
)

// extensions asks the extensions of a turn's agent. It is nil if the agent has none.
type extensions struct {
	userEnv
	list []helix.Extension // never changes
	// turn makes what an extension sees of the turn. It never changes.
	turn func(key string, draft *userstate.Draft) *helix.Turn
	// written is what hooks wrote since the last commit.
	written func() session.Writes
	// warn shows the readers of the stream a warning.
	warn func(extension, message string)
	// retries and backoff are those of model calls.
	retries int
	backoff time.Duration

	mu        sync.Mutex    // guards what follows
	attaching chan struct{} // closed when the attachment in progress ends; nil if there is none
	attached  *attached     // what all extensions added, once they were asked
	failed    error         // why no turn may run, if that is so
}

// newExtensions makes the extensions of a turn.
func (t *turn) newExtensions(env userEnv) *extensions {
	if len(t.agent.Extensions) == 0 {
		return nil
	}
	return &extensions{
		userEnv: env, list: t.agent.Extensions, turn: t.shown, warn: t.warn,
		written: func() session.Writes { return t.hooks.written },
		retries: t.h.cfg.ModelRetries, backoff: t.h.cfg.RetryBackoff,
	}
}

// shown is what an extension sees of the turn.
func (t *turn) shown(key string, draft *userstate.Draft) *helix.Turn {
	_, input, held := t.initialMessages()
	if !held {
		input = t.input
	}
	out := &helix.Turn{Input: input, View: view(t.messages())}
	t.scope(&out.Scope, key, draft)
	return out
}

// answer is what an extension returned.
type answer[V any] struct {
	from  helix.Extension
	value V
	err   error
}

// haveMethod reports whether an extension has a method. It is asked on the way of every
// step, where asking for answers that nobody gives would allocate.
func haveMethod[X any](x *extensions) bool {
	return x != nil && slices.ContainsFunc(x.list, func(e helix.Extension) bool {
		_, ok := e.(X)
		return ok
	})
}

// ask calls a method of the extensions that have it, all at the same time, each at most for
// limit. The answers are in the order of the extensions.
func ask[X, V any](
	ctx context.Context, x *extensions, key string, limit time.Duration, call func(ctx context.Context, of X, turn *helix.Turn) (V, error),
) []answer[V] {
	if x == nil {
		return nil
	}
	var answers []answer[V]
	for _, extension := range x.list {
		if _, ok := extension.(X); ok {
			answers = append(answers, answer[V]{from: extension})
		}
	}
	one := func(a *answer[V]) {
		a.value, a.err = askOne(ctx, x, key, limit, func(ctx context.Context, turn *helix.Turn) (V, error) {
			return call(ctx, a.from.(X), turn)
		})
	}
	if len(answers) == 1 {
		one(&answers[0])
		return answers
	}
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { one(&answers[i]) })
	}
	wg.Wait()
	return answers
}

// askOne calls a method of one extension, at most for limit. What it writes to the state is
// dropped.
func askOne[V any](
	ctx context.Context, x *extensions, key string, limit time.Duration, call func(ctx context.Context, turn *helix.Turn) (V, error),
) (V, error) {
	draft := x.draft(x.written())
	turn := x.turn(key, draft)
	value, err := within(ctx, x.pool, limit, func(ctx context.Context) (V, error) { return call(ctx, turn) })
	_, _ = draft.Close()
	return value, err
}

// within calls user code at most for limit. The error of code that takes longer says so.
func within[V any](ctx context.Context, pool *usercode.Pool, limit time.Duration, call func(context.Context) (V, error)) (V, error) {
	value, err := usercode.CallWithin(ctx, pool, limit, call)
	return value, late(err, limit)
}

// late adds to the error of user code that did not return how long it had.
func late(err error, limit time.Duration) error {
	if errors.Is(err, usercode.ErrTimeout) {
		return fmt.Errorf("it did not return within %s: %w", limit, err)
	}
	return err
}

// failure is what is logged when a method of an extension fails, and what follows from that.
func (x *extensions) failure(name string, err error, effect string) []any {
	attrs := x.attrs("extension", name, "error", err, "effect", effect)
	if p, ok := errors.AsType[*usercode.PanicError](err); ok {
		attrs = append(attrs, "stack", string(p.Stack))
	}
	return attrs
}

// toolOutside finds a tool of an agent, or of its extensions, outside of a turn. It is nil
// if there is none; the error is that of an extension that could not be asked.
func toolOutside(ctx context.Context, agent *helix.Agent, name string) (*helix.Tool, error) {
	if tool := toolByName(agent, name); tool != nil {
		return tool, nil
	}
	for _, extension := range agent.Extensions {
		finder, ok := extension.(helix.ToolFinder)
		if !ok {
			continue
		}
		tool, err := usercode.CallOnce(ctx, findLimit, func(ctx context.Context) (*helix.Tool, error) {
			tool, _ := finder.FindTool(ctx, name)
			return tool, nil
		})
		if err != nil {
			return nil, session.ErrUnavailable.WithCause(late(err, findLimit), "extension %s of agent %s could not be asked for the tool %s", extension.Name(), agent.Name, name)
		}
		if tool != nil && tool.Name == name {
			return tool, nil
		}
	}
	return nil, nil
}

// ListTools lists the tools of an extension outside of a turn, checked like those that it
// attaches. It calls the extension on the caller's goroutine: it may panic, or not return.
func ListTools(ctx context.Context, extension helix.Extension) ([]helix.Tool, error) {
	lister, ok := extension.(helix.ToolLister)
	if !ok {
		return nil, nil
	}
	listed := lister.ListTools(ctx)
	return listed, checkTools(extension, listed)
}
