package mapstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// record is a session with everything that belongs to it. A stored record, and what
// it points to, never changes: a write replaces it with a changed draft.
type record struct {
	// state is the document, without what is kept below: Custom, Pending and
	// AwaitingChildren.
	state  session.State
	custom session.CustomState

	messages    []message
	runs        []session.Run // runs[n] is the run of turn n+1
	checkpoints []session.Checkpoint
	calls       []call // of the steps in flight
	pending     []wait
	children    []*session.ChildRef
	owners      map[string]session.Ownership // by call id
	inbox       []session.InboxEntry
	received    map[string]bool // ids of all inbox entries, also of those consumed
	stop        *session.Stop   // for the current run
}

// message is a message of the transcript and the size of its persisted form.
type message struct {
	session.Message
	size int64
}

// newMessage refuses a message that has no persisted form: embedded JSON that is
// broken.
func newMessage(m *session.Message) (message, error) {
	raw, err := session.Encode(m)
	if err != nil {
		return message{}, session.ErrInvalid.WithCause(err, "message %s cannot be stored", m.ID)
	}
	return message{*m, int64(len(raw))}, nil
}

// draft returns a copy of the record that may be changed. Rows are copied, so that
// they can be assigned to; what they point to is shared and only ever replaced.
func (r *record) draft() *record {
	out := *r
	out.custom = r.custom.Clone()
	out.messages = slices.Clone(r.messages)
	out.runs = slices.Clone(r.runs)
	out.checkpoints = slices.Clone(r.checkpoints)
	out.calls = slices.Clone(r.calls)
	out.pending = slices.Clone(r.pending)
	out.children = slices.Clone(r.children)
	out.owners = maps.Clone(r.owners)
	out.inbox = slices.Clone(r.inbox)
	out.received = maps.Clone(r.received)
	return &out
}

// newRecord returns a draft of a new session, at version 0. Its epochs begin above
// those of every session that was ever made: if a session is deleted and made again,
// a process that held the lease of the first cannot write to the second.
func (b *Backend) newRecord(tenant string, document *session.State, now time.Time) *record {
	b.made++
	rec := &record{
		state: document.AsNew(tenant, now), custom: document.Custom.Clone(),
		owners: map[string]session.Ownership{}, received: map[string]bool{},
	}
	rec.state.Custom = session.CustomState{}
	rec.state.Lease.Epoch = session.FirstEpoch(b.made)
	return rec
}

// document returns the document, or nil if there is no session, which is how the
// guards of package session are asked.
func (r *record) document() *session.State {
	if r == nil {
		return nil
	}
	return &r.state
}

// run returns the run with an id, or nil.
func (r *record) run(id string) *session.Run {
	if r == nil {
		return nil
	}
	for i := range r.runs {
		if r.runs[i].ID == id {
			return &r.runs[i]
		}
	}
	return nil
}

// currentRun returns the latest run, or nil.
func (r *record) currentRun() *session.Run {
	if r == nil {
		return nil
	}
	return r.run(r.state.CurrentRunID)
}

// runStatus is the status of the latest run, or empty if there was none.
func (r *record) runStatus() session.RunStatus {
	if run := r.currentRun(); run != nil {
		return run.Status
	}
	return ""
}

func (r *record) activity() session.Activity {
	return session.ActivityOf(r.state.Status, r.runStatus())
}

// committed reports where the session stands after a write.
func (r *record) committed() session.Committed {
	out := session.Committed{
		Version: r.state.Version, MessageCount: r.state.MessageCount,
		CheckpointID: r.state.CheckpointID, Inbox: len(r.inbox) > 0,
	}
	if r.runStatus() == session.RunRunning {
		out.Stop = copied(r.stop)
	}
	return out
}

// sessions is the session store of one tenant.
type sessions struct {
	b      *Backend
	tenant string
}

var _ session.Store = (*sessions)(nil)

// Tenant implements [session.Store].
func (s *sessions) Tenant(tenant string) session.Store { return &sessions{s.b, tenantOr(tenant)} }

func (s *sessions) key(id string) session.Key { return session.Key{Tenant: s.tenant, ID: id} }

// find returns a session's record, or nil. The caller holds the lock.
func (s *sessions) find(id string) *record { return s.b.sessions[s.key(id)] }

// put makes a draft the session's record. The caller holds the lock.
func (s *sessions) put(rec *record) { s.b.sessions[s.key(rec.state.ID)] = rec }

// view calls read with a session's record, which read must not change.
func (s *sessions) view(ctx context.Context, id string, read func(rec *record) error) error {
	if err := s.b.lock(ctx); err != nil {
		return err
	}
	defer s.b.mu.Unlock()
	rec := s.find(id)
	if rec == nil {
		return session.NotFound(id)
	}
	return read(rec)
}

// edit calls change with a draft of a session's record and keeps the draft, unless
// change fails.
func (s *sessions) edit(ctx context.Context, id string, change func(rec *record, now time.Time) error) error {
	return s.view(ctx, id, func(rec *record) error {
		draft := rec.draft()
		if err := change(draft, s.b.now()); err != nil {
			return err
		}
		s.put(draft)
		return nil
	})
}
