package redis

import (
	"github.com/helixagents/helix/session"
)

// A document's large or rare parts are fields of a hash of their own: doc, which
// only direct writes change; end, how the last run came out; step, the suspended
// one; output, apart so that it keeps its bytes.

// takeDoc adds to h the fields that the header does not have.
func (h *header) takeDoc(fields map[string]string) error {
	var rest, end session.State
	if err := session.Decode("session "+h.ID, []byte(fields["doc"]), &rest); err != nil {
		return err
	}
	if raw := fields["end"]; raw != "" {
		if err := session.Decode("session "+h.ID, []byte(raw), &end); err != nil {
			return err
		}
	}
	h.Tracing, h.WorkspaceRef, h.Mode, h.Extra = rest.Tracing, rest.WorkspaceRef, rest.Mode, rest.Extra
	h.Error, h.FailureReason, h.Interrupt = end.Error, end.FailureReason, end.Interrupt
	h.SuspendedStep = fields["step"]
	h.Output = bytesOf(fields["output"])
	return h.labels()
}

// writeDoc stores what takeDoc reads, but for the labels.
func (w *batch) writeDoc(state *session.State) error {
	doc, err := session.Encode(&session.State{
		Tracing: state.Tracing, WorkspaceRef: state.WorkspaceRef, Mode: state.Mode, Extra: state.Extra,
	})
	if err != nil {
		return session.ErrInvalid.WithCause(err, "session %s: cannot be encoded", state.ID)
	}
	end, err := encodeEnd(state)
	if err != nil {
		return err
	}
	w.do("hset", keyDoc, keyDoc, "doc", doc, "end", end, "step", state.SuspendedStep, "output", []byte(state.Output))
	return nil
}

func encodeEnd(state *session.State) ([]byte, error) {
	if state.Error == nil && state.FailureReason == "" && state.Interrupt == nil {
		return []byte{}, nil
	}
	end, err := session.Encode(&session.State{Error: state.Error, FailureReason: state.FailureReason, Interrupt: state.Interrupt})
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "session %s: cannot be encoded", state.ID)
	}
	return end, nil
}
