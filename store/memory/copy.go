package memory

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// The store and its callers share no memory. These functions copy values in both
// directions and give them the form that they would have after a round trip
// through a disk: times in UTC, errors without the Go value of their cause.

// utc returns the time as storage would return it.
func utc(t time.Time) time.Time { return t.Round(0).UTC() }

func cloneState(s *session.State) session.State {
	out := *s
	out.Custom, out.Pending, out.AwaitingChildren = session.CustomState{}, nil, nil
	out.Output = bytes.Clone(s.Output)
	out.Error = cloneError(s.Error)
	out.Interrupt = cloneInterrupt(s.Interrupt)
	out.Tracing = clonePointer(s.Tracing)
	out.WorkspaceRef = bytes.Clone(s.WorkspaceRef)
	out.Tags = session.UniqueTags(s.Tags)
	out.Requires = slices.Clone(s.Requires)
	out.Metadata = maps.Clone(s.Metadata)
	out.Marks = slices.Clone(s.Marks)
	out.Extra = cloneRawMap(s.Extra)
	for _, t := range []*time.Time{&out.Lease.ExpiresAt, &out.CheckpointedAt, &out.ExpiresAt, &out.CreatedAt, &out.UpdatedAt} {
		*t = utc(*t)
	}
	return out
}

// cloneDocument copies custom state with its values.
func cloneDocument(d *session.CustomState) session.CustomState {
	var out session.CustomState
	for key, value := range d.All() {
		out.Set(key, bytes.Clone(value))
	}
	return out
}

func cloneRun(r *session.Run) session.Run {
	out := *r
	out.Outcome = cloneOutcome(r.Outcome)
	out.Requires = slices.Clone(r.Requires)
	out.StartedAt, out.EndedAt = utc(r.StartedAt), utc(r.EndedAt)
	out.Extra = cloneRawMap(r.Extra)
	return out
}

func cloneOutcome(o *session.Outcome) *session.Outcome {
	if o == nil {
		return nil
	}
	out := *o
	out.Output = bytes.Clone(o.Output)
	out.Error = cloneError(o.Error)
	out.Interrupt = cloneInterrupt(o.Interrupt)
	out.Pending = cloneEach(o.Pending, clonePending)
	out.Children = cloneEach(o.Children, cloneChild)
	return &out
}

func clonePending(p *session.Pending) session.Pending {
	out := *p
	out.Input, out.Schema = bytes.Clone(p.Input), bytes.Clone(p.Schema)
	out.CreatedAt, out.Deadline, out.SubmittedAt = utc(p.CreatedAt), utc(p.Deadline), utc(p.SubmittedAt)
	out.Response, out.Late = cloneResponse(p.Response), cloneResponse(p.Late)
	out.Extra = cloneRawMap(p.Extra)
	return out
}

func cloneResponse(r *session.Response) *session.Response {
	out := clonePointer(r)
	if out != nil {
		out.Result, out.Answer = bytes.Clone(r.Result), bytes.Clone(r.Answer)
	}
	return out
}

func cloneChild(c *session.ChildRef) session.ChildRef {
	out := *c
	out.Remote = bytes.Clone(c.Remote)
	out.CreatedAt, out.UpdatedAt = utc(c.CreatedAt), utc(c.UpdatedAt)
	out.Extra = cloneRawMap(c.Extra)
	return out
}

func cloneEntry(e *session.InboxEntry) session.InboxEntry {
	out := *e
	out.Body = bytes.Clone(e.Body)
	out.At = utc(e.At)
	return out
}

// cloneCall copies a call without its result, which is kept encoded.
func cloneCall(c *session.Call) session.Call {
	out := *c
	out.Result = nil
	out.Rejected = cloneError(c.Rejected)
	out.Memo = bytes.Clone(c.Memo)
	out.Writes = cloneWrites(c.Writes)
	out.BegunAt, out.SettledAt = utc(c.BegunAt), utc(c.SettledAt)
	out.Extra = cloneRawMap(c.Extra)
	return out
}

func cloneWrites(w session.Writes) session.Writes {
	out := session.Writes{Warnings: slices.Clone(w.Warnings)}
	if w.Ops == nil {
		return out
	}
	out.Ops = make([]session.Op, len(w.Ops))
	for i := range w.Ops {
		out.Ops[i] = w.Ops[i]
		out.Ops[i].Value = bytes.Clone(w.Ops[i].Value)
		out.Ops[i].Items = cloneRaws(w.Ops[i].Items)
	}
	return out
}

// cloneError copies an error as storage would return it: the text of the cause
// becomes part of the message, and its Go value is lost.
func cloneError(e *session.Error) *session.Error {
	if e == nil {
		return nil
	}
	raw, err := e.MarshalJSON()
	var out session.Error
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return &session.Error{Code: e.Code, Message: e.Message}
	}
	return &out
}

func cloneInterrupt(i *session.InterruptContext) *session.InterruptContext {
	out := clonePointer(i)
	if out != nil {
		out.At = utc(i.At)
	}
	return out
}

// cloneChunk copies a chunk that all readers share. Nearly every chunk is flat,
// so this costs one allocation.
func cloneChunk(c *stream.Chunk) *stream.Chunk {
	out := *c
	out.MessageCount = clonePointer(c.MessageCount)
	out.Arguments = bytes.Clone(c.Arguments)
	out.Result = bytes.Clone(c.Result)
	out.Data = bytes.Clone(c.Data)
	if c.Error != nil {
		out.Error = cloneError(c.Error)
	}
	out.Messages = cloneEach(c.Messages, cloneMessage)
	out.Patches = slices.Clone(c.Patches)
	for i := range out.Patches {
		out.Patches[i].Value = bytes.Clone(out.Patches[i].Value)
	}
	return &out
}

func cloneMessage(m *session.Message) session.Message {
	out := *m
	out.Parts = slices.Clone(m.Parts)
	for i := range out.Parts {
		p := &out.Parts[i]
		p.Provider, p.Input, p.Output = bytes.Clone(p.Provider), bytes.Clone(p.Input), bytes.Clone(p.Output)
		p.Error = cloneError(p.Error)
		p.Extra = cloneRawMap(p.Extra)
	}
	out.Metadata = cloneRawMap(m.Metadata)
	out.Extra = cloneRawMap(m.Extra)
	return out
}

func cloneEnd(e *stream.End) *stream.End {
	out := clonePointer(e)
	if out != nil {
		out.Output = bytes.Clone(e.Output)
		out.Usage = clonePointer(e.Usage)
		out.Omitted = slices.Clone(e.Omitted)
	}
	return out
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	out := *p
	return &out
}

func cloneEach[T any](items []T, clone func(*T) T) []T {
	if items == nil {
		return nil
	}
	out := make([]T, len(items))
	for i := range items {
		out[i] = clone(&items[i])
	}
	return out
}

func cloneRaws(items []json.RawMessage) []json.RawMessage {
	if items == nil {
		return nil
	}
	out := make([]json.RawMessage, len(items))
	for i := range items {
		out[i] = bytes.Clone(items[i])
	}
	return out
}

func cloneRawMap[M ~map[string]json.RawMessage](m M) M {
	out := maps.Clone(m)
	for key, value := range out {
		out[key] = bytes.Clone(value)
	}
	return out
}
