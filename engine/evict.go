package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/engine/internal/evicted"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// readers are tools with which a model reads what it asks for, a part at a time. To evict
// what they return would send it in circles. The engine knows tools of extensions by their
// names alone.
var readers = []string{helix.ReadResultTool, "workspace_read_file", "read_skill_file", "session_history", "search_memory"}

// evicts reports whether results of calls are evicted.
func evicts(agent *helix.Agent) bool { return agent.Context != nil && agent.Context.EvictOver > 0 }

// evicts reports whether a large result of a call is evicted.
func (t *turn) evicts(c *call) bool {
	return evicts(t.agent) && !slices.Contains(readers, c.Tool) && !slices.Contains(keptTools, c.Tool) && !slices.Contains(t.agent.Context.EvictExcept, c.Tool)
}

// maxResult is the largest result that a call may have. The result of a FinishWith call is
// the output of the run as well, and that is not evicted.
func (t *turn) maxResult(c *call) int {
	if t.evicts(c) && !c.FinishWith {
		return max(helix.MaxEvicted, t.h.cfg.MaxResult)
	}
	return t.h.cfg.MaxResult
}

// evict moves a result that is too large for the conversation to blobs, and leaves a preview
// in its message. It comes after the filters, so that they see the whole result and the blobs
// have what they let pass, and before the result is settled, so that a message never names
// blobs that are not there. A result that was evicted is left alone.
//
// A result for which the session has no room becomes an error. It also puts the blobs while
// the process shuts down, because the tool has run.
func (t *turn) evict(ctx context.Context, c *call, result *settled) error {
	if !t.evicts(c) || !t.tooLarge(result) {
		return nil
	}
	part := &result.message.Parts[0]
	data := []byte(part.Output)
	if part.Output == nil {
		data = []byte(part.Text)
	}
	index, id, err := t.putResult(context.WithoutCancel(ctx), data)
	if errors.Is(err, session.ErrTooLarge) {
		failed := t.failed(c, toolError(session.CodeToolOutput, "the result of %s has %d bytes and could not be kept: %s",
			c.Tool, len(data), session.AsError(err).Message), result.took)
		failed.writes = result.writes
		*result = *failed
		return nil
	}
	if err != nil {
		return err
	}
	about := session.Evicted{ID: id, Blobs: index.Refs(), Bytes: int64(len(data)), Lines: index.Lines, JSON: part.Output != nil}
	if c.FinishWith {
		result.whole = result.json()
	}
	result.message, result.output = t.stamp(session.ToolResult(c.part, nil)), nil
	result.message.Parts[0].Text = evicted.Preview(helix.ReadResultTool, id, data)
	result.message.Metadata = map[string]json.RawMessage{session.MetaEvicted: encoded(about)}
	return nil
}

// tooLarge reports whether a result is to be evicted, if those of its call are.
func (t *turn) tooLarge(result *settled) bool {
	if result.err != nil || result.stored || result.message.Evicted() != nil {
		return false
	}
	part, limit := &result.message.Parts[0], t.h.cfg.MaxResult
	return len(part.Text)+len(part.Output) > min(t.agent.Context.EvictOver, limit) || len(result.output) > limit // escapes count, too
}

// putResult puts the bytes of a result, and returns where they are and the id under which the
// model reads them.
func (t *turn) putResult(ctx context.Context, data []byte) (*evicted.Index, string, error) {
	if err := t.h.cfg.checkSize(t.size() + blob.Charge(int64(len(data)))); err != nil {
		return nil, "", err
	}
	index := &evicted.Index{Lines: evicted.Lines(data)}
	for _, part := range evicted.Split(data, evicted.PartBytes(len(data))) {
		ref, err := t.putWithin(ctx, part)
		if err != nil {
			return nil, "", err
		}
		index.Parts = append(index.Parts, evicted.NewPart(ref, part))
	}
	if len(index.Parts) == 1 {
		return index, evicted.ID(index.Parts[0].Ref, 1), nil
	}
	raw, err := index.Encode()
	if err != nil {
		return nil, "", err
	}
	ref, err := t.putWithin(ctx, raw)
	return index, evicted.ID(ref, len(index.Parts)), err
}

func (t *turn) putWithin(ctx context.Context, data []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return t.putBlob(ctx, t.size(), data)
}

// evictRest evicts the results of calls that have one and could not settle it.
func (t *turn) evictRest(ctx context.Context, f *flight) error {
	for _, c := range f.calls {
		if c.settled == nil && c.result != nil {
			if err := t.evict(ctx, c, c.result); err != nil {
				return err
			}
		}
	}
	return nil
}

// wholeOutputs reads the results of FinishWith calls that were evicted by a process that is
// gone, because one of them is the output of the run.
func (t *turn) wholeOutputs(ctx context.Context, f *flight) error {
	for _, c := range f.calls {
		if !c.FinishWith || c.settled == nil || c.settled.whole != nil {
			continue
		}
		about := c.settled.message.Evicted()
		if about == nil {
			continue
		}
		var data []byte
		for _, ref := range about.Blobs {
			part, err := retry.Do(ctx, func() ([]byte, error) { return t.blobStore().Get(ctx, t.key.ID, ref) })
			if errors.Is(err, session.ErrNotFound) { // of a session that is there
				err = blob.Lost(ref)
			}
			if err != nil {
				return err
			}
			data = append(data, part...)
		}
		if !about.JSON {
			data = session.AppendString(nil, string(data))
		}
		c.settled.whole = data
	}
	return nil
}
