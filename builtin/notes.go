package builtin

import (
	"context"

	"github.com/helixagents/helix"
)

// NotesKey is the key of the notes in the session's state, a list of strings.
const NotesKey = "notes"

// notebook is the part of the session's state with the notes.
type notebook struct {
	Notes []string `json:"notes"`
}

type note struct {
	Note string `json:"note"`
}

// Remember returns a tool that stores a note. A call may run again after a crash: the note
// is stored when the step is committed, and only once.
func Remember() helix.Tool {
	return helix.Tool{
		Name: "remember", Description: "Keep a note for later.", Idempotent: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, in note) (string, error) {
			helix.Append(call, NotesKey, in.Note)
			return "noted", nil
		}),
	}
}

// Recall returns a tool that lists the notes.
func Recall() helix.Tool {
	return helix.Tool{
		Name: "recall", Description: "List the notes kept so far.", ReadOnly: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct{}) ([]string, error) {
			notes := helix.State[notebook](call).Notes
			if notes == nil {
				notes = []string{} // an empty list, not null
			}
			return notes, nil
		}),
	}
}

// Forget returns a tool that deletes all notes. It cannot be undone, so a call requires
// approval.
func Forget() helix.Tool {
	return helix.Tool{
		Name: "forget", Description: "Throw away all notes.", Idempotent: true, Approval: helix.RequireApproval,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct{}) (string, error) {
			helix.Update(call, func(n *notebook) { n.Notes = []string{} })
			return "forgotten", nil
		}),
	}
}
