package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// chatMessages reads a chat as UI messages. While a run is at work its reply is left
// out, for the client is shown it from its beginning when it resumes the stream.
func (x *exchange) chatMessages() error {
	version, err := x.sdk()
	if err != nil {
		return err
	}
	q := x.query()
	tail := q.flag("tail")
	if q.err != nil {
		return q.err
	}
	ctx := x.r.Context()
	state, err := x.session(ctx, "id", x.r.PathValue("id"))
	if err != nil {
		return err
	}
	chat, err := x.chatOf(ctx, state.ID, version, tail)
	if err != nil {
		return x.hide(state.ID, err)
	}
	switch {
	case !chat.Running:
		x.server.reloads.opens(x.browser(state.ID), "")
	case !tail:
		x.server.reloads.opens(x.browser(state.ID), chat.RunID)
	}
	x.json(http.StatusOK, chat)
	return nil
}

// chatTries bounds how often a chat is read again because it went on meanwhile.
const chatTries = 16

func (x *exchange) chatOf(ctx context.Context, id string, version aisdk.Version, tail bool) (*aisdk.Chat, error) {
	for range chatTries {
		shot, err := x.recent(ctx, id)
		if err != nil {
			return nil, err
		}
		chat, err := x.chatAt(ctx, shot, version, tail)
		if err != nil {
			return nil, err
		}
		if chat.Running { // what it holds does not change
			return chat, nil
		}
		again, err := x.sessions.Load(ctx, id)
		if err != nil {
			return nil, err
		}
		if again.Version == shot.State.Version && again.CurrentRunID == shot.State.CurrentRunID {
			return chat, nil
		}
	}
	return nil, session.ErrUnavailable.WithMessage("session %s changes too fast to be read", id)
}

// recent is a session with as many of its newest messages as an answer may hold,
// beginning with one of the user's. Where the last reply alone is larger than that, it
// has more.
func (x *exchange) recent(ctx context.Context, id string) (*store.Snapshot, error) {
	limit := x.server.cfg.Limits.PageBytes
	shot, err := x.newest(ctx, id, limit)
	if err != nil || shot != nil {
		return shot, err
	}
	done, err := x.server.transcripts.take(ctx) // what follows may read the whole session
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

// newest is a session with its newest messages within a limit, from the first of the
// user's on; nil if there is none among them.
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

// chatAt makes the chat that a session was at one moment.
func (x *exchange) chatAt(ctx context.Context, shot *store.Snapshot, version aisdk.Version, tail bool) (*aisdk.Chat, error) {
	state := shot.State
	t := &aisdk.Transcript{SessionID: state.ID, Messages: shot.Messages}
	chat := &aisdk.Chat{SessionID: state.ID, Sequence: shot.Sequence, Earlier: shot.Skipped}
	if run := shot.Run; run != nil {
		chat.RunID, chat.Running = run.ID, run.Status == session.RunRunning
		t.Metadata = &aisdk.Metadata{SessionID: state.ID, RunID: run.ID, Status: string(run.Status), Usage: &run.Usage}
		if run.Status.Suspended() {
			t.Metadata.Status = "waiting"
		}
		if state.Error != nil {
			t.Metadata.Code = state.Error.Code
			if state.Error.Code != session.CodeCancelled { // a stop is no error
				t.Metadata.Error = x.userText(state.Error)
			}
			chat.Error = x.runFailure(state.Error)
		}
	}
	var err error
	switch {
	case chat.Running:
		t.Running, t.Begun, t.Metadata = true, tail, nil
	case shot.CheckpointID != "": // it waits in mid-step, or has just ended
		t.Messages, t.Suspended, err = x.midStep(ctx, shot)
	}
	if err != nil {
		return nil, err
	}
	if t.Waits, err = x.waits(ctx, state, t.Messages); err != nil {
		return nil, err
	}
	if chat.Waiting, err = x.executor.Waiting(ctx, state.ID); err != nil {
		return nil, err
	}
	chat.Waiting = array(chat.Waiting)
	chat.Messages = aisdk.History(aisdk.Config{Version: version}, t)
	return chat, nil
}

// midStep is the transcript of a session that waits in mid-step, with the results
// that are there already.
func (x *exchange) midStep(ctx context.Context, shot *store.Snapshot) ([]session.Message, bool, error) {
	messages := slices.Clip(shot.Messages)
	since, err := x.sessions.Messages(ctx, shot.State.ID, session.PageRequest{
		Offset: shot.Skipped + len(shot.Messages), Limit: session.MaxPageSize, MaxBytes: x.server.cfg.Limits.PageBytes,
	})
	messages = append(messages, since.Items...)
	if err != nil || shot.State.SuspendedStep == "" {
		return messages, false, err
	}
	rows, err := x.sessions.Calls(ctx, shot.State.ID, shot.State.SuspendedStep)
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

// waits finds the calls of messages, and of the agents that they called, which wait
// or waited for people.
func (x *exchange) waits(ctx context.Context, state *session.State, messages []session.Message) ([]aisdk.Wait, error) {
	made := map[string]bool{}
	for i := range messages {
		for _, call := range messages[i].Calls() {
			made[call.CallID] = true
		}
	}
	if len(made) == 0 {
		return nil, nil
	}
	pending, err := x.sessions.PendingCalls(ctx, state.ID, true)
	if err != nil {
		return nil, err
	}
	var out []aisdk.Wait
	for i := range pending {
		if made[pending[i].CallID] {
			out = append(out, aisdk.Wait{Pending: pending[i]})
		}
	}
	refs, err := x.sessions.Children(ctx, state.ID)
	if err != nil {
		return nil, err
	}
	for i := range refs {
		if made[refs[i].CallID] {
			if out, err = x.waitsBelow(ctx, out, state.ID, &refs[i], refs[i].CallID, 0); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// waitsBelow adds the waits of an agent that shares the session's stream.
func (x *exchange) waitsBelow(
	ctx context.Context, out []aisdk.Wait, parent string, ref *session.ChildRef, under string, depth int,
) ([]aisdk.Wait, error) {
	if depth > maxDepth || (ref.Mode == session.ChildPersistent && !ref.Blocking) {
		return out, nil
	}
	child, err := x.sessions.Load(ctx, ref.SessionID)
	if errors.Is(err, session.ErrNotFound) || (err == nil && child.ParentID != parent) {
		return out, nil // it was never started, or is somebody else's
	}
	if err != nil {
		return nil, err
	}
	pending, err := x.sessions.PendingCalls(ctx, ref.SessionID, true)
	if err != nil {
		return nil, x.hide(ref.SessionID, err)
	}
	if len(pending) > 0 {
		results, err := x.results(ctx, ref.SessionID)
		if err != nil {
			return nil, err
		}
		for i := range pending {
			out = append(out, aisdk.Wait{Pending: pending[i], Under: under, Result: results[pending[i].CallID]})
		}
	}
	refs, err := x.sessions.Children(ctx, ref.SessionID)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	for i := range refs {
		if out, err = x.waitsBelow(ctx, out, ref.SessionID, &refs[i], under, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// results are those of a session's calls.
func (x *exchange) results(ctx context.Context, id string) (map[string]*session.Part, error) {
	messages, err := x.transcript(ctx, id)
	if err != nil {
		return nil, err
	}
	out := map[string]*session.Part{}
	for i := range messages {
		if m := &messages[i]; m.Role == session.RoleTool && len(m.Parts) > 0 {
			out[m.Parts[0].CallID] = &m.Parts[0]
		}
	}
	return out, nil
}
