package redis

import (
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// A document's large or rare parts are fields of a separate hash: doc, which only
// direct writes change; end, how the last run ended; step, the suspended step;
// output, which is separate so that it keeps its bytes.

// setDoc adds the fields that the header does not have to h.
func (h *header) setDoc(fields map[string]string) error {
	row := stored.Document{
		Doc: []byte(fields["doc"]), Ending: []byte(fields["end"]), SuspendedStep: fields["step"], Output: bytesOf(fields["output"]),
	}
	marks := h.Marks // which the header has
	if err := row.Fill(&h.State); err != nil {
		return err
	}
	h.Marks = marks
	return h.labels()
}

// writeDoc stores what setDoc reads, except the labels.
func (w *batch) writeDoc(state *session.State) error {
	rest := *state
	rest.Marks = nil // which the header has
	row, err := stored.EncodeDocument(&rest)
	if err != nil {
		return err
	}
	w.do("hset", keyDoc, keyDoc, "doc", row.Doc, "end", row.Ending, "step", row.SuspendedStep, "output", row.Output)
	return nil
}
