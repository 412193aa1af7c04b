package redis

import (
	"context"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

// addCheckpoint adds a checkpoint of the session's state after the batch.
func (w *batch) addCheckpoint(id string, n session.NewCheckpoint, at time.Time) {
	n = completed(id, n, at)
	w.do("checkpoint", keyNames+keyPoints, n.ID, n.Step, string(n.Source), n.StreamSequence)
}

// pointRow is a checkpoint's row, field by field.
type pointRow [10]string

// decodePoint reads a checkpoint from its number, its row and whether it was
// undone; nil if there is none.
func decodePoint(id string, part any) (*session.Checkpoint, error) {
	parts := list(part)
	if len(parts) < 3 {
		return nil, nil
	}
	n := number(text(parts[0]))
	fields := strings.Split(text(parts[1]), "\x00")
	if len(fields) != len(pointRow{}) {
		return nil, session.ErrCorrupt.WithMessage("session %s: checkpoint %d cannot be decoded", id, n)
	}
	r := pointRow(fields)
	return &session.Checkpoint{
		SessionID: id, MessageCount: int(number(r[0])), Version: number(r[1]), At: moment(r[2]), Step: int(number(r[3])),
		Source: session.CheckpointSource(r[4]), StreamSequence: number(r[5]), ID: r[6], RunID: r[7], Turn: int(number(r[8])),
		Status: session.Status(r[9]), Undone: text(parts[2]) == "1",
	}, nil
}

// checkpoint reads a checkpoint with its custom state; the latest if no id is
// given.
func (s *sessions) checkpoint(ctx context.Context, id, verb, checkpointID string) (*session.Checkpoint, error) {
	q := query()
	q.do("checkpoint", keyNames+keyUndone+keyPoints, checkpointID)
	v, err := s.read(ctx, id, verb, q)
	if err != nil {
		return nil, err
	}
	point, err := decodePoint(id, v.parts[0])
	switch {
	case err != nil:
		return nil, err
	case point == nil && checkpointID == "":
		return nil, notFound("session %s: a checkpoint", id)
	case point == nil:
		return nil, notFound("session %s: checkpoint %s", id, checkpointID)
	}
	// The state of a version never changes, so it may be read afterwards.
	q = query()
	q.readState(itoa(point.Version))
	again, err := s.read(ctx, id, verb, q)
	if err != nil {
		return nil, err
	}
	state, _, err := stateAt(id, again.parts[0])
	if err != nil {
		return nil, err
	}
	point.State = &state
	return point, nil
}

// Checkpoint implements [session.Checkpoints].
func (s *sessions) Checkpoint(ctx context.Context, id, checkpointID string) (*session.Checkpoint, error) {
	if checkpointID == "" {
		return nil, notFound("session %s: a checkpoint without an id", id)
	}
	return s.checkpoint(ctx, id, "read checkpoint", checkpointID)
}

// LatestCheckpoint implements [session.Checkpoints].
func (s *sessions) LatestCheckpoint(ctx context.Context, id string) (*session.Checkpoint, error) {
	return s.checkpoint(ctx, id, "read latest checkpoint", "")
}

// Checkpoints implements [session.Checkpoints]. They are numbered without gaps, so
// the position of a page is known without counting.
func (s *sessions) Checkpoints(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Checkpoint], err error) {
	at, resumed, err := request.Position()
	if err != nil {
		return page, err
	}
	q := query()
	q.do("len", keyPoints, keyPoints)
	v, err := s.read(ctx, id, "list checkpoints", q)
	if err != nil {
		return page, err
	}
	points := int(number(text(v.parts[0])))
	total := int64(points)
	from := total - int64(request.Skip())
	if resumed {
		from = min(at.N-1, total)
	}
	page = session.Page[session.Checkpoint]{Items: []session.Checkpoint{}, Offset: request.Skip(), Limit: request.Size()}
	if request.Total {
		page.Total = &points
	}
	to := max(from-int64(page.Limit)+1, 1)
	if from < to {
		return page, nil
	}
	q = query()
	q.do("checkpoints", keyNames+keyUndone+keyPoints, from, to)
	if v, err = s.read(ctx, id, "list checkpoints", q); err != nil {
		return page, err
	}
	for _, part := range list(v.parts[0]) {
		point, err := decodePoint(id, part)
		if err != nil {
			return session.Page[session.Checkpoint]{}, err
		}
		page.Items = append(page.Items, *point)
	}
	if to > 1 {
		page.HasMore = true
		page.Next = session.Position{N: to}.Cursor()
	}
	return page, nil
}
