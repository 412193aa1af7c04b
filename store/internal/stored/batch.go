// Package stored is what backends share of the form in which they keep a session's
// labels, messages and the batches of a stream, so that what one of them learns the
// others know, too.
package stored

import (
	"bytes"
	"encoding/json"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// separator parts the lines of a batch. JSON has no place for it, while line breaks
// may be anywhere between its tokens.
var separator = []byte{0x1e}

// Chunk is a chunk in its wire form, in several pieces if it was split. They share
// its producer's number.
type Chunk struct {
	pieces [][]byte
	runID  string
	step   int
}

// EncodeBatch checks a batch for a stream and encodes its chunks; limit is the
// largest that one may be.
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

// Batch is chunks put together, one per line.
type Batch struct {
	Body   []byte
	Lines  int
	Pieces []byte // how many lines each chunk has, as JSON, if one has several
	RunID  string // of all chunks, if it is one
	Step   int    // the last
}

// Join puts chunks together, of which there is at least one.
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
		out.Pieces, _ = json.Marshal(counts) // numbers
	}
	return out
}

// Lines takes the body of a batch apart.
func Lines(body []byte) [][]byte { return bytes.Split(body, separator) }
