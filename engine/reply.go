package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// modelReply is a model's reply, and what watchers saw of it.
type modelReply struct {
	*llm.Response
	seen    []session.Part // the text that was streamed, and where calls began in it
	quiet   bool           // nothing was streamed
	attempt int
	prompt  json.RawMessage // the digest of the request; see [Handler.digestPrompt]
}

// kept is what a stop keeps of a reply: the text that watchers saw, and complete
// calls, in the places in which watchers saw them begin. Reasoning is not kept.
func (r *modelReply) kept() []session.Part {
	var parts, calls []session.Part
	if r.Response != nil {
		for _, part := range r.Parts {
			if part.Kind == session.PartToolCall {
				calls = append(calls, part)
			}
		}
	}
	for _, part := range r.seen {
		switch {
		case part.Kind == session.PartText:
			parts = append(parts, part)
		case part.Kind == session.PartToolCall && len(calls) > 0:
			parts, calls = append(parts, calls[0]), calls[1:]
		}
	}
	return append(parts, calls...)
}

// replyStep commits the model's reply of a step. It belongs to the goroutine that
// handles the model call.
type replyStep struct {
	t *turn
	e effect
}

func (t *turn) replyStep(e effect) *replyStep { return &replyStep{t: t, e: e} }

// accept makes a message of the model's reply, resolves its calls, and commits the
// reply if a crash could lose a call otherwise.
func (r *replyStep) accept(ctx context.Context, reply modelReply) (machine.Result, error) {
	f := r.newFlight(reply)
	r.t.tools.askGates(ctx, r.e.RunID, f, r.t.hooks.written)
	if err := r.bindCompanions(ctx, f); err != nil {
		return machine.Result{}, err
	}
	r.t.tools.requireApprovals(ctx, r.e.Key(), f, r.t.hooks.written)
	r.t.hooks.beforeClientTools(ctx, r.e.RunID, f)
	r.emitUnseen(f, reply)
	for _, c := range f.calls {
		if c.Kind != session.CallClient { // a watcher who sees such a call start may answer it
			r.t.emitStart(c)
		}
	}
	if ctx.Err() != nil { // user code was cut off: the process that recovers the turn asks again
		return machine.Result{}, context.Cause(ctx)
	}
	r.t.setFlight(f)
	return r.send(ctx, f)
}

func (t *turn) emitStart(c *call) {
	t.emit(stream.Chunk{Kind: stream.ToolStart, CallID: c.ID, Tool: c.Tool, Arguments: c.part.Input})
}

// emitUnseen shows watchers what the model did not stream: files, the text of a model
// that streams no text, and everything of a model that streams nothing.
func (r *replyStep) emitUnseen(f *flight, reply modelReply) {
	silent := !slices.ContainsFunc(reply.seen, func(p session.Part) bool { return p.Kind == session.PartText })
	for i := range f.reply.Parts {
		switch part := &f.reply.Parts[i]; {
		case part.Kind == session.PartFile:
			file := stream.File{URL: part.URL, MediaType: part.MediaType, Filename: part.Filename, Index: i}
			data, _ := session.Encode(file) // strings always encode
			r.t.emit(stream.Chunk{Kind: stream.FileOutput, Data: data})
		case part.Kind == session.PartText && silent:
			r.t.emit(stream.Chunk{Kind: stream.TextDelta, Delta: part.Text})
		case part.Kind == session.PartReasoning && reply.quiet && part.Text != "":
			r.t.emit(stream.Chunk{Kind: stream.Thinking, Delta: part.Text})
		case part.Kind == session.PartToolCall && reply.quiet:
			r.t.emit(stream.Chunk{Kind: stream.ToolArgsStart, CallID: part.CallID, Tool: part.Tool})
			r.t.emit(stream.Chunk{Kind: stream.ToolArgsEnd, CallID: part.CallID})
		}
	}
}

// send commits the reply, if that is necessary and has not been done. A commit that
// failed is sent again unchanged, so that the model is not asked twice.
func (r *replyStep) send(ctx context.Context, f *flight) (machine.Result, error) {
	if f.replyCommit == nil && !f.committed {
		if err := r.prepare(ctx, f); err != nil {
			return machine.Result{}, err
		}
	}
	if f.replyCommit != nil && !f.committed {
		done, err := r.t.commit(ctx, f.replyCommit)
		if err != nil {
			return machine.Result{}, err
		}
		f.committed = true
		if len(f.calls) == 0 {
			r.t.out.Emit(stream.Chunk{Kind: stream.StepCommitted, Step: f.step, MessageID: f.reply.ID, CheckpointID: done.CheckpointID})
		}
	}
	r.t.waits(f).announce()
	if len(f.calls) > 0 {
		return machine.Result{Next: machine.NextTools, Calls: f.plan()}, nil
	}
	r.t.setFlight(nil)
	return machine.Result{Next: f.next}, nil
}

// prepare makes the reply's commit, if the reply needs one.
func (r *replyStep) prepare(ctx context.Context, f *flight) error {
	var err error
	switch {
	case len(f.calls) == 0:
		r.prepareText(ctx, f)
	case !f.readOnly():
		err = r.prepareCalls(ctx, f)
	}
	if err == nil && ctx.Err() != nil { // hooks were cut off
		f.replyCommit = nil
		return context.Cause(ctx)
	}
	return err
}

func (r *replyStep) newFlight(reply modelReply) *flight {
	f := &flight{step: r.e.Step, reply: session.Message{
		ID: session.ReplyID(r.t.run.ID, r.e.Step), Role: session.RoleAssistant,
		RunID: r.t.run.ID, Step: r.e.Step, At: time.Now().UTC(),
	}}
	f.reply.Parts = make([]session.Part, 0, len(reply.Parts))
	providerIDs := map[string]bool{}
	room := r.t.h.cfg.MaxArguments
	for _, part := range reply.Parts {
		part.Tool, part.ProviderCallID = cleanText(part.Tool), cleanText(part.ProviderCallID)
		part.Input, part.Provider = cleanJSON(part.Input), cleanJSON(part.Provider)
		if part.Kind != session.PartToolCall {
			if part.Text != "" || part.Kind == session.PartFile || len(part.Provider) > 0 {
				f.reply.Parts = append(f.reply.Parts, part)
			}
			continue
		}
		c := &call{part: part, Call: session.Call{
			MessageID: f.reply.ID, ID: session.CallID(r.t.key.ID, f.reply.ID, len(f.calls)),
			Index: len(f.calls), Tool: part.Tool, Status: session.CallOpen,
		}}
		c.part.CallID = c.ID
		if part.ProviderCallID == "" || providerIDs[part.ProviderCallID] || session.CheckKeyID("id", part.ProviderCallID) != nil {
			c.part.ProviderCallID = c.ID // providers refuse ids that they repeated themselves
		}
		providerIDs[c.part.ProviderCallID] = true
		size := len(c.part.Input)
		if r.t.tools.resolve(&c.Call, &c.part, room, r.e.Finish); size <= room {
			room -= size
		}
		f.reply.Parts = append(f.reply.Parts, c.part)
		f.calls = append(f.calls, c)
	}
	f.reply.Metadata = reply.metadata()
	if size := &r.t.context; size.untold {
		f.reply.Metadata[session.MetaUncompacted] = encoded(size.tried)
	}
	if reply.Finish == llm.FinishLength || reply.Finish == llm.FinishContentFilter {
		f.reply.Metadata[session.MetaFinish] = encoded(reply.Finish)
	}
	return f
}

// metadata says what the reply cost and what it was made with, as far as that is
// known.
func (r *modelReply) metadata() map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, 3)
	if r.prompt != nil {
		out[session.MetaPrompt] = r.prompt
	}
	if r.Response != nil {
		u := session.ReplyUsage{
			Model: cleanText(r.Model), In: r.Usage.InputTokens, Out: r.Usage.OutputTokens,
			CacheRead: r.Usage.CacheReadTokens, CacheWrite: r.Usage.CacheWriteTokens,
		}
		out[session.MetaUsage] = u.AppendJSON(make([]byte, 0, 64+len(u.Model)))
	}
	return out
}

// cleanText and cleanJSON replace what stores do not accept; see [session.CheckText].
func cleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func cleanJSON(raw json.RawMessage) json.RawMessage {
	if utf8.Valid(raw) {
		return raw
	}
	return bytes.ToValidUTF8(raw, []byte("\uFFFD"))
}

// prepareCalls makes the commit that stores the reply before any of its calls starts.
// It also claims the calls that this process starts next.
func (r *replyStep) prepareCalls(ctx context.Context, f *flight) error {
	pending, err := r.t.waits(f).entries(ctx)
	if err != nil {
		return err
	}
	r.t.hooks.onMessage(ctx, r.e.Key(), f.reply)
	change := session.Change{
		Messages: r.t.withPrepared(f.reply), Writes: r.t.hooks.written, Run: r.t.runChange(""), Pending: pending, Children: f.refs(r.t.run.ID),
		Calls: make([]session.Call, 0, len(f.calls)),
	}
	r.t.emitPatches(change.Writes)
	behind := false // whether a serial call came before
	for _, c := range f.calls {
		// A call of phase 2 begins when all waits have ended, and a serial call when those
		// before it have, which may be in another run.
		later := (c.FinishWith && f.waits()) || (c.Serial && behind)
		if !c.ReadOnly && c.Rejected == nil && c.Kind == session.CallServer && !later {
			c.Status, c.BegunAt, c.claimed = session.CallBegun, time.Now().UTC(), true
		}
		behind = behind || c.Serial
		change.Calls = append(change.Calls, c.Call)
	}
	f.replyCommit = r.t.newCommit(r.e.Key(), change)
	return nil
}

// prepareText makes the commit of a reply without calls. It ends the turn, unless the
// agent has an output type.
func (r *replyStep) prepareText(ctx context.Context, f *flight) {
	r.t.hooks.onMessage(ctx, r.e.Key(), f.reply)
	commit := r.t.newCommit(r.e.Key(), session.Change{
		Messages: r.t.withPrepared(f.reply), StepCount: &f.step, Checkpoint: r.t.checkpoint(f.step, r.e.Key()),
	})
	change := &commit.Change
	f.next = machine.NextClose
	if r.t.agent.Output == nil {
		r.t.completeWith(f, change, session.ReasonReply, nil)
	} else if stop, err := r.t.stopWhen(ctx, r.e.Key(), f, []session.Writes{r.t.hooks.written}); err != nil {
		r.t.fail(change, err)
	} else if stop {
		r.t.completeWith(f, change, session.ReasonStopWhen, nil)
	} else if f.next = afterStep(r.t.agent, f.step, true); f.next == machine.NextClose {
		r.t.fail(change, noOutput(r.t.agent))
		change.Run = r.t.runChange(session.ReasonMaxSteps)
	}
	change.Writes = r.t.hooks.written
	r.t.emitPatches(change.Writes)
	if change.Run == nil {
		change.Run = r.t.runChange("")
	}
	change.Tasks = r.t.stepTasks(ctx, r.e.Key(), f)
	r.t.finishTasks(ctx, r.e.Key(), change)
	f.replyCommit = commit
}

func noOutput(agent *helix.Agent) *session.Error {
	return session.ErrNoOutput.WithMessage("agent %s did not finish with an output within its %d steps", agent.Name, stepLimit(agent))
}

// afterStep says what follows a step that did not end the turn: another step, a last
// one in which the model can only finish, or the end, because the step limit is
// reached. mustFinish is set if the model was to finish in this step.
func afterStep(agent *helix.Agent, step int, mustFinish bool) machine.Next {
	limit := stepLimit(agent)
	switch {
	case limit == helix.Unlimited || step < limit:
		if mustFinish {
			return machine.NextFinish
		}
		return machine.NextModel
	case step == limit && agent.Output != nil:
		return machine.NextFinish
	}
	return machine.NextClose
}
