package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// plan is how a turn will start.
type plan struct {
	start      session.StartRun
	history    session.Tail      // before the start's own messages
	answers    []session.Message // to the calls that an earlier run left open
	endedWaits []endedWait       // the waits for people that the start ends
	patches    []session.Patch   // what the start changes in custom state
	// transcript and doc are messages and custom state after the start.
	transcript *session.Transcript
	doc        session.CustomState
	resumes    bool  // the turn continues the step in which an earlier run suspended
	streamed   int64 // the size of the stream, in bytes
}

// plan reads what the start depends on, checks that the session may start, and
// prepares the write.
func (o *opening) plan(ctx context.Context) error {
	req, state := o.req, o.state
	needs := requires(req.Agent)
	if err := session.CheckFeatures(req.SessionID, needs, o.h.cfg.Features); err != nil {
		return err
	}
	p := &plan{doc: state.Custom, start: session.StartRun{
		SessionID: req.SessionID, ExpectVersion: state.Version, ExpectRun: state.CurrentRunID,
		Owner: o.h.owner, TTL: o.h.cfg.LeaseTTL, Resumes: req.Kind == session.RunResume,
		Run: session.Run{
			ID: req.RunID, Kind: req.Kind, Status: session.RunRunning, Agent: req.Agent.Name, Runtime: o.h.cfg.Runtime,
			RequestID: req.RequestID, PreviousRunID: state.CurrentRunID, Requires: needs,
		},
	}}
	o.p = p
	if req.Kind != session.RunExecute {
		p.start.Run.ResumedFrom = state.CheckpointID
	}
	if state.Version == 0 {
		p.start.Create = state
	} else if err := o.planExisting(ctx); err != nil {
		return err
	}
	if p.resumes { // what the step has in the store may need it, whatever the agent is now
		for _, name := range state.Requires {
			if !slices.Contains(needs, name) {
				p.start.Run.Requires = append(slices.Clip(p.start.Run.Requires), name)
			}
		}
	}
	if err := o.planStream(ctx); err != nil {
		return err
	}
	if err := o.planInput(ctx); err != nil {
		return err
	}
	var err error
	if p.transcript, err = p.history.Transcript(p.start.Messages...); err != nil {
		return err
	}
	if p.transcript.Len() == 0 {
		return errNoMessages
	}
	if len(req.messages()) > 0 { // a session without new messages may still finish what it waits for
		size := p.transcript.Bytes() + p.streamed
		if o.h.cfg.weighsBlobs(size) && state.Version > 0 {
			blobs, err := o.h.cfg.Backend.Blobs().Tenant(req.Tenant).Size(ctx, state.ID)
			if err != nil {
				return err
			}
			size += blobs
		}
		if err := o.h.cfg.checkSize(size); err != nil {
			return err
		}
	}
	// Last, because a start that is refused must not end any agent.
	return o.abandonChildren(ctx)
}

// planStream reads where the run's chunks will begin.
func (o *opening) planStream(ctx context.Context) error {
	if o.req.New {
		return nil
	}
	info, err := o.h.cfg.Backend.Streams().Tenant(o.req.Tenant).Info(ctx, o.state.StreamID)
	switch {
	case err == nil:
		o.p.start.Run.StartSequence, o.p.streamed = info.Last, info.Bytes
	case !errors.Is(err, session.ErrNotFound):
		return err
	}
	return nil
}

// planExisting plans what the start changes in a session that exists.
func (o *opening) planExisting(ctx context.Context) error {
	if err := o.gate(ctx); err != nil {
		return err
	}
	o.p.start.ExpiresAt = o.moveExpiry()
	if o.state.ClosePending {
		if err := o.h.closer(o.sessions).closeEarlier(ctx, o.state); err != nil {
			return err
		}
	}
	if err := o.readHistory(ctx); err != nil {
		return err
	}
	if err := o.rewind(ctx); err != nil {
		return err
	}
	if err := o.planSuspendedStep(ctx); err != nil {
		return err
	}
	return o.p.complete(o.req.rest)
}

// readHistory reads what the model will be sent of the history, or all of it if the
// start may rewind the session, perhaps to before the last marker.
func (o *opening) readHistory(ctx context.Context) (err error) {
	if o.req.Kind == session.RunRetry || (o.req.Kind == session.RunResume && o.req.Resume.Checkpoint != "") {
		o.p.history.Messages, err = o.sessions.AllMessages(ctx, o.req.SessionID)
	} else {
		o.p.history, err = session.ReadView(ctx, o.sessions, o.state)
	}
	return err
}

// moveExpiry is the expiry that the start of a turn gives the session, or nil to keep
// it. An expiry that the caller gives stands; any other was for the time in which
// nobody used the session. While a turn runs, a session of an agent with a
// SessionExpiry has none: the turn's last commit sets it; see [turn.expiry].
func (o *opening) moveExpiry() *time.Time {
	switch given := o.req.Input.ExpiresAt; {
	case o.req.caller != nil || o.state.ParentID != "":
		return nil
	case !given.IsZero():
		return new(given.UTC())
	case o.state.ExpiresAt.IsZero():
		return nil
	case o.req.Agent.SessionExpiry > 0 || !time.Now().Before(o.state.ExpiresAt):
		return new(time.Time{})
	}
	return nil
}

// rewind rewinds a retry to the last good checkpoint, and a resume to the checkpoint
// that it names.
func (o *opening) rewind(ctx context.Context) error {
	var to *session.Checkpoint
	var err error
	switch {
	case o.req.Kind == session.RunRetry:
		to, err = o.sessions.LatestCheckpoint(ctx, o.req.SessionID)
		if errors.Is(err, session.ErrNotFound) {
			return session.ErrNotResumable.WithMessage("the session has no checkpoint to retry from")
		}
	case o.req.Kind == session.RunResume && o.req.Resume.Checkpoint != "":
		to, err = o.sessions.Checkpoint(ctx, o.req.SessionID, o.req.Resume.Checkpoint)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if to.Version > o.state.Version {
		return session.ErrStale.WithMessage("session %s has changed since it was read", o.req.SessionID)
	}
	if to.Undone {
		return session.ErrNotResumable.WithMessage("checkpoint %s was undone by a later rewind", to.ID)
	}
	o.p.start.Run.CheckpointID, o.p.start.Run.ResumedFrom = to.ID, to.ID
	if to.MessageCount > len(o.p.history.Messages) {
		return session.ErrCorrupt.WithMessage("checkpoint %s is past the end of the transcript", to.ID)
	}
	keep := to.MessageCount
	if o.req.Resume.ReplaceInput {
		if keep = beforeInput(o.p.history.Messages[:keep]); keep == to.MessageCount {
			return session.ErrNotResumable.WithMessage("checkpoint %s does not end in messages that began a turn, so there is nothing to replace", to.ID)
		}
	} else if to.Version == o.state.Version {
		return nil
	}
	o.p.history.Messages = o.p.history.Messages[:keep]
	o.p.start.KeepMessages = &keep
	if to.State != nil {
		o.p.doc = to.State.Clone()
		o.p.start.State = to.State
	}
	return nil
}

// beforeInput is the number of messages before those with which a run began, if the
// history ends with them. Markers may follow them.
func beforeInput(history []session.Message) int {
	last := len(history) - 1
	for last >= 0 && history[last].Compaction() != nil {
		last--
	}
	n := last + 1
	for n > 0 && history[n-1].Role == session.RoleUser && history[n-1].RunID == history[last].RunID {
		n--
	}
	if n == last+1 {
		return len(history)
	}
	return n
}

// planInput adds the messages with which the turn begins: results of calls that were
// left open, then those of the request.
func (o *opening) planInput(ctx context.Context) error {
	p, req := o.p, o.req
	now := time.Now().UTC()
	messages := p.answers
	if !p.resumes && messages == nil {
		messages = session.Heal(p.history.Messages, func(call session.Part) *session.Error {
			// If an extension cannot be asked, only the text of the error is less exact.
			if tool, _ := toolOutside(ctx, req.Agent, call.Tool); tool != nil && mayWait(tool) {
				return toolError(session.CodeAbandoned, "the session continued without an answer")
			}
			return toolError(session.CodeToolNotRun, "the call was not carried out")
		})
	}
	given := req.messages()
	if req.Inbox {
		sent, took, err := readInbox(ctx, o.sessions, req.SessionID)
		if err != nil {
			return err
		}
		if len(sent) == 0 {
			return errNothingToDo
		}
		given, p.start.Consume = append(given, sent...), took.Consume
		p.start.Resolve = append(p.start.Resolve, took.Resolve...)
	}
	if len(given) == 0 && len(messages) == 0 && !p.resumes && endsInReply(session.View(p.history.Messages)) {
		// Providers require the last message to be the user's.
		given = []session.Message{helix.Hidden(session.UserText("Continue where you stopped."))}
	}
	for i, m := range given {
		if m.ID == "" {
			m.ID = fmt.Sprintf("%s/in/%d", req.RunID, i)
		}
		messages = append(messages, m)
	}
	for i := range messages {
		messages[i].RunID = req.RunID
		if messages[i].At.IsZero() {
			messages[i].At = now
		}
	}
	p.start.Messages = messages
	p.start.Status = session.Active
	p.start.Checkpoint = &session.NewCheckpoint{
		ID:     session.CheckpointID(req.SessionID, 0, now, req.RunID),
		Source: session.FromSave, StreamSequence: p.start.Run.StartSequence,
	}
	if p.resumes { // nothing is ever rewound into the middle of a step
		p.start.Checkpoint = nil
	}
	return nil
}

var errNoMessages = session.ErrNotResumable.WithMessage("the session has no messages to continue from")

func endsInReply(history []session.Message) bool {
	return len(history) > 0 && history[len(history)-1].Role == session.RoleAssistant
}

// complete adds what a copy lacks that was cut short.
func (p *plan) complete(rest *tail) error {
	if rest == nil || len(rest.messages) == 0 {
		return nil
	}
	p.answers, p.start.Writes = rest.messages, rest.writes
	doc := p.doc.Clone()
	if err := doc.Apply(rest.writes); err != nil {
		return err
	}
	p.doc, p.patches = doc, session.ResultPatches(&doc, rest.writes)
	return nil
}
