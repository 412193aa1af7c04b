package engine

import (
	"context"
	"strconv"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/tokens"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Marker is what is to take the place of a part of the conversation, or to cut it; see
// [session.View].
type Marker struct {
	Text string
	// Texts are what each extension that the compaction names in Preserved keeps of the messages.
	// Each is a part of its own, so that nothing that somebody else wrote is taken for it.
	Texts []string
	// Files are those of the user's last message, if it is not kept as it is.
	Files []session.Part
	session.Compaction
	// Tasks follow the commit of the marker.
	Tasks []session.Task
}

// message makes the message of a marker behind a transcript.
func (m *Marker) message(t *session.Transcript) (session.Message, error) {
	m.Bytes = 0
	if m.Kind != session.CompactionTrim {
		m.Bytes = t.BytesBefore(m.Kept)
	}
	out, err := m.Compaction.Marker(m.Text, m.more()...)
	out.At = time.Now().UTC()
	return out, err
}

// more are the parts that follow the text.
func (m *Marker) more() []session.Part {
	parts := make([]session.Part, 0, len(m.Texts)+len(m.Files))
	for _, text := range m.Texts {
		parts = append(parts, session.Text(text))
	}
	return append(parts, m.Files...)
}

// tokens estimates the size of the marker's message.
func (m *Marker) tokens() float64 {
	return tokens.Message(&session.Message{Parts: append([]session.Part{session.Text(m.Text)}, m.more()...)})
}

// outcome is what people are told about a marker.
func (m *Marker) outcome(id string) helix.Compacted {
	return helix.Compacted{Kind: m.Kind, MarkerID: id, Kept: m.Kept, TokensBefore: m.TokensBefore, TokensAfter: m.TokensAfter}
}

// mark commits a marker, with a checkpoint, in a commit of its own.
func (t *turn) mark(ctx context.Context, e effect, made *Marker) error {
	m, err := made.message(t.transcript)
	if err != nil {
		return err
	}
	before := t.transcript.Len()
	step, key := max(t.step, 0), e.Key()+"/compact/"+strconv.Itoa(before)
	m.ID, m.RunID, m.Step = t.run.ID+"/marker/"+strconv.Itoa(before), t.run.ID, t.current()
	// The chunk belongs to the step that the checkpoint ends. It says where the marker is, so
	// that watchers know whether a discard after a takeover includes it.
	t.out.Emit(stream.Chunk{Kind: stream.InputReceived, Step: step, Messages: []session.Message{m}, MessageCount: &before})
	t.out.Emit(stream.Chunk{Kind: stream.Custom, Step: step, Name: helix.CompactedEvent, Data: encoded(made.outcome(m.ID))})
	t.emitPatches(t.hooks.written)
	checkpoint := t.checkpoint(step, key)
	checkpoint.Source = session.FromCompaction
	t.marking = t.newCommit(key, session.Change{
		Messages: []session.Message{m}, Checkpoint: checkpoint, Writes: t.hooks.written, Run: t.runChange(""), Tasks: made.Tasks,
	})
	return t.sendMarker(ctx)
}

// sendMarker sends the commit of a marker. A commit that failed is sent again
// unchanged, because it may have been applied.
func (t *turn) sendMarker(ctx context.Context) error {
	if t.marking == nil {
		return nil
	}
	if _, err := t.commit(ctx, t.marking); err != nil {
		return err
	}
	t.marking = nil
	return nil
}
