package remote

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Agent is an agent on another server. URL and Agent are required. Do not change it after
// its first use. It is safe for concurrent use.
type Agent struct {
	// URL is the server's address, with the path prefix of its routes, if any.
	URL string
	// Token is sent as a bearer token. Defaults to none.
	Token string
	// Agent is the agent's name on that server.
	Agent string
	// Name is the local name. Defaults to Agent.
	Name string
	// Description tells the model when to call the agent.
	Description string
	// Input declares the arguments of a call. Defaults to one string, "task".
	Input *helix.InputType
	// Reach is how long the server may be unreachable before a call fails. Defaults to the
	// runtime's setting.
	Reach time.Duration
	// Timeout limits a request that is not a stream. Defaults to 20 seconds.
	Timeout time.Duration
	// Silence is how long a stream may be silent before the client reconnects. The server
	// sends something every 15 seconds. Defaults to 45 seconds.
	Silence time.Duration
	// MaxBody is the maximum size of a response, or of an event of a stream, in bytes.
	// Defaults to 64 MiB.
	MaxBody int64
	// HTTP sends the requests. Defaults to [http.DefaultClient].
	HTTP *http.Client
	// Logger receives a line when a stream is dropped. Defaults to none.
	Logger *slog.Logger

	once   sync.Once
	client *client.Client
	err    error
}

var _ helix.Remote = (*Agent)(nil)

// SubAgent returns the agent as a sub-agent.
func (a *Agent) SubAgent() helix.SubAgent {
	name := a.Name
	if name == "" {
		name = a.Agent
	}
	return helix.SubAgent{Name: name, Description: a.Description, Input: a.Input, Remote: a}
}

// Check returns an error if the definition is invalid. It sends nothing.
func (a *Agent) Check() error {
	_, err := a.open()
	return err
}

// open creates the client, once.
func (a *Agent) open() (*client.Client, error) {
	a.once.Do(func() {
		switch {
		case a.Agent == "":
			a.err = session.Invalid("Agent", "is not set")
			return
		case a.Reach < 0:
			a.err = session.Invalid("Reach", "must not be negative")
			return
		}
		timeout := a.Timeout
		if timeout == 0 {
			timeout = 20 * time.Second
		}
		a.client, a.err = client.New(client.Config{
			URL: a.URL, Token: a.Token, HTTP: a.HTTP, Timeout: timeout, Silence: a.Silence, MaxBody: a.MaxBody, Logger: a.Logger,
			Attempts: -1, // the caller of Read reconnects
		})
	})
	return a.client, a.err
}

// Equal reports whether other is the same agent with the same connection settings.
func (a *Agent) Equal(other helix.Remote) bool {
	b, ok := other.(*Agent)
	return ok && (a == b || (a.URL == b.URL && a.Token == b.Token && a.Agent == b.Agent && a.HTTP == b.HTTP && a.Reach == b.Reach))
}

// Patience returns Reach.
func (a *Agent) Patience() time.Duration { return a.Reach }

// String returns the agent's name and address without secrets.
func (a *Agent) String() string {
	address := "an invalid address"
	if parsed, err := url.Parse(a.URL); err == nil {
		address = parsed.Redacted()
	}
	return "agent " + a.Agent + " at " + address
}

// GoString is String, so that printing an agent does not reveal its token.
func (a *Agent) GoString() string { return a.String() }

// Start implements [helix.Remote].
func (a *Agent) Start(ctx context.Context, start helix.RemoteStart) (*helix.RemoteRun, error) {
	c, err := a.open()
	if err != nil {
		return nil, err
	}
	message, err := wire.FromMessage(&start.Message)
	if err != nil {
		return nil, err
	}
	return began(c.Start(ctx, wire.Start{
		SessionID: start.SessionID, AgentType: a.Agent, Message: wire.Messages{message}, RequestID: start.RequestID,
		Metadata: start.Metadata,
	}))
}

// Resume implements [helix.Remote].
func (a *Agent) Resume(ctx context.Context, sessionID, requestID string) (*helix.RemoteRun, error) {
	c, err := a.open()
	if err != nil {
		return nil, err
	}
	return began(c.Resume(ctx, wire.Resume{SessionID: sessionID, RequestID: requestID}))
}

func began(started *wire.Started, err error) (*helix.RemoteRun, error) {
	if err != nil {
		return nil, err
	}
	return &helix.RemoteRun{SessionID: started.SessionID, RunID: started.RunID}, nil
}

// Read implements [helix.Remote].
func (a *Agent) Read(ctx context.Context, sessionID string, from int64) iter.Seq2[stream.Item, error] {
	c, err := a.open()
	if err != nil {
		return func(yield func(stream.Item, error) bool) { yield(stream.Item{}, err) }
	}
	return c.Read(ctx, sessionID, from)
}

// Status implements [helix.Remote].
func (a *Agent) Status(ctx context.Context, sessionID string) (*helix.RemoteStatus, error) {
	c, err := a.open()
	if err != nil {
		return nil, err
	}
	status, err := c.Status(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	out := &helix.RemoteStatus{
		RunID: status.RunID, Status: status.RunStatus, Output: status.Output, Text: status.Text, Pending: status.Pending,
		Sequence: status.Sequence,
	}
	if status.Status == session.Failed && status.RunStatus.Suspended() {
		// The session expired, or was aborted in a process that does not know its agent. The
		// record of its last run still has the status of a waiting run.
		out.Status = session.RunFailed
	}
	if e := status.Error; e != nil {
		out.Error = &session.Error{Code: e.Code, Message: e.Message, Field: e.Field, Retryable: e.Retryable}
	}
	return out, nil
}

// Submit implements [helix.Remote].
func (a *Agent) Submit(ctx context.Context, sessionID string, submission helix.Submission) (*helix.Submitted, error) {
	c, err := a.open()
	if err != nil {
		return nil, err
	}
	submit := wire.Submit{SessionID: sessionID, ToolCallID: submission.CallID}
	switch response := submission.Response; {
	case response.Kind == session.PendingApproval:
		submit.Approval = &wire.Approval{ApprovalID: submission.ApprovalID, Approved: response.Approved, Reason: response.Reason}
	case response.Kind == session.PendingQuestion:
		submit.Kind, submit.Answer, submit.Declined, submit.Reason = wire.SubmitAnswer, response.Answer, response.Declined, response.Reason
	case response.Error != "":
		submit.Error = response.Error
	case response.Result == nil:
		submit.Result = json.RawMessage("null")
	default:
		submit.Result = response.Result
	}
	done, err := c.Submit(ctx, submit)
	if err != nil {
		return nil, err
	}
	return &helix.Submitted{
		Outcome: done.Outcome, Continuation: helix.Continuation(done.Continuation), SessionID: done.SessionID, RootID: done.RootSessionID,
	}, nil
}

// Stop implements [helix.Remote].
func (a *Agent) Stop(ctx context.Context, sessionID, runID string, kind session.StopKind, reason string) error {
	c, err := a.open()
	if err != nil {
		return err
	}
	stop := wire.Stop{SessionID: sessionID, RunID: runID, Reason: reason}
	if kind == session.StopAbort {
		_, err = c.Abort(ctx, stop)
	} else {
		_, err = c.Interrupt(ctx, stop)
	}
	return err
}
