package store

import (
	"context"
	"errors"
	"slices"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Snapshot is a session at one moment. A client that shows it, and then the
// stream's chunks after Sequence, shows everything exactly once. See
// [stream.FoldOnto].
type Snapshot struct {
	// State is the document. Its custom state matches Messages, without the keys of the
	// framework.
	State *session.State
	// Run is the latest run, or nil if the session has never run.
	Run *session.Run
	// Messages is the transcript: complete for a session at rest, otherwise up to the
	// latest checkpoint. What a step in flight has committed since then is in the
	// stream.
	Messages []session.Message
	// Skipped is the number of messages before Messages that were omitted because of
	// the limit in bytes.
	Skipped int
	// Sequence is the last sequence of the stream that Messages and custom state
	// include.
	Sequence int64
	// CheckpointID is the checkpoint of the snapshot; empty if the session was at
	// rest.
	CheckpointID string
}

// snapshotTries bounds how often a session is read again because it has changed in
// the meantime.
const snapshotTries = 16

// errMoved reports that a session changed while it was read.
var errMoved = session.ErrUnavailable.WithMessage("the session keeps changing")

// TakeSnapshot reads a session and its position in its stream. Both stores must
// have the same tenant.
func TakeSnapshot(ctx context.Context, sessions session.Store, streams stream.Manager, id string) (*Snapshot, error) {
	return TakeRecent(ctx, sessions, streams, id, 0)
}

// TakeRecent is [TakeSnapshot] with only the newest messages: as many as fit into
// maxBytes, and at least one. If maxBytes is 0 it returns all messages.
func TakeRecent(ctx context.Context, sessions session.Store, streams stream.Manager, id string, maxBytes int64) (*Snapshot, error) {
	var err error
	for range snapshotTries {
		var s *Snapshot
		if s, err = takeSnapshot(ctx, sessions, streams, id, maxBytes); !errors.Is(err, errMoved) {
			return s, err
		}
	}
	return nil, err
}

func takeSnapshot(ctx context.Context, sessions session.Store, streams stream.Manager, id string, maxBytes int64) (*Snapshot, error) {
	state, err := sessions.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{State: state}
	if state.CurrentRunID != "" {
		if s.Run, err = sessions.Run(ctx, id, state.CurrentRunID); err != nil {
			return nil, err
		}
	}
	if s.Run == nil || (s.Run.Status.Ended() && !s.Run.Status.Suspended() && !state.ClosePending) {
		err = s.atRest(ctx, sessions, streams, maxBytes)
	} else {
		err = s.atCheckpoint(ctx, sessions, streams, maxBytes)
	}
	if err != nil {
		return nil, err
	}
	s.State.Custom = s.State.Custom.Public()
	return s, nil
}

// read reads the first n messages, or the newest of them that fit.
func (s *Snapshot) read(ctx context.Context, sessions session.Store, n int, maxBytes int64) error {
	if maxBytes <= 0 {
		messages, err := sessions.AllMessages(ctx, s.State.ID)
		if err != nil {
			return err
		}
		if n > len(messages) {
			return errMoved
		}
		s.Messages = messages[:n:n]
		return nil
	}
	var pages [][]session.Message // the newest first
	end, left := n, maxBytes
	size, grows := 1, true
	for end > 0 && size > 0 && left > 0 {
		page, err := lastPage(ctx, sessions, s.State.ID, end, size, left)
		if err != nil {
			return err
		}
		for i := range page {
			left -= int64(page[i].Size())
		}
		if left < 0 && len(pages) > 0 {
			break
		}
		grows = grows && len(page) == min(size, end)
		pages, end = append(pages, page), end-len(page)
		if grows {
			size = min(2*size, session.MaxPageSize)
		} else {
			size = len(page) / 2 // the messages before it do not all fit
		}
	}
	s.Skipped = end
	for _, page := range slices.Backward(pages) {
		s.Messages = append(s.Messages, page...)
	}
	return nil
}

// lastPage reads messages up to the end-th: as many of the last size ones as fit
// into maxBytes, at least one. Pages are read forwards, so it halves the page
// until all of it fits; it never holds more than maxBytes and one message.
func lastPage(ctx context.Context, sessions session.Store, id string, end, size int, maxBytes int64) ([]session.Message, error) {
	for size = min(size, end); ; size /= 2 {
		found, err := sessions.Messages(ctx, id, session.PageRequest{Offset: end - size, Limit: size, MaxBytes: maxBytes})
		switch {
		case err != nil:
			return nil, err
		case len(found.Items) == 0: // the session was rewound
			return nil, errMoved
		case len(found.Items) == size:
			return found.Items, nil
		case !found.HasMore:
			return nil, errMoved
		}
	}
}

// atRest reads a session that nobody runs as it is.
func (s *Snapshot) atRest(ctx context.Context, sessions session.Store, streams stream.Manager, maxBytes int64) error {
	if err := s.read(ctx, sessions, s.State.MessageCount, maxBytes); err != nil {
		return err
	}
	info, err := streams.Info(ctx, s.State.StreamID)
	switch {
	case err == nil:
		s.Sequence = info.Last
	case !errors.Is(err, session.ErrNotFound): // a session that has never run has none
		return err
	}
	again, err := sessions.Load(ctx, s.State.ID)
	if err != nil {
		return err
	}
	if again.Version != s.State.Version || again.CurrentRunID != s.State.CurrentRunID {
		return errMoved
	}
	return nil
}

// atCheckpoint reads a session whose run is in progress, or waits in the middle of
// a step, at its latest checkpoint.
func (s *Snapshot) atCheckpoint(ctx context.Context, sessions session.Store, streams stream.Manager, maxBytes int64) error {
	at, err := sessions.LatestCheckpoint(ctx, s.State.ID)
	if err != nil {
		return err
	}
	if at.Version > s.State.Version { // the document is older
		return errMoved
	}
	if err := s.read(ctx, sessions, at.MessageCount, maxBytes); err != nil {
		return err
	}
	// Messages disappear only when a session is rewound, which undoes the checkpoint.
	again, err := sessions.Checkpoint(ctx, s.State.ID, at.ID)
	if err != nil {
		return err
	}
	if again.Undone {
		return errMoved
	}
	s.CheckpointID = at.ID
	if at.State != nil {
		s.State.Custom = *at.State
	}
	s.Sequence, err = sequenceOf(ctx, streams, s.State, at)
	return err
}

// scanPage is how many chunks are read at a time.
const scanPage = 256

// sequenceOf returns the last chunk that reports something the checkpoint
// contains. The checkpoint's own sequence is the last one that its writer knew to
// be durable: sub-agents of the session may have written after it, and so has the
// writer itself, but no chunk of the step follows the commit.
func sequenceOf(ctx context.Context, streams stream.Manager, state *session.State, at *session.Checkpoint) (int64, error) {
	last := at.StreamSequence
	for from := last; ; {
		items, err := streams.Chunks(ctx, state.StreamID, from, scanPage)
		switch {
		case errors.Is(err, session.ErrNotFound): // its first run has not created the stream yet
			return last, nil
		case errors.Is(err, session.ErrTruncated):
			return withinStream(ctx, streams, state.StreamID, last)
		case err != nil:
			return 0, err
		}
		for i := range items {
			from = items[i].Sequence
			c := items[i].Chunk
			if c == nil || c.AgentID != state.ID {
				continue
			}
			if c.RunID != at.RunID || c.Step > at.Step {
				return last, nil
			}
			if c.Kind == stream.InputReceived && c.MessageCount != nil && *c.MessageCount >= at.MessageCount {
				return last, nil // its messages, such as a marker behind the step, are not committed yet
			}
			if c.Kind == stream.Custom && c.Name == stream.CompactingName {
				continue // it is news until the step says how the compaction ended
			}
			last = from
		}
		if len(items) < scanPage {
			return last, nil
		}
	}
}

// withinStream returns a sequence from which a stream can be read, or is known to
// be truncated. A stream that lost its end, because it is stored apart from the
// session and was restored to an earlier state, contains nothing that the session
// does not have.
func withinStream(ctx context.Context, streams stream.Manager, id string, sequence int64) (int64, error) {
	info, err := streams.Info(ctx, id)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return sequence, nil
	case err != nil:
		return 0, err
	}
	return min(sequence, info.Last), nil
}
