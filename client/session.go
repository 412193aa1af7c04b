package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// Sessions returns a page of sessions, newest first.
func (c *Client) Sessions(ctx context.Context, query session.Query) (*wire.Sessions, error) {
	return get[wire.Sessions](ctx, c, "/sessions", listQuery(&query))
}

// AllSessions yields all sessions that match a query, newest first. It requests pages as
// needed.
func (c *Client) AllSessions(ctx context.Context, query session.Query) iter.Seq2[session.Summary, error] {
	return pages(query.PageRequest, func(request session.PageRequest) (*session.Page[session.Summary], error) {
		query.PageRequest = request
		return c.Sessions(ctx, query)
	})
}

// Waiting returns a page of the calls of all sessions that wait for people, longest waiting
// first.
func (c *Client) Waiting(ctx context.Context, query session.WaitingQuery) (*wire.Waiting, error) {
	values := pageQuery(query.PageRequest)
	if query.UserID != "" {
		values.Set("user", query.UserID)
	}
	if query.NewestFirst {
		values.Set("order", "newest")
	}
	return get[wire.Waiting](ctx, c, "/waiting", values)
}

// AllWaiting yields all calls that wait for people. It requests pages as needed.
func (c *Client) AllWaiting(ctx context.Context, query session.WaitingQuery) iter.Seq2[session.Waiting, error] {
	return pages(query.PageRequest, func(request session.PageRequest) (*session.Page[session.Waiting], error) {
		query.PageRequest = request
		return c.Waiting(ctx, query)
	})
}

// pages yields the items of all pages, starting with first.
func pages[T any](first session.PageRequest, read func(session.PageRequest) (*session.Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		request := first
		for {
			page, err := read(request)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if !page.HasMore || page.Next == "" || page.Next == request.Cursor {
				return
			}
			request.Cursor, request.Offset = page.Next, 0
		}
	}
}

func listQuery(query *session.Query) url.Values {
	out := pageQuery(query.PageRequest)
	for name, value := range map[string]string{
		"user": query.UserID, "agent": query.Agent, "parent": query.ParentID, "activity": string(query.Activity),
	} {
		if value != "" {
			out.Set(name, value)
		}
	}
	for _, status := range query.Statuses {
		out.Add("status", string(status))
	}
	for _, tag := range query.Tags {
		out.Add("tag", tag)
	}
	for key, value := range query.Metadata {
		out.Set("metadata."+key, value)
	}
	if query.RootsOnly {
		out.Set("roots", "true")
	}
	for name, at := range map[string]time.Time{"createdAfter": query.CreatedAfter, "createdBefore": query.CreatedBefore} {
		if !at.IsZero() {
			out.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return out
}

func pageQuery(page session.PageRequest) url.Values {
	out := url.Values{}
	if page.Limit > 0 {
		out.Set("limit", strconv.Itoa(page.Size()))
	}
	if page.Cursor != "" {
		out.Set("cursor", page.Cursor)
	}
	if page.Offset > 0 {
		out.Set("offset", strconv.Itoa(page.Offset))
	}
	if page.Total {
		out.Set("total", "true")
	}
	return out
}

// Session returns a session's document.
func (c *Client) Session(ctx context.Context, id string) (*session.State, error) {
	return getOf[session.State](ctx, c, id, "", nil)
}

// Messages returns a page of a session's messages, oldest first.
func (c *Client) Messages(ctx context.Context, id string, page session.PageRequest) (*wire.MessagePage, error) {
	return getOf[wire.MessagePage](ctx, c, id, "/messages", pageQuery(page))
}

// ModelView returns a page of what the model is sent of a session's messages: the last
// marker, the messages that it keeps, and all that came after it.
func (c *Client) ModelView(ctx context.Context, id string, page session.PageRequest) (*wire.MessagePage, error) {
	query := pageQuery(page)
	query.Set("view", "model")
	return getOf[wire.MessagePage](ctx, c, id, "/messages", query)
}

// Runs returns a page of a session's runs, oldest first.
func (c *Client) Runs(ctx context.Context, id string, page session.PageRequest) (*wire.RunPage, error) {
	return getOf[wire.RunPage](ctx, c, id, "/runs", pageQuery(page))
}

// Checkpoints returns a page of a session's checkpoints, newest first.
func (c *Client) Checkpoints(ctx context.Context, id string, page session.PageRequest) (*wire.CheckpointPage, error) {
	return getOf[wire.CheckpointPage](ctx, c, id, "/checkpoints", pageQuery(page))
}

// Pending returns the calls of the session and of the agents below it that wait for people.
func (c *Client) Pending(ctx context.Context, id string) ([]session.Pending, error) {
	out, err := getOf[wire.PendingCalls](ctx, c, id, "/pending", nil)
	if err != nil {
		return nil, err
	}
	return out.Items, nil
}

// Blob returns bytes that belong to a session, by the reference that a message names.
func (c *Client) Blob(ctx context.Context, id, ref string) ([]byte, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if err := blob.CheckRef(ref); err != nil {
		return nil, err
	}
	data, err := c.exchange(ctx, http.MethodGet, pathOf(id, "/blobs/"+ref), nil, nil)
	if err != nil {
		return nil, err
	}
	return data, blob.Verify(ref, data)
}

// Snapshot returns a session at its latest checkpoint. [Client.Read] from its sequence
// yields everything after it.
func (c *Client) Snapshot(ctx context.Context, id string) (*wire.Snapshot, error) {
	return getOf[wire.Snapshot](ctx, c, id, "/snapshot", nil)
}

// Branch copies a session and, if branch has a message, starts a turn on the copy.
func (c *Client) Branch(ctx context.Context, id string, branch wire.Branch) (*wire.Branched, error) {
	return postTo[wire.Branched](ctx, c, id, "/branch", branch)
}

// Retry retries a failed turn from its last good checkpoint.
func (c *Client) Retry(ctx context.Context, id string, retry wire.Retry) (*wire.Started, error) {
	return postTo[wire.Started](ctx, c, id, "/retry", retry)
}

// Pause pauses a session: it does not run until it is resumed.
func (c *Client) Pause(ctx context.Context, id string, pause wire.Pause) (*wire.Paused, error) {
	return postTo[wire.Paused](ctx, c, id, "/pause", pause)
}

// compactTimeout is how long a compaction may take, at least: the server gives up earlier.
const compactTimeout = wire.MaxCompact + 30*time.Second

// Compact shortens what the model is sent of a session's conversation. The server may ask a
// model for a summary, so it may take minutes, whatever [Config.Timeout] is. A repeated
// request compacts no further.
func (c *Client) Compact(ctx context.Context, id string, compact wire.Compact) (*wire.Compacted, error) {
	return postTo[wire.Compacted](ctx, c.patient(compactTimeout), id, "/compact", compact)
}

// Clear lets the model forget a session's conversation. People still see all of it.
func (c *Client) Clear(ctx context.Context, id string) (*wire.Compacted, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	return ask[wire.Compacted](ctx, c, http.MethodPost, pathOf(id, "/clear"), nil, nil)
}

// Delete deletes a session and the sessions of its sub-agents.
func (c *Client) Delete(ctx context.Context, id string) (*wire.Deleted, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	return ask[wire.Deleted](ctx, c, http.MethodDelete, pathOf(id, ""), nil, nil)
}

func getOf[T any](ctx context.Context, c *Client, id, what string, query url.Values) (*T, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	return get[T](ctx, c, pathOf(id, what), query)
}

func postTo[T any](ctx context.Context, c *Client, id, what string, body any) (*T, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	return post[T](ctx, c, pathOf(id, what), body)
}

// pathOf returns a path below a session, whose id may contain slashes.
func pathOf(id, what string) string { return "/sessions/" + url.PathEscape(id) + what }

// Cleanup fails the expired sessions of the tenant. It requires an operator.
func (c *Client) Cleanup(ctx context.Context) (*session.Cleanup, error) {
	return ask[session.Cleanup](ctx, c, http.MethodPost, "/cleanup", nil, nil)
}
