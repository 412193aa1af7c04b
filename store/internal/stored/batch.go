// Package stored contains the stored forms that backends share: labels, messages,
// calls and the batches of a stream.
package stored

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// separator separates the lines of a batch. It cannot occur in JSON, whereas line
// breaks may occur between any tokens.
var separator = []byte{0x1e}

// Chunk is a chunk in its wire form, in several pieces if it was split. The pieces
// share its producer's number.
type Chunk struct {
	pieces [][]byte
	runID  string
	step   int
}

// EncodeBatch checks a batch for a stream and encodes its chunks; limit is the
// maximum size of an encoded chunk.
func EncodeBatch(id string, batch *stream.Batch, limit int) ([]Chunk, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	if batch.First < 0 {
		return nil, session.Invalid("producer sequence", "%d is negative", batch.First)
	}
	out := make([]Chunk, len(batch.Chunks))
	for i := range batch.Chunks {
		c := &batch.Chunks[i]
		pieces, err := stream.Split(*c, limit)
		if err != nil {
			return nil, err
		}
		out[i] = Chunk{pieces, c.RunID, c.Step}
	}
	return out, nil
}

// Batch is a sequence of chunks in one body, one per line.
type Batch struct {
	Body   []byte
	Lines  int
	Pieces []byte // the number of lines of each chunk, as JSON, if one has several
	RunID  string // of all chunks, if they agree
	Step   int    // of the last chunk
}

// Join combines chunks, of which there must be at least one.
func Join(chunks []Chunk) Batch {
	var lines [][]byte
	counts := make([]int, len(chunks))
	out := Batch{RunID: chunks[0].runID, Step: chunks[0].step}
	for i, c := range chunks {
		lines = append(lines, c.pieces...)
		counts[i] = len(c.pieces)
		out.Step = max(out.Step, c.step)
		if c.runID != out.RunID {
			out.RunID = ""
		}
	}
	out.Body, out.Lines = bytes.Join(lines, separator), len(lines)
	if len(lines) > len(chunks) {
		out.Pieces, _ = json.Marshal(counts) // a list of numbers always encodes
	}
	return out
}

// Items decodes the chunks after a sequence; first is the sequence of the batch's
// first line.
func (b *Batch) Items(id string, first, after int64) (items []stream.Item, err error) {
	row := NewBatchRow(first, first+int64(b.Lines)-1, time.Time{}, b.Body)
	for sequence, line := range row.After(after) {
		item, err := DecodeChunk(id, sequence, line)
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// Lines splits the body of a batch.
func Lines(body []byte) [][]byte { return bytes.Split(body, separator) }
