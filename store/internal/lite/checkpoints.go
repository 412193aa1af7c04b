package lite

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/helixagents/helix/session"
)

// checkpointRow is a checkpoint to write.
type checkpointRow struct {
	session.NewCheckpoint
	runID string
	at    time.Time
}

// ownCheckpoint returns the checkpoint that the store writes on its own, for a
// direct write.
func ownCheckpoint(h *header) *checkpointRow {
	return &checkpointRow{
		NewCheckpoint: session.NewCheckpoint{Step: h.StepCount, Source: session.FromSave},
		runID:         h.CurrentRunID, at: h.UpdatedAt,
	}
}

const insertCheckpoint = `
INSERT INTO checkpoints (session, checkpoint_id, number, previous,
                         run_id, turn, step, status, source, version, message_count, stream_sequence, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// writeCheckpoint writes a checkpoint of the session's current state, including
// its new version, and makes it the latest.
func (s *sessions) writeCheckpoint(t *Tx, h *header, c *checkpointRow) error {
	if c.ID == "" {
		c.ID = session.CheckpointID(h.ID, c.Step, c.at, fmt.Sprint(h.Version))
	}
	if c.Source == "" {
		c.Source = session.FromSave
	}
	h.checkpointNumber++
	_, err := t.Exec(insertCheckpoint, h.number, c.ID, h.checkpointNumber, h.newestCheckpoint(),
		c.runID, h.Turn, c.Step, h.Status, c.Source, h.Version, h.MessageCount, c.StreamSequence, c.at)
	if s.b.IsDuplicate(err) {
		return session.ErrExists.WithMessage("session %s: checkpoint %s already exists", h.ID, c.ID).WithSaw(h.Saw())
	}
	h.CheckpointID, h.CheckpointSource, h.CheckpointedAt, h.checkpointNewest = c.ID, c.Source, c.at, ""
	return err
}

// newestCheckpoint returns the id of the checkpoint that was written last, undone
// or not.
func (h *header) newestCheckpoint() string {
	if h.checkpointNewest != "" {
		return h.checkpointNewest
	}
	return h.CheckpointID
}

// undoCheckpoints undoes the checkpoints that count messages past the first keep.
// They can still be read, but a rewind to one of them would restore other messages
// than it had. The last remaining one becomes the latest.
func (s *sessions) undoCheckpoints(t *Tx, h *header, keep int) error {
	newest, last := h.newestCheckpoint(), storedCheckpoint{}
	for point, err := range s.chain(t.Conn, h, h.CheckpointID) {
		if err != nil {
			return err
		}
		if point.Undone {
			continue
		}
		if point.MessageCount <= keep {
			last = *point
			break
		}
		_, err := t.Exec("UPDATE checkpoints SET undone = 1 WHERE session = ? AND checkpoint_id = ?", h.number, point.ID)
		if err != nil {
			return err
		}
	}
	if last.ID == h.CheckpointID {
		return nil
	}
	h.CheckpointID, h.CheckpointSource, h.CheckpointedAt, h.checkpointNewest = last.ID, last.Source, last.At, newest
	return nil
}

const selectCheckpoint = `
SELECT checkpoint_id, previous, run_id, turn, step, status, source, version, message_count, stream_sequence, at, undone
FROM checkpoints
WHERE session = ? AND checkpoint_id = ?`

// storedCheckpoint is a checkpoint with its link to the previous one.
type storedCheckpoint struct {
	session.Checkpoint
	previous string
}

// findCheckpoint reads a checkpoint without its state, or returns nil.
func (s *sessions) findCheckpoint(c Conn, h *header, checkpointID string) (*storedCheckpoint, error) {
	r, err := c.One(selectCheckpoint, h.number, checkpointID)
	if err != nil || r == nil {
		return nil, err
	}
	out := &storedCheckpoint{}
	out.SessionID = h.ID
	out.ID, out.previous, out.RunID = r.Text(), r.Text(), r.Text()
	out.Turn, out.Step = r.Int(), r.Int()
	out.Status, out.Source = session.Status(r.Text()), session.CheckpointSource(r.Text())
	out.Version, out.MessageCount, out.StreamSequence, out.At = r.Int64(), r.Int(), r.Int64(), r.Time()
	out.Undone = r.Bool()
	if !out.Status.Valid() {
		return nil, session.ErrCorrupt.WithMessage("session %s: checkpoint %s has the unknown status %q", h.ID, out.ID, out.Status)
	}
	return out, nil
}

// checkpoint reads a checkpoint that must exist.
func (s *sessions) checkpoint(c Conn, h *header, checkpointID string) (*storedCheckpoint, error) {
	found, err := s.findCheckpoint(c, h, checkpointID)
	if err == nil && found == nil {
		err = notFound("session %s: checkpoint %s", h.ID, checkpointID)
	}
	return found, err
}

// chain yields checkpoints, newest first, starting with from and including undone
// ones.
func (s *sessions) chain(c Conn, h *header, from string) iter.Seq2[*storedCheckpoint, error] {
	return func(yield func(*storedCheckpoint, error) bool) {
		for from != "" {
			point, err := s.checkpoint(c, h, from)
			if !yield(point, err) || err != nil {
				return
			}
			from = point.previous
		}
	}
}

// withState reads a checkpoint with its custom state.
func (s *sessions) withState(c Conn, h *header, checkpointID string) (*session.Checkpoint, error) {
	point, err := s.checkpoint(c, h, checkpointID)
	if err != nil {
		return nil, err
	}
	state, err := s.stateAt(c, h, point.Version)
	if err != nil {
		return nil, err
	}
	point.State = &state
	return &point.Checkpoint, nil
}

// Checkpoint implements [session.Checkpoints].
func (s *sessions) Checkpoint(ctx context.Context, id, checkpointID string) (out *session.Checkpoint, err error) {
	err = s.read(ctx, id, "read checkpoint", func(c Conn, h *header) error {
		out, err = s.withState(c, h, checkpointID)
		return err
	})
	return out, err
}

// LatestCheckpoint implements [session.Checkpoints].
func (s *sessions) LatestCheckpoint(ctx context.Context, id string) (out *session.Checkpoint, err error) {
	err = s.read(ctx, id, "read latest checkpoint", func(c Conn, h *header) error {
		if h.CheckpointID == "" {
			return notFound("session %s: a checkpoint", id)
		}
		out, err = s.withState(c, h, h.CheckpointID)
		return err
	})
	return out, err
}

// Checkpoints implements [session.Checkpoints].
func (s *sessions) Checkpoints(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Checkpoint], err error) {
	err = s.read(ctx, id, "list checkpoints", func(c Conn, h *header) error {
		at, ok, err := request.Position()
		if err != nil {
			return err
		}
		page = session.Page[session.Checkpoint]{Items: []session.Checkpoint{}, Offset: request.Skip(), Limit: request.Size()}
		if request.Total {
			page.Total = &h.checkpointNumber
		}
		from, skip := h.newestCheckpoint(), request.Skip()
		if ok {
			from = at.ID
		}
		for point, err := range s.chain(c, h, from) {
			if err != nil {
				return err
			}
			if skip > 0 {
				skip--
				continue
			}
			if len(page.Items) == page.Limit {
				page.HasMore = true
				page.Next = session.Position{N: point.Version, ID: point.ID}.Cursor()
				return nil
			}
			page.Items = append(page.Items, point.Checkpoint)
		}
		return nil
	})
	return page, err
}
