package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

// changed is the result of a change's statement.
type changed struct {
	found bool
	ok    bool   // whether the change was applied
	is    header // the session's row afterwards, as far as guards, refusals and outcomes need it
	fresh bool   // whether a statement that refused saw other tables as of the time it got the lock
	refusal
}

// rowJSON is a session's row that a statement did not change, and doubtJSON is
// what prevented the change in other tables.
type (
	rowJSON struct {
		Number       int64             `json:"number"`
		Version      int64             `json:"version"`
		MessageCount int               `json:"message_count"`
		CheckpointID string            `json:"checkpoint_id"`
		Inbox        int               `json:"inbox_waiting"`
		StopKind     session.StopKind  `json:"stop_kind"`
		StopReason   string            `json:"stop_reason"`
		StopAt       time.Time         `json:"stop_at"`
		LastCommit   string            `json:"last_commit"`
		Status       session.Status    `json:"status"`
		Owner        string            `json:"owner"`
		Epoch        int64             `json:"epoch"`
		Run          string            `json:"current_run"`
		RunStatus    session.RunStatus `json:"run_status"`
	}
	doubtJSON struct {
		Fresh     bool     `json:"fresh"` // null if the session did not exist when the statement began
		Answered  []string `json:"answered"`
		Unsettled []string `json:"unsettled"`
		Unlisted  []byte   `json:"unlisted"`
	}
)

func (c *changed) scan(rows pgx.Rows) error {
	r, h := rawRow{rows: rows, values: rows.RawValues()}, &c.is
	c.ok = !r.null(0)
	if !c.ok {
		return c.refuse(r.values[10], r.values[11])
	}
	c.found = true
	h.number, h.Version, h.MessageCount, h.CheckpointID, h.inbox = r.int(0), r.int(1), int(r.int(2)), r.text(3), int(r.int(4))
	h.snapshotBytes, h.deltaBytes = r.int(5), r.int(6)
	if kind := r.text(7); kind != "" {
		h.stop = &session.Stop{Kind: session.StopKind(kind), Reason: r.text(8), At: r.time(9)}
	}
	return r.err
}

func (c *changed) refuse(row, doubts []byte) error {
	if row == nil {
		return nil // there is no session
	}
	c.found = true
	var r rowJSON
	if err := json.Unmarshal(row, &r); err != nil {
		return err
	}
	h := &c.is
	h.LastCommit, h.Status, h.CurrentRunID, h.runStatus = r.LastCommit, r.Status, r.Run, r.RunStatus
	h.Lease.Owner, h.Lease.Epoch = r.Owner, r.Epoch
	h.number, h.Version, h.MessageCount, h.CheckpointID, h.inbox = r.Number, r.Version, r.MessageCount, r.CheckpointID, r.Inbox
	if r.StopKind != "" {
		h.asked(&session.Stop{RunID: r.Run, Kind: r.StopKind, Reason: r.StopReason, At: r.StopAt.UTC()})
	}
	d := doubtJSON{Fresh: true}
	if doubts != nil {
		d.Fresh = false
		if err := json.Unmarshal(doubts, &d); err != nil {
			return err
		}
	}
	c.fresh, c.answered, c.unsettled, c.unlisted = d.Fresh, d.Answered, d.Unsettled, d.Unlisted
	return nil
}

// committed returns the result of a change that was applied, including a stop
// request that it has consumed.
func (c *changed) committed(d *draft) *session.Committed {
	out := c.is.committed()
	if out.Stop != nil {
		out.Stop.RunID = d.runID
	}
	out.Warnings = d.warnings
	return &out
}

// Commit implements [session.Turns].
func (s *sessions) Commit(ctx context.Context, commit *session.Commit) (committed *session.Committed, err error) {
	d, err := draftOf(commit)
	if err != nil {
		return nil, err
	}
	if d.rewinds() {
		return s.rewind(ctx, commit, d)
	}
	locked := false
	err = s.b.repeat(ctx, what(commit.SessionID, "commit"), func(ctx context.Context) error {
		var c changed
		spared, number := d, int64(0)
		if !locked {
			spared, number = s.b.known.spare(s.tenant, commit, d)
		}
		text, args := s.changeStatement(spared, guard{Commit: commit, number: number}, true)
		err := s.b.carry(ctx, locked, lockOnly, s.tenant, commit.SessionID, part{query: text, args: args, row: c.scan})
		if err != nil {
			locked = locked || errors.Is(err, errAlone)
			return err
		}
		committed, err = s.settleCommit(&c, commit, d)
		locked = true // for the next attempt, if there is one
		return err
	})
	if err := s.conflict(ctx, err, commit.SessionID, d); err != nil {
		return nil, err
	}
	return committed, nil
}

// draftOf checks and encodes a commit's change.
func draftOf(commit *session.Commit) (*draft, error) {
	if err := commit.Check(); err != nil {
		return nil, err
	}
	return newDraft(&commit.Change, commit.SessionID, commit.RunID, time.Now())
}

// rewinds reports whether one statement cannot make the change, because it drops
// messages, replaces the custom state or appends a marker.
func (d *draft) rewinds() bool { return d.whole != nil || d.MovesMarks() }

const lockOnly = `
SELECT FROM helix.sessions WHERE tenant = $1 AND id = $2 FOR NO KEY UPDATE`

// settleCommit returns the result of a commit. If it was not applied for no known
// reason, the result is an error that repeats it.
func (s *sessions) settleCommit(c *changed, commit *session.Commit, d *draft) (*session.Committed, error) {
	if !c.found {
		return nil, session.NotFound(commit.SessionID)
	}
	if c.ok {
		s.b.known.note(s.tenant, &c.is, d)
		s.signalWake(d)
		s.b.snapshots.consider(c.is.number, s.tenant, commit.SessionID, c.is.snapshotBytes, c.is.deltaBytes)
		return c.committed(d), nil
	}
	h := &c.is
	h.ID = commit.SessionID
	repeated, err := commit.Guard(&h.State, h.run())
	if err != nil {
		return nil, err
	}
	if repeated {
		return h.repeated(commit), nil
	}
	if !c.fresh {
		return nil, errAgain
	}
	if err := c.err(d, h.Saw()); err != nil {
		return nil, err
	}
	return nil, errAgain // the row has changed again since
}

// signalWake announces the wake that a change has put, if any.
func (s *sessions) signalWake(d *draft) {
	if d.Wake != nil {
		s.b.signal(session.Signal{Key: session.Key{Tenant: s.tenant, ID: d.Wake.SessionID}})
	}
}

// conflict converts a violation of a unique index to the domain's error.
func (s *sessions) conflict(ctx context.Context, err error, id string, d *draft) error {
	switch {
	case isDuplicate(err, "messages_by_id"):
		ids, _, _ := columns(append(d.messages, d.promoted...))
		for _, callID := range d.callIDs {
			ids = append(ids, session.ResultID(callID))
		}
		return s.duplicate(ctx, id, ids)
	case isDuplicate(err, "checkpoints_by_id"):
		return s.sameCheckpoint(ctx, id, d.checkpointID)
	}
	return err
}
