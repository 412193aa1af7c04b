package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// Tasks returns a page of the tenant's tasks. It requires an operator.
func (c *Client) Tasks(ctx context.Context, query session.TaskQuery) (*wire.Tasks, error) {
	values := url.Values{}
	if query.GivenUp {
		values.Set("givenUp", "true")
	}
	if query.Limit > 0 {
		values.Set("limit", strconv.Itoa(query.Size()))
	}
	if query.Cursor != "" {
		values.Set("cursor", query.Cursor)
	}
	return get[wire.Tasks](ctx, c, "/tasks", values)
}

// RetryTask has a task carried out at once, also one that was given up. It requires an
// operator.
func (c *Client) RetryTask(ctx context.Context, task wire.TaskName) error {
	_, err := post[wire.TaskName](ctx, c, "/tasks/retry", task)
	return err
}

// DropTask removes a task. It requires an operator.
func (c *Client) DropTask(ctx context.Context, task wire.TaskName) error {
	_, err := post[wire.TaskName](ctx, c, "/tasks/drop", task)
	return err
}
