package stored

import (
	"fmt"
	"iter"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// DecodeChunk returns a chunk of a stream as readers get it.
func DecodeChunk(id string, sequence int64, raw []byte) (stream.Item, error) {
	var chunk stream.Chunk
	if err := session.Decode(fmt.Sprintf("stream %s: chunk %d", id, sequence), raw, &chunk); err != nil {
		return stream.Item{}, err
	}
	return stream.NewItem(sequence, &chunk), nil
}

// BatchRow is a stored batch of a stream, chunk by chunk.
type BatchRow struct {
	First, Last int64
	At          time.Time
	Lines       [][]byte
}

// NewBatchRow splits the body of a batch into chunks.
func NewBatchRow(first, last int64, at time.Time, body []byte) *BatchRow {
	return &BatchRow{first, last, at, Lines(body)}
}

// Check returns an error if the batch is damaged.
func (b *BatchRow) Check(id string) error {
	if int64(len(b.Lines)) == b.Last-b.First+1 {
		return nil
	}
	return session.ErrCorrupt.WithMessage("stream %s: chunks %d to %d cannot be decoded", id, b.First, b.Last)
}

// After yields the chunks after a sequence, each with its own sequence.
func (b *BatchRow) After(from int64) iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		for i, line := range b.Lines {
			if sequence := b.First + int64(i); sequence > from && !yield(sequence, line) {
				return
			}
		}
	}
}

// Time returns the time of a chunk, or that of the batch if the chunk has none or
// cannot be decoded: damaged chunks must not be kept for ever.
func (b *BatchRow) Time(id string, sequence int64) time.Time {
	if b.Check(id) != nil {
		return b.At
	}
	item, err := DecodeChunk(id, sequence, b.Lines[sequence-b.First])
	if err != nil || item.Chunk.At.IsZero() {
		return b.At
	}
	return item.Chunk.At
}
