package session

import (
	"context"
	"time"
)

// Edit is a write to a session outside a run. A store applies all of it in one
// atomic write, or none of it; zero fields leave the session as it is. The
// functions below, such as [Save] and [AppendMessages], are the edits that
// applications make.
//
// An edit raises the session's version and is refused while a run holds the
// session; see [Edit.Guard]. An edit of metadata and child references alone is
// allowed at any time and does not raise the version; see [Edit.AllowedDuringRun].
type Edit struct {
	SessionID string
	// Version, when not 0, is the version that the session must have. An edit with a
	// Document always states it.
	Version int64
	// Read, if set, is the session as the caller has read it. The edit is refused with
	// [ErrStale] if that session was deleted meanwhile and another one has its id: the
	// versions of that one begin anew, and may have reached Version.
	Read *State
	// Create is the new session's document; the edit is refused with [ErrExists] if
	// the session exists. Without Create the session must exist.
	Create *State
	// Document replaces the fields of the session that a caller may write. Custom
	// state, counters, the lease and everything that is kept in rows of its own are
	// ignored. A new UserID is also written to all sessions below that had the old
	// one; their versions do not change.
	Document *State
	// Metadata sets and, where the value is nil, deletes metadata entries.
	Metadata map[string]*string
	// Steps and Resumes are added to the session's counters.
	Steps, Resumes int
	// Change must not contain what only a run can write: StepCount, Calls, Pending,
	// Run and Outcome.
	Change
}

// Edited is the outcome of an edit.
type Edited struct {
	Committed
	// StepCount and ResumeCount are the session's counters after an edit that raises
	// the version.
	StepCount   int
	ResumeCount int
}

// Check returns an error if no store could apply the edit.
func (e *Edit) Check() error {
	for _, document := range []*State{e.Create, e.Document} {
		if document == nil {
			continue
		}
		if document.ID != e.SessionID {
			return Invalid("session id", "%q does not match the document, %q", e.SessionID, document.ID)
		}
		if err := document.Check(); err != nil {
			return err
		}
	}
	switch {
	case e.Create != nil && e.Document != nil:
		return Invalid("edit", "must not both create a session and replace its document")
	case e.Steps < 0 || e.Resumes < 0:
		return Invalid("edit", "must not decrease a counter: %d steps, %d resumes", e.Steps, e.Resumes)
	case e.StepCount != nil || len(e.Calls) > 0 || len(e.Pending) > 0 || e.Run != nil || e.Outcome != nil:
		return Invalid("edit", "has a step count, calls, waits or an outcome, which only a run writes")
	}
	if err := CheckMetadata(e.Metadata); err != nil {
		return err
	}
	if err := checkTasksOf(e.SessionID, e.Tasks); err != nil {
		return err
	}
	return e.Change.Check()
}

// AllowedDuringRun reports whether the edit is limited to metadata and child references,
// which processes other than the holder of the lease may write during a run. Such
// an edit does not raise the version.
func (e *Edit) AllowedDuringRun() bool {
	c := &e.Change
	return (e.Metadata != nil || c.Children != nil) &&
		e.Version == 0 && e.Read == nil && e.Create == nil && e.Document == nil && e.Steps == 0 && e.Resumes == 0 &&
		c.Status == "" && c.KeepMessages == nil && c.Messages == nil && c.State == nil && c.Writes.Empty() &&
		c.StepCount == nil && c.Calls == nil && c.Promote == nil && c.Pending == nil && c.Resolve == nil &&
		c.Waits == nil && c.Own == nil && c.Disown == nil && c.Consume == nil && c.Wake == nil && c.Tasks == nil &&
		c.ExpiresAt == nil && c.Checkpoint == nil && c.Run == nil && c.Outcome == nil
}

// Guard returns an error if the edit is not allowed at the store's time now. state
// is nil if the session does not exist; run is the session's current run, or nil.
func (e *Edit) Guard(state *State, run *Run, now time.Time) error {
	switch {
	case e.Create != nil && state != nil:
		return Exists(state)
	case e.Create != nil:
		return transition(e.Create.Status, e.Status)
	case state == nil:
		return NotFound(e.SessionID)
	case e.AllowedDuringRun():
		return nil
	}
	if err := state.CheckIdle(run, now); err != nil {
		return err
	}
	if (e.Version != 0 || e.Document != nil) && e.Version != state.Version {
		return ErrStale.WithMessage("session %s: expected version %d", e.SessionID, e.Version).WithSaw(state.Saw())
	}
	if e.Read != nil && !e.Read.sameSession(state) {
		return ErrStale.WithMessage("session %s: another session has its id", e.SessionID).WithSaw(state.Saw())
	}
	if e.Document != nil {
		return Transition(state.Status, e.Document.Status)
	}
	return transition(state.Status, e.Status)
}

// sameSession reports whether two states of the same version are those of one session, and not
// of one and another that took its id. A new run has an id of its own, and epochs do not repeat;
// see [FirstEpoch].
func (s *State) sameSession(as *State) bool {
	return s.CurrentRunID == as.CurrentRunID && s.Lease.Epoch == as.Lease.Epoch && s.CreatedAt.Equal(as.CreatedAt)
}

// transition is [Transition] to a status that may be empty, which means no change.
func transition(from, to Status) error {
	if to == "" {
		return nil
	}
	return Transition(from, to)
}

// Apply writes the edit to a document. The store writes what is kept in rows of
// its own, the rest of the change, and the version.
func (e *Edit) Apply(state *State, now time.Time) error {
	if d := e.Document; d != nil {
		state.Output, state.Error, state.FailureReason, state.Interrupt = d.Output, d.Error, d.FailureReason, d.Interrupt
		state.SuspendedStep, state.Tracing, state.WorkspaceRef = d.SuspendedStep, d.Tracing, d.WorkspaceRef
		state.Mode, state.Extra = d.Mode, d.Extra
		state.Agent, state.StreamID, state.ParentID, state.RootID = d.Agent, d.StreamID, d.ParentID, d.RootID
		state.Status, state.UserID, state.ExpiresAt = d.Status, d.UserID, d.ExpiresAt
		state.Tags, state.Metadata = UniqueTags(d.Tags), d.Metadata
	}
	if e.Metadata != nil {
		metadata, err := state.PatchedMetadata(e.Metadata)
		if err != nil {
			return err
		}
		state.Metadata = metadata
	}
	state.StepCount += e.Steps
	state.ResumeCount += e.Resumes
	if !e.AllowedDuringRun() { // the run's last commit is no longer the latest write
		state.LastCommit = ""
	}
	if e.Metadata != nil || !e.AllowedDuringRun() {
		state.UpdatedAt = now
	}
	return nil
}

// Create creates a session at version 1. Of concurrent calls for one id exactly
// one succeeds; the others get [ErrExists].
func Create(ctx context.Context, sessions Documents, state *State) error {
	_, err := sessions.Edit(ctx, &Edit{SessionID: state.ID, Create: state})
	return err
}

// Save replaces the document and the custom state and writes a checkpoint, if the
// session's version equals state.Version; otherwise it returns [ErrStale]. On
// success state.Version is the new version. See [Edit] for the fields of state
// that are ignored.
func Save(ctx context.Context, sessions Documents, state *State) error {
	out, err := sessions.Edit(ctx, &Edit{
		SessionID: state.ID, Version: state.Version, Document: state,
		Change: Change{State: &state.Custom, Checkpoint: &NewCheckpoint{Step: state.StepCount, Source: FromSave}},
	})
	if err == nil {
		state.Version = out.Version
	}
	return err
}

// Merge applies operations to custom state.
func Merge(ctx context.Context, sessions Documents, id string, w Writes) (Committed, error) {
	return edit(ctx, sessions, id, Change{Writes: w})
}

// AppendMessages appends messages to the transcript. A message whose id is already
// in the transcript is refused, here and in every change; messages without an id
// are not compared.
func AppendMessages(ctx context.Context, sessions Documents, id string, messages []Message) (Committed, error) {
	return edit(ctx, sessions, id, Change{Messages: messages})
}

// TruncateMessages keeps the first messages of the transcript and ends whatever
// depends on the others; see [Change.KeepMessages].
func TruncateMessages(ctx context.Context, sessions Documents, id string, keep int) (Committed, error) {
	return edit(ctx, sessions, id, Change{KeepMessages: &keep})
}

// DropCalls deletes the call rows of an assistant message.
func DropCalls(ctx context.Context, sessions Documents, id, messageID string) error {
	_, err := edit(ctx, sessions, id, Change{Promote: &Promotion{MessageID: messageID}})
	return err
}

// CreateCheckpoint writes a checkpoint of the session's current state and returns
// it.
func CreateCheckpoint(ctx context.Context, sessions interface {
	Documents
	Checkpoints
}, id string, checkpoint NewCheckpoint,
) (*Checkpoint, error) {
	out, err := edit(ctx, sessions, id, Change{Checkpoint: &checkpoint})
	if err != nil {
		return nil, err
	}
	return sessions.Checkpoint(ctx, id, out.CheckpointID)
}

func edit(ctx context.Context, sessions Documents, id string, change Change) (Committed, error) {
	out, err := sessions.Edit(ctx, &Edit{SessionID: id, Change: change})
	if err != nil {
		return Committed{}, err
	}
	return out.Committed, nil
}

// PatchMetadata sets and, where the value is nil, deletes metadata entries. It is
// allowed during a run and does not raise the version.
func PatchMetadata(ctx context.Context, sessions Documents, id string, patch map[string]*string) error {
	if patch == nil {
		patch = map[string]*string{}
	}
	_, err := sessions.Edit(ctx, &Edit{SessionID: id, Metadata: patch})
	return err
}

// PutChildren adds references to sub-agents' sessions, or replaces those to the
// same sessions; see [ChildRef.Replace] for what a replaced reference passes on.
// It is allowed during a run and does not raise the version.
func PutChildren(ctx context.Context, sessions Documents, id string, refs []ChildRef) error {
	if refs == nil {
		refs = []ChildRef{}
	}
	_, err := sessions.Edit(ctx, &Edit{SessionID: id, Change: Change{Children: refs}})
	return err
}

// IncrementSteps adds one to the session's step count and returns the new value.
func IncrementSteps(ctx context.Context, sessions Documents, id string) (int, error) {
	out, err := sessions.Edit(ctx, &Edit{SessionID: id, Steps: 1})
	if err != nil {
		return 0, err
	}
	return out.StepCount, nil
}

// IncrementResumes adds one to the session's resume count and returns the new
// value.
func IncrementResumes(ctx context.Context, sessions Documents, id string) (int, error) {
	out, err := sessions.Edit(ctx, &Edit{SessionID: id, Resumes: 1})
	if err != nil {
		return 0, err
	}
	return out.ResumeCount, nil
}

// MessageCount returns the number of messages in a transcript.
func MessageCount(ctx context.Context, sessions Transcripts, id string) (int, error) {
	// A page after the last message reads no messages.
	page, err := sessions.Messages(ctx, id, PageRequest{Limit: 1, Offset: maxMessages, Total: true})
	if err != nil {
		return 0, err
	}
	return *page.Total, nil
}

// maxMessages is larger than any transcript.
const maxMessages = 1<<31 - 1
