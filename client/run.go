package client

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// Start starts a turn on a new or an existing session. It returns once the turn is durably
// stored.
func (c *Client) Start(ctx context.Context, start wire.Start) (*wire.Started, error) {
	return post[wire.Started](ctx, c, "/start", start)
}

// Resume continues a session that was interrupted, paused or suspended.
func (c *Client) Resume(ctx context.Context, resume wire.Resume) (*wire.Started, error) {
	return post[wire.Started](ctx, c, "/resume", resume)
}

// Status returns the status of a session.
func (c *Client) Status(ctx context.Context, sessionID string) (*wire.Status, error) {
	return get[wire.Status](ctx, c, "/status", url.Values{"sessionId": {sessionID}})
}

// Interrupt asks the session's run to stop; it can be resumed. The request is durable; the
// run ends at its next boundary.
func (c *Client) Interrupt(ctx context.Context, stop wire.Stop) (*wire.Stopping, error) {
	return post[wire.Stopping](ctx, c, "/interrupt", stop)
}

// Abort asks the session's run to end permanently.
func (c *Client) Abort(ctx context.Context, stop wire.Stop) (*wire.Stopping, error) {
	return post[wire.Stopping](ctx, c, "/abort", stop)
}

// Submit answers a call that waits for a person. An unknown call is an outcome, not an
// error.
func (c *Client) Submit(ctx context.Context, submit wire.Submit) (*wire.Submitted, error) {
	body, err := session.Encode(submit)
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "encode the request")
	}
	raw, err := c.exchange(ctx, "POST", "/submit-tool-result", nil, body)
	var out wire.Submitted
	if unread := json.Unmarshal(raw, &out); unread == nil && out.Outcome == session.SubmitUnknownCall {
		return &out, nil
	} else if err == nil && unread != nil {
		err = session.ErrInternal.WithCause(unread, "decode the server's response")
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Agents returns the agents of the server.
func (c *Client) Agents(ctx context.Context) ([]wire.Agent, error) {
	out, err := get[wire.Agents](ctx, c, "/agents", nil)
	if err != nil {
		return nil, err
	}
	return out.Items, nil
}

// Skills returns the skills that an agent has for the user.
func (c *Client) Skills(ctx context.Context, agent string) ([]wire.Skill, error) {
	out, err := get[wire.Skills](ctx, c, "/agents/"+url.PathEscape(agent)+"/skills", nil)
	if err != nil {
		return nil, err
	}
	return out.Items, nil
}
