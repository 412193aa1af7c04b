package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/evicted"
	"github.com/helixagents/helix/internal/shares"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// How many results a process reads at the same time, of all users and of one of them: each
// read takes as much memory as a blob has bytes.
const (
	maxReads     = 4
	maxReadsEach = 1
)

// resultReader runs the calls of [helix.ReadResultTool].
type resultReader struct {
	reads *shares.Shares[reader]
}

// reader is who reads: a user or, if it is not known, a conversation.
type reader struct{ tenant, user, session string }

func newReader(of *helix.Scope) reader {
	if of.UserID != "" {
		return reader{tenant: of.Tenant, user: of.UserID}
	}
	return reader{tenant: of.Tenant, session: cmp.Or(of.RootID, of.SessionID)}
}

// newReadResult makes the tool with which models read results that were evicted.
func newReadResult() *helix.Tool {
	return &helix.Tool{
		Name: helix.ReadResultTool,
		Description: "Read a part of a large result of which the conversation shows only the beginning and the end. " +
			"Give the id that stands in the result, and either lines (from, lines) or, if the lines are long, bytes (offset, bytes). " +
			"One call returns at most 32768 bytes and says how to go on.",
		ReadOnly: true,
		Execute:  &resultReader{reads: shares.New[reader](maxReads, maxReadsEach)},
	}
}

// readInput are the arguments of a read.
type readInput struct {
	ID     string `json:"id"`
	From   int64  `json:"from"`
	Lines  int64  `json:"lines"`
	Offset *int64 `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

var readSchema, errReadSchema = helix.ParseSchema(json.RawMessage(`{
	"type": "object",
	"properties": {
		"id": {"type": "string", "description": "the id of the result, as the result itself says it"},
		"from": {"type": "integer", "minimum": 1, "description": "the first line to read, counted from 1; 1 by default"},
		"lines": {"type": "integer", "minimum": 1, "description": "how many lines to read; as many as fit by default"},
		"offset": {"type": "integer", "minimum": 0, "description": "instead of from and lines, for long lines: the first byte to read, counted from 0"},
		"bytes": {"type": "integer", "minimum": 1, "description": "with offset: how many bytes to read, at most 32768; as many as fit by default"}
	},
	"required": ["id"],
	"additionalProperties": false
}`))

// readOffer is the tool as models are offered it.
func readOffer(tool *helix.Tool) llm.Tool {
	return llm.Tool{Name: tool.Name, Description: tool.Description, Schema: readSchema.JSON()}
}

// InputSchema implements [helix.Callable].
func (*resultReader) InputSchema() (*helix.Schema, error) { return readSchema, errReadSchema }

// Call implements [helix.Callable]. The blob store decides whether the conversation has the
// result, so an id that somebody else has, or that was guessed, gives nothing.
func (r *resultReader) Call(ctx context.Context, call *helix.Call, input json.RawMessage) (json.RawMessage, error) {
	var in readInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, toolError(session.CodeToolInput, "the arguments cannot be decoded: %v", err)
	}
	switch {
	case in.Offset != nil && (in.From != 0 || in.Lines != 0):
		return nil, toolError(session.CodeToolInput, "give either from and lines, or offset and bytes, not both")
	case in.Offset == nil && in.Bytes != 0:
		return nil, toolError(session.CodeToolInput, "bytes needs offset; give either from and lines, or offset and bytes")
	}
	ref, parts, ok := evicted.ParseID(in.ID)
	if !ok {
		return nil, unknownResult(in.ID)
	}
	done, err := r.reads.Take(ctx, newReader(&call.Scope))
	if err != nil {
		return nil, err
	}
	defer done()
	page, index, err := read(ctx, call, ref, parts, evicted.Range{From: in.From, Lines: in.Lines, Offset: in.Offset, Bytes: in.Bytes})
	outside, isOutside := errors.AsType[*evicted.OutsideError](err)
	switch {
	case isOutside:
		return nil, toolError(session.CodeToolInput, "%s", outside.Error())
	case errors.Is(err, session.ErrNotFound) || errors.Is(err, evicted.ErrIndex):
		return nil, unknownResult(in.ID)
	case err != nil:
		return nil, err
	case !utf8.Valid(page.Text):
		return nil, toolError(session.CodeToolInput, "the id %.80q names bytes that are not text", in.ID)
	}
	return session.AppendString(nil, describePage(page, index)+"\n\n"+string(page.Text)), nil
}

func unknownResult(id string) error {
	return session.ErrNotFound.WithMessage("there is no result with the id %.80q in this conversation; a large result says its id itself", id)
}

// read reads a part of a result.
func read(ctx context.Context, call *helix.Call, ref string, parts int, r evicted.Range) (*evicted.Page, *evicted.Index, error) {
	data, err := call.Blob(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	if parts == 1 {
		index := &evicted.Index{Parts: []evicted.Part{evicted.NewPart(ref, data)}, Lines: evicted.Lines(data)}
		page, err := index.Read(r, func(int) ([]byte, error) { return data, nil })
		return page, index, err
	}
	index, ok := evicted.Decode(data, parts)
	if !ok {
		return nil, nil, evicted.ErrIndex
	}
	last, of := []byte(nil), -1 // a line and its surroundings are in the same part, mostly
	page, err := index.Read(r, func(part int) ([]byte, error) {
		if part == of {
			return last, nil
		}
		data, err := call.Blob(ctx, index.Parts[part].Ref)
		if err == nil {
			last, of = data, part
		}
		return data, err
	})
	return page, index, err
}

// describePage says which part of the result a page is, and how to go on.
func describePage(p *evicted.Page, index *evicted.Index) string {
	total := index.Bytes()
	where := fmt.Sprintf("Bytes %d to %d of %d.", p.Start, p.End, total)
	next := fmt.Sprintf("offset=%d", p.End)
	if p.First > 0 {
		where = fmt.Sprintf("Lines %d to %d of %d, bytes %d to %d of %d.", p.First, p.Last, index.Lines, p.Start, p.End, total)
		if p.Cut {
			where += fmt.Sprintf(" Line %d is longer than one read.", p.Last)
		} else {
			next = fmt.Sprintf("from=%d", p.Last+1)
		}
	}
	if p.End >= total {
		return "[" + where + " This is the end.]"
	}
	return "[" + where + " Continue with " + next + ".]"
}
