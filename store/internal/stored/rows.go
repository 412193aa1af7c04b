package stored

import (
	"encoding/json"

	"github.com/helixagents/helix/session"
)

// Each store has columns for what it selects by or changes on its own, and these
// differ. The functions here share the rest: a document without those fields and,
// separate from it, what must keep its bytes. A columns function clears the fields
// that the store keeps in columns; the store sets them again after decoding.

// Call is the row of a call. The result and the writes are separate so that they
// keep their bytes: the result becomes a message unchanged.
type Call struct{ Doc, Result, Writes []byte }

// EncodeCall encodes a call.
func EncodeCall(call *session.Call, columns func(*session.Call)) (*Call, error) {
	record := *call
	record.Result, record.Writes = nil, session.Writes{}
	columns(&record)
	row := &Call{}
	var err error
	if row.Doc, err = session.Encode(&record); err != nil {
		return nil, session.ErrInvalid.WithCause(err, "call %s cannot be encoded", call.ID)
	}
	if call.Result != nil {
		if row.Result, err = session.Encode(call.Result); err != nil {
			return nil, session.ErrInvalid.WithCause(err, "the result of call %s cannot be encoded", call.ID)
		}
	}
	if !call.Writes.Empty() || len(call.Writes.Warnings) > 0 {
		row.Writes, err = EncodeWrites(call.Writes)
	}
	return row, err
}

// Decode returns the call, without the fields that the store keeps in columns.
func (r *Call) Decode(sessionID, callID string) (session.Call, error) {
	name := "session " + sessionID + ": call " + callID
	var call session.Call
	if err := session.Decode(name, r.Doc, &call); err != nil {
		return call, err
	}
	if r.Result != nil {
		call.Result = &session.Message{}
		if err := session.Decode(name+": result", r.Result, call.Result); err != nil {
			return call, err
		}
	}
	if r.Writes != nil {
		if err := session.Decode(name+": writes", r.Writes, &call.Writes); err != nil {
			return call, err
		}
	}
	return call, nil
}

// Pending is the row of a call that waits for a person. JSON from a person or a
// model is separate so that it keeps its bytes.
type Pending struct{ Doc, Input, Result, Late []byte }

// EncodePending encodes an entry.
func EncodePending(p *session.Pending, columns func(*session.Pending)) (*Pending, error) {
	record, row := *p, &Pending{}
	row.Input, record.Input = record.Input, nil
	row.Result, record.Response = splitResponse(record.Response)
	row.Late, record.Late = splitResponse(record.Late)
	columns(&record)
	var err error
	if row.Doc, err = session.Encode(&record); err != nil {
		return nil, session.ErrInvalid.WithCause(err, "pending call %s cannot be encoded", p.CallID)
	}
	return row, nil
}

// splitResponse separates the result of a client tool, or the answer to a question:
// no response has both.
func splitResponse(r *session.Response) ([]byte, *session.Response) {
	if r == nil || (r.Result == nil && r.Answer == nil) {
		return nil, r
	}
	rest := *r
	rest.Result, rest.Answer = nil, nil
	if r.Kind == session.PendingQuestion {
		return r.Answer, &rest
	}
	return r.Result, &rest
}

// joinResponse undoes splitResponse.
func joinResponse(body []byte, r *session.Response) {
	switch {
	case body == nil || r == nil:
	case r.Kind == session.PendingQuestion:
		r.Answer = body
	default:
		r.Result = body
	}
}

// Decode returns the entry, without the fields that the store keeps in columns.
func (r *Pending) Decode(sessionID, callID string) (*session.Pending, error) {
	p := &session.Pending{}
	if err := session.Decode("session "+sessionID+": pending call "+callID, r.Doc, p); err != nil {
		return nil, err
	}
	p.Input = r.Input
	joinResponse(r.Result, p.Response)
	joinResponse(r.Late, p.Late)
	return p, nil
}

// EncodeChild encodes a reference to a sub-agent's session.
func EncodeChild(ref *session.ChildRef, columns func(*session.ChildRef)) ([]byte, error) {
	record := *ref
	columns(&record)
	doc, err := session.Encode(&record)
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "child %s cannot be encoded", ref.SessionID)
	}
	return doc, nil
}

// DecodeChild returns the reference, without the fields that the store keeps in
// columns.
func DecodeChild(sessionID, childID string, doc []byte) (*session.ChildRef, error) {
	ref := &session.ChildRef{}
	return ref, session.Decode("session "+sessionID+": child "+childID, doc, ref)
}

// EncodeOutcome encodes a run's outcome without its output, which is stored
// separately so that it keeps its bytes. Both results are nil if o is nil.
func EncodeOutcome(runID string, o *session.Outcome) (doc, output []byte, err error) {
	if o == nil {
		return nil, nil, nil
	}
	rest := *o
	output, rest.Output = rest.Output, nil
	if doc, err = session.Encode(&rest); err != nil {
		return nil, nil, session.ErrInvalid.WithCause(err, "the outcome of run %s cannot be encoded", runID)
	}
	return doc, output, nil
}

// Usage returns pointers to the counts of a usage, in the order in which they are
// stored.
func Usage(u *session.Usage) [7]*int64 {
	return [...]*int64{
		&u.InputTokens, &u.OutputTokens, &u.ReasoningTokens, &u.CacheReadTokens, &u.CacheWriteTokens, &u.ModelCalls, &u.ToolCalls,
	}
}

// EncodeWrites encodes writes by hand, because the JSON encoder would change the
// whitespace of values, which must keep their bytes.
func EncodeWrites(w session.Writes) ([]byte, error) {
	size := 64
	for i := range w.Ops {
		size += len(w.Ops[i].Key) + len(w.Ops[i].Value) + 64
	}
	out := append(make([]byte, 0, size), `{"ops":[`...)
	for i := range w.Ops {
		op := &w.Ops[i]
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, `{"kind":"`...)
		out = append(out, op.Kind...)
		out = session.AppendString(append(out, `","key":`...), op.Key)
		switch op.Kind {
		case session.OpAppend:
			out = append(out, `,"items":`...)
			out = append(out, session.JoinList(json.RawMessage("[]"), op.Items)...)
		case session.OpReplace:
			out = append(append(out, `,"value":`...), op.Value...)
		}
		out = append(out, '}')
	}
	out = append(out, ']')
	if len(w.Warnings) > 0 {
		warnings, err := session.Encode(w.Warnings)
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"warnings":`...), warnings...)
	}
	return append(out, '}'), nil
}
