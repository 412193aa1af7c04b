package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
INSERT INTO helix.checkpoints (session, number, checkpoint_id,
                               run_id, turn, step, status, source, version, message_count, stream_sequence, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`

// writeCheckpoint queues a checkpoint of the session's current state, including
// its new version, and makes it the latest.
func (s *sessions) writeCheckpoint(t *tx, h *header, c *checkpointRow) {
	if c.ID == "" {
		c.ID = session.CheckpointID(h.ID, c.Step, c.at, fmt.Sprint(h.Version))
	}
	h.checkpointNumber++
	h.CheckpointID, h.CheckpointSource, h.CheckpointedAt = c.ID, sourceOf(&c.NewCheckpoint), c.at
	t.exec(insertCheckpoint, h.number, h.checkpointNumber, c.ID,
		c.runID, h.Turn, c.Step, h.Status, h.CheckpointSource, h.Version, h.MessageCount, c.StreamSequence, when(c.at))
}

// sameCheckpoint returns the error for a checkpoint whose id already exists.
func (s *sessions) sameCheckpoint(ctx context.Context, id, checkpointID string) error {
	var h header
	err := s.list(ctx, id, "find checkpoint", func(rows pgx.Rows) error { return s.scanHeader(rows, &h) }, selectHeader, s.b.clock())
	if err != nil {
		return err
	}
	return session.ErrExists.WithMessage("session %s: checkpoint %s already exists", id, checkpointID).WithSaw(h.Saw())
}

const (
	checkpointColumns = `
       c.checkpoint_id, c.number, c.run_id, c.turn, c.step, c.status, c.source, c.version, c.message_count, c.stream_sequence, c.at, c.undone`

	selectCheckpoint = `
SELECT` + checkpointColumns + `
FROM helix.sessions s JOIN helix.checkpoints c ON c.session = s.number AND c.checkpoint_id = $3
WHERE s.tenant = $1 AND s.id = $2`

	selectLatest = `
SELECT` + checkpointColumns + `
FROM helix.sessions s JOIN helix.checkpoints c ON c.session = s.number AND c.checkpoint_id = s.checkpoint_id
WHERE s.tenant = $1 AND s.id = $2`

	selectCheckpoints = `
SELECT` + checkpointColumns + `
FROM helix.sessions s JOIN helix.checkpoints c ON c.session = s.number AND c.number <= $3
WHERE s.tenant = $1 AND s.id = $2
ORDER BY c.number DESC
LIMIT $4`

	// The last checkpoint that is not undone and counts no more messages.
	selectWithin = `
SELECT` + checkpointColumns + `
FROM helix.sessions s JOIN helix.checkpoints c ON c.session = s.number AND NOT c.undone AND c.message_count <= $3
WHERE s.tenant = $1 AND s.id = $2
ORDER BY c.number DESC
LIMIT 1`
)

// storedCheckpoint is a checkpoint with its number.
type storedCheckpoint struct {
	session.Checkpoint
	number int
}

func scanCheckpoint(id string, rows pgx.Rows) (*storedCheckpoint, error) {
	c := &storedCheckpoint{}
	c.SessionID = id
	err := rows.Scan(&c.ID, &c.number, &c.RunID, &c.Turn, &c.Step, &c.Status, &c.Source, &c.Version, &c.MessageCount,
		&c.StreamSequence, instant{&c.At}, &c.Undone)
	if err == nil && !c.Status.Valid() {
		err = session.ErrCorrupt.WithMessage("session %s: checkpoint %s has the unknown status %q", id, c.ID, c.Status)
	}
	return c, err
}

// checkpoint reads a checkpoint by a query, without its state, or returns nil.
func (s *sessions) checkpoint(ctx context.Context, t *tx, id, query string, args ...any) (out *storedCheckpoint, err error) {
	var damage error
	t.ask(func(rows pgx.Rows) error {
		out, damage = scanCheckpoint(id, rows)
		return nil
	}, query, append([]any{s.tenant, id}, args...)...)
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	return out, damage
}

// readCheckpoint reads a checkpoint with its custom state.
func (s *sessions) readCheckpoint(ctx context.Context, id, name, query string, args ...any) (out *session.Checkpoint, err error) {
	err = s.b.read(ctx, what(id, "read "+name), func(ctx context.Context, t *tx) error {
		var h *header
		s.askHeader(t, id, &h)
		point, err := s.checkpoint(ctx, t, id, query, args...)
		switch {
		case err != nil:
			return err
		case h == nil:
			return session.NotFound(id)
		case point == nil:
			return notFound("session %s: %s", id, name)
		}
		state := s.askState(t, id, point.Version)
		if err := t.finish(ctx); err != nil {
			return err
		}
		point.State = &state.doc
		out = &point.Checkpoint
		return state.err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Checkpoint implements [session.Checkpoints].
func (s *sessions) Checkpoint(ctx context.Context, id, checkpointID string) (*session.Checkpoint, error) {
	return s.readCheckpoint(ctx, id, "checkpoint "+checkpointID, selectCheckpoint, checkpointID)
}

// LatestCheckpoint implements [session.Checkpoints].
func (s *sessions) LatestCheckpoint(ctx context.Context, id string) (*session.Checkpoint, error) {
	return s.readCheckpoint(ctx, id, "a checkpoint", selectLatest)
}

// Checkpoints implements [session.Checkpoints]. They are numbered without gaps, so
// the position of a page is known without counting.
func (s *sessions) Checkpoints(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Checkpoint], err error) {
	at, resumed, err := request.Position()
	if err != nil {
		return page, err
	}
	err = s.b.read(ctx, what(id, "list checkpoints"), func(ctx context.Context, t *tx) error {
		var h *header
		s.askHeader(t, id, &h)
		if err := t.flush(ctx); err != nil {
			return err
		}
		if h == nil {
			return session.NotFound(id)
		}
		page = session.Page[session.Checkpoint]{Items: []session.Checkpoint{}, Offset: request.Skip(), Limit: request.Size()}
		if request.Total {
			page.Total = &h.checkpointNumber
		}
		from := max(h.checkpointNumber-request.Skip(), 0)
		if resumed {
			from = int(min(max(at.N, 0), int64(h.checkpointNumber)))
		}
		t.ask(func(rows pgx.Rows) error {
			point, err := scanCheckpoint(id, rows)
			if err != nil {
				return err
			}
			if len(page.Items) == page.Limit {
				page.HasMore = true
				page.Next = session.Position{N: int64(point.number), ID: point.ID}.Cursor()
				return nil
			}
			page.Items = append(page.Items, point.Checkpoint)
			return nil
		}, selectCheckpoints, s.tenant, id, from, page.Limit+1)
		return t.finish(ctx)
	})
	if err != nil {
		return session.Page[session.Checkpoint]{}, err
	}
	return page, nil
}
