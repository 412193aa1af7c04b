package session

import (
	"maps"
	"slices"
)

// WaitingQuery selects calls that wait for people, over all sessions of a tenant.
type WaitingQuery struct {
	// UserID selects the calls of one user's conversations; empty selects all.
	UserID string
	// NewestFirst reverses the order. Without it the calls that have waited longest
	// come first.
	NewestFirst bool
	// PageRequest selects a page. Its MaxBytes bounds the size of the calls' inputs;
	// see [PageRequest.Fits].
	PageRequest
}

// Waiting is a call that waits for a person, with the session that made it. The
// list contains a call from the commit that asks until the answer arrives, its
// timeout is consumed or its run ends, and only while its session is neither
// stopped nor ended.
type Waiting struct {
	// Call is the call with its kind of wait, tool, input, start and deadline.
	Call Pending `json:"call"`
	// SessionID is the session that made the call, and Agent is that session's agent.
	SessionID string `json:"sessionId"`
	Agent     string `json:"agentType"`
	// RootID is the session of the conversation, which receives the answer. It equals
	// SessionID unless a sub-agent made the call. UserID is its user.
	RootID string `json:"rootSessionId"`
	UserID string `json:"userId,omitempty"`
}

// Link connects a session to its caller's session.
type Link struct {
	UserID   string
	ParentID string
}

// maxLinks bounds how many callers above a session are followed.
const maxLinks = 64

// FindRoots sets the conversation of each call. If the query names a user, it
// keeps only the calls whose sessions, from the one that made the call up to the
// root, all belong to that user: when a conversation is given to somebody else,
// the calls of the agents below it go with it. links has the links of the calls'
// sessions, and read reads further ones; a session that read does not return no
// longer exists. Stores share this function so that they agree on what a
// conversation is.
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

// Listed reports whether the inbox shows the calls of a session with this
// activity. Nobody processes an answer to a session that was stopped or has ended.
func (a Activity) Listed() bool { return a == ActivityRunning || a == ActivityWaiting }
