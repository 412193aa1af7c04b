package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/retry"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// The input of the companion tools.
type (
	spawnInput struct {
		Agent   string `json:"agent" jsonschema:"which agent to call on"`
		Name    string `json:"name,omitempty" jsonschema:"what to call it from now on; one is made up if you give none"`
		Message string `json:"initialMessage" jsonschema:"what it shall do, with everything needed to do it"`
	}
	sendInput struct {
		Name    string `json:"name" jsonschema:"the companion's name"`
		Message string `json:"message" jsonschema:"what to tell it"`
	}
	nameInput struct {
		Name string `json:"name" jsonschema:"the companion's name"`
	}
	terminateInput struct {
		Name   string `json:"name" jsonschema:"the companion's name"`
		Reason string `json:"reason,omitempty" jsonschema:"why"`
	}
	noInput struct{}
)

// companionSchemas are the inputs of the companion tools, by tool.
var companionSchemas = map[string]*helix.Schema{
	helix.SpawnAgentTool:     helix.InputOf[spawnInput]().Schema(),
	helix.SendMessageTool:    helix.InputOf[sendInput]().Schema(),
	helix.ListChildrenTool:   helix.InputOf[noInput]().Schema(),
	helix.GetChildStatusTool: helix.InputOf[nameInput]().Schema(),
	helix.TerminateChildTool: helix.InputOf[terminateInput]().Schema(),
	helix.WaitForResultTool:  helix.InputOf[nameInput]().Schema(),
}

// companionSchema is the input of a companion tool, or nil if the agent has no such
// tool.
func companionSchema(agent *helix.Agent, tool string) *helix.Schema {
	if len(agent.Companions) == 0 || (tool == helix.WaitForResultTool && !waitable(agent)) {
		return nil
	}
	return companionSchemas[tool]
}

// waitable reports whether an agent has a companion whose result it may wait for.
func waitable(agent *helix.Agent) bool {
	return slices.ContainsFunc(agent.Companions, func(c helix.Companion) bool { return c.Blocks() })
}

// companionTools are the tools through which an agent reaches its companions.
func companionTools(agent *helix.Agent) []llm.Tool {
	if len(agent.Companions) == 0 {
		return nil
	}
	var who strings.Builder
	for i := range agent.Companions {
		c := &agent.Companions[i]
		how := "answers at once"
		if !c.Blocks() {
			how = "works on by itself; you are told when it is done"
		}
		fmt.Fprintf(&who, "\n- %s (%s): %s", c.Agent.Name, how, c.About())
	}
	var tools []llm.Tool
	for _, tool := range [...]struct{ name, about string }{
		{helix.SpawnAgentTool, "Call on another agent. Under a name that is taken you go on with the same agent, which remembers. Agents:" + who.String()},
		{helix.SendMessageTool, "Send a message to an agent that you have called on before."},
		{helix.ListChildrenTool, "List the agents that you have called on, and how they stand."},
		{helix.GetChildStatusTool, "Tell how an agent that you have called on stands, and what it said last."},
		{helix.TerminateChildTool, "End an agent that you have called on. Under the same name you then get a new one."},
		{helix.WaitForResultTool, "Wait until an agent that you have called on is done, and get its result."},
	} {
		if schema := companionSchema(agent, tool.name); schema != nil {
			tools = append(tools, llm.Tool{Name: tool.name, Description: tool.about, Schema: schema.JSON()})
		}
	}
	return tools
}

// companionCall is what a call asks of a companion.
type companionCall struct {
	agent    string
	status   session.ChildStatus // what the reference says of it
	blocking bool
	message  string
	reason   string
	spawns   bool // it makes the reference
	consults bool // it gives the companion something to do
	opened   bool // a turn of the companion was begun for it
	queued   bool // the companion takes the message in when it comes to it
}

var companionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// nameCompanions finds out which companion each call is about, before the reply is
// committed: a name is given once.
func (t *turn) nameCompanions(ctx context.Context, f *flight) error {
	var refs []session.ChildRef
	read := false
	named := map[string]bool{} // calls of one reply run at the same time, and a companion does one thing at a time
	for _, c := range f.calls {
		if c.Kind != session.CallCompanion || c.Rejected != nil {
			continue
		}
		if !read {
			var err error
			refs, err = retry.Do(ctx, func() ([]session.ChildRef, error) { return t.sessions.Children(ctx, t.key.ID) })
			if err != nil {
				return err
			}
			read = true
		}
		err := t.nameCompanion(c, refs)
		if err == nil && c.Child != "" {
			if named[c.Child] {
				err = toolError(session.CodeToolNotRun, "%s was called on in the same reply; call on it again when you have its answer", c.Name)
			}
			named[c.Child] = true
		}
		if err != nil {
			c.Kind, c.Rejected, c.companion, c.Child = session.CallServer, err, nil, ""
			continue
		}
		if c.companion != nil && c.companion.spawns {
			refs = append(refs, c.ref(t.run.ID))
		}
	}
	return nil
}

// nameCompanion finds out which companion a call is about, or what is wrong with the
// call.
func (t *turn) nameCompanion(c *call, refs []session.ChildRef) *session.Error {
	switch c.Tool {
	case helix.ListChildrenTool:
		return nil
	case helix.SpawnAgentTool:
		return t.nameSpawned(c, refs)
	}
	var in struct{ Name string }
	_ = json.Unmarshal(c.part.Input, &in) // it was validated
	ref := findRef(refs, func(r *session.ChildRef) bool { return r.Name == in.Name })
	if ref == nil {
		return toolError(session.CodeToolInput, "you have called on no agent named %q; see %s", in.Name, helix.ListChildrenTool)
	}
	c.Child, c.Name = ref.SessionID, ref.Name
	c.companion = ask(c, ref.Agent, ref.Blocking)
	c.companion.status = ref.Status
	return nil
}

func (t *turn) nameSpawned(c *call, refs []session.ChildRef) *session.Error {
	var in spawnInput
	_ = json.Unmarshal(c.part.Input, &in) // it was validated
	companion, ok := t.agent.Companion(in.Agent)
	if !ok {
		return toolError(session.CodeToolInput, "there is no agent named %q to call on", in.Agent)
	}
	if in.Name == "" {
		in.Name = freeName(in.Agent, refs)
	}
	if !companionName.MatchString(in.Name) {
		return toolError(session.CodeToolInput, "the name %q does not fit: use up to 64 letters, digits, _ or -", in.Name)
	}
	known := findRef(refs, func(r *session.ChildRef) bool { return r.Name == in.Name })
	if known != nil && known.Agent != in.Agent {
		return toolError(session.CodeToolInput, "%q is the name of another agent, %s", in.Name, known.Agent)
	}
	c.Name = in.Name
	if known != nil { // also one whose id was given by an earlier version
		c.Child = known.SessionID
	} else {
		c.Child = session.NewChildID(t.key.ID, "agent", in.Name)
	}
	c.companion = ask(c, in.Agent, companion.Blocks())
	return nil
}

// freeName is a name for a companion that was given none.
func freeName(agent string, refs []session.ChildRef) string {
	for n := 1; ; n++ {
		name := agent + "-" + strconv.Itoa(n)
		if findRef(refs, func(r *session.ChildRef) bool { return r.Name == name }) == nil {
			return name
		}
	}
}

// findRef finds a companion. One that a rewind has undone is none, and its name is
// free.
func findRef(refs []session.ChildRef, is func(*session.ChildRef) bool) *session.ChildRef {
	for i := range refs {
		if refs[i].Mode == session.ChildPersistent && refs[i].Status != session.ChildSuperseded && is(&refs[i]) {
			return &refs[i]
		}
	}
	return nil
}

// ask reads a call's input.
func ask(c *call, agent string, blocking bool) *companionCall {
	cc := &companionCall{agent: agent, blocking: blocking}
	switch c.Tool {
	case helix.SpawnAgentTool:
		var in spawnInput
		_ = json.Unmarshal(c.part.Input, &in) // it was validated
		cc.message, cc.spawns, cc.consults = in.Message, true, true
	case helix.SendMessageTool:
		var in sendInput
		_ = json.Unmarshal(c.part.Input, &in) // it was validated
		cc.message, cc.consults = in.Message, true
	case helix.TerminateChildTool:
		var in terminateInput
		_ = json.Unmarshal(c.part.Input, &in) // it was validated
		cc.reason = in.Reason
	}
	return cc
}

// recallCompanions finds out what the calls of a step that is in the store ask of
// companions.
func (t *turn) recallCompanions(ctx context.Context, f *flight) error {
	var refs []session.ChildRef
	for _, c := range f.calls {
		if c.Kind != session.CallCompanion || c.Child == "" {
			continue
		}
		if refs == nil {
			var err error
			refs, err = retry.Do(ctx, func() ([]session.ChildRef, error) { return t.sessions.Children(ctx, t.key.ID) })
			if err != nil {
				return err
			}
		}
		ref := findRef(refs, func(r *session.ChildRef) bool { return r.SessionID == c.Child })
		if ref == nil {
			return session.ErrCorrupt.WithMessage("session %s: nothing is known of the companion %s", t.key.ID, c.Child)
		}
		c.companion = ask(c, ref.Agent, ref.Blocking)
		c.companion.status = ref.Status
	}
	return nil
}

// openCompanion gives a companion what a call has for it.
func (t *turn) openCompanion(ctx context.Context, e effect, c *call) (*Opened, error) {
	if c.companion == nil || !c.companion.consults {
		return nil, nil
	}
	state, err := t.sessions.Load(ctx, c.Child)
	if errors.Is(err, session.ErrNotFound) {
		return t.consult(ctx, e, c)
	}
	if err != nil {
		return nil, err
	}
	if err := childOf(t.key.ID, state); err != nil {
		return nil, err
	}
	_, err = t.sessions.RunByRequest(ctx, c.Child, c.ID)
	if err == nil { // the call has begun before
		c.companion.opened = true
		if c.companion.blocking {
			return t.takeUp(ctx, e, c, state)
		}
		return nil, nil
	}
	if !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	run, err := t.sessions.CurrentRun(ctx, c.Child)
	switch {
	case errors.Is(err, session.ErrNotFound): // it was never started
	case err != nil:
		return nil, err
	case state.Status == session.Failed:
		// It begins anew. Nothing is lost that could be gone on with.
		if _, err := t.sessions.Delete(ctx, c.Child); err != nil && !errors.Is(err, session.ErrNotFound) {
			return nil, err
		}
	case run.Status == session.RunRunning && t.aborting(ctx, run):
		c.child.fault = toolError(session.CodeSubAgent, "%s is coming to its end; try again in a moment", c.Name)
		return nil, nil
	case c.companion.spawns && (run.Status == session.RunRunning || run.Status.Suspended()) && state.Status != session.Interrupted:
		c.child.fault = toolError(session.CodeSubAgent, "%s is at work; send it a message with %s", c.Name, helix.SendMessageTool)
		return nil, nil
	default:
		to, anew, err := t.goBack(ctx, c, run)
		switch {
		case err != nil:
			return nil, err
		case (to != nil || anew) && run.Status == session.RunRunning: // it was told to stop when its caller went back
			c.child.fault = toolError(session.CodeSubAgent, "%s is coming to its end; try again in a moment", c.Name)
			return nil, nil
		case to != nil:
			return t.consultFrom(ctx, e, c, to)
		case anew:
			if _, err := t.sessions.Delete(ctx, c.Child); err != nil && !errors.Is(err, session.ErrNotFound) {
				return nil, err
			}
		case !c.companion.spawns && !c.companion.blocking:
			return t.queue(ctx, e, c)
		}
	}
	return t.consult(ctx, e, c)
}

// aborting reports whether a run is about to fail: it takes nothing in any more.
func (t *turn) aborting(ctx context.Context, run *session.Run) bool {
	stop, err := t.sessions.StopRequest(ctx, run.SessionID, run.ID)
	return err == nil && stop != nil && stop.Kind == session.StopAbort
}

// consultFrom begins a turn of the companion at a checkpoint of its own.
func (t *turn) consultFrom(ctx context.Context, e effect, c *call, from *session.Checkpoint) (*Opened, error) {
	agent, err := t.mayConsult(ctx, e, c)
	if agent == nil || err != nil {
		return nil, err
	}
	message := session.UserText(c.companion.message)
	opened, err := t.openChild(ctx, c, !c.companion.blocking, OpenRequest{
		Kind: session.RunResume, Agent: agent, RequestID: c.ID,
		Resume: helix.ResumeOptions{Checkpoint: from.ID, Message: &message},
	})
	c.companion.opened = opened != nil
	return opened, err
}

// consult begins a turn of the companion.
func (t *turn) consult(ctx context.Context, e effect, c *call) (*Opened, error) {
	agent, err := t.mayConsult(ctx, e, c)
	if agent == nil || err != nil {
		return nil, err
	}
	opened, err := t.startChild(ctx, c, agent, session.UserText(c.companion.message), !c.companion.blocking)
	c.companion.opened = opened != nil
	return opened, err
}

// mayConsult gives the agent of a companion that is to be given something to do, or
// nil if it is not to.
func (t *turn) mayConsult(ctx context.Context, e effect, c *call) (*helix.Agent, error) {
	if t.stopRequest() != nil || !t.beforeAgent(ctx, e, c) {
		return nil, nil
	}
	agent, err := t.callee(ctx, c.companion.agent, c.Child)
	if err == nil && !c.companion.spawns {
		err = t.markChild(ctx, c, session.ChildRunning)
	}
	if err != nil {
		return nil, err
	}
	return agent, nil
}

func (t *turn) markChild(ctx context.Context, c *call, status session.ChildStatus) error {
	_, err := t.sessions.UpdateChild(ctx, t.key.ID, c.Child, func(ref *session.ChildRef) error {
		ref.Status = status
		return nil
	})
	if errors.Is(err, session.ErrNotFound) {
		return nil
	}
	return err
}

// unmark takes back that a companion which works by itself runs for a call that could
// not be made: the reply's commit, or the attempt, has said so.
func (t *turn) unmark(ctx context.Context, c *call) error {
	if c.companion == nil || !c.companion.consults || c.companion.blocking || c.companion.opened || c.companion.queued {
		return nil
	}
	run, err := childRun(ctx, t.sessions, t.key.ID, c.Child)
	if err != nil || (run != nil && (run.Status == session.RunRunning || run.Status.Suspended())) {
		return err // it runs with what it was asked before
	}
	_, err = t.sessions.UpdateChild(ctx, t.key.ID, c.Child, func(ref *session.ChildRef) error {
		if ref.Status == session.ChildRunning {
			if ref.Status = session.ChildFailed; run != nil && run.Status == session.RunCompleted {
				ref.Status = session.ChildCompleted
			}
		}
		return nil
	})
	return absent(err)
}

// queue leaves a message for a companion: one that is at work takes it in at its
// next step, any other in a turn of its own. A message that is sent again, because a
// process died, is not taken in again.
func (t *turn) queue(ctx context.Context, e effect, c *call) (*Opened, error) {
	agent, err := t.mayConsult(ctx, e, c)
	if agent == nil || err != nil {
		return nil, err
	}
	err = t.sessions.Send(ctx, c.Child, session.InboxEntry{
		ID: c.ID, From: t.key.ID, Kind: inboxMessage, Body: encoded(c.companion.message),
	})
	if err != nil {
		return nil, err
	}
	c.companion.queued = true
	run, err := t.sessions.CurrentRun(ctx, c.Child)
	if err != nil || !run.Status.Ended() || run.Status.Suspended() {
		return nil, err
	}
	opened, err := t.openChild(ctx, c, true, OpenRequest{Kind: session.RunExecute, Agent: agent, RequestID: c.ID, Inbox: true})
	if errors.Is(err, errNothingToDo) || errors.Is(err, session.ErrAlreadyRunning) || errors.Is(err, session.ErrStale) {
		return nil, nil // somebody else has begun it
	}
	c.companion.queued = opened == nil
	return opened, err
}

// companionResult is what a call to a companion tool comes to; nil if it has to
// wait.
func (t *turn) companionResult(ctx context.Context, e effect, c *call) (*settled, error) {
	if c.Tool == helix.ListChildrenTool {
		return t.listChildren(ctx, e, c)
	}
	cc := c.companion
	switch {
	case c.Tool == helix.TerminateChildTool:
		return t.terminate(ctx, e, c)
	case cc.consults && !cc.blocking && t.stopRequest() != nil && !cc.queued && !cc.opened:
		if err := t.unmark(ctx, c); err != nil {
			return nil, err
		}
		return t.concluded(ctx, e, c, nil, stoppedCall(t.stopRequest())), nil
	case cc.consults && !cc.blocking:
		status := "running"
		if cc.queued {
			status = "queued"
		}
		return t.concluded(ctx, e, c, encoded(childStatus{Name: c.Name, Agent: cc.agent, Status: status}), nil), nil
	}
	run, err := t.childRun(ctx, c)
	if err == nil && !cc.consults {
		run, err = t.standing(ctx, run)
	}
	if err != nil {
		return nil, err
	}
	switch c.Tool {
	case helix.GetChildStatusTool:
		return t.concluded(ctx, e, c, encoded(statusOf(c.Name, cc.agent, cc.status, run)), nil), nil
	case helix.WaitForResultTool:
		if cc.status == session.ChildTerminated {
			return t.concluded(ctx, e, c, nil, toolError(session.CodeSubAgent, "%s was terminated", c.Name)), nil
		}
		if run != nil && !cc.blocking && (!run.Status.Ended() || run.Status.Suspended()) && t.stopRequest() == nil {
			return nil, nil
		}
	}
	return t.childResult(ctx, e, c, run, func(o *session.Outcome) json.RawMessage {
		return encoded(childStatus{Name: c.Name, Agent: cc.agent, Status: string(session.RunCompleted), Output: said(o)})
	})
}

// childStatus is what a model is told of a companion.
type childStatus struct {
	Name   string          `json:"name"`
	Agent  string          `json:"agent"`
	Status string          `json:"status"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// statusOf tells how a companion stands: by its latest run, unless its reference
// knows better.
func statusOf(name, agent string, ref session.ChildStatus, run *session.Run) childStatus {
	s := childStatus{Name: name, Agent: agent, Status: string(ref)}
	switch {
	case ref == session.ChildTerminated || ref == session.ChildSuperseded:
		return s
	case run == nil:
		s.Status = "not_started"
	case run.Status.Suspended() && (ref == session.ChildFailed || ref == session.ChildCompleted): // its caller went on without it
		s.Status = string(session.RunInterrupted)
	case run.Status.Suspended():
		s.Status = string(session.ChildWaiting)
	default:
		s.Status = string(run.Status)
	}
	if run != nil && run.Outcome != nil {
		switch run.Status {
		case session.RunCompleted:
			s.Output = said(run.Outcome)
		case session.RunFailed:
			if run.Outcome.Error != nil {
				s.Error = run.Outcome.Error.Message
			}
		}
	}
	return s
}

func (t *turn) listChildren(ctx context.Context, e effect, c *call) (*settled, error) {
	refs, err := t.sessions.Children(ctx, t.key.ID)
	if err != nil {
		return nil, err
	}
	list := []childStatus{}
	for i := range refs {
		ref := &refs[i]
		if ref.Mode != session.ChildPersistent || ref.Status == session.ChildSuperseded {
			continue
		}
		run, err := childRun(ctx, t.sessions, t.key.ID, ref.SessionID)
		if err == nil {
			run, err = t.standing(ctx, run)
		}
		if err != nil {
			return nil, err
		}
		status := statusOf(ref.Name, ref.Agent, ref.Status, run)
		status.Output = nil // one asks for the status of one to see it
		list = append(list, status)
	}
	return t.concluded(ctx, e, c, encoded(list), nil), nil
}

// terminate ends a companion for good.
func (t *turn) terminate(ctx context.Context, e effect, c *call) (*settled, error) {
	reason := "the companion was terminated"
	if c.companion.reason != "" {
		reason = c.companion.reason
	}
	run, err := t.childRun(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := t.markChild(ctx, c, session.ChildTerminated); err != nil { // first, so that its end is not told
		return nil, err
	}
	if err := t.h.abandon(ctx, t.sessions, t.key.ID, c.Child, session.ErrCancelled.WithMessage("%s", reason)); err != nil {
		return nil, err
	}
	if err := t.outlive(ctx, c, run); err != nil {
		return nil, err
	}
	if run == nil {
		return t.terminatedResult(ctx, e, c), nil
	}
	// One that had come to its end is not gone on with either.
	_, err = t.sessions.SetStatus(ctx, c.Child, session.StatusChange{
		Expect: []session.Status{session.Completed, session.Interrupted}, To: session.Failed,
		Error: session.ErrCancelled.WithMessage("%s", reason),
	})
	if err != nil && !errors.Is(err, session.ErrNotFound) && !errors.Is(err, session.ErrAlreadyRunning) {
		return nil, err
	}
	return t.terminatedResult(ctx, e, c), nil
}

func (t *turn) terminatedResult(ctx context.Context, e effect, c *call) *settled {
	status := childStatus{Name: c.Name, Agent: c.companion.agent, Status: string(session.ChildTerminated)}
	return t.concluded(ctx, e, c, encoded(status), nil)
}

// terminated reports whether the turn is that of a companion whose caller ended it,
// and need not be told so.
func (t *turn) terminated(ctx context.Context) bool {
	if stop := t.stopRequest(); stop == nil || stop.Kind != session.StopAbort {
		return false
	}
	refs, err := t.sessions.Children(ctx, t.state.ParentID)
	if err != nil {
		return false
	}
	ref := findRef(refs, func(r *session.ChildRef) bool { return r.SessionID == t.key.ID })
	return ref != nil && ref.Status == session.ChildTerminated
}

// outlive waits for the end of a companion that was terminated, if it is here, so
// that another may be called on by its name at once.
func (t *turn) outlive(ctx context.Context, c *call, run *session.Run) error {
	if run == nil {
		return nil
	}
	if child, here := t.h.held(run.ID); here {
		select {
		case <-child.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return t.sessions.DeleteWake(ctx, session.Wake{Tenant: t.key.Tenant, SessionID: t.key.ID, ChildID: c.Child, RunID: run.ID})
}

// encoded is a value of this package's own types as JSON; they always encode.
func encoded(v any) json.RawMessage {
	raw, _ := session.Encode(v)
	return raw
}
