package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// openTries bounds how often a start is planned anew because the session changed
// between reading and starting.
const openTries = 8

// OpenRequest asks for a turn.
type OpenRequest struct {
	Kind   session.RunKind
	Agent  *helix.Agent
	Tenant string
	// SessionID is the session; RunID the new run's id, minted by the caller.
	SessionID string
	RunID     string
	RequestID string
	// Input is set for an execute, Resume for a resume.
	Input  helix.Input
	Resume helix.ResumeOptions
	// Hooks are called for this run only.
	Hooks *helix.Hooks
	// Stop ends the turn at once: a session that waits is aborted by being resumed.
	Stop *session.Stop
	// Inbox begins the turn with what was sent to the session.
	Inbox bool

	caller *caller // whose call the session is for, if it is another agent's
	rest   *tail   // what the copy lacks that the turn begins on, if it is a branch that was cut short
}

// errNothingToDo refuses a turn that was to begin with an inbox which is empty.
var errNothingToDo = session.ErrNotResumable.WithMessage("nothing was sent to the session")

// Opened is a turn that is durably open.
type Opened struct {
	Key      session.Key
	StreamID string
	Run      session.Run
	Position machine.Position
	// Existing is set when the same request opened the run before; nothing was
	// done, and nobody here drives it.
	Existing bool
	// Detached is set on the turn of a companion that works by itself: nobody waits
	// for it.
	Detached bool
	// Progressed is set on a turn that was taken over. It is closed by the turn's next
	// commit, or that of an agent below it.
	Progressed <-chan struct{}
}

// Open opens a turn: it checks the gates, writes the run's record with its input,
// takes the lease, and makes the stream ready. It is refused, with an error that
// says why, when the session is not in a state to run.
func (h *Handler) Open(ctx context.Context, req OpenRequest) (*Opened, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	var opened *Opened
	var err error
	for range openTries {
		opened, err = h.open(ctx, &req)
		if !errors.Is(err, session.ErrStale) && !errors.Is(err, session.ErrExists) && !errors.Is(err, session.ErrAnswered) {
			break
		}
		if errors.Is(err, session.ErrExists) && req.Input.Branch != nil {
			break
		}
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
		if err := session.CheckTime("message time", messages[i].At); err != nil {
			return err
		}
		if messages[i].Role != session.RoleUser {
			return session.Invalid("message role", "%q cannot begin a turn; only user messages can", messages[i].Role)
		}
	}
	return nil
}

// messages is what the caller handed in.
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

func (h *Handler) open(ctx context.Context, req *OpenRequest) (*Opened, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(req.Tenant)
	state, err := sessions.Load(ctx, req.SessionID)
	fresh := errors.Is(err, session.ErrNotFound)
	if err != nil && !fresh {
		return nil, err
	}
	// The request is looked for after the session was read: a run that it starts
	// in between makes that reading stale, and never looks like somebody else's.
	if req.RequestID != "" {
		run, err := sessions.RunByRequest(ctx, req.SessionID, req.RequestID)
		switch {
		case err == nil && fresh: // it was created since
			return nil, session.ErrStale.WithMessage("session %s has just begun", req.SessionID)
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
		if state, err = h.create(ctx, sessions, req); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case req.Kind == session.RunExecute && req.Input.Branch != nil:
		if req.rest, err = h.rebranch(ctx, sessions, req, state); err != nil {
			return nil, err
		}
	}
	if state.Status == session.Paused && req.plainResume() {
		if run, err := h.unpause(ctx, sessions, req, state); err != nil || run != nil {
			return existing(req, run), err
		}
	}
	plan, err := h.plan(ctx, sessions, req, state)
	if err != nil {
		return nil, err
	}
	started, err := sessions.StartRun(ctx, &plan.start)
	if err != nil {
		return nil, err
	}
	if started.Existing {
		return existing(req, &started.Run), nil
	}
	return h.begin(ctx, req, state, plan, started)
}

// plainResume reports a request to go on with what there is.
func (r *OpenRequest) plainResume() bool {
	return r.Kind == session.RunResume && r.caller == nil && r.Stop == nil && r.Resume.Message == nil && r.Resume.Checkpoint == ""
}

// unpause lets a paused session go on that needs no run for it, and gives the run that
// it is at: one that is not over, which goes on, or one that completed or failed,
// which leaves nothing to go on with. It gives nil for any other session.
func (h *Handler) unpause(ctx context.Context, sessions session.Store, req *OpenRequest, state *session.State) (*session.Run, error) {
	if state.CurrentRunID == "" {
		return nil, nil
	}
	if err := gateCaller(req, state); err != nil {
		return nil, err
	}
	run, err := sessions.Run(ctx, state.ID, state.CurrentRunID)
	if err != nil {
		return nil, err
	}
	to := run.Status.SessionStatus()
	if run.Status != session.RunRunning && to != session.Completed && to != session.Failed {
		return nil, nil
	}
	steps := []session.Status{session.Paused, to}
	if to == session.Completed { // no commit may get there from paused, so there is no direct way
		steps = []session.Status{session.Paused, session.Active, to}
	}
	version := state.Version
	for i := range steps[1:] {
		swap, err := sessions.SetStatus(ctx, state.ID, session.StatusChange{
			Expect: steps[i : i+1], ExpectVersion: version, To: steps[i+1],
		})
		if err == nil && !swap.OK {
			err = session.ErrStale.WithMessage("session %s: it has changed since it was read", state.ID)
		}
		if err != nil {
			return nil, err
		}
		version = swap.Version
	}
	return run, nil
}

// settledStatus is the status that an active session is to have because its current run
// has completed or failed, or nothing. Whoever let go of a session that was paused after
// its run had completed takes it there by way of active, and may have died in between.
func settledStatus(state *session.State, run *session.Run) session.Status {
	if state.Status != session.Active || run == nil {
		return ""
	}
	if to := run.Status.SessionStatus(); to == session.Completed || to == session.Failed {
		return to
	}
	return ""
}

// restoreStatus gives a session its [settledStatus]. What was read of it is stale then.
func (h *Handler) restoreStatus(
	ctx context.Context, sessions session.Store, state *session.State, run *session.Run, to session.Status,
) error {
	change := session.StatusChange{Expect: []session.Status{session.Active}, ExpectVersion: state.Version, To: to}
	if run.Outcome != nil {
		change.Error, change.FailureReason = run.Outcome.Error, run.Outcome.FailureReason
	}
	if _, err := sessions.SetStatus(ctx, state.ID, change); err != nil && !errors.Is(err, session.ErrAlreadyRunning) {
		return err
	}
	return session.ErrStale.WithMessage("run %s has ended", run.ID).WithSaw(state.Saw())
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

// create makes the document of a new session; a branch is copied at once, any
// other is created by the run's start.
func (h *Handler) create(ctx context.Context, sessions session.Store, req *OpenRequest) (*session.State, error) {
	if req.caller == nil {
		if err := session.CheckChosenID(req.SessionID); err != nil {
			return nil, err
		}
	}
	var given []byte
	if req.Input.State != nil {
		var err error
		if given, err = session.Encode(req.Input.State); err != nil {
			return nil, session.Invalid("state", "cannot be encoded: %v", err)
		}
	}
	custom, err := req.Agent.State.Initial(given)
	if err != nil {
		return nil, err
	}
	state := &session.State{
		Tenant: req.Tenant, ID: req.SessionID, Agent: req.Agent.Name, StreamID: req.SessionID, Status: session.Active,
		Custom: custom, UserID: req.Input.User.ID, Tags: req.Input.Tags, Metadata: req.Input.Metadata,
		ExpiresAt: req.Input.ExpiresAt,
	}
	if c := req.caller; c != nil {
		state.ParentID, state.UserID = c.state.ID, c.state.UserID
		if !c.detached {
			state.RootID, state.StreamID = headOf(c.state), c.state.StreamID
		}
	} else if state.ExpiresAt.IsZero() && req.Input.Branch != nil && req.Agent.SessionExpiry > 0 {
		state.ExpiresAt = h.cfg.Now().UTC().Add(req.Agent.SessionExpiry) // should its first run never start
	}
	if err := state.Check(); err != nil {
		return nil, err
	}
	if req.Input.Branch == nil {
		return state, nil
	}
	if given != nil {
		return nil, session.Invalid("state", "cannot be given for a branch, which copies it")
	}
	return h.branch(ctx, sessions, req, state)
}

// plan is how a turn will start.
type plan struct {
	start   session.StartRun
	history []session.Message // before the start's own messages
	answers []session.Message // to the calls that an earlier run left open
	left    []leftWait        // the waits for people that end thereby
	patches []session.Patch   // what the start does to custom state
	// transcript and doc are messages and custom state after the start.
	transcript *session.Transcript
	doc        session.Document
	resumes    bool  // the turn goes on with the step that an earlier run suspended in
	streamed   int64 // bytes that the stream holds
}

// plan reads what the start depends on, checks the gates and prepares the write.
func (h *Handler) plan(ctx context.Context, sessions session.Store, req *OpenRequest, state *session.State) (*plan, error) {
	p := &plan{doc: state.Custom, start: session.StartRun{
		SessionID: req.SessionID, ExpectVersion: state.Version, ExpectRun: state.CurrentRunID,
		Owner: h.owner, TTL: h.cfg.LeaseTTL, Resumes: req.Kind == session.RunResume,
		Run: session.Run{
			ID: req.RunID, Kind: req.Kind, Status: session.RunRunning, Agent: req.Agent.Name, Runtime: h.cfg.Runtime,
			RequestID: req.RequestID, PreviousRunID: state.CurrentRunID,
		},
	}}
	if req.Kind != session.RunExecute {
		p.start.Run.ResumedFrom = state.CheckpointID
	}
	if state.Version == 0 {
		p.start.Create = state
	} else {
		if err := h.gate(ctx, sessions, req, state); err != nil {
			return nil, err
		}
		p.start.ExpiresAt = h.moveExpiry(req, state)
		if state.CloseOwed {
			if err := h.closeEarlier(ctx, sessions, state); err != nil {
				return nil, err
			}
		}
		history, err := sessions.AllMessages(ctx, req.SessionID)
		if err != nil {
			return nil, err
		}
		p.history = history
		if err := h.rewind(ctx, sessions, req, state, p); err != nil {
			return nil, err
		}
		if err := h.leave(ctx, sessions, req, state, p); err != nil {
			return nil, err
		}
		if err := p.complete(req.rest); err != nil {
			return nil, err
		}
	}
	info, err := h.cfg.Backend.Streams().Tenant(req.Tenant).Info(ctx, state.StreamID)
	switch {
	case err == nil:
		p.start.Run.StartSequence, p.streamed = info.Last, info.Bytes
	case !errors.Is(err, session.ErrNotFound):
		return nil, err
	}
	if err := p.input(ctx, h, sessions, req); err != nil {
		return nil, err
	}
	if p.transcript, err = session.NewTranscript(append(p.history, p.start.Messages...)); err != nil {
		return nil, err
	}
	if p.transcript.Len() == 0 {
		return nil, errNoMessages
	}
	if len(req.messages()) > 0 { // what waits may come to an end
		if err := h.cfg.checkSize(p.transcript.Bytes() + p.streamed); err != nil {
			return nil, err
		}
	}
	// Last, so that a start which is refused has ended nobody.
	return p, h.leaveChildren(ctx, sessions, req, state, p)
}

// complete has the start add what a copy lacks that was cut short.
func (p *plan) complete(rest *tail) error {
	if rest == nil || len(rest.messages) == 0 {
		return nil
	}
	p.answers, p.start.Writes = rest.messages, rest.writes
	doc := p.doc.Clone()
	if err := doc.Apply(rest.writes); err != nil {
		return err
	}
	p.doc, p.patches = doc, session.ResultPatches(&doc, rest.writes)
	return nil
}

// moveExpiry is what the start of a turn does to the expiry of a session, or nil. The
// expiry that the caller gives stands; any other was for the time in which nobody used
// the session. While the turn runs, a session of an agent with a SessionExpiry has
// none: the turn's last commit sets it, see [turn.expiry].
func (h *Handler) moveExpiry(req *OpenRequest, state *session.State) *time.Time {
	switch given := req.Input.ExpiresAt; {
	case req.caller != nil || state.ParentID != "":
		return nil
	case !given.IsZero():
		return new(given.UTC())
	case state.ExpiresAt.IsZero():
		return nil
	case req.Agent.SessionExpiry > 0 || !h.cfg.Now().Before(state.ExpiresAt):
		return new(time.Time{})
	}
	return nil
}

// closeEarlier closes the stream of the run before, unless this very process is at
// it: then it waits, and the start is planned anew.
func (h *Handler) closeEarlier(ctx context.Context, sessions session.Store, state *session.State) error {
	if closing, here := h.held(state.CurrentRunID); here {
		select {
		case <-closing.gone:
			return session.ErrStale.WithMessage("run %s has just ended", state.CurrentRunID).WithSaw(state.Saw())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	now, err := sessions.Now(ctx)
	if err != nil {
		return err
	}
	// A process that still holds the lease is at it, too, and tells the hooks.
	return h.settleClose(ctx, sessions, state, !state.Lease.Live(now))
}

// gate refuses a start that the session's state does not allow.
func (h *Handler) gate(ctx context.Context, sessions session.Store, req *OpenRequest, state *session.State) error {
	if err := gateCaller(req, state); err != nil {
		return err
	}
	if state.CurrentRunID != "" {
		run, err := sessions.Run(ctx, req.SessionID, state.CurrentRunID)
		if err != nil {
			return err
		}
		switch {
		case run.Status == session.RunRunning && state.Status == session.Paused:
			return session.ErrAlreadyRunning.WithMessage("the session is paused, and run %s is not over: resume it first, with nothing else", run.ID).WithSaw(state.Saw())
		case run.Status == session.RunRunning:
			return session.ErrAlreadyRunning.WithMessage("run %s is running", run.ID).WithSaw(state.Saw())
		case state.SuspendedStep != "" && state.Status == session.Active && !run.Status.Suspended():
			// The session was read while that run went on with the step.
			return session.ErrStale.WithMessage("run %s has just ended", run.ID).WithSaw(state.Saw())
		}
		if to := settledStatus(state, run); to != "" {
			return h.restoreStatus(ctx, sessions, state, run, to)
		}
	}
	if err := h.gateWaits(ctx, sessions, req, state); err != nil {
		return err
	}
	switch req.Kind {
	case session.RunExecute:
		if state.Status == session.Paused {
			return session.ErrPaused.WithMessage("the session is paused; resume it first")
		}
	case session.RunRetry:
		switch {
		case state.Status != session.Failed:
			return session.ErrNotResumable.WithMessage("only a failed session can be retried; this one is %s", state.Status)
		case state.Error != nil && errors.Is(state.Error, session.ErrCancelled):
			return session.ErrNotResumable.WithMessage("an aborted run cannot be retried; send a new message instead")
		}
	case session.RunResume:
		if req.Stop != nil && (state.SuspendedStep == "" || (state.Status != session.Active && state.Status != session.Paused)) {
			return session.ErrNotResumable.WithMessage("the session does not wait any more") // another's work is not stopped
		}
		if req.Stop == nil && req.Resume.Checkpoint == "" && (state.Status == session.Completed || state.Status == session.Failed) {
			return session.ErrNotResumable.WithMessage("the session is %s; %s", state.Status,
				map[session.Status]string{
					session.Completed: "execute a new message, or resume from a checkpoint",
					session.Failed:    "retry it, execute a new message, or resume from a checkpoint",
				}[state.Status])
		}
	}
	return nil
}

// gateCaller refuses a turn of a session that is not the caller's, or not the agent's.
func gateCaller(req *OpenRequest, state *session.State) error {
	if user := req.Input.User.ID; user != "" && state.UserID != "" && user != state.UserID {
		return session.ErrNotFound.WithMessage("user %s has no such session", user) // what is someone else's does not exist
	}
	if c := req.caller; c != nil && state.ParentID != c.state.ID {
		return session.ErrExists.WithMessage("session %s was not made by %s", state.ID, c.state.ID)
	}
	if req.caller == nil && state.RootID != "" {
		return session.Invalid("session id", "%q is that of an agent which works for another; go on with %q", state.ID, state.RootID)
	}
	if state.Agent != req.Agent.Name {
		return session.Invalid("agent", "%q is not the session's, which is %q", req.Agent.Name, state.Agent)
	}
	return nil
}

// rewind takes a retry back to the last good checkpoint, and a resume to the one
// it names.
func (h *Handler) rewind(ctx context.Context, sessions session.Store, req *OpenRequest, state *session.State, p *plan) error {
	var to *session.Checkpoint
	var err error
	switch {
	case req.Kind == session.RunRetry:
		to, err = sessions.LatestCheckpoint(ctx, req.SessionID)
		if errors.Is(err, session.ErrNotFound) {
			return session.ErrNotResumable.WithMessage("the session has no checkpoint to retry from")
		}
	case req.Kind == session.RunResume && req.Resume.Checkpoint != "":
		to, err = sessions.Checkpoint(ctx, req.SessionID, req.Resume.Checkpoint)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if to.Version > state.Version {
		return session.ErrStale.WithMessage("session %s: it has changed since it was read", req.SessionID)
	}
	if to.Undone {
		return session.ErrNotResumable.WithMessage("checkpoint %s was undone by a later rewind", to.ID)
	}
	p.start.Run.CheckpointID, p.start.Run.ResumedFrom = to.ID, to.ID
	if to.MessageCount > len(p.history) {
		return session.ErrCorrupt.WithMessage("checkpoint %s is past the end of the transcript", to.ID)
	}
	keep := to.MessageCount
	if req.Resume.ReplaceInput {
		if keep = beforeInput(p.history[:keep]); keep == to.MessageCount {
			return session.ErrNotResumable.WithMessage("checkpoint %s does not end in messages that began a turn, so there is nothing to replace", to.ID)
		}
	} else if to.Version == state.Version {
		return nil
	}
	p.history = p.history[:keep]
	p.start.KeepMessages = &keep
	if to.State != nil {
		p.doc = to.State.Clone()
		p.start.State = to.State
	}
	return nil
}

// beforeInput is the number of messages before those with which a run began, if the
// history ends in them.
func beforeInput(history []session.Message) int {
	n := len(history)
	for n > 0 && history[n-1].Role == session.RoleUser && history[n-1].RunID == history[len(history)-1].RunID {
		n--
	}
	return n
}

// input completes the plan with what the turn begins with: results for calls that
// were left open, then the caller's messages.
func (p *plan) input(ctx context.Context, h *Handler, sessions session.Store, req *OpenRequest) error {
	now := h.cfg.Now().UTC()
	messages := p.answers
	if !p.resumes && messages == nil {
		messages = session.Heal(p.history, func(call session.Part) *session.Error {
			if tool, ok := req.Agent.Tool(call.Tool); ok && tool.Waits() {
				return toolError(session.CodeAbandoned, "the session went on without an answer")
			}
			return toolError(session.CodeToolNotRun, "the call was not carried out")
		})
	}
	given := req.messages()
	if req.Inbox {
		sent, took, err := readInbox(ctx, sessions, req.SessionID)
		if err != nil {
			return err
		}
		if len(sent) == 0 {
			return errNothingToDo
		}
		given, p.start.Consume = append(given, sent...), took.Consume
		p.start.Resolve = append(p.start.Resolve, took.Resolve...)
	}
	if len(given) == 0 && len(messages) == 0 && !p.resumes && endsInReply(p.history) {
		// Providers want the user's turn to come last.
		given = []session.Message{helix.Hidden(session.UserText("Continue where you stopped."))}
	}
	for i, m := range given {
		if m.ID == "" {
			m.ID = fmt.Sprintf("%s/in/%d", req.RunID, i)
		}
		messages = append(messages, m)
	}
	for i := range messages {
		messages[i].RunID = req.RunID
		if messages[i].At.IsZero() {
			messages[i].At = now
		}
	}
	p.start.Messages = messages
	p.start.Status = session.Active
	p.start.Checkpoint = &session.NewCheckpoint{
		ID:     session.CheckpointID(req.SessionID, 0, now, req.RunID),
		Source: session.FromSave, StreamSequence: p.start.Run.StartSequence,
	}
	if p.resumes { // in mid-step, to which nothing goes back
		p.start.Checkpoint = nil
	}
	return nil
}

var errNoMessages = session.ErrNotResumable.WithMessage("the session has no messages to go on with")

func endsInReply(history []session.Message) bool {
	return len(history) > 0 && history[len(history)-1].Role == session.RoleAssistant
}

// begin makes a turn of a run that was started.
func (h *Handler) begin(ctx context.Context, req *OpenRequest, state *session.State, p *plan, started *session.Started) (*Opened, error) {
	state.Version, state.MessageCount, state.Lease = started.Version, started.MessageCount, started.Lease
	state.Turn, state.CurrentRunID, state.Status = started.Turn, req.RunID, session.Active
	state.CheckpointID, state.Custom = started.CheckpointID, p.doc
	if p.start.ExpiresAt != nil {
		state.ExpiresAt = *p.start.ExpiresAt
	}
	bytes := new(atomic.Int64)
	if c := req.caller; c != nil && !c.detached {
		bytes = c.streamed
	} else {
		bytes.Store(p.streamed)
	}
	t := h.newTurn(req.Agent, req.Hooks, state, started.Run, started.Lease.Fence(), bytes)
	t.transcript, t.inbox, t.resumes, t.patches = p.transcript, started.Inbox, p.resumes, p.patches
	if started.Stop != nil {
		t.halt(started.Stop)
	}
	h.remember(t)
	t.tellLeft(ctx, p.left)
	if err := t.ready(ctx, req, p); err != nil {
		h.release(ctx, t)
		h.forget(t)
		return nil, err
	}
	return t.opened(), nil
}

// ready makes a turn that was started ready to be driven.
func (t *turn) ready(ctx context.Context, req *OpenRequest, p *plan) error {
	if err := t.payRewind(ctx); err != nil {
		return err
	}
	if p.resumes {
		if err := t.reenter(ctx, p.history); err != nil {
			return err
		}
		for _, c := range t.flight.calls {
			c.found = false // watchers of the run before have seen what is there
		}
		t.flight.announced = true
	}
	if req.Stop != nil {
		stop := *req.Stop
		stop.RunID = t.run.ID
		if err := t.h.StopRun(ctx, t.key, stop); err != nil {
			return err
		}
	}
	return t.openStream(ctx)
}

// openStream makes the stream ready for the run and shows watchers that it
// begins, and with what. The chunks have a producer of their own, so that whoever
// takes the run over writes them if and only if they are missing.
func (t *turn) openStream(ctx context.Context) error {
	if t.remote != nil { // it shows the remote's own chunks, and no others
		return nil
	}
	if t.streamID == t.key.ID { // else it is the caller's, who has opened it
		info, err := t.streams.Reactivate(ctx, t.streamID, t.out.Config().Producer)
		if err != nil {
			return err
		}
		t.trimmed = info.Floor
	}
	base := t.out.Config().Base
	base.At, base.Turn = t.run.StartedAt, t.run.Turn
	var chunks []stream.Chunk
	first, messages := t.opening()
	if t.run.CheckpointID != "" {
		c := base
		c.Kind, c.MessageCount = stream.Rewound, &first
		chunks = append(chunks, c)
	}
	started := base
	if started.Kind = stream.RunStarted; t.run.Kind != session.RunExecute {
		started.Kind = stream.RunResumed
	}
	chunks = append(chunks, started)
	left, err := t.leftCalls(ctx)
	if err != nil {
		return err
	}
	for _, c := range left {
		if c.Status == session.CallSettled { // watchers of the run before have seen its end
			continue
		}
		end := base
		end.MessageID = c.MessageID
		c.ends(&end)
		streamwriter.Fit(&end, t.streams.Limits().MaxChunk)
		chunks = append(chunks, end)
	}
	if len(messages) > 0 {
		c := base
		c.Kind, c.Messages = stream.InputReceived, messages
		streamwriter.Fit(&c, t.streams.Limits().MaxChunk)
		chunks = append(chunks, c)
	}
	if len(t.patches) > 0 {
		c := base
		c.Kind, c.Patches = stream.StatePatch, t.patches
		streamwriter.Fit(&c, t.streams.Limits().MaxChunk)
		chunks = append(chunks, c)
	}
	return t.out.Order(ctx, stream.Batch{
		Producer: stream.Producer{Session: t.key.ID + "/open/" + t.run.ID, Epoch: 1, RunID: t.run.ID},
		First:    1, Chunks: chunks,
	})
}

// opening is the messages that the run began with, and how many came before.
func (t *turn) opening() (int, []session.Message) {
	messages := t.transcript.Messages()
	first := len(messages)
	if t.resumes { // with none: results that the run committed since are at the end
		return first, nil
	}
	for first > 0 && messages[first-1].RunID == t.run.ID {
		first--
	}
	last := first
	for last < len(messages) && messages[last].Role != session.RoleAssistant {
		last++
	}
	return first, messages[first:last]
}

// Opened is where a turn stands that this process works on, or nil if it does not.
// No effect of the turn may be in flight.
func (h *Handler) Opened(runID string) *Opened {
	t, ok := h.held(runID)
	if !ok {
		return nil
	}
	return t.opened()
}

func (t *turn) opened() *Opened {
	return &Opened{Key: t.key, StreamID: t.streamID, Run: t.run, Position: t.position()}
}

// release gives the lease back in mid-run, so that somebody may take the run over
// at once. It is no crash and not counted as one.
func (h *Handler) release(ctx context.Context, t *turn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := t.sessions.CloseRun(ctx, t.key.ID, t.fence, false); err != nil && !lost(err) {
		h.log.WarnContext(ctx, "lease not released", t.attrs("error", err)...)
	}
	t.out.Discard()
}

// Release gives a turn up in mid-run, so that another process, or this one after
// a restart, continues it at once.
func (h *Handler) Release(ctx context.Context, runID string) {
	t, ok := h.held(runID)
	if ok {
		t.storeRest(ctx)
		h.release(ctx, t)
		h.forget(t)
	}
}
