package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/retry"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

// callModel asks the model for the step's reply and commits it, unless that was
// done before.
func (t *turn) callModel(ctx context.Context, e effect) (machine.Result, error) {
	if t.ended != nil || t.final != nil {
		return t.sendFinal(ctx)
	}
	if e.Step < t.current() {
		return t.past(e), nil
	}
	if t.flight != nil {
		return t.sendReply(ctx, e, t.flight)
	}
	if stop := t.stopRequest(); stop != nil {
		return t.endStopped(ctx, e, stop, modelReply{})
	}
	t.tellStart(ctx)
	if err := t.takeInbox(ctx, e); err != nil {
		return machine.Result{}, err
	}
	if err := t.h.cfg.checkSize(t.size()); err != nil {
		return t.endFailed(ctx, e.Key(), session.AsError(err), false)
	}
	reply, err := t.generate(ctx, e)
	switch {
	case err == nil:
		return t.takeReply(ctx, e, reply)
	case t.stopRequest() != nil && errors.Is(err, errStopped):
		return t.endStopped(ctx, e, t.stopRequest(), reply)
	case ctx.Err() != nil:
		return machine.Result{}, context.Cause(ctx) // the process shuts down: whoever takes over asks again
	}
	t.discardAttempt(reply.attempt, err)
	return t.endFailed(ctx, e.Key(), session.AsError(err), false)
}

// past answers an effect that was handled before and is delivered again: what
// followed it was another step.
func (t *turn) past(e effect) machine.Result {
	if e.Step == t.step && t.mustFinish() {
		return machine.Result{Next: machine.NextFinish}
	}
	return machine.Result{Next: machine.NextModel}
}

// modelReply is a reply as it came, and what watchers saw of it.
type modelReply struct {
	*llm.Response
	seen    []session.Part // the text that was streamed, and the places of calls in it
	quiet   bool           // nothing was streamed
	attempt int
}

// generate asks the model until it answers, is stopped, or has failed too often.
func (t *turn) generate(ctx context.Context, e effect) (modelReply, error) {
	ctx, cancel := t.stoppable(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		reply, err := t.attempt(ctx, e, attempt)
		reply.attempt = attempt
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return reply, context.Cause(ctx)
		}
		if !session.IsRetryable(err) || attempt > t.h.cfg.ModelRetries {
			return reply, err
		}
		t.discardAttempt(attempt, err)
		wait := t.backoff(attempt, err)
		t.h.log.WarnContext(ctx, "model call failed, trying again",
			t.attrs("attempt", attempt, "wait", wait, "error", err)...)
		if err := retry.Sleep(ctx, wait); err != nil {
			return modelReply{attempt: attempt}, err
		}
	}
}

// backoff is how long to wait before the next attempt: as the provider says, else
// doubling, with jitter so that many sessions do not come back together.
func (t *turn) backoff(attempt int, err error) time.Duration {
	if after, ok := errors.AsType[*llm.RetryAfterError](err); ok {
		return after.After
	}
	wait := min(t.h.cfg.RetryBackoff<<min(attempt-1, 16), maxBackoff)
	return wait/2 + rand.N(wait/2+1)
}

// maxBackoff is the longest wait between attempts that a provider did not ask for.
const maxBackoff = time.Minute

// discardAttempt takes back what watchers saw of a failed attempt.
func (t *turn) discardAttempt(attempt int, err error) {
	t.emit(stream.Chunk{
		Kind: stream.StepDiscarded, Scope: stream.ScopeReply, Attempt: attempt, Reason: err.Error(),
		MessageID: session.ReplyID(t.run.ID, t.current()),
	})
}

// attempt asks the model once.
func (t *turn) attempt(ctx context.Context, e effect, attempt int) (modelReply, error) {
	var reply modelReply
	request, err := t.request(ctx, e)
	if err != nil {
		return reply, err
	}
	model, err := fromState(ctx, t, e, "ModelFunc", t.agent.Model, t.agent.ModelFunc)
	if err == nil && model == nil {
		err = session.ErrInternal.WithMessage("agent %s: ModelFunc gave no model", t.agent.Name)
	}
	if err != nil {
		return reply, err
	}
	request.Retries = max(0, t.h.cfg.ModelRetries-attempt+1)
	if err := t.hooks.beforeModel(ctx, e.Key(), request, attempt); err != nil {
		return reply, err
	}

	t.emit(stream.Chunk{Kind: stream.StepStarted, MessageID: session.ReplyID(t.run.ID, e.Step), Attempt: attempt})
	began := t.h.cfg.Now()
	reply, err = t.ask(ctx, e, model, request)
	took := t.h.cfg.Now().Sub(began)
	if err == nil {
		err = checkReply(reply.Response)
	}
	t.recordModelCall(ctx, e, attempt, reply.Response, took, err == nil)
	if err != nil {
		return reply, t.modelError(ctx, err)
	}
	t.hooks.afterModel(ctx, e.Key(), reply.Response, took)
	return reply, nil
}

// ask calls the model and shows watchers what it says, as it says it.
func (t *turn) ask(ctx context.Context, e effect, model llm.Model, request *llm.Request) (modelReply, error) {
	if limit := t.agent.ModelCallTimeout(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, usercode.ErrTimeout)
		defer cancel()
	}
	var (
		mu    sync.Mutex
		seen  sight
		quiet = true
		over  bool // the turn has gone on: a model that ignored the end is not heard
	)
	response, err := usercode.Call(ctx, t.pool, func() (*llm.Response, error) {
		return model.Generate(ctx, request, func(d llm.Delta) {
			mu.Lock()
			defer mu.Unlock()
			if over {
				return
			}
			quiet = false
			seen.add(d)
			t.emitDelta(e.Step, d)
		})
	})
	if errors.Is(err, usercode.ErrTimeout) {
		err = llm.Error(session.CodeModelTimeout, true, "the model did not answer within %s", t.agent.ModelCallTimeout())
	}
	mu.Lock()
	defer mu.Unlock()
	over = true
	return modelReply{Response: response, seen: seen.all(), quiet: quiet}, err
}

// sight is what watchers see of a reply: its text, parted where calls and
// reasoning, whose own text is not kept, come in between.
type sight struct {
	parts []session.Part
	text  strings.Builder // of the last part
}

func (s *sight) add(d llm.Delta) {
	var kind session.PartKind
	switch d.Kind {
	case llm.DeltaText:
		kind = session.PartText
	case llm.DeltaReasoning:
		kind = session.PartReasoning
	case llm.DeltaCallStart:
		kind = session.PartToolCall
	default:
		return
	}
	if kind != session.PartToolCall && d.Text == "" {
		return
	}
	if n := len(s.parts); n == 0 || s.parts[n-1].Kind != kind || kind == session.PartToolCall {
		s.parts = append(s.all(), session.Part{Kind: kind})
	}
	if kind == session.PartText {
		s.text.WriteString(d.Text)
	}
}

// all gives the parts so far.
func (s *sight) all() []session.Part {
	if s.text.Len() > 0 {
		s.parts[len(s.parts)-1].Text = s.text.String()
		s.text.Reset()
	}
	return s.parts
}

func checkReply(r *llm.Response) error {
	if r != nil {
		for i := range r.Parts {
			if p := &r.Parts[i]; p.Kind == session.PartToolCall || p.Kind == session.PartFile || p.Text != "" {
				return nil
			}
		}
	}
	return llm.Error(session.CodeBadReply, true, "the model returned an empty reply")
}

// modelError classifies what an adapter did not.
func (t *turn) modelError(ctx context.Context, err error) error {
	if p, ok := errors.AsType[*usercode.PanicError](err); ok {
		t.h.log.WarnContext(ctx, "model panicked", t.attrs("panic", p.Value, "stack", string(p.Stack))...)
	}
	if e, ok := errors.AsType[*session.Error](err); ok {
		if len(err.Error()) <= session.MaxSubmissionError {
			return err
		}
		return t.bounded(e)
	}
	return t.bounded((&session.Error{Code: session.CodeProvider}).WithCause(err, "the model call failed"))
}

func (t *turn) recordModelCall(ctx context.Context, e effect, attempt int, r *llm.Response, took time.Duration, ok bool) {
	entry := usage.Entry{
		ID: e.Key() + "/" + strconv.Itoa(attempt), Kind: usage.Tokens, Duration: took, Success: ok,
		Usage: session.Usage{ModelCalls: 1},
	}
	if r != nil {
		entry.Source = r.Model
		entry.Usage = r.Usage
		entry.Usage.ModelCalls = 1
	}
	t.usage = t.usage.Add(entry.Usage)
	t.record(ctx, e.Step, entry)
}

func (t *turn) emitDelta(step int, d llm.Delta) {
	c := stream.Chunk{Step: step, Delta: d.Text}
	switch d.Kind {
	case llm.DeltaText:
		c.Kind = stream.TextDelta
	case llm.DeltaReasoning:
		c.Kind = stream.Thinking
	case llm.DeltaCallStart:
		c.Kind, c.Tool = stream.ToolArgsStart, d.Tool
	case llm.DeltaCallArgs:
		c.Kind = stream.ToolArgsDelta
	case llm.DeltaCallEnd:
		c.Kind = stream.ToolArgsEnd
	default:
		return
	}
	switch c.Kind {
	case stream.ToolArgsStart, stream.ToolArgsDelta, stream.ToolArgsEnd:
		c.CallID = session.CallID(t.key.ID, session.ReplyID(t.run.ID, step), d.Index)
	default:
		if d.Text == "" {
			return
		}
	}
	t.out.Emit(c)
}

// request builds the model call. The transcript is known to be valid; a provider
// would refuse anything else.
func (t *turn) request(ctx context.Context, e effect) (*llm.Request, error) {
	if err := t.transcript.Sendable(); err != nil {
		return nil, err
	}
	instructions, err := fromState(ctx, t, e, "InstructionsFunc", t.agent.Instructions, t.agent.InstructionsFunc)
	if err != nil {
		return nil, err
	}
	settings, err := fromState(ctx, t, e, "SettingsFunc", t.agent.Settings, t.agent.SettingsFunc)
	if err != nil {
		return nil, err
	}
	request := &llm.Request{
		Agent: t.agent.Name, SessionID: t.key.ID, RunID: t.run.ID, Step: e.Step,
		Instructions: instructions, Messages: t.transcript.Messages(), Settings: settings,
	}
	request.Settings.Headers = maps.Clone(request.Settings.Headers) // hooks may change the request
	if e.Finish {
		request.Tools = []llm.Tool{finishTool(t.agent, settings.StrictOutput)}
		request.ToolChoice = llm.ToolChoice{Mode: llm.ToolNamed, Name: session.FinishTool}
		return request, nil
	}
	tools, err := offered(t.agent)
	if err != nil {
		return nil, err
	}
	request.Tools = tools
	if t.agent.Output != nil {
		request.Tools = append(request.Tools, finishTool(t.agent, settings.StrictOutput))
	}
	return request, nil
}

// fromState is a part of the agent's definition: fixed, or, if there is a function,
// what that makes of the state.
func fromState[V any](
	ctx context.Context, t *turn, e effect, name string, fixed V, compute func(context.Context, *helix.Prompt) (V, error),
) (V, error) {
	if compute == nil {
		return fixed, nil
	}
	draft := t.draft(t.hooks.written)
	prompt := &helix.Prompt{Scope: t.scope(e.Key(), draft), MessageCount: t.transcript.Len()}
	made, err := usercode.Call(ctx, t.pool, func() (V, error) { return compute(ctx, prompt) })
	if _, draftErr := draft.Close(); err == nil {
		err = draftErr
	}
	if err != nil {
		err = session.ErrInternal.WithCause(err, "agent %s: %s failed", t.agent.Name, name)
	}
	return made, err
}

// offered lists the tools of an agent, other agents included, but for that which
// finishes.
func offered(agent *helix.Agent) ([]llm.Tool, error) {
	var tools []llm.Tool
	for i := range agent.Tools {
		tool := &agent.Tools[i]
		schema, err := tool.Execute.InputSchema()
		if err != nil {
			return nil, err
		}
		tools = append(tools, llm.Tool{
			Name: tool.Name, Description: tool.Description, Schema: schema.JSON(), Strict: tool.Strict,
		})
	}
	for i := range agent.SubAgents {
		sub := &agent.SubAgents[i]
		tools = append(tools, llm.Tool{Name: sub.Tool(), Description: sub.About(), Schema: sub.InputSchema().JSON()})
	}
	return append(tools, companionTools(agent)...), nil
}

func finishTool(agent *helix.Agent, strict bool) llm.Tool {
	return llm.Tool{
		Name:        session.FinishTool,
		Description: "Finish with the final result. Call this once the task is done; its arguments are the result.",
		Schema:      agent.Output.Schema().JSON(),
		Strict:      strict,
	}
}

// takeReply makes a message of the model's answer, decides how each of its calls
// is carried out, and commits it where a call could be forgotten otherwise.
func (t *turn) takeReply(ctx context.Context, e effect, reply modelReply) (machine.Result, error) {
	f := t.newFlight(e, reply)
	if err := t.nameCompanions(ctx, f); err != nil {
		return machine.Result{}, err
	}
	t.gates(ctx, e, f)
	t.hooks.beforeClientTools(ctx, e.RunID, f)
	t.emitUnseen(f, reply)
	for _, c := range f.calls {
		if c.Kind != session.CallClient { // who sees such a call start may answer it
			t.emitStart(c)
		}
	}
	if ctx.Err() != nil { // user code was cut off: whoever comes next asks again
		return machine.Result{}, context.Cause(ctx)
	}
	t.mu.Lock()
	t.flight = f
	t.mu.Unlock()
	return t.sendReply(ctx, e, f)
}

func (t *turn) emitStart(c *call) {
	t.emit(stream.Chunk{Kind: stream.ToolStart, CallID: c.ID, Tool: c.Tool, Arguments: c.part.Input})
}

// emitUnseen shows watchers what the model did not stream: files, all text of a
// model that streams none, and everything, in order, of one that streams nothing.
func (t *turn) emitUnseen(f *flight, reply modelReply) {
	silent := !slices.ContainsFunc(reply.seen, func(p session.Part) bool { return p.Kind == session.PartText })
	for i := range f.reply.Parts {
		switch part := &f.reply.Parts[i]; {
		case part.Kind == session.PartFile:
			file := stream.File{URL: part.URL, MediaType: part.MediaType, Filename: part.Filename, Index: i}
			data, _ := session.Encode(file) // strings always encode
			t.emit(stream.Chunk{Kind: stream.FileOutput, Data: data})
		case part.Kind == session.PartText && silent:
			t.emit(stream.Chunk{Kind: stream.TextDelta, Delta: part.Text})
		case part.Kind == session.PartReasoning && reply.quiet && part.Text != "":
			t.emit(stream.Chunk{Kind: stream.Thinking, Delta: part.Text})
		case part.Kind == session.PartToolCall && reply.quiet:
			t.emit(stream.Chunk{Kind: stream.ToolArgsStart, CallID: part.CallID, Tool: part.Tool})
			t.emit(stream.Chunk{Kind: stream.ToolArgsEnd, CallID: part.CallID})
		}
	}
}

// sendReply makes the reply durable, if it has to be and is not yet. A commit
// that failed is sent again as it was: the model is not asked twice.
func (t *turn) sendReply(ctx context.Context, e effect, f *flight) (machine.Result, error) {
	if f.replyCommit == nil && !f.committed {
		if err := t.prepare(ctx, e, f); err != nil {
			return machine.Result{}, err
		}
	}
	if f.replyCommit != nil && !f.committed {
		done, err := t.commit(ctx, e.Key(), *f.replyCommit)
		if err != nil {
			return machine.Result{}, err
		}
		f.committed = true
		if len(f.calls) == 0 {
			t.out.Emit(stream.Chunk{Kind: stream.StepCommitted, Step: f.step, MessageID: f.reply.ID, CheckpointID: done.CheckpointID})
		}
	}
	t.announce(f)
	if len(f.calls) > 0 {
		return machine.Result{Next: machine.NextTools, Calls: f.plan()}, nil
	}
	t.mu.Lock()
	t.flight = nil
	t.mu.Unlock()
	return machine.Result{Next: f.next}, nil
}

// prepare prepares the reply's commit, where it needs one.
func (t *turn) prepare(ctx context.Context, e effect, f *flight) error {
	var err error
	switch {
	case len(f.calls) == 0:
		t.prepareText(ctx, e, f)
	case !f.readOnly():
		err = t.prepareReply(ctx, e, f)
	}
	if err == nil && ctx.Err() != nil { // hooks were cut off
		f.replyCommit = nil
		return context.Cause(ctx)
	}
	return err
}

func (t *turn) newFlight(e effect, reply modelReply) *flight {
	f := &flight{step: e.Step, reply: session.Message{
		ID: session.ReplyID(t.run.ID, e.Step), Role: session.RoleAssistant,
		RunID: t.run.ID, Step: e.Step, At: t.h.cfg.Now().UTC(),
	}}
	providerIDs := map[string]bool{}
	for _, part := range reply.Parts {
		part.Tool, part.ProviderCallID = cleanText(part.Tool), cleanText(part.ProviderCallID)
		part.Input, part.Provider = cleanJSON(part.Input), cleanJSON(part.Provider)
		if part.Kind != session.PartToolCall {
			if part.Text != "" || part.Kind == session.PartFile || len(part.Provider) > 0 {
				f.reply.Parts = append(f.reply.Parts, part)
			}
			continue
		}
		row := session.Call{
			MessageID: f.reply.ID, ID: session.CallID(t.key.ID, f.reply.ID, len(f.calls)),
			Index: len(f.calls), Tool: part.Tool, Status: session.CallOpen,
		}
		part.CallID = row.ID
		if part.ProviderCallID == "" || providerIDs[part.ProviderCallID] || session.CheckKeyID("id", part.ProviderCallID) != nil {
			part.ProviderCallID = row.ID // providers refuse an id that they repeated themselves
		}
		providerIDs[part.ProviderCallID] = true
		t.decide(&row, &part, e.Finish)
		f.reply.Parts = append(f.reply.Parts, part)
		f.calls = append(f.calls, &call{Call: row, part: part})
	}
	if reply.Finish == llm.FinishLength || reply.Finish == llm.FinishContentFilter {
		f.reply.Metadata = map[string]json.RawMessage{session.MetaFinish: encoded(reply.Finish)}
	}
	return f
}

// cleanText and cleanJSON replace what no store keeps; see [session.CheckText].
func cleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func cleanJSON(raw json.RawMessage) json.RawMessage {
	if utf8.Valid(raw) {
		return raw
	}
	return bytes.ToValidUTF8(raw, []byte("\uFFFD"))
}

// decide records how a call is carried out, or why it is not.
func (t *turn) decide(row *session.Call, part *session.Part, finishOnly bool) {
	row.Kind = session.CallServer
	if session.CheckKeyID("tool", part.Tool) != nil { // no store would keep it
		part.Tool, row.Tool = "unnamed", "unnamed"
	}
	if text := strings.TrimSpace(string(part.Input)); text == "" {
		part.Input = json.RawMessage("{}")
	}
	if !json.Valid(part.Input) || !utf8.Valid(part.Input) {
		row.Rejected = toolError(session.CodeToolInput, "the arguments of %s are not valid JSON", part.Tool)
		part.Input, _ = session.Encode(map[string]string{"invalid_arguments": string(part.Input)})
		return
	}
	// What follows judges, shows, stores and sends the input: all must read the same in it.
	if err := ambiguous(part.Input); err != nil {
		row.Rejected = toolError(session.CodeToolInput, "the input of %s does not fit: %v", part.Tool, err)
		return
	}
	if part.Tool == session.FinishTool && t.agent.Output != nil {
		row.Kind = session.CallFinish
		if err := t.agent.Output.Schema().Validate(part.Input); err != nil {
			row.Rejected = toolError(session.CodeToolInput, "the result does not fit: %v", err)
		}
		return
	}
	if t.decideAgent(row, part, finishOnly) {
		return
	}
	tool, ok := t.agent.Tool(part.Tool)
	switch {
	case !ok:
		row.Rejected = toolError(session.CodeToolUnknown, "there is no tool named %q", part.Tool)
		return
	case finishOnly:
		row.Rejected = toolError(session.CodeToolNotRun, "only %s may be called now", session.FinishTool)
		return
	}
	row.ReadOnly, row.Idempotent, row.FinishWith = tool.ReadOnly, tool.Idempotent, tool.FinishWith
	schema, err := tool.Execute.InputSchema()
	if err == nil {
		err = schema.ValidateInput(part.Input)
	}
	switch {
	case err != nil:
		row.Rejected = toolError(session.CodeToolInput, "the input of %s does not fit: %v", part.Tool, err)
	case tool.OnClient():
		row.Kind = session.CallClient
	}
}

func toolError(code session.Code, format string, args ...any) *session.Error {
	return (&session.Error{Code: code}).WithMessage(format, args...)
}

// readOnly reports whether the whole reply may be forgotten: nothing it leads to
// has an effect.
func (f *flight) readOnly() bool {
	for _, c := range f.calls {
		if machine.Waits(c.Kind) || (c.Kind != session.CallFinish && c.Rejected == nil && !c.ReadOnly) {
			return false
		}
	}
	return true
}

// prepareReply prepares the commit that makes the reply durable before any of its
// calls starts. It also claims the calls that this process starts next.
func (t *turn) prepareReply(ctx context.Context, e effect, f *flight) error {
	pending, err := t.begin(ctx, f)
	if err != nil {
		return err
	}
	t.hooks.onMessage(ctx, e.Key(), f.reply)
	change := &session.Change{
		Messages: []session.Message{f.reply}, Writes: t.hooks.written, Run: t.runChange(""), Pending: pending, Children: f.refs(t.run.ID),
	}
	t.emitPatches(change.Writes)
	for _, c := range f.calls {
		// A call of phase 2 begins only when all waits are over, which may be in another run.
		if !c.ReadOnly && c.Rejected == nil && c.Kind == session.CallServer && !(c.FinishWith && f.waits()) {
			c.Status, c.BegunAt, c.claimed = session.CallBegun, t.h.cfg.Now().UTC(), true
		}
		change.Calls = append(change.Calls, c.Call)
	}
	f.replyCommit = change
	return nil
}

// prepareText prepares the commit of a reply without calls, which ends the turn
// unless the agent owes an output.
func (t *turn) prepareText(ctx context.Context, e effect, f *flight) {
	t.hooks.onMessage(ctx, e.Key(), f.reply)
	change := &session.Change{
		Messages: []session.Message{f.reply}, StepCount: &f.step, Checkpoint: t.checkpoint(f.step, e.Key()),
	}
	f.next = machine.NextClose
	if t.agent.Output == nil {
		t.completeWith(f, change, session.ReasonReply, nil)
	} else if stop, err := t.stopWhen(ctx, e.Key(), f, nil, []session.Writes{t.hooks.written}); err != nil {
		t.fail(change, err)
	} else if stop {
		t.completeWith(f, change, session.ReasonStopWhen, nil)
	} else if f.next = t.afterStep(f.step, true); f.next == machine.NextClose {
		t.fail(change, noOutput(t.agent))
		change.Run = t.runChange(session.ReasonMaxSteps)
	}
	change.Writes = t.hooks.written
	t.emitPatches(change.Writes)
	if change.Run == nil {
		change.Run = t.runChange("")
	}
	f.replyCommit = change
}

func noOutput(agent *helix.Agent) *session.Error {
	return session.ErrNoOutput.WithMessage("agent %s did not finish with an output within its %d steps", agent.Name, agent.StepLimit())
}

// afterStep says what follows a step that did not end the turn: another one, a
// last one that can only finish, or nothing, because the limit is reached.
func (t *turn) afterStep(step int, owesOutput bool) machine.Next {
	limit := t.agent.StepLimit()
	switch {
	case limit == helix.Unlimited || step < limit:
		if owesOutput {
			return machine.NextFinish
		}
		return machine.NextModel
	case step == limit && t.agent.Output != nil:
		return machine.NextFinish
	}
	return machine.NextClose
}
