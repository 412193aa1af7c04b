package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// chatMessages returns a chat as UI messages. It omits the reply of a run in progress,
// because the client receives it when it resumes the stream.
func (x *exchange) chatMessages() error {
	asked, err := x.askedMessages()
	if err != nil {
		return err
	}
	ctx := x.r.Context()
	state, err := x.session(ctx, "id", x.r.PathValue("id"))
	if err != nil {
		return err
	}
	chat, err := x.chatOf(ctx, state.ID, asked)
	if err != nil {
		return x.hide(state.ID, err)
	}
	switch {
	case chat.HasMore != nil && *chat.HasMore: // the client reads more pages before it opens the stream
	case !chat.Running:
		x.server.reloads.opens(x.browser(state.ID), "")
	case !asked.tail:
		x.server.reloads.opens(x.browser(state.ID), chat.RunID)
	}
	x.json(http.StatusOK, chat)
	return nil
}

// askedMessages is what a client requests of a chat.
type askedMessages struct {
	version       aisdk.Version
	options       aisdk.Options
	tail          bool
	paged         bool
	offset, limit int
}

// messageParameters are the parameters of a chat's messages.
var messageParameters = []parameter{
	{name: "tail", kind: "boolean", about: "Include the committed part of the reply in progress, for a client that then continues the stream at that sequence."},
	{name: "offset", kind: "integer", about: "Return a page that starts with the message at this index; the oldest has index 0."},
	{name: "limit", kind: "integer", about: "Return a page of this many messages, at most 200. Defaults to 50 with an offset. Without both, the newest messages are returned."},
	{name: "includeReasoning", kind: "boolean", about: "Whether the model's reasoning is included. Defaults to true."},
	{name: "includeToolResults", kind: "boolean", about: "Whether the results of tools are included; otherwise their output is null. Defaults to true."},
}

func (x *exchange) askedMessages() (*askedMessages, error) {
	version, err := x.sdk()
	if err != nil {
		return nil, err
	}
	q := x.query()
	asked := &askedMessages{
		version: version, options: x.server.cfg.Chat, tail: q.flag("tail"), paged: q.Has("offset") || q.Has("limit"),
		offset: q.number("offset", 0, maxOffset), limit: cmp.Or(q.number("limit", 1, session.MaxPageSize), session.DefaultPageSize),
	}
	asked.options.OmitReasoning = asked.options.OmitReasoning || !q.flagOr("includeReasoning", true)
	asked.options.OmitToolResults = asked.options.OmitToolResults || !q.flagOr("includeToolResults", true)
	if asked.tail && asked.paged {
		q.refuse("tail", "cannot be combined with offset or limit")
	}
	return asked, q.err
}

// chatTries limits how often a chat is read again because it changed in the meantime.
const chatTries = 16

func (x *exchange) chatOf(ctx context.Context, id string, asked *askedMessages) (*aisdk.Chat, error) {
	read := x.recent
	if asked.paged {
		read = x.chats().all
	}
	for range chatTries {
		shot, err := read(ctx, id)
		if err != nil {
			return nil, err
		}
		chat, err := x.chatAt(ctx, shot, asked)
		if err != nil {
			return nil, err
		}
		if chat.Running { // its content does not change
			return chat, nil
		}
		if same, err := x.chats().unchanged(ctx, shot); err != nil || same {
			return chat, err
		}
	}
	return nil, errChanges(id)
}

func errChanges(id string) error {
	return session.ErrUnavailable.WithMessage("session %s changed during every attempt to read it", id)
}

// recent returns a session with its newest messages that fit into a response, starting with
// one of the user's. If the last reply alone is larger, it returns more.
func (x *exchange) recent(ctx context.Context, id string) (*store.Snapshot, error) {
	limit := x.server.cfg.Limits.PageBytes
	shot, err := x.newest(ctx, id, limit)
	if err != nil || shot != nil {
		return shot, err
	}
	done, err := x.whole(ctx) // the next steps may read the whole session
	if err != nil {
		return nil, err
	}
	defer done()
	for shot == nil && err == nil {
		limit *= 4
		shot, err = x.newest(ctx, id, limit)
	}
	return shot, err
}

// newest returns a session with its newest messages within a limit, starting with the first
// of the user's; nil if there is none.
func (x *exchange) newest(ctx context.Context, id string, limit int64) (*store.Snapshot, error) {
	shot, err := store.TakeRecent(ctx, x.sessions, x.streams, id, limit)
	if err != nil || shot.Skipped == 0 {
		return shot, err
	}
	at := slices.IndexFunc(shot.Messages, func(m session.Message) bool { return m.Role == session.RoleUser && !m.Hidden() })
	if at < 0 {
		return nil, nil
	}
	shot.Messages, shot.Skipped = shot.Messages[at:], shot.Skipped+at
	return shot, nil
}

// chatAt returns the chat of a session at one moment.
func (x *exchange) chatAt(ctx context.Context, shot *store.Snapshot, asked *askedMessages) (*aisdk.Chat, error) {
	state, chats := shot.State, x.chats()
	chat := &aisdk.Chat{SessionID: state.ID, Sequence: shot.Sequence, Earlier: shot.Skipped}
	if run := shot.Run; run != nil {
		chat.RunID, chat.Running = run.ID, run.Status == session.RunRunning
		chat.Error = x.runFailure(state.Error)
	}
	t, err := chats.transcript(ctx, shot, asked.tail, x.userText)
	if err != nil {
		return nil, err
	}
	skip := 0
	if asked.paged {
		var total int
		t, skip, total = t.Page(asked.offset, asked.limit)
		chat.Total = &total
	}
	if t.Waits, err = chats.waits(ctx, state, t.Messages); err != nil {
		return nil, err
	}
	if chat.Waiting, err = x.executor.Waiting(ctx, state.ID); err != nil {
		return nil, err
	}
	chat.Waiting = array(chat.Waiting)
	chat.Messages = aisdk.History(aisdk.Config{Version: asked.version, Options: asked.options}, t)
	if asked.paged {
		if chat.Messages, err = fitting(pageOf(chat.Messages, skip, asked.limit), x.server.cfg.Limits.PageBytes); err != nil {
			return nil, err
		}
		more := asked.offset+len(chat.Messages) < *chat.Total
		chat.HasMore = &more
	}
	return chat, nil
}

// pageOf returns a page of messages.
func pageOf(messages []aisdk.Message, skip, limit int) []aisdk.Message {
	skip = min(skip, len(messages))
	return messages[skip:min(skip+limit, len(messages))]
}

// fitting returns as many messages as fit into limit bytes, and at least one.
func fitting(messages []aisdk.Message, limit int64) ([]aisdk.Message, error) {
	size := int64(0)
	for i := range messages {
		raw, err := session.Encode(&messages[i])
		if err != nil {
			return nil, err
		}
		if size += int64(len(raw)); size > limit && i > 0 {
			return messages[:i], nil
		}
	}
	return messages, nil
}

// chats reads conversations as pages show them.
type chats struct {
	sessions session.Store
	streams  stream.Manager
	// whole is called before a whole transcript is read.
	whole func(context.Context) (done func(), err error)
	// step limits the bytes that are read of an unfinished step.
	step int64
}

func (x *exchange) chats() *chats {
	return &chats{sessions: x.sessions, streams: x.streams, whole: x.whole, step: x.server.cfg.Limits.PageBytes}
}

// all returns a session with all of its messages.
func (c *chats) all(ctx context.Context, id string) (*store.Snapshot, error) {
	done, err := c.whole(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return store.TakeSnapshot(ctx, c.sessions, c.streams, id)
}

// unchanged reports whether a session is still as it was read.
func (c *chats) unchanged(ctx context.Context, shot *store.Snapshot) (bool, error) {
	again, err := c.sessions.Load(ctx, shot.State.ID)
	if err != nil {
		return false, err
	}
	return again.Version == shot.State.Version && again.CurrentRunID == shot.State.CurrentRunID, nil
}

// transcript returns what a chat's messages are built from, except for the waiting calls.
// told returns the text for a failed run.
func (c *chats) transcript(ctx context.Context, shot *store.Snapshot, tail bool, told func(*session.Error) string) (*aisdk.Transcript, error) {
	state, run := shot.State, shot.Run
	t := &aisdk.Transcript{SessionID: state.ID, Messages: shot.Messages}
	if run != nil && run.Status == session.RunRunning {
		t.Running, t.Begun = true, tail
		return t, nil
	}
	if run != nil {
		t.Metadata = &aisdk.Metadata{SessionID: state.ID, RunID: run.ID, Status: string(run.Status), Usage: &run.Usage}
		if run.Status.Suspended() {
			t.Metadata.Status = "waiting"
		}
		if state.Error != nil {
			t.Metadata.Code = state.Error.Code
			if state.Error.Code != session.CodeCancelled { // a stop is not an error
				t.Metadata.Error = told(state.Error)
			}
		}
	}
	var err error
	if shot.CheckpointID != "" { // the session waits in mid-step, or has just ended
		t.Messages, t.Suspended, err = c.midStep(ctx, shot)
	}
	return t, err
}

// midStep returns the transcript of a session that waits in mid-step, with the results so
// far.
func (c *chats) midStep(ctx context.Context, shot *store.Snapshot) ([]session.Message, bool, error) {
	messages := slices.Clip(shot.Messages)
	since, err := c.sessions.Messages(ctx, shot.State.ID, session.PageRequest{
		Offset: shot.Skipped + len(shot.Messages), Limit: session.MaxPageSize, MaxBytes: c.step,
	})
	messages = append(messages, since.Items...)
	if err != nil || shot.State.SuspendedStep == "" {
		return messages, false, err
	}
	rows, err := c.sessions.Calls(ctx, shot.State.ID, shot.State.SuspendedStep)
	if err != nil {
		return nil, false, err
	}
	for i := range rows {
		if rows[i].Result != nil {
			messages = append(slices.Clip(messages), *rows[i].Result)
		}
	}
	return messages, shot.State.Status == session.Active || shot.State.Status == session.Paused, nil
}

// waits returns the calls of messages, and of the agents that they called, that wait or
// waited for people.
func (c *chats) waits(ctx context.Context, state *session.State, messages []session.Message) ([]aisdk.Wait, error) {
	made := map[string]bool{}
	for i := range messages {
		for _, call := range messages[i].Calls() {
			made[call.CallID] = true
		}
	}
	if len(made) == 0 {
		return nil, nil
	}
	pending, err := c.sessions.PendingCalls(ctx, state.ID, true)
	if err != nil {
		return nil, err
	}
	var out []aisdk.Wait
	for i := range pending {
		if made[pending[i].Call()] {
			out = append(out, aisdk.Wait{Pending: pending[i]})
		}
	}
	refs, err := c.sessions.Children(ctx, state.ID)
	if err != nil {
		return nil, err
	}
	for i := range refs {
		if made[refs[i].CallID] {
			if out, err = c.waitsBelow(ctx, out, state.ID, &refs[i], refs[i].CallID, 0); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// waitsBelow adds the waiting calls of an agent that shares the session's stream.
func (c *chats) waitsBelow(
	ctx context.Context, out []aisdk.Wait, parent string, ref *session.ChildRef, under string, depth int,
) ([]aisdk.Wait, error) {
	if depth > maxDepth || (ref.Mode == session.ChildPersistent && !ref.Blocking) {
		return out, nil
	}
	child, err := c.sessions.Load(ctx, ref.SessionID)
	if errors.Is(err, session.ErrNotFound) || (err == nil && child.ParentID != parent) {
		return out, nil // it was never started, or belongs to somebody else
	}
	if err != nil {
		return nil, err
	}
	pending, err := c.sessions.PendingCalls(ctx, ref.SessionID, true)
	if err != nil {
		return nil, hide(ref.SessionID, err)
	}
	if len(pending) > 0 {
		results, err := c.results(ctx, ref.SessionID)
		if err != nil {
			return nil, err
		}
		for i := range pending {
			out = append(out, aisdk.Wait{Pending: pending[i], Under: under, Agent: child.Agent, Result: results[pending[i].Call()]})
		}
	}
	refs, err := c.sessions.Children(ctx, ref.SessionID)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	for i := range refs {
		if out, err = c.waitsBelow(ctx, out, ref.SessionID, &refs[i], under, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// results returns the results of a session's calls.
func (c *chats) results(ctx context.Context, id string) (map[string]*session.Message, error) {
	done, err := c.whole(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	messages, err := c.sessions.AllMessages(ctx, id)
	if err != nil {
		return nil, err
	}
	out := map[string]*session.Message{}
	for i := range messages {
		if m := &messages[i]; m.Role == session.RoleTool && len(m.Parts) > 0 {
			out[m.Parts[0].CallID] = m
		}
	}
	return out, nil
}
