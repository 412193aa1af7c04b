package builtin

import (
	"context"

	"github.com/helixagents/helix"
)

// NotesKey is the key of the session's state under which notes are kept, as a list
// of texts.
const NotesKey = "notes"

// notebook is the part of the session's state that notes are in.
type notebook struct {
	Notes []string `json:"notes"`
}

type note struct {
	Note string `json:"note"`
}

// Remember keeps a note. It may run again after a crash: a note is only kept when
// the step is committed, and then once.
func Remember() helix.Tool {
	return helix.Tool{
		Name: "remember", Description: "Keep a note for later.", Idempotent: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, in note) (string, error) {
			helix.Append(call, NotesKey, in.Note)
			return "noted", nil
		}),
	}
}

// Recall lists the notes.
func Recall() helix.Tool {
	return helix.Tool{
		Name: "recall", Description: "List the notes kept so far.", ReadOnly: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct{}) ([]string, error) {
			notes := helix.State[notebook](call).Notes
			if notes == nil {
				notes = []string{} // a list without notes, not no list
			}
			return notes, nil
		}),
	}
}

// Forget throws all notes away. What is forgotten is gone, so a person is asked
// first.
func Forget() helix.Tool {
	return helix.Tool{
		Name: "forget", Description: "Throw away all notes.", Idempotent: true, Approval: helix.ApproveAlways,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct{}) (string, error) {
			helix.Update(call, func(n *notebook) { n.Notes = []string{} })
			return "forgotten", nil
		}),
	}
}
