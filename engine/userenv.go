package engine

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

// userEnv is what the parts of a turn need that call user code. It never changes.
type userEnv struct {
	pool  *usercode.Pool
	limit *hookLimit // of hooks and of the functions of the agent's definition
	agent string
	log   *slog.Logger
	attrs func(more ...any) []any // the log attributes of the turn
	// scope fills in what user code sees of the turn.
	scope func(scope *helix.Scope, key string, draft *userstate.Draft)
	draft func(earlier ...session.Writes) *userstate.Draft // of the committed state and the step's writes so far
}

func (t *turn) userEnv() userEnv {
	return userEnv{pool: t.pool, limit: t.h.hookLimit, agent: t.agent.Name, log: t.h.log, attrs: t.attrs, scope: t.scope, draft: t.draft}
}

// draft returns a draft of the committed custom state and the writes on top of it.
func (t *turn) draft(earlier ...session.Writes) *userstate.Draft {
	return userstate.New(&t.doc, earlier...)
}

// scope fills in what user code sees of the turn, with a draft of the custom state.
func (t *turn) scope(scope *helix.Scope, key string, draft *userstate.Draft) {
	t.identify(scope, key)
	e := &env{t: t, draft: draft, key: key, step: t.current()}
	if t.transcript != nil { // a turn that only closes a run has none
		e.messages, e.stored = t.messages(), t.transcript.Bytes()
	}
	access.BindScope(scope, e)
}

// identify fills in which turn a scope belongs to.
func (t *turn) identify(scope *helix.Scope, key string) {
	*scope = helix.Scope{
		Tenant: t.key.Tenant, SessionID: t.key.ID, RunID: t.run.ID, Agent: t.agent.Name,
		ParentID: t.state.ParentID, RootID: t.state.RootID, UserID: t.state.UserID,
		Tags: t.state.Tags, Metadata: t.state.Metadata, Turn: t.run.Turn, Step: t.current(), Key: key,
	}
}

// view is what of the conversation the model is sent before it replies: a reply whose
// calls have no results yet is left out.
func view(messages []session.Message) []session.Message {
	if n := len(messages); n > 0 && messages[n-1].Role == session.RoleAssistant && len(messages[n-1].Calls()) > 0 {
		return messages[: n-1 : n-1]
	}
	return messages
}

// env is how user code reaches the turn. It uses nothing of the turn that changes,
// because a goroutine that outlived its call may still use it.
type env struct {
	t     *turn
	draft *userstate.Draft
	key   string
	step  int
	// messages are those that the model was sent when the user code was called, or more.
	messages []session.Message
	// stored is how many bytes the transcript had.
	stored int64
}

func (e *env) Draft() *userstate.Draft { return e.draft }

func (e *env) View() []session.Message { return view(e.messages) }

func (e *env) Emit(name string, data json.RawMessage) {
	if stream.Reserved(name) {
		name = "app." + name
	}
	e.EmitOwn(name, data)
}

func (e *env) EmitOwn(name string, data json.RawMessage) {
	if e.draft.Closed() { // the call is over, and its code still runs
		return
	}
	e.t.out.Emit(stream.Chunk{Kind: stream.Custom, Step: e.step, Name: name, Data: data})
}

func (e *env) RecordUsage(name string, amount float64, data json.RawMessage) {
	if e.draft.Closed() {
		return
	}
	e.t.usage.record(context.Background(), e.step, usage.Entry{
		ID: e.t.usage.uniqueID(e.t.underLease(e.key + "/" + name)), Kind: usage.Custom, Source: name, Amount: amount, Data: data, Success: true,
	})
}
