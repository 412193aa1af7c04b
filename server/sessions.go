package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func sessionRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: "/sessions", summary: "List sessions, newest first.",
			query: append([]parameter{
				{name: "user", kind: "string", about: "Sessions of this user."},
				{name: "agent", kind: "string", about: "Sessions of this agent."},
				{name: "status", kind: "string", repeated: true, about: "Sessions with one of these statuses."},
				{name: "activity", kind: "string", about: "Sessions with this activity: new, running, waiting, stopped, failed or done."},
				{name: "tag", kind: "string", repeated: true, about: "Sessions with all of these tags."},
				{name: "metadata.{name}", kind: "string", about: "Sessions with this value of a metadata entry."},
				{name: "parent", kind: "string", about: "Sessions of sub-agents of this session."},
				{name: "roots", kind: "boolean", about: "Omit sessions of sub-agents."},
				{name: "createdAfter", kind: "string", about: "A time."},
				{name: "createdBefore", kind: "string", about: "A time."},
			}, paging...),
			answers: ok(wire.Sessions{}), handle: (*exchange).list,
		},
		{
			method: http.MethodGet, path: "/waiting", summary: "List the calls of all sessions that wait for people.",
			query: append([]parameter{
				{name: "user", kind: "string", about: "Calls in conversations of this user, for operators."},
				{name: "order", kind: "string", about: "oldest first (the default) or newest first."},
			}, paging...),
			answers: ok(wire.Waiting{}), handle: (*exchange).waiting,
		},
		{
			method: http.MethodGet, path: "/sessions/{id}", summary: "Read a session's document.",
			answers: ok(session.State{}), handle: (*exchange).read,
		},
		{
			method: http.MethodGet, path: "/sessions/{id}/messages", summary: "Read a session's messages, oldest first.",
			query: append([]parameter{
				{name: "view", kind: "string", about: "all messages (the default), or model: what the model is sent of them, the last marker first."},
			}, paging...),
			answers: ok(wire.MessagePage{}), handle: (*exchange).listMessages,
		},
		{
			method: http.MethodGet, path: "/sessions/{id}/runs", summary: "Read a session's runs, oldest first.",
			query: paging, answers: ok(wire.RunPage{}),
			handle: func(x *exchange) error { return listed(x, x.runs) },
		},
		{
			method: http.MethodGet, path: "/sessions/{id}/checkpoints", summary: "Read a session's checkpoints, newest first.",
			query: paging, answers: ok(wire.CheckpointPage{}),
			handle: func(x *exchange) error { return listed(x, x.sessions.Checkpoints) },
		},
		{
			method: http.MethodGet, path: "/sessions/{id}/pending", summary: "List the calls of a session, at any depth, that wait for people.",
			answers: ok(wire.PendingCalls{}), handle: (*exchange).pending,
		},
		{
			method: http.MethodGet, path: "/sessions/{id}/snapshot", summary: "Read a session as it was at its latest checkpoint.",
			answers: ok(wire.Snapshot{}), handle: (*exchange).snapshot,
		},
		{
			method: http.MethodPost, path: "/sessions/{id}/branch", summary: "Copy a session and start a turn on the copy.",
			body: wire.Branch{}, answers: ok(wire.Branched{}), handle: (*exchange).branch,
		},
		{
			method: http.MethodPost, path: "/sessions/{id}/retry", summary: "Retry a failed turn from its last good checkpoint.",
			body: wire.Retry{}, answers: ok(wire.Started{}), handle: (*exchange).retry,
		},
		{
			method: http.MethodPost, path: "/sessions/{id}/pause", summary: "Pause a session: it does not run until it is resumed.",
			body: wire.Pause{}, answers: ok(wire.Paused{}), handle: (*exchange).pause,
		},
		{
			method: http.MethodPost, path: "/sessions/{id}/compact", summary: "Shorten what the model is sent of the conversation, between runs.",
			body: wire.Compact{}, answers: ok(wire.Compacted{}), handle: (*exchange).compact,
		},
		{
			method: http.MethodPost, path: "/sessions/{id}/clear", summary: "Send the model nothing of the conversation so far, between runs.",
			answers: ok(wire.Compacted{}), handle: (*exchange).clear,
		},
		{
			method: http.MethodDelete, path: "/sessions/{id}", summary: "Delete a session and the sessions of its sub-agents.",
			answers: ok(wire.Deleted{}), handle: (*exchange).remove,
		},
	}
}

// list returns the sessions that the identity may see.
func (x *exchange) list() error {
	q := x.query()
	request := session.Query{
		UserID: q.Get("user"), Agent: q.Get("agent"), Tags: q.Values["tag"], ParentID: q.Get("parent"), RootsOnly: q.flag("roots"),
		Activity:     session.Activity(q.Get("activity")),
		CreatedAfter: q.time("createdAfter"), CreatedBefore: q.time("createdBefore"), PageRequest: q.page(),
	}
	if _, given := q.Values["activity"]; given && !request.Activity.Valid() {
		q.refuse("activity", "%.40q is not one of %v", request.Activity, session.Activities())
	}
	for _, status := range q.Values["status"] {
		if !session.Status(status).Valid() {
			q.refuse("status", "%.40q is not one of %v", status, session.Statuses())
		} else if !slices.Contains(request.Statuses, session.Status(status)) {
			request.Statuses = append(request.Statuses, session.Status(status))
		}
	}
	if limit := x.server.cfg.Limits.Tags; len(request.Tags) > limit {
		q.refuse("tag", "is given %d times, at most %d are allowed", len(request.Tags), limit)
	}
	for name, values := range q.Values {
		if key, ok := strings.CutPrefix(name, "metadata."); ok && key != "" {
			if request.Metadata == nil {
				request.Metadata = map[string]string{}
			}
			request.Metadata[key] = values[0]
			if limit := x.server.cfg.Limits.Metadata; len(request.Metadata) > limit {
				q.refuse("metadata", "has more than %d filters", limit)
				break
			}
		} else if !slices.ContainsFunc(x.route.query, func(p parameter) bool { return p.name == name }) {
			q.refuse(name, "is not a filter") // ignoring it would show too much
		}
	}
	for _, name := range slices.Sorted(maps.Keys(q.Values)) { // not every store can search for any text
		for _, value := range append(q.Values[name], name) {
			if err := session.CheckText(name, value); err != nil && q.err == nil {
				q.err = err
			}
		}
	}
	if q.err != nil {
		return q.err
	}
	if !x.narrow(&request.UserID) {
		x.json(http.StatusOK, wire.Sessions{Items: []session.Summary{}, Limit: request.Size()})
		return nil
	}
	page, err := x.sessions.List(x.r.Context(), request)
	if err != nil {
		return err
	}
	page.Items = array(page.Items)
	x.json(http.StatusOK, page)
	return nil
}

// narrow limits a listing to the sessions of the identity's user; an operator may list
// those of any user. It returns false if the request names another user.
func (x *exchange) narrow(user *string) bool {
	if x.who.Operator {
		return true
	}
	if *user != "" && *user != x.who.User {
		return false
	}
	*user = x.who.User
	return true
}

// waiting returns the waiting calls of a user, or of the whole tenant for an operator.
func (x *exchange) waiting() error {
	q := x.query()
	request := session.WaitingQuery{UserID: q.Get("user"), PageRequest: q.page()}
	switch order := q.Get("order"); order {
	case "", "oldest":
	case "newest":
		request.NewestFirst = true
	default:
		q.refuse("order", "%.40q is neither oldest nor newest", order)
	}
	for _, name := range slices.Sorted(maps.Keys(q.Values)) {
		if !slices.ContainsFunc(x.route.query, func(p parameter) bool { return p.name == name }) {
			q.refuse(name, "is not a filter")
		}
	}
	if err := session.CheckText("user", request.UserID); err != nil && q.err == nil {
		q.err = err
	}
	if q.err != nil {
		return q.err
	}
	if !x.narrow(&request.UserID) {
		x.json(http.StatusOK, wire.Waiting{Items: []session.Waiting{}, Limit: request.Size()})
		return nil
	}
	request.MaxBytes = x.server.cfg.Limits.PageBytes
	page, err := x.sessions.Waiting(x.r.Context(), request)
	if err != nil {
		return err
	}
	page.Items = array(page.Items)
	x.json(http.StatusOK, page)
	return nil
}

// named returns the session in the path.
func (x *exchange) named(ctx context.Context) (*session.State, error) {
	return x.session(ctx, "id", x.r.PathValue("id"))
}

func (x *exchange) read() error {
	state, err := x.named(x.r.Context())
	if err != nil {
		return err
	}
	state.Error, state.Custom = x.shown(state.Error), state.Custom.Public()
	x.json(http.StatusOK, state)
	return nil
}

// listMessages reads messages, or what the model is sent of them. Both include messages
// that are hidden from people, for whoever may see the session.
func (x *exchange) listMessages() error {
	switch view := x.r.URL.Query().Get("view"); view {
	case "", "all":
		return listed(x, x.messages)
	case "model":
		return listed(x, x.modelView)
	default:
		return session.Invalid("view", "%.40q is neither all nor model", view)
	}
}

// modelView reads what the model is sent, as much as fits on a page.
func (x *exchange) modelView(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Message], err error) {
	done, err := x.whole(ctx)
	if err != nil {
		return page, err
	}
	defer done()
	state, err := x.sessions.Load(ctx, id)
	if err != nil {
		return page, err
	}
	tail, err := session.ReadView(ctx, x.sessions, state)
	if err != nil {
		return page, err
	}
	view := session.View(tail.Messages)
	start, err := request.Start(len(view))
	if err != nil {
		return page, err
	}
	marker := markerOf(&tail)
	if at, resumed, _ := request.Position(); resumed && at.ID != marker { // Start has checked it
		return page, session.Invalid("cursor", "what the model is sent has been compacted or rewound since the page before; read it from the beginning")
	}
	request.MaxBytes = x.server.cfg.Limits.PageBytes
	end, size := start, int64(0)
	for ; end < min(start+request.Size(), len(view)); end++ {
		if size += int64(view[end].Size()); !request.Fits(end-start, size) {
			break
		}
	}
	page = session.Page[session.Message]{Items: view[start:end], Offset: start, Limit: request.Size(), HasMore: end < len(view)}
	if page.HasMore {
		page.Next = session.Position{N: int64(end), ID: marker}.Cursor()
	}
	if request.Total {
		page.Total = new(len(view))
	}
	return page, nil
}

// markerOf names the marker at which a view begins, by its number and id, or returns "". The
// positions in a view are those of another one once it has another marker.
func markerOf(tail *session.Tail) string {
	for i := len(tail.Messages) - 1; i >= 0; i-- {
		if m := &tail.Messages[i]; m.Compaction() != nil {
			return fmt.Sprintf("%d/%s", tail.Before+i+1, m.ID)
		}
	}
	return ""
}

// messages reads as many messages as fit on a page.
func (x *exchange) messages(ctx context.Context, id string, request session.PageRequest) (session.Page[session.Message], error) {
	request.MaxBytes = x.server.cfg.Limits.PageBytes
	return x.sessions.Messages(ctx, id, request)
}

// runs reads runs as the identity may see them.
func (x *exchange) runs(ctx context.Context, id string, request session.PageRequest) (session.Page[session.Run], error) {
	page, err := x.runPages(ctx, id, request)
	for i := range page.Items {
		if outcome := page.Items[i].Outcome; outcome != nil {
			told := *outcome
			told.Error = x.shown(told.Error)
			page.Items[i].Outcome = &told
		}
	}
	return page, err
}

// runsAtOnce is how many runs are read at a time, because each may have a large output.
const runsAtOnce = 10

// runPages reads a page of runs piece by piece, and ends it early when it reaches the size
// limit of a page.
func (x *exchange) runPages(ctx context.Context, id string, request session.PageRequest) (session.Page[session.Run], error) {
	size, left := request.Size(), x.server.cfg.Limits.PageBytes
	request.Limit = min(size, runsAtOnce)
	page, err := x.sessions.Runs(ctx, id, request)
	page.Limit = size
	for from := 0; err == nil && page.HasMore && len(page.Items) < size; {
		for ; from < len(page.Items); from++ {
			if o := page.Items[from].Outcome; o != nil {
				left -= int64(len(o.Output) + len(o.Reply))
			}
		}
		if left <= 0 {
			break
		}
		var more session.Page[session.Run]
		more, err = x.sessions.Runs(ctx, id, session.PageRequest{Cursor: page.Next, Limit: min(size-len(page.Items), runsAtOnce)})
		page.Items, page.HasMore, page.Next = append(page.Items, more.Items...), more.HasMore, more.Next
	}
	return page, err
}

// listed responds with a page of a session's items.
func listed[T any](x *exchange, read func(context.Context, string, session.PageRequest) (session.Page[T], error)) error {
	q := x.query()
	request := q.page()
	if q.err != nil {
		return q.err
	}
	state, err := x.named(x.r.Context())
	if err != nil {
		return err
	}
	page, err := read(x.r.Context(), state.ID, request)
	if err != nil {
		return x.hide(state.ID, err)
	}
	page.Items = array(page.Items)
	x.json(http.StatusOK, page)
	return nil
}

func (x *exchange) pending() error {
	state, err := x.named(x.r.Context())
	if err != nil {
		return err
	}
	pending, err := x.executor.Waiting(x.r.Context(), state.ID)
	if err != nil {
		return x.hide(state.ID, err)
	}
	x.json(http.StatusOK, wire.PendingCalls{Items: array(pending)})
	return nil
}

func (x *exchange) branch() error {
	in, err := decode(x, readBranch)
	if err != nil {
		return err
	}
	if in.CheckpointID != "" && in.MessageIndex != nil {
		return session.Invalid("messageIndex", "and checkpointId are both given: choose one")
	}
	ctx, cancel := x.change()
	defer cancel()
	from, err := x.named(ctx)
	if err != nil {
		return err
	}
	agent, err := x.agentFor("id", from)
	if err != nil && (!x.who.Operator || len(in.Message) > 0) { // an operator may copy a session that cannot run any more
		return err
	}
	copied, err := x.server.copies.Take(ctx)
	if err != nil {
		return err
	}
	defer copied()
	in.SessionID = cmp.Or(in.SessionID, session.NewID())
	if len(in.Message) == 0 {
		return x.copy(ctx, from, in)
	}
	run, err := x.execute(ctx, agent, helix.Input{
		SessionID: in.SessionID, Messages: messages(in.Message), User: x.who.user(), RequestID: in.RequestID,
		Branch: &helix.Branch{From: from.ID, Checkpoint: in.CheckpointID, MessageIndex: in.MessageIndex},
	})
	if err != nil {
		return err
	}
	state, record, err := x.opened(ctx, run)
	if err != nil {
		return err
	}
	x.json(http.StatusOK, wire.Branched{
		SessionID: state.ID, StreamID: state.StreamID, RunID: record.ID, StartSequence: record.StartSequence,
	})
	return nil
}

// copy makes a branch without a turn.
func (x *exchange) copy(ctx context.Context, from *session.State, in *wire.Branch) error {
	if in.RequestID != "" {
		return session.Invalid("requestId", "requires a message: without one the branch starts no turn")
	}
	if _, err := x.sessionIfAny(ctx, "sessionId", in.SessionID); err != nil {
		return err
	}
	state, err := engine.Branch(ctx, x.sessions, &session.Clone{
		From: from.ID, CheckpointID: in.CheckpointID, MessageCount: in.MessageIndex,
		To: session.State{
			Tenant: x.who.Tenant, ID: in.SessionID, Agent: from.Agent, StreamID: in.SessionID, Status: session.Active, UserID: x.who.User,
		},
	})
	if err != nil {
		return err
	}
	x.json(http.StatusOK, wire.Branched{SessionID: state.ID, StreamID: state.StreamID})
	return nil
}

func (x *exchange) retry() error {
	in, err := decode(x, readRetry)
	if err != nil {
		return err
	}
	ctx, cancel := x.change()
	defer cancel()
	state, err := x.named(ctx)
	if err != nil {
		return err
	}
	agent, err := x.agentFor("id", state)
	if err != nil {
		return err
	}
	done, err := x.mayRun(ctx, state.ID, in.RequestID)
	if err != nil {
		return err
	}
	defer done()
	run, err := x.executor.Retry(ctx, state.ID, helix.RetryOptions{Agent: agent, RequestID: in.RequestID})
	if err != nil {
		return x.hide(state.ID, err)
	}
	return x.started(ctx, run)
}

func (x *exchange) pause() error {
	in, err := decode(x, readPause)
	if err != nil {
		return err
	}
	ctx, cancel := x.change()
	defer cancel()
	state, err := x.named(ctx)
	if err != nil {
		return err
	}
	done, err := x.sessions.SetStatus(ctx, state.ID, session.StatusChange{
		Expect: []session.Status{state.Status}, To: session.Paused,
		Interrupt: &session.InterruptContext{RunID: state.CurrentRunID, Reason: in.Reason, Step: state.StepCount, At: time.Now()},
	})
	if err != nil {
		return x.hide(state.ID, err)
	}
	if !done.OK {
		return refuse(http.StatusConflict, session.CodeStale, fmt.Sprintf("The session has become %s in the meantime.", done.Status))
	}
	x.json(http.StatusOK, wire.Paused{SessionID: state.ID, Status: session.Paused, Was: state.Status})
	return nil
}

func (x *exchange) remove() error {
	ctx, cancel := x.change()
	defer cancel()
	state, err := x.named(ctx)
	if err != nil {
		return err
	}
	gone, err := x.executor.Sessions().Delete(ctx, state.ID)
	if err != nil {
		return x.hide(state.ID, err)
	}
	x.json(http.StatusOK, wire.Deleted{Sessions: array(gone)})
	return nil
}
