package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// remoteEvent precedes the names of events that a remote's chunks become if they must not
// be shown as what they say they are.
const remoteEvent = "remote."

// asStored has a remote's chunk about calls that wait show what is stored here. The remote
// may tell its stream something else than its status, and answers are checked against the
// entry that was made of the status. A chunk about a call that has no entry, which nobody
// could answer, becomes an event, and so does one that has the name of an event of this
// program.
func (r *relay) asStored(ctx context.Context, c *stream.Chunk) error {
	switch {
	case c.Kind == stream.Suspended:
		var told Suspension
		_ = json.Unmarshal(c.Data, &told)                 // what cannot be read is left out
		c.Data = encoded(Suspension{Status: told.Status}) // this session lists what waits when it suspends
	case c.Kind == stream.ApprovalRequest:
		p, err := r.entry(ctx, c.CallID)
		if err != nil {
			return err
		}
		if p == nil || p.Kind != session.PendingApproval {
			c.Kind, c.Name = stream.Custom, remoteEvent+string(c.Kind)
			return nil
		}
		c.Tool, c.Arguments, c.ApprovalID = p.Tool, p.Input, p.ApprovalID
	case c.Kind == stream.Custom && stream.Reserved(c.Name):
		p, err := r.asked(ctx, c)
		if err != nil {
			return err
		}
		if p == nil {
			if c.Name == stream.CompactedName {
				c.Data = withoutCause(c.Data)
			}
			c.Name = remoteEvent + c.Name
			return nil
		}
		shown := stream.NewQuestion(p)
		c.CallID, c.Tool, c.Arguments, c.Omitted, c.Data = shown.CallID, shown.Tool, shown.Arguments, shown.Omitted, shown.Data
	}
	return nil
}

// withoutCause returns the outcome of a compaction without what the provider of the remote's
// model said. Under its new name servers do not know it.
func withoutCause(outcome json.RawMessage) json.RawMessage {
	var what helix.Compacted
	if json.Unmarshal(outcome, &what) != nil || what.Code == "" {
		return outcome
	}
	what.Reason = ""
	return encoded(what)
}

// asked returns the entry of the question that a chunk shows, or nil.
func (r *relay) asked(ctx context.Context, c *stream.Chunk) (*session.Pending, error) {
	q := c.AsQuestion()
	if q == nil {
		return nil, nil
	}
	p, err := r.entry(ctx, q.ID)
	if err != nil || p == nil || p.Kind != session.PendingQuestion {
		return nil, err
	}
	return p, nil
}

// entry returns the entry of a call of the remote, or nil.
func (r *relay) entry(ctx context.Context, id string) (*session.Pending, error) {
	if p := r.waits[id]; p != nil {
		return p, nil
	}
	if r.isUnknown(id) {
		return nil, nil
	}
	entries, err := retry.Do(ctx, func() ([]session.Pending, error) { return r.t.sessions.PendingCalls(ctx, r.t.key.ID, true) })
	if err != nil {
		return nil, err
	}
	p := findPending(entries, id)
	if p != nil {
		r.waits[id] = p
	} else if len(r.unknown) < maxRelayedCalls {
		r.unknown[id] = true
	}
	return p, nil
}

// unknownPause is how often the status is read for requests that had no entry before.
const unknownPause = time.Second

// isUnknown reports whether a request had no entry a moment ago. A remote may show as many
// as it likes, so if there are too many to remember, all others count as such.
func (r *relay) isUnknown(id string) bool {
	return (r.unknown[id] || len(r.unknown) >= maxRelayedCalls) && time.Since(r.askedAt) < unknownPause
}
