package server

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func runRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/start", summary: "Start a turn on a new or an existing session.",
			body: wire.Start{}, answers: ok(wire.Started{}), handle: (*exchange).start,
		},
		{
			method: http.MethodPost, path: "/resume", summary: "Continue a session that was interrupted, paused or suspended.",
			body: wire.Resume{}, answers: ok(wire.Started{}), handle: (*exchange).resume,
		},
		{
			method: http.MethodGet, path: "/sse", summary: "Read a session's stream as server-sent events.",
			query: []parameter{
				{name: "sessionId", kind: "string", required: true, about: "The session."},
				{name: "from", kind: "integer", about: "Start after this sequence; the header Last-Event-ID takes precedence."},
				{name: "run", kind: "string", about: "Read only what this run wrote."},
			},
			answers: []answer{{status: http.StatusOK, media: wire.ContentEvents}}, handle: (*exchange).sse,
		},
		{
			method: http.MethodGet, path: "/status", summary: "Return the status of a session.",
			query:   []parameter{{name: "sessionId", kind: "string", required: true, about: "The session."}},
			answers: ok(wire.Status{}), handle: (*exchange).status,
		},
		{
			method: http.MethodPost, path: "/interrupt", summary: "Stop the session's run; it can be resumed.",
			body: wire.Stop{}, answers: []answer{{status: http.StatusAccepted, body: wire.Stopping{}}},
			handle: func(x *exchange) error { return x.stop(session.StopInterrupt) },
		},
		{
			method: http.MethodPost, path: "/abort", summary: "End the session's run permanently.",
			body: wire.Stop{}, answers: []answer{{status: http.StatusAccepted, body: wire.Stopping{}}},
			handle: func(x *exchange) error { return x.stop(session.StopAbort) },
		},
		{
			method: http.MethodPost, path: "/submit-tool-result", summary: "Answer a call that waits for a person.",
			body: wire.Submit{}, handle: (*exchange).submit,
			answers: []answer{{status: http.StatusOK, body: wire.Submitted{}}, {status: http.StatusNotFound, body: wire.Submitted{}}},
		},
		{
			method: http.MethodGet, path: "/workspace", summary: "Return a session's workspace. This route always fails: the server has none.",
			query: []parameter{{name: "sessionId", kind: "string", about: "The session."}},
			handle: func(*exchange) error {
				return refuse(http.StatusNotFound, wire.CodeNoWorkspace, "no workspace is configured")
			},
		},
	}
}

func (x *exchange) start() error {
	in, err := decode(x, readStart)
	if err != nil {
		return err
	}
	agent, err := x.server.agent("agentType", in.AgentType)
	if err != nil {
		return err
	}
	if err := x.mayBegin(agent, in.State); err != nil {
		return err
	}
	ctx, cancel := x.change()
	defer cancel()
	input := helix.Input{
		SessionID: in.SessionID, Messages: messages(in.Message), User: x.who.user(), RequestID: in.RequestID, Tags: in.Tags,
		Metadata: in.Metadata, ExpiresAt: in.ExpiresAt, AbandonPending: in.AbandonPending,
	}
	if in.State != nil {
		input.State = in.State
	}
	run, err := x.execute(ctx, agent, input)
	if err != nil {
		return err
	}
	return x.started(ctx, run)
}

func (x *exchange) resume() error {
	in, err := decode(x, readResume)
	if err != nil {
		return err
	}
	options := helix.ResumeOptions{Checkpoint: in.CheckpointID, RequestID: in.RequestID}
	switch len(in.Message) {
	case 0:
	case 1:
		message := in.Message[0].Message()
		options.Message = &message
	default:
		return session.Invalid("message", "has %d messages; a session is resumed with one", len(in.Message))
	}
	ctx, cancel := x.change()
	defer cancel()
	state, err := x.session(ctx, "sessionId", in.SessionID)
	if err != nil {
		return err
	}
	agent, err := x.agentFor("sessionId", state)
	if err != nil {
		return err
	}
	done, err := x.mayRun(ctx, state.ID, in.RequestID)
	if err != nil {
		return err
	}
	defer done()
	options.Agent = agent
	run, err := x.executor.Resume(ctx, state.ID, options)
	if err != nil {
		return err
	}
	return x.started(ctx, run)
}

// mayBegin refuses initial state that the identity may not set. A user may set only keys
// that the agent declares as open, because its decisions may depend on the others.
func (x *exchange) mayBegin(agent *helix.Agent, state map[string]json.RawMessage) error {
	if x.who.Operator {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if !agent.State.IsOpen(key) {
			return session.Invalid("state."+key, "is not open to users")
		}
	}
	return nil
}

// messages converts the user's messages for a session.
func messages(in wire.Messages) []session.Message {
	var out []session.Message
	for i := range in {
		out = append(out, in[i].Message())
	}
	return out
}

// execute starts a turn for the identity. It must be allowed to see an existing session.
func (x *exchange) execute(ctx context.Context, agent *helix.Agent, in helix.Input) (helix.Run, error) {
	var state *session.State
	if in.SessionID != "" {
		var err error
		if state, err = x.sessionIfAny(ctx, "sessionId", in.SessionID); err != nil {
			return nil, err
		}
	}
	return x.executeIn(ctx, state, agent, in)
}

// executeIn is [exchange.execute] for a session that was just read, or nil for a new one.
func (x *exchange) executeIn(ctx context.Context, state *session.State, agent *helix.Agent, in helix.Input) (helix.Run, error) {
	switch {
	case state != nil && x.who.Operator:
		in.User.ID = state.UserID // the owner does not change
	case state != nil && state.ParentID != "":
		return nil, session.Invalid("sessionId", "%q is the session of a sub-agent; use the conversation's root session", state.ID)
	}
	if state == nil {
		x.addTitle(&in)
	}
	done, err := x.mayRun(ctx, in.SessionID, in.RequestID)
	if err != nil {
		return nil, err
	}
	defer done()
	run, err := x.executor.Execute(ctx, agent, in)
	if err != nil {
		return nil, x.hide(in.SessionID, err)
	}
	return run, nil
}

// sessionIfAny is [exchange.session] for an id that a client chooses. It returns nil for a
// session that does not exist.
func (x *exchange) sessionIfAny(ctx context.Context, field, id string) (*session.State, error) {
	if err := chosenID(field, id); err != nil {
		return nil, err
	}
	x.sessionID = id
	there, err := x.sessions.Exists(ctx, id)
	if err != nil || !there {
		return nil, err
	}
	return x.session(ctx, field, id)
}

// started responds with a run.
func (x *exchange) started(ctx context.Context, run helix.Run) error {
	state, record, err := x.opened(ctx, run)
	if err != nil {
		return err
	}
	x.json(http.StatusOK, wire.Started{
		SessionID: state.ID, StreamID: state.StreamID, RunID: record.ID, StartSequence: record.StartSequence,
	})
	return nil
}

// opened reads the session and the record of a new run. It hides a run of somebody who used
// the same id at the same moment.
func (x *exchange) opened(ctx context.Context, run helix.Run) (*session.State, *session.Run, error) {
	state, err := x.session(ctx, "sessionId", run.SessionID())
	if err != nil {
		return nil, nil, err
	}
	x.runID = run.ID()
	x.server.metrics.started()
	record, err := x.sessions.Run(ctx, state.ID, run.ID())
	if err != nil {
		return nil, nil, err
	}
	return state, record, nil
}

// handle returns a handle on any run of a session, from its record.
func (x *exchange) handle(state *session.State, run *session.Run) *engine.Handle {
	return engine.NewHandle(x.server.cfg.Backend, nil, &engine.Opened{
		Key: session.Key{Tenant: x.who.Tenant, ID: state.ID}, StreamID: state.StreamID, Run: *run,
	}, nil)
}

// current returns the session's latest run, or nil.
func (x *exchange) current(ctx context.Context, id string) (*session.Run, error) {
	run, err := x.sessions.CurrentRun(ctx, id)
	if errors.Is(err, session.ErrNotFound) {
		return nil, nil
	}
	return run, err
}
