package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
)

// openTries bounds how often a start is planned again because the session changed
// between reading and starting.
const openTries = 8

// OpenRequest asks for a turn.
type OpenRequest struct {
	Kind   session.RunKind
	Agent  *helix.Agent
	Tenant string
	// SessionID is the session, RunID the id of the new run, which the caller makes.
	SessionID string
	RunID     string
	RequestID string
	// New says that the session's id was made for this request, so there is nothing to
	// read.
	New bool
	// Input is set for an execute, Resume for a resume.
	Input  helix.Input
	Resume helix.ResumeOptions
	// Hooks are called for this run only.
	Hooks *helix.Hooks
	// Stop ends the turn at once: a session that waits is aborted by being resumed.
	Stop *session.Stop
	// Inbox begins the turn with what was sent to the session.
	Inbox bool

	caller *caller // the turn that calls the session, if another agent does
	rest   *tail   // what the session lacks, if it is a branch whose copy was cut short
}

// errNothingToDo refuses a turn that was to begin with the inbox when the inbox is
// empty.
var errNothingToDo = session.ErrNotResumable.WithMessage("nothing was sent to the session")

// Opened is a turn that is durably open.
type Opened struct {
	Key      session.Key
	StreamID string
	Run      session.Run
	Position machine.Position
	// Existing is set when the same request opened the run before. Nothing was
	// changed, and the caller does not drive the run.
	Existing bool
	// Detached is set on the turn of a companion that works by itself: nobody waits
	// for it.
	Detached bool
	// Progressed is set on a turn that was recovered. It is closed by the next commit
	// of the turn, or of an agent below it.
	Progressed <-chan struct{}
}

// Open opens a turn: it checks that the session may run, writes the run's record with
// its input, takes the lease, and prepares the stream. If the session may not run,
// the error says why.
func (h *Handler) Open(ctx context.Context, req OpenRequest) (*Opened, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	var opened *Opened
	var err error
	for range openTries {
		opened, err = h.opening(h.cfg.Backend.Sessions().Tenant(req.Tenant), &req, nil, nil).open(ctx)
		if !errors.Is(err, session.ErrStale) && !errors.Is(err, session.ErrExists) && !errors.Is(err, session.ErrAnswered) {
			break
		}
		if errors.Is(err, session.ErrExists) && req.Input.Branch != nil && req.RequestID == "" {
			break
		}
		if req.caller != nil && req.caller.version != 0 { // its caller reads it again
			break
		}
		req.New = false
	}
	if err != nil {
		return nil, fmt.Errorf("%s session %s: %w", req.Kind, req.SessionID, err)
	}
	return opened, nil
}

func (r *OpenRequest) check() error {
	if err := session.CheckID(r.SessionID); err != nil {
		return err
	}
	if r.RequestID != "" {
		if err := session.CheckKeyID("request id", r.RequestID); err != nil {
			return err
		}
	}
	messages := r.messages()
	if r.Resume.ReplaceInput && (r.Resume.Checkpoint == "" || r.Resume.Message == nil) {
		return session.Invalid("ReplaceInput", "needs a Checkpoint and a Message")
	}
	if r.Kind == session.RunExecute && len(messages) == 0 && !r.Inbox {
		return session.Invalid("message", "must not be empty")
	}
	for i := range messages {
		if err := messages[i].Check(); err != nil {
			return err
		}
		if err := messages[i].CheckPublic(); err != nil {
			return err
		}
		if err := session.CheckTime("message time", messages[i].At); err != nil {
			return err
		}
		if messages[i].Role != session.RoleUser {
			return session.Invalid("message role", "%q cannot begin a turn; only user messages can", messages[i].Role)
		}
	}
	return nil
}

// messages returns the messages of the request.
func (r *OpenRequest) messages() []session.Message {
	var out []session.Message
	if r.Kind == session.RunResume {
		if r.Resume.Message != nil {
			out = append(out, *r.Resume.Message)
		}
		return out
	}
	if r.Input.Message.Role != "" || len(r.Input.Message.Parts) > 0 {
		out = append(out, r.Input.Message)
	}
	return append(out, r.Input.Messages...)
}

// opening is one attempt to open a turn. It belongs to the goroutine that opens the
// turn.
type opening struct {
	h        *Handler
	sessions session.Store // of the request's tenant
	req      *OpenRequest
	state    *session.State // the session as it was read
	p        *plan
}

func (h *Handler) opening(sessions session.Store, req *OpenRequest, state *session.State, p *plan) *opening {
	return &opening{h: h, sessions: sessions, req: req, state: state, p: p}
}

// open makes one attempt. It fails with an error that [Handler.Open] retries if the
// session changed between reading and starting.
func (o *opening) open(ctx context.Context) (*Opened, error) {
	req := o.req
	state, err := o.load(ctx)
	fresh := errors.Is(err, session.ErrNotFound)
	if err != nil && !fresh {
		return nil, err
	}
	o.state = state
	// The request id is looked up after the session was read. A run that the same request
	// starts in between makes that reading stale, so it is never taken for another's.
	if req.RequestID != "" && !fresh {
		run, err := o.sessions.RunByRequest(ctx, req.SessionID, req.RequestID)
		switch {
		case err == nil:
			if err := gateCaller(req, state); err != nil {
				return nil, err
			}
			return existing(req, run), nil
		case !errors.Is(err, session.ErrNotFound):
			return nil, err
		}
	}
	switch {
	case fresh && req.Kind == session.RunExecute:
		if o.state, err = o.create(ctx); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case req.Kind == session.RunExecute && req.Input.Branch != nil:
		if req.rest, err = o.rebranch(ctx); err != nil {
			return nil, err
		}
	}
	if err := o.h.checkSupport(o.state); err != nil {
		return nil, err
	}
	if o.state.Status == session.Paused && req.plainResume() {
		if run, err := o.unpause(ctx); err != nil || run != nil {
			return existing(req, run), err
		}
	}
	if err := o.plan(ctx); err != nil {
		return nil, err
	}
	started, shown, err := o.start(ctx)
	if err != nil {
		return nil, err
	}
	if started.Existing { // its session may be another user's, which has to be read first
		return nil, session.ErrStale.WithMessage("run %s has just begun", started.Run.ID)
	}
	return o.begin(ctx, started, shown)
}

func (o *opening) load(ctx context.Context) (*session.State, error) {
	if o.req.New {
		return nil, session.NotFound(o.req.SessionID)
	}
	state, err := o.sessions.Load(ctx, o.req.SessionID)
	if c := o.req.caller; err == nil && c != nil && c.version != 0 && c.version != state.Version {
		return nil, session.ErrStale.WithMessage("session %s has version %d, not %d as when it was read", state.ID, state.Version, c.version)
	}
	return state, err
}

// plainResume reports whether the request resumes the session without changing
// anything.
func (r *OpenRequest) plainResume() bool {
	return r.Kind == session.RunResume && r.caller == nil && r.Stop == nil && r.Resume.Message == nil && r.Resume.Checkpoint == ""
}

func existing(req *OpenRequest, run *session.Run) *Opened {
	if run == nil {
		return nil
	}
	return &Opened{
		Key:      session.Key{Tenant: req.Tenant, ID: req.SessionID},
		StreamID: req.SessionID, Run: *run, Existing: true,
	}
}

// create makes the document of a new session. A branch is copied at once; any other
// session is created by the run's start.
func (o *opening) create(ctx context.Context) (*session.State, error) {
	if o.req.caller == nil {
		if err := session.CheckChosenID(o.req.SessionID); err != nil {
			return nil, err
		}
	}
	var given []byte
	if o.req.Input.State != nil {
		var err error
		if given, err = session.Encode(o.req.Input.State); err != nil {
			return nil, session.Invalid("state", "cannot be encoded: %v", err)
		}
	}
	custom, err := access.InitialState(o.req.Agent.State, given)
	if err != nil {
		return nil, err
	}
	state := &session.State{
		Tenant: o.req.Tenant, ID: o.req.SessionID, Agent: o.req.Agent.Name, StreamID: o.req.SessionID, Status: session.Active,
		Custom: custom, UserID: o.req.Input.User.ID, Tags: o.req.Input.Tags, Metadata: o.req.Input.Metadata,
		ExpiresAt: o.req.Input.ExpiresAt,
	}
	if c := o.req.caller; c != nil {
		state.ParentID, state.UserID = c.state.ID, c.state.UserID
		if !c.detached {
			state.RootID, state.StreamID = headOf(c.state), c.state.StreamID
		}
	} else if state.ExpiresAt.IsZero() && o.req.Input.Branch != nil && o.req.Agent.SessionExpiry > 0 {
		state.ExpiresAt = time.Now().UTC().Add(o.req.Agent.SessionExpiry) // in case its first run never starts
	}
	if err := state.Check(); err != nil {
		return nil, err
	}
	if o.req.Input.Branch == nil {
		return state, nil
	}
	if given != nil {
		return nil, session.Invalid("state", "cannot be given for a branch, which copies it")
	}
	return o.branch(ctx, state)
}
