package store

import (
	"context"
	"errors"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Snapshot is a session at one moment: whoever shows it, and then what its stream
// holds after Sequence, shows everything once. See [stream.FoldOnto].
type Snapshot struct {
	// State is the document. Its custom state is what belongs to Messages.
	State *session.State
	// Run is the latest run; nil if there was none.
	Run *session.Run
	// Messages is the transcript: of a session at rest all of it, else up to the
	// latest checkpoint. What a step in flight has committed since then is in the
	// stream.
	Messages []session.Message
	// Sequence is the last of the stream that Messages and custom state include.
	Sequence int64
	// CheckpointID is the checkpoint that the snapshot is taken at; empty if the
	// session was at rest.
	CheckpointID string
}

// snapshotTries bounds how often a session is read again because it changed
// meanwhile.
const snapshotTries = 16

// errMoved says that a session changed while it was read.
var errMoved = session.ErrUnavailable.WithMessage("the session keeps changing")

// TakeSnapshot reads a session and the place in its stream that it is at. Both
// stores are of the same tenant.
func TakeSnapshot(ctx context.Context, sessions session.Store, streams stream.Manager, id string) (*Snapshot, error) {
	var err error
	for range snapshotTries {
		var s *Snapshot
		if s, err = takeSnapshot(ctx, sessions, streams, id); !errors.Is(err, errMoved) {
			return s, err
		}
	}
	return nil, err
}

func takeSnapshot(ctx context.Context, sessions session.Store, streams stream.Manager, id string) (*Snapshot, error) {
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
	if s.Run == nil || (s.Run.Status.Ended() && !s.Run.Status.Suspended() && !state.CloseOwed) {
		err = s.atRest(ctx, sessions, streams)
	} else {
		err = s.atCheckpoint(ctx, sessions, streams)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// atRest takes a session that nobody runs as it is.
func (s *Snapshot) atRest(ctx context.Context, sessions session.Store, streams stream.Manager) error {
	messages, err := sessions.AllMessages(ctx, s.State.ID)
	if err != nil {
		return err
	}
	info, err := streams.Info(ctx, s.State.StreamID)
	switch {
	case err == nil:
		s.Sequence = info.Last
	case !errors.Is(err, session.ErrNotFound): // a session that never ran has none
		return err
	}
	s.Messages = messages
	again, err := sessions.Load(ctx, s.State.ID)
	if err != nil {
		return err
	}
	if again.Version != s.State.Version || again.CurrentRunID != s.State.CurrentRunID {
		return errMoved
	}
	return nil
}

// atCheckpoint takes a session whose run is under way, or waits in mid-step, at its
// latest checkpoint.
func (s *Snapshot) atCheckpoint(ctx context.Context, sessions session.Store, streams stream.Manager) error {
	at, err := sessions.LatestCheckpoint(ctx, s.State.ID)
	if err != nil {
		return err
	}
	if at.Version > s.State.Version { // the document is older
		return errMoved
	}
	messages, err := sessions.AllMessages(ctx, s.State.ID)
	if err != nil {
		return err
	}
	// Messages only go when a session is rewound, which undoes the checkpoint.
	again, err := sessions.Checkpoint(ctx, s.State.ID, at.ID)
	if err != nil {
		return err
	}
	if again.Undone || at.MessageCount > len(messages) {
		return errMoved
	}
	s.CheckpointID, s.Messages = at.ID, messages[:at.MessageCount:at.MessageCount]
	if at.State != nil {
		s.State.Custom = *at.State
	}
	s.Sequence, err = sequenceOf(ctx, streams, s.State, at)
	return err
}

// scanPage is how many chunks are looked at at a time.
const scanPage = 256

// sequenceOf finds the last chunk that tells of what a checkpoint holds. The
// checkpoint's own sequence is what its writer knew to be durable: agents that
// work for the session may have written after it, and so did the writer itself,
// but nothing of the step came after the commit.
func sequenceOf(ctx context.Context, streams stream.Manager, state *session.State, at *session.Checkpoint) (int64, error) {
	last := at.StreamSequence
	for from := last; ; {
		items, err := streams.Chunks(ctx, state.StreamID, from, scanPage)
		switch {
		case errors.Is(err, session.ErrNotFound): // its first run has not opened it yet
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
			last = from
		}
		if len(items) < scanPage {
			return last, nil
		}
	}
}

// withinStream is a sequence from which a stream can be read on, or is known to be
// truncated. One that lost its end, because it is kept apart from the session and
// was restored to an earlier state, holds nothing that the session does not.
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
