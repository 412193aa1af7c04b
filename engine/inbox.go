package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// The kinds of inbox entries.
const (
	inboxMessage = "message"         // a text from the agent that called the session
	inboxEnded   = "companion_ended" // a [childStatus]: a companion has ended
	inboxLate    = "late_answer"     // a [lateAnswer]
	// inboxWithdrawn withdraws the message whose id follows withdrawnPrefix in its
	// own.
	inboxWithdrawn = "message_withdrawn"
)

// The prefixes of ids.
const (
	inboxPrefix     = "inbox/"     // of a message that was sent
	withdrawnPrefix = "withdrawn/" // of an entry that withdraws another
)

// lateAnswer is an answer that arrived after its call had timed out.
type lateAnswer struct {
	Tool     string            `json:"tool"`
	CallID   string            `json:"toolCallId"`
	Response *session.Response `json:"response"`
}

// consumeInbox adds what was sent to the session to the transcript, before the model
// is asked.
func (t *turn) consumeInbox(ctx context.Context, e effect) error {
	if !t.inbox || len(t.prepared) > 0 { // watchers saw the prepared messages, which nothing may come before
		return nil
	}
	messages, took, err := readInbox(ctx, t.sessions, t.key.ID)
	if err != nil || len(messages) == 0 {
		return err
	}
	for i := range messages {
		messages[i].RunID, messages[i].Step, messages[i].At = t.run.ID, t.current(), time.Now().UTC()
	}
	t.emit(stream.Chunk{Kind: stream.InputReceived, Messages: messages})
	took.Messages, took.Writes, took.Run = messages, t.hooks.written, t.runChange("")
	t.emitPatches(took.Writes)
	_, err = t.commit(ctx, t.newCommit(e.Key()+"/inbox/"+took.Consume[0], took))
	return err
}

// readInbox makes messages of what was sent to a session. It also returns the change
// that marks the entries as consumed.
func readInbox(ctx context.Context, sessions session.Store, id string) (messages []session.Message, took session.Change, err error) {
	entries, err := retry.Do(ctx, func() ([]session.InboxEntry, error) { return sessions.Inbox(ctx, id) })
	if err != nil {
		return nil, took, err
	}
	withdrawn := map[string]bool{}
	for i := range entries {
		if of, ok := strings.CutPrefix(entries[i].ID, withdrawnPrefix); ok && entries[i].Kind == inboxWithdrawn {
			withdrawn[of], withdrawn[entries[i].ID] = true, true
		}
	}
	if slices.ContainsFunc(entries, func(e session.InboxEntry) bool { return e.Kind == inboxEnded }) {
		refs, err := retry.Do(ctx, func() ([]session.ChildRef, error) { return sessions.Children(ctx, id) })
		if err != nil {
			return nil, took, err
		}
		superseded := map[string]bool{}
		for i := range refs {
			superseded[refs[i].SessionID] = refs[i].Status == session.ChildSuperseded
		}
		for i := range entries { // the notice may have arrived while the rewind began
			if entries[i].Kind == inboxEnded && superseded[entries[i].From] {
				withdrawn[entries[i].ID] = true
			}
		}
	}
	for i := range entries {
		took.Consume = append(took.Consume, entries[i].ID)
		if withdrawn[entries[i].ID] {
			continue
		}
		m := inboxText(&entries[i])
		m.ID = inboxPrefix + entries[i].ID
		messages = append(messages, m)
		var late lateAnswer
		if entries[i].Kind == inboxLate && json.Unmarshal(entries[i].Body, &late) == nil {
			took.Resolve = append(took.Resolve, session.Resolution{CallID: late.CallID, Noticed: true})
		}
	}
	return messages, took, nil
}

func inboxText(entry *session.InboxEntry) session.Message {
	switch entry.Kind {
	case inboxMessage:
		var text string
		if json.Unmarshal(entry.Body, &text) == nil {
			return session.UserText(text)
		}
	case inboxEnded:
		var status childStatus
		if json.Unmarshal(entry.Body, &status) == nil {
			return helix.Hidden(session.UserText(endedText(&status)))
		}
	case inboxLate:
		var late lateAnswer
		if json.Unmarshal(entry.Body, &late) == nil && late.Response != nil {
			return helix.Hidden(session.UserText(lateText(&late)))
		}
	}
	return helix.Hidden(session.UserText(fmt.Sprintf("Notice (%s): %s", entry.Kind, entry.Body)))
}

func endedText(s *childStatus) string {
	switch {
	case s.Error != "":
		return fmt.Sprintf("Notice: the agent %s (%s) has %s: %s", s.Name, s.Agent, s.Status, s.Error)
	case s.Output != nil:
		return fmt.Sprintf("Notice: the agent %s (%s) has %s. Its result: %s", s.Name, s.Agent, s.Status, s.Output)
	}
	return fmt.Sprintf("Notice: the agent %s (%s) is %s.", s.Name, s.Agent, s.Status)
}

func lateText(late *lateAnswer) string {
	answer := "the answer was: " + string(late.Response.Result)
	switch r := late.Response; {
	case r.Kind == session.PendingApproval && r.Approved:
		answer = "it was approved. It was not carried out; call the tool again if it is still wanted"
	case r.Kind == session.PendingApproval && r.Reason != "":
		answer = "it was not approved: " + r.Reason
	case r.Kind == session.PendingApproval:
		answer = "it was not approved"
	case r.Error != "":
		answer = "the answer was an error: " + r.Error
	case r.Declined:
		answer = "the person did not want to answer its question"
	case r.Kind == session.PendingQuestion && r.Answer == nil:
		answer = "what it asked for was done. Call the tool again if it is still wanted"
	case r.Kind == session.PendingQuestion:
		answer = "the answer to its question was: " + string(r.Answer) + ". Call the tool again if it is still wanted"
	}
	return fmt.Sprintf("Notice: the call of %s that had timed out has been answered since; %s.", late.Tool, answer)
}

// Deliver handles a wake: it notifies the caller that a companion has ended. It
// returns the session that can be resumed now, or nil. When that is done, the wake is
// removed with [Handler.Delivered].
func (h *Handler) Deliver(ctx context.Context, wake session.Wake) (*session.Key, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(wake.Tenant)
	state, err := sessions.Load(ctx, wake.SessionID)
	if errors.Is(err, session.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if wake.ChildID == wake.SessionID && state.RootID != "" {
		if ref, err := remoteRef(ctx, sessions, state); err != nil || ref != nil {
			return nil, cmp.Or(err, error(ErrStopUndelivered))
		}
	}
	if wake.ChildID != wake.SessionID {
		awaited, err := h.tree(sessions).notifyParent(ctx, state, wake)
		if err != nil || (!awaited && !detached(state)) {
			return nil, err
		}
	}
	return &session.Key{Tenant: state.Tenant, ID: headOf(state)}, nil
}

// Delivered removes a wake.
func (h *Handler) Delivered(ctx context.Context, wake session.Wake) error {
	return h.cfg.Backend.Sessions().Tenant(wake.Tenant).DeleteWake(ctx, wake)
}

// notifyParent records a companion's end in the session that called it. It reports
// whether a call waits for the companion; then that call gets the result, and no
// notice is sent.
func (r *tree) notifyParent(ctx context.Context, parent *session.State, wake session.Wake) (awaited bool, err error) {
	if _, err := loadChild(ctx, r.sessions, parent.ID, wake.ChildID); err != nil {
		return false, absent(err)
	}
	run, err := r.sessions.Run(ctx, wake.ChildID, wake.RunID)
	if errors.Is(err, session.ErrNotFound) {
		return false, nil
	}
	if err != nil || !run.Status.Ended() {
		return false, err
	}
	ref, err := r.sessions.UpdateChild(ctx, parent.ID, wake.ChildID, func(ref *session.ChildRef) error {
		if ref.Status == session.ChildRunning || ref.Status == session.ChildWaiting {
			if ref.Status = session.ChildCompleted; run.Status != session.RunCompleted {
				ref.Status = session.ChildFailed
			}
		}
		return nil
	})
	if errors.Is(err, session.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if ref.Awaited || ref.Status == session.ChildTerminated || ref.Status == session.ChildSuperseded {
		return ref.Awaited, nil
	}
	return false, r.sessions.Send(ctx, parent.ID, session.InboxEntry{
		ID: "ended/" + wake.RunID, From: wake.ChildID, Kind: inboxEnded,
		Body: encoded(statusOf(ref.Name, ref.Agent, session.ChildRunning, run)),
	})
}
