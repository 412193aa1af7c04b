package helix

import (
	"context"

	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
)

// Sessions reads, compacts and deletes the sessions of one tenant. It does not check users;
// see [Executor].
type Sessions interface {
	// Get returns a session: its status, custom state, waiting calls, counters and labels.
	Get(ctx context.Context, id string) (*session.State, error)
	// List returns the sessions that match a query, newest first.
	List(ctx context.Context, query session.Query) (session.Page[session.Summary], error)
	// Messages returns a session's messages, oldest first.
	Messages(ctx context.Context, id string, page session.PageRequest) (session.Page[session.Message], error)
	// Checkpoints returns a session's checkpoints, newest first, without their custom
	// state.
	Checkpoints(ctx context.Context, id string, page session.PageRequest) (session.Page[session.Checkpoint], error)
	// Waiting returns the calls of all sessions, at any depth, that wait for people, in the
	// order in which they began to wait.
	Waiting(ctx context.Context, query session.WaitingQuery) (session.Page[session.Waiting], error)
	// Compact shortens what the model is sent of a session's conversation, whether or not the
	// agent's [ContextPolicy] asks for it yet: it puts a summary in the place of all but the
	// last messages, as the policy says. With force it cuts as much as it can, within the last
	// turn, too. Without a summary it cuts large arguments and results. The history stays whole.
	// If there is nothing to gain, the session stays as it is, and the outcome says why. An
	// error of the summary's model is returned once: as long as the session stays as it is,
	// this process does not ask again for one to ten minutes, and the outcome has the error's
	// code.
	//
	// It is refused with [ErrAlreadyRunning] while a run is under way and while this process
	// compacts the session, with [ErrPaused] if the session is paused, with [ErrAwaitingInput]
	// while calls wait for answers, with [session.ErrNotSupported] if it is that of a remote
	// agent, and with [session.ErrStale] if it changes while the summary is made.
	Compact(ctx context.Context, id string, force bool) (*Compacted, error)
	// Clear lets the model forget a session's conversation: it is sent nothing of what came
	// before. The history stays whole. It is refused where Compact is.
	Clear(ctx context.Context, id string) (*Compacted, error)
	// Delete deletes a session, its stream and the sessions of its sub-agents, and returns
	// the ids of the deleted sessions. It stops their runs in this process; in another
	// process a run ends at its next write, which fails.
	//
	// A sub-agent's session cannot be deleted while the run that the sub-agent is part of has
	// not ended: that is refused with [ErrAlreadyRunning]. Delete the session of the run. The
	// same holds for a companion that its caller waits for.
	Delete(ctx context.Context, id string) ([]string, error)
}

// ReadState returns a session's custom state as a T, usually the type that the agent's
// [StateOf] declares.
func ReadState[T any](ctx context.Context, sessions Sessions, id string) (T, error) {
	var out T
	state, err := sessions.Get(ctx, id)
	if err != nil {
		return out, err
	}
	if err := userstate.Decode(&state.Custom, &out); err != nil {
		return out, session.ErrInvalid.WithCause(err, "session %s", id)
	}
	return out, nil
}
