package memory

import (
	"time"

	"github.com/helixagents/helix/session"
)

// record is one session with everything that belongs to it.
type record struct {
	// state is the document without Custom, Pending and AwaitingChildren: they are
	// stored below, and Load combines them.
	state  session.State
	custom custom

	messages   []*message
	messageIDs map[string]bool // of messages that have one
	runs       rows[session.Run]
	requests   map[string]*session.Run // by request id

	checkpoints   []*checkpoint // in the order written
	standing      []*checkpoint // those of them that no rewind has undone
	checkpointIDs map[string]*checkpoint
	written       int64 // checkpoints ever written

	calls    map[string][]*call // by assistant message, in call order
	pending  waits
	children rows[child]
	owned    map[string]session.Ownership // by call id
	inbox    inbox
	stop     *session.Stop // for the current run
	blobs    references

	marks due                 // which sweeps the session is indexed for
	waits map[string]*waiting // the entries of the inbox, by call
	// The activity under which, and the user for whom, the session is listed.
	listedAs  session.Activity
	listedFor string
}

// newRecord creates a session from a checked document. The caller holds the lock.
func (b *Backend) newRecord(tenant string, doc *session.State, initial session.CustomState, now time.Time) *record {
	b.made++
	own := cloneState(doc)
	rec := &record{state: own.AsNew(tenant, now), custom: newCustom(initial)}
	rec.state.Lease.Epoch = session.FirstEpoch(b.made)
	return rec
}

// touch counts one write of the document.
func (r *record) touch(now time.Time) {
	r.state.Version++
	r.state.UpdatedAt = now
}

// document returns the session's document, or nil if there is no session.
func (r *record) document() *session.State {
	if r == nil {
		return nil
	}
	return &r.state
}

// currentRun returns the latest run, or nil.
func (r *record) currentRun() *session.Run {
	if r == nil {
		return nil
	}
	return r.run(r.state.CurrentRunID)
}

// run returns the run with an id, or nil.
func (r *record) run(id string) *session.Run {
	if r == nil {
		return nil
	}
	return r.runs.get(id)
}

// isRunning reports whether the current run has not ended.
func (r *record) isRunning() bool {
	run := r.currentRun()
	return run != nil && run.Status == session.RunRunning
}

// activity returns the session's current activity.
func (r *record) activity() session.Activity {
	return session.ActivityOf(r.state.Status, r.runStatus())
}

// summary returns the session's entry in a listing. It shares its labels with the
// store.
func (r *record) summary() session.Summary { return r.state.Summary(r.runStatus()) }

// runStatus returns the status of the latest run; empty if there was none.
func (r *record) runStatus() session.RunStatus {
	if run := r.currentRun(); run != nil {
		return run.Status
	}
	return ""
}

// committed returns the session's current position as the result of a commit.
func (r *record) committed() session.Committed {
	out := session.Committed{
		Version:      r.state.Version,
		MessageCount: r.state.MessageCount,
		CheckpointID: r.state.CheckpointID,
		Inbox:        len(r.inbox.entries) > 0,
	}
	if run := r.currentRun(); run != nil && !run.Status.Ended() {
		out.Stop = clonePointer(r.stop)
	}
	return out
}

// rows stores items in the order they were added, each under an id.
type rows[T any] struct {
	list []*T
	byID map[string]*T
}

func (r *rows[T]) get(id string) *T { return r.byID[id] }

func (r *rows[T]) add(id string, item *T) {
	if r.byID == nil {
		r.byID = map[string]*T{}
	}
	r.byID[id] = item
	r.list = append(r.list, item)
}
