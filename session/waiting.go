package session

import (
	"maps"
	"slices"
)

// WaitingQuery selects calls that wait for people, over all sessions of a tenant.
type WaitingQuery struct {
	// UserID selects the calls of one user's conversations; empty selects all.
	UserID string
	// NewestFirst turns the order round, in which those come first that have waited
	// longest.
	NewestFirst bool
	// PageRequest bounds a page. Its MaxBytes bounds the size of the calls' inputs, as
	// [PageRequest.Fits] says.
	PageRequest
}

// Waiting is a call that waits for a person, with where it was made. A call is in the
// list from the commit that asks to the answer, its deadline's being taken in, or the
// end of its run, and while its session is neither stopped nor over.
type Waiting struct {
	// Call is the call: what it waits for, its tool and input, since when and until when.
	Call Pending `json:"call"`
	// SessionID is the session that made it, Agent the agent of that.
	SessionID string `json:"sessionId"`
	Agent     string `json:"agentType"`
	// RootID is the session of the conversation, which is where the answer goes; it is
	// SessionID unless an agent below made the call. UserID is its user.
	RootID string `json:"rootSessionId"`
	UserID string `json:"userId,omitempty"`
}

// Link is what leads from a session to its caller's.
type Link struct {
	UserID   string
	ParentID string
}

// maxLinks is how far up a session's callers are followed.
const maxLinks = 64

// FindRoots tells of each call whose conversation it belongs to. If the query is for a
// user, it leaves out what is not his all the way up: a conversation that was given to
// somebody else has taken the calls of the agents below with it. links has the links of
// the calls' sessions, and read reads further ones; what it does not find is not there
// any more. Stores share it so that they agree on what a conversation is.
func (q *WaitingQuery) FindRoots(calls []Waiting, links map[string]Link, read func(ids []string) (map[string]Link, error)) ([]Waiting, error) {
	at, others := make([]string, len(calls)), make([]bool, len(calls))
	for i := range calls {
		at[i] = calls[i].SessionID
	}
	for range maxLinks {
		var missing []string
		for i := range at {
			parent := links[at[i]].ParentID
			if _, known := links[parent]; parent != "" && !known && !slices.Contains(missing, parent) {
				missing = append(missing, parent)
			}
		}
		if len(missing) > 0 {
			found, err := read(missing)
			if err != nil {
				return nil, err
			}
			maps.Copy(links, found)
		}
		moved := false
		for i := range at {
			others[i] = others[i] || links[at[i]].UserID != q.UserID
			parent := links[at[i]].ParentID
			if _, found := links[parent]; found && parent != "" {
				at[i], moved = parent, true
			}
		}
		if !moved {
			break
		}
	}
	out := calls[:0]
	for i := range calls {
		calls[i].RootID, calls[i].UserID = at[i], links[at[i]].UserID
		if q.UserID == "" || !others[i] {
			out = append(out, calls[i])
		}
	}
	return out, nil
}

// Listed reports whether the inbox shows the calls of a session that does this: of one
// that was stopped or is over nobody takes up the answer.
func (a Activity) Listed() bool { return a == ActivityRunning || a == ActivityWaiting }
