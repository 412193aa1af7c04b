package stored

import "github.com/helixagents/helix/session"

// Document is what stores keep of a session's document beside the columns of its
// row: the part that runs do not change, how the last run ended, and the output,
// which is separate so that it keeps its bytes.
type Document struct {
	Doc []byte
	// Ending has the error, the failure reason and the interrupt; nil if all are
	// empty.
	Ending        []byte
	SuspendedStep string
	Output        []byte
}

// EncodeDocument encodes these parts of a document.
func EncodeDocument(state *session.State) (*Document, error) {
	rest := session.State{Tracing: state.Tracing, WorkspaceRef: state.WorkspaceRef, Mode: state.Mode, Marks: state.Marks, Extra: state.Extra}
	doc, err := session.Encode(&rest)
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "session %s cannot be encoded", state.ID)
	}
	ending, err := EncodeEnding(state)
	return &Document{Doc: doc, Ending: ending, SuspendedStep: state.SuspendedStep, Output: state.Output}, err
}

// EncodeEnding encodes how the last run of a session ended: error, failure reason
// and interrupt. The result is nil if all are empty.
func EncodeEnding(state *session.State) ([]byte, error) {
	if state.Error == nil && state.FailureReason == "" && state.Interrupt == nil {
		return nil, nil
	}
	doc, err := session.Encode(&session.State{Error: state.Error, FailureReason: state.FailureReason, Interrupt: state.Interrupt})
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "session %s cannot be encoded", state.ID)
	}
	return doc, nil
}

// Fill adds these parts to a document that has the fields of its columns.
func (d *Document) Fill(state *session.State) error {
	var rest, ending session.State
	if err := session.Decode("session "+state.ID, d.Doc, &rest); err != nil {
		return err
	}
	if len(d.Ending) > 0 {
		if err := session.Decode("session "+state.ID+": how it ended", d.Ending, &ending); err != nil {
			return err
		}
	}
	state.Tracing, state.WorkspaceRef, state.Mode = rest.Tracing, rest.WorkspaceRef, rest.Mode
	state.Marks, state.Extra = rest.Marks, rest.Extra
	state.Error, state.FailureReason, state.Interrupt = ending.Error, ending.FailureReason, ending.Interrupt
	state.SuspendedStep, state.Output = d.SuspendedStep, d.Output
	return nil
}
