package mapstore

import (
	"context"
	"slices"

	"github.com/helixagents/helix/session"
)

// newPage returns a page of a listing. last is the position of its last item.
func newPage[T any](request session.PageRequest, items []T, total int, more bool, last session.Position) session.Page[T] {
	page := session.Page[T]{Items: items, Offset: request.Skip(), Limit: request.Size(), HasMore: more}
	if items == nil {
		page.Items = []T{}
	}
	if more {
		page.Next = last.Cursor()
	}
	if request.Total {
		page.Total = &total
	}
	return page
}

// Messages implements [session.Transcripts]. The position of a message is its number,
// from 1.
func (s *sessions) Messages(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Message], err error) {
	err = s.view(ctx, id, func(rec *record) error {
		start, err := request.Start(len(rec.messages))
		if err != nil {
			return err
		}
		end, size := start, int64(0)
		for ; end < min(start+request.Size(), len(rec.messages)); end++ {
			if size += rec.messages[end].size; !request.Fits(end-start, size) {
				break
			}
		}
		items := give(rec.messages[start:end])
		page = newPage(request, items, len(rec.messages), end < len(rec.messages), session.Position{N: int64(end)})
		page.Offset = start
		return nil
	})
	return page, err
}

// AllMessages implements [session.Transcripts].
func (s *sessions) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	return s.MessagesFrom(ctx, id, 1)
}

// MessagesFrom implements [session.Transcripts].
func (s *sessions) MessagesFrom(ctx context.Context, id string, number int) (out []session.Message, err error) {
	err = s.view(ctx, id, func(rec *record) error {
		out = give(rec.messages[min(max(number, 1)-1, len(rec.messages)):])
		return nil
	})
	return out, err
}

// give returns messages as a caller gets them.
func give(stored []message) []session.Message {
	out := make([]session.Message, len(stored))
	for i := range stored {
		out[i] = copied(stored[i].Message)
	}
	return out
}

// Run implements [session.Runs].
func (s *sessions) Run(ctx context.Context, id, runID string) (*session.Run, error) {
	return s.readRun(ctx, id, "run "+runID, func(rec *record) *session.Run { return rec.run(runID) })
}

// CurrentRun implements [session.Runs].
func (s *sessions) CurrentRun(ctx context.Context, id string) (*session.Run, error) {
	return s.readRun(ctx, id, "current run", (*record).currentRun)
}

// RunByRequest implements [session.Runs].
func (s *sessions) RunByRequest(ctx context.Context, id, requestID string) (*session.Run, error) {
	return s.readRun(ctx, id, "run of request "+requestID, func(rec *record) *session.Run { return rec.runOf(requestID) })
}

func (s *sessions) readRun(ctx context.Context, id, what string, which func(*record) *session.Run) (out *session.Run, err error) {
	err = s.view(ctx, id, func(rec *record) error {
		run := which(rec)
		if run == nil {
			return session.ErrNotFound.WithMessage("session %s: %s not found", id, what)
		}
		out = copied(run)
		return nil
	})
	return out, err
}

// Runs implements [session.Runs]. The position of a run is its turn, from 1.
func (s *sessions) Runs(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Run], err error) {
	err = s.view(ctx, id, func(rec *record) error {
		start, err := request.Start(len(rec.runs))
		if err != nil {
			return err
		}
		end := min(start+request.Size(), len(rec.runs))
		items := copied(rec.runs[start:end])
		page = newPage(request, items, len(rec.runs), end < len(rec.runs), session.Position{N: int64(end)})
		page.Offset = start
		return nil
	})
	return page, err
}

// Checkpoint implements [session.Checkpoints].
func (s *sessions) Checkpoint(ctx context.Context, id, checkpointID string) (*session.Checkpoint, error) {
	return s.readCheckpoint(ctx, id, func(*record) string { return checkpointID })
}

// LatestCheckpoint implements [session.Checkpoints].
func (s *sessions) LatestCheckpoint(ctx context.Context, id string) (*session.Checkpoint, error) {
	return s.readCheckpoint(ctx, id, func(rec *record) string { return rec.state.CheckpointID })
}

func (s *sessions) readCheckpoint(ctx context.Context, id string, which func(*record) string) (out *session.Checkpoint, err error) {
	err = s.view(ctx, id, func(rec *record) error {
		checkpointID := which(rec)
		found := rec.findCheckpoint(checkpointID)
		if found == nil {
			return noCheckpoint(id, checkpointID)
		}
		out = copied(found)
		return nil
	})
	return out, err
}

// Checkpoints implements [session.Checkpoints]: newest first. The position of a
// checkpoint is its number, from 1, in the order written.
func (s *sessions) Checkpoints(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Checkpoint], err error) {
	at, resumed, err := request.Position()
	if err != nil {
		return page, err
	}
	err = s.view(ctx, id, func(rec *record) error {
		end := len(rec.checkpoints)
		if resumed {
			end = int(min(max(at.N-1, 0), int64(end)))
		}
		end = max(end-request.Skip(), 0)
		start := max(end-request.Size(), 0)
		items := slices.Clone(rec.checkpoints[start:end])
		slices.Reverse(items)
		for i := range items {
			items[i].State = nil
		}
		page = newPage(request, items, len(rec.checkpoints), start > 0, session.Position{N: int64(start + 1)})
		return nil
	})
	return page, err
}

func noCheckpoint(id, checkpointID string) error {
	if checkpointID == "" {
		return session.ErrNotFound.WithMessage("session %s: it has no checkpoint", id)
	}
	return session.ErrNotFound.WithMessage("session %s: checkpoint %s not found", id, checkpointID)
}
