package session

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"
)

// Limits of a page.
const (
	DefaultPageSize  = 50
	MaxPageSize      = 200
	DefaultSweepSize = 100
)

// PageRequest selects a page of a listing.
type PageRequest struct {
	// Limit defaults to 50 and is at most 200.
	Limit int
	// Cursor is the Next of the previous page. Offset skips items instead; it is
	// ignored if Cursor is set.
	Cursor string
	Offset int
	// MaxBytes bounds the stored size of the messages of a page, or of the inputs of
	// waiting calls. Such a page may have fewer than Limit items: it ends before the
	// item that would exceed the bound, but has at least one. 0 means no bound. Other
	// listings ignore it.
	MaxBytes int64
	// Total requests the number of all items; its cost grows with that number.
	Total bool
}

// Size returns the page's size, within limits.
func (p PageRequest) Size() int {
	switch {
	case p.Limit <= 0:
		return DefaultPageSize
	case p.Limit > MaxPageSize:
		return MaxPageSize
	}
	return p.Limit
}

// Fits reports whether the next item belongs on the page. bytes is the size of the
// page with this item, taken the number of items on it so far.
func (p PageRequest) Fits(taken int, bytes int64) bool {
	return taken == 0 || p.MaxBytes <= 0 || bytes <= p.MaxBytes
}

// Skip returns the number of items to skip: none after a cursor, which already
// says where the page begins.
func (p PageRequest) Skip() int {
	if p.Cursor != "" {
		return 0
	}
	return p.Offset
}

// Start returns the number of items before the page, in a listing whose items are
// numbered 1 to total without gaps and whose positions are these numbers. The
// result never exceeds total, whatever a client requests.
func (p PageRequest) Start(total int) (int, error) {
	at, resumed, err := p.Position()
	switch {
	case err != nil:
		return 0, err
	case !resumed:
		return min(p.Offset, total), nil
	case at.N < 0:
		return 0, Invalid("cursor", "%.40q is not a cursor of this listing", p.Cursor)
	}
	return int(min(at.N, int64(total))), nil
}

// Page is a part of a listing.
type Page[T any] struct {
	Items []T `json:"items"`
	// Total is the number of all items, if the request asked for it.
	Total *int `json:"total,omitempty"`
	// Offset is the number of items before the page. It is 0 for a page that began at
	// a cursor, unless the items are numbered.
	Offset  int  `json:"offset"`
	Limit   int  `json:"limit"`
	HasMore bool `json:"hasMore"`
	// Next is the cursor of the next page, if there is one.
	Next string `json:"next,omitempty"`
}

// Query selects sessions. An empty field selects all; a session must match every
// field that is set. With a UserID the listing reads only the user's own sessions,
// whatever else it selects, so that its cost does not depend on other users'
// sessions.
type Query struct {
	UserID   string
	Agent    string
	Statuses []Status
	// Tags lists tags that a session must have, all of them, and Metadata entries
	// likewise.
	Tags     []string
	Metadata map[string]string
	ParentID string
	// RootsOnly excludes sub-agents' sessions.
	RootsOnly bool
	// Activity selects sessions by their current activity. Stores keep an index by
	// activity, and one by user and activity, so that the cost of a page depends only
	// on what it lists.
	Activity      Activity
	CreatedAfter  time.Time
	CreatedBefore time.Time
	PageRequest
}

// Summary is an entry of a listing of sessions.
type Summary struct {
	Key
	Agent        string            `json:"agentType"`
	Status       Status            `json:"status"`
	Activity     Activity          `json:"activity"`
	UserID       string            `json:"userId,omitempty"`
	ParentID     string            `json:"parentSessionId,omitempty"`
	Tags         []string          `json:"tags,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Turn         int               `json:"turn"`
	MessageCount int               `json:"messageCount"`
	CreatedAt    time.Time         `json:"createdAt"`
	UpdatedAt    time.Time         `json:"updatedAt"`
}

// Summary returns the session's entry in a listing; run is the status of its
// latest run, empty if it has never run. The result shares tags and metadata with
// s.
func (s *State) Summary(run RunStatus) Summary {
	return Summary{
		Key: Key{s.Tenant, s.ID}, Agent: s.Agent, Status: s.Status, Activity: ActivityOf(s.Status, run),
		UserID: s.UserID, ParentID: s.ParentID, Tags: s.Tags, Metadata: s.Metadata,
		Turn: s.Turn, MessageCount: s.MessageCount, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

// Selects reports whether the query selects a session. Stores that select in their
// own language must agree with it; the store suite compares them.
func (q *Query) Selects(s *Summary) bool {
	switch {
	case q.UserID != "" && q.UserID != s.UserID,
		q.Agent != "" && q.Agent != s.Agent,
		q.ParentID != "" && q.ParentID != s.ParentID,
		q.RootsOnly && s.ParentID != "",
		q.Activity != "" && q.Activity != s.Activity,
		len(q.Statuses) > 0 && !slices.Contains(q.Statuses, s.Status),
		!q.CreatedAfter.IsZero() && !s.CreatedAt.After(q.CreatedAfter),
		!q.CreatedBefore.IsZero() && !s.CreatedAt.Before(q.CreatedBefore):
		return false
	}
	for _, tag := range q.Tags {
		if !slices.Contains(s.Tags, tag) {
			return false
		}
	}
	for name, value := range q.Metadata {
		if has, ok := s.Metadata[name]; !ok || has != value {
			return false
		}
	}
	return true
}

// Position is the position of an item in a listing that is ordered by a number,
// then an id.
type Position struct {
	N  int64  `json:"n"`
	ID string `json:"i,omitempty"`
}

// Cursor encodes the position as a cursor for clients.
func (p Position) Cursor() string {
	raw, _ := json.Marshal(p)
	return base64.RawURLEncoding.EncodeToString(raw)
}

// Position decodes the page's cursor; ok is false when the request has none.
func (p PageRequest) Position() (pos Position, ok bool, err error) {
	if p.Offset < 0 {
		return pos, false, Invalid("offset", "%d is negative", p.Offset)
	}
	if p.Cursor == "" {
		return pos, false, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err == nil {
		err = json.Unmarshal(raw, &pos)
	}
	if err != nil {
		return pos, false, Invalid("cursor", "%.40q is not a cursor of this listing", p.Cursor)
	}
	return pos, true, nil
}

// Due is a session that needs the attention of a sweep.
type Due struct {
	Key
	Agent string
	RunID string
	// Runtime is the runtime of the current run.
	Runtime string
	// Requires is that of the current run; see [Run.Requires].
	Requires []string
	// Stop is the kind of the request to stop the current run, if that is running and
	// there is one.
	Stop StopKind
	// CallID is the call whose deadline has passed.
	CallID string
	Lease  Lease
	// At is when it became due: the deadline, the lease's expiry or release, the
	// session's expiry, or the run's end.
	At time.Time
}

// Compare orders entries by the time they became due, then by tenant, session and
// call, bytewise.
func (d *Due) Compare(e *Due) int {
	return cmp.Or(d.At.Compare(e.At), cmp.Compare(d.Tenant, e.Tenant),
		cmp.Compare(d.ID, e.ID), cmp.Compare(d.CallID, e.CallID))
}

// SweepRequest selects a page of what is due.
type SweepRequest struct {
	// Limit defaults to 100.
	Limit int
	// After is the last entry of the previous page: the page has entries that compare
	// as greater.
	After *Due
	// Ahead also lists what becomes due so soon, which may be years, or, if it is negative,
	// only what has been due for so long.
	Ahead time.Duration
	// Agents, if it is not nil, are the agents whose sessions are wanted, and Runtime, if it
	// is not empty, the runtime of their current runs. Runs that are to be aborted are wanted
	// whatever these are: a process that cannot continue them can end them.
	Agents  []string
	Runtime string
}

// Wants reports whether a session is wanted, if it is due.
func (r *SweepRequest) Wants(due *Due) bool {
	return due.Stop == StopAbort ||
		(r.Agents == nil || slices.Contains(r.Agents, due.Agent)) && (r.Runtime == "" || r.Runtime == due.Runtime)
}

// Size returns the page's size.
func (r SweepRequest) Size() int { return sweepSize(r.Limit) }

// WakeRequest selects a page of wakes.
type WakeRequest struct {
	// Limit defaults to 100.
	Limit int
	// After is the last wake of the previous page: the page has wakes that compare as
	// greater.
	After *Wake
}

// Size returns the page's size.
func (r WakeRequest) Size() int { return sweepSize(r.Limit) }

func sweepSize(limit int) int {
	if limit <= 0 {
		return DefaultSweepSize
	}
	return limit
}
