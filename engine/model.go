package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
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
		return t.replyStep(e).send(ctx, t.flight)
	}
	if err := t.sendMarker(ctx); err != nil {
		return machine.Result{}, err
	}
	if stop := t.stops.requested(); stop != nil {
		return t.endStopped(ctx, e, stop, modelReply{})
	}
	t.announceStart(ctx)
	if err := t.consumeInbox(ctx, e); err != nil {
		return machine.Result{}, err
	}
	if err := t.compact(ctx, e); err != nil {
		return t.cutShort(ctx, e, err)
	}
	if err := t.checkSize(ctx); err != nil {
		if session.IsRetryable(err) || ctx.Err() != nil {
			return machine.Result{}, err
		}
		return t.endFailed(ctx, e.Key(), session.AsError(err), false)
	}
	m := &modelCall{t: t, e: e}
	for {
		written := t.hooks.written
		reply, err := m.generate(ctx)
		switch {
		case err == nil:
			return t.replyStep(e).accept(ctx, reply)
		case t.stops.requested() != nil && errors.Is(err, errStopped):
			return t.endStopped(ctx, e, t.stops.requested(), reply)
		case ctx.Err() != nil:
			return machine.Result{}, context.Cause(ctx) // the process shuts down: the one that recovers the turn asks again
		}
		t.discardAttempt(reply.attempt, err)
		failure := session.AsError(err)
		if t.overflows(err) {
			t.hooks.written = written // hooks are told of the shorter prompt as of the first attempt
			if failure, err = t.relieve(ctx, e, err); err != nil {
				return t.cutShort(ctx, e, err)
			}
		}
		if failure != nil {
			return t.endFailed(ctx, e.Key(), failure, false)
		}
	}
}

// cutShort ends a compaction that did not end: because of a stop, or of an error after which
// the effect is tried again.
func (t *turn) cutShort(ctx context.Context, e effect, err error) (machine.Result, error) {
	if stop := t.stops.requested(); stop != nil && errors.Is(err, errStopped) {
		return t.endStopped(ctx, e, stop, modelReply{})
	}
	return machine.Result{}, err
}

// past is the result of an effect that was handled before and is delivered again:
// another step followed it.
func (t *turn) past(e effect) machine.Result {
	if e.Step == t.step && t.mustFinish() {
		return machine.Result{Next: machine.NextFinish}
	}
	return machine.Result{Next: machine.NextModel}
}

// discardAttempt tells watchers that what they saw of a failed attempt is void.
func (t *turn) discardAttempt(attempt int, err error) {
	t.emit(stream.Chunk{
		Kind: stream.StepDiscarded, Scope: stream.ScopeReply, Attempt: attempt, Reason: err.Error(),
		MessageID: session.ReplyID(t.run.ID, t.current()),
	})
}

// modelCall is one effect's call of the model. It belongs to the goroutine that
// handles the effect.
type modelCall struct {
	t        *turn
	e        effect
	attempts int // so far, with all prompts
}

// generate asks the extensions what they add, and then the model until it replies, is
// stopped, or has failed too often.
func (m *modelCall) generate(ctx context.Context) (modelReply, error) {
	ctx, cancel := m.t.stops.watch(ctx)
	defer cancel()
	if _, err := m.t.tools.attach(ctx, m.e.Key()); err != nil {
		return modelReply{}, err
	}
	if err := m.t.prepare(ctx, m.e); err != nil {
		return modelReply{}, err
	}
	cfg := &m.t.h.cfg
	for attempt := 1; ; attempt++ {
		m.attempts++
		reply, err := m.attempt(ctx, attempt)
		reply.attempt = m.attempts
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return reply, context.Cause(ctx)
		}
		if !session.IsRetryable(err) || attempt > cfg.ModelRetries {
			return reply, err
		}
		wait := backoff(cfg.RetryBackoff, attempt, err, rand.N[time.Duration])
		if wait > maxRetryAfter {
			return reply, err
		}
		m.t.discardAttempt(reply.attempt, err)
		m.t.h.log.WarnContext(ctx, "model.retried",
			m.t.attrs("attempt", reply.attempt, "wait", wait, "error", err)...)
		if err := retry.Sleep(ctx, wait); err != nil {
			return modelReply{attempt: reply.attempt}, err
		}
	}
}

// maxBackoff is the longest wait between attempts that a provider did not ask for.
const maxBackoff = time.Minute

// maxRetryAfter is the longest wait that a provider may ask for. A run that would wait
// longer fails at once: it would hold its session meanwhile, and nobody would see why.
const maxRetryAfter = 2 * time.Minute

// backoff is how long to wait after an attempt failed: as long as the provider says,
// else base, doubled with each attempt. Half of that is jitter, so that many
// sessions do not retry together; random returns a duration in [0, n).
func backoff(base time.Duration, attempt int, err error, random func(n time.Duration) time.Duration) time.Duration {
	if after, ok := errors.AsType[*llm.RetryAfterError](err); ok {
		return after.After
	}
	wait := min(base<<min(attempt-1, 16), maxBackoff)
	return wait/2 + random(wait/2+1)
}

// attempt asks the model once, for the first time or again with the same prompt.
func (m *modelCall) attempt(ctx context.Context, attempt int) (modelReply, error) {
	t, e := m.t, m.e
	in := t.promptInput(e)
	request, err := t.prompts.request(ctx, in)
	if err != nil {
		return modelReply{}, err
	}
	model, err := t.prompts.model(ctx, in)
	if err != nil {
		return modelReply{}, err
	}
	request.Retries = max(0, t.h.cfg.ModelRetries-attempt+1)
	t.context.chose(model)
	if err := t.hooks.beforeModel(ctx, e.Key(), helix.BeforeLLMCallEvent{Request: request, Attempt: attempt}); err != nil {
		return modelReply{}, err
	}

	attempt = m.attempts // from here on it identifies the attempt
	t.emit(stream.Chunk{Kind: stream.StepStarted, MessageID: session.ReplyID(t.run.ID, e.Step), Attempt: attempt})
	began := time.Now()
	prompt := t.h.digestPrompt(request)
	inner, seen := t.observe(ctx, helix.ActivityModel, e.Key(), t.agent.Name, "", attempt)
	reply, err := m.ask(inner, model, request)
	reply.prompt = prompt
	took := time.Since(began)
	if err == nil {
		err = checkReply(reply.Response)
	}
	if seen != nil {
		seen.end(m.ending(ctx, reply.Response, err))
	}
	m.record(ctx, attempt, reply.Response, took, err == nil)
	if err != nil {
		return reply, m.classify(ctx, err)
	}
	reply.Response = t.hooks.afterModel(ctx, e.Key(), helix.AfterLLMCallEvent{Response: reply.Response, Took: took})
	return reply, nil
}

// ask calls the model and shows watchers its output as it arrives.
func (m *modelCall) ask(ctx context.Context, model llm.Model, request *llm.Request) (modelReply, error) {
	t := m.t
	if limit := modelTimeout(t.agent); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, usercode.ErrTimeout)
		defer cancel()
	}
	var (
		mu    sync.Mutex // guards what follows: a model may stream on other goroutines
		seen  sight
		quiet = true
		over  bool // the turn has moved on: later deltas are dropped
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
			m.emitDelta(d)
		})
	})
	if errors.Is(err, usercode.ErrTimeout) {
		err = llm.Error(session.CodeModelTimeout, true, "the model did not answer within %s", modelTimeout(t.agent))
	}
	mu.Lock()
	defer mu.Unlock()
	over = true
	return modelReply{Response: response, seen: seen.all(), quiet: quiet}, err
}

func (m *modelCall) emitDelta(d llm.Delta) {
	c := stream.Chunk{Step: m.e.Step, Delta: d.Text}
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
		c.CallID = session.CallID(m.t.key.ID, session.ReplyID(m.t.run.ID, m.e.Step), d.Index)
	default:
		if d.Text == "" {
			return
		}
	}
	m.t.out.Emit(c)
}

// record reports the usage of an attempt and keeps it for the next commit.
func (m *modelCall) record(ctx context.Context, attempt int, r *llm.Response, took time.Duration, ok bool) {
	entry := usage.Entry{
		ID: m.t.underLease(m.e.Key() + "/" + strconv.Itoa(attempt)), Kind: usage.Tokens, Duration: took, Success: ok,
		Usage: session.Usage{ModelCalls: 1},
	}
	if r != nil {
		entry.Source = r.Model
		entry.Usage = r.Usage
		entry.Usage.ModelCalls = 1
	}
	m.t.used = m.t.used.Add(entry.Usage)
	m.t.usage.record(ctx, m.e.Step, entry)
}

// ending is how an attempt ended, for observers.
func (m *modelCall) ending(ctx context.Context, r *llm.Response, err error) helix.Ending {
	var e helix.Ending
	if err != nil {
		e.Error = session.AsError(m.classify(ctx, err))
	}
	if r != nil {
		e.Model, e.Usage = r.Model, r.Usage
	}
	e.Usage.ModelCalls = 1
	return e
}

// classify gives a code to an error to which the adapter gave none, and bounds its
// text.
func (m *modelCall) classify(ctx context.Context, err error) error {
	if p, ok := errors.AsType[*usercode.PanicError](err); ok {
		m.t.h.log.WarnContext(ctx, "model.panicked", m.t.attrs("panic", p.Value, "stack", string(p.Stack))...)
	}
	if e, ok := errors.AsType[*session.Error](err); ok {
		if len(err.Error()) <= session.MaxSubmissionError {
			return err
		}
		return bounded(e)
	}
	return bounded((&session.Error{Code: session.CodeProvider}).WithCause(err, "the model call failed"))
}

// sight is what watchers see of a reply: its text, split where calls and reasoning,
// whose own text is not kept, come in between.
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
	if kind != session.PartText {
		return
	}
	last := &s.parts[len(s.parts)-1]
	if last.Text == "" {
		last.Text = d.Text // what comes at once is not copied
		return
	}
	if s.text.Len() == 0 {
		s.text.WriteString(last.Text)
	}
	s.text.WriteString(d.Text)
}

// all returns the parts so far.
func (s *sight) all() []session.Part {
	if s.text.Len() > 0 {
		s.parts[len(s.parts)-1].Text = s.text.String()
		s.text.Reset()
	}
	return s.parts
}

// maxCalls is how many calls a reply may make. They run at the same time.
const maxCalls = 256

// checkReply refuses a reply that says nothing and calls nothing, or makes too many
// calls.
func checkReply(r *llm.Response) error {
	calls, empty := 0, true
	if r != nil {
		for i := range r.Parts {
			p := &r.Parts[i]
			if p.Kind == session.PartToolCall {
				calls++
			}
			if p.Kind == session.PartToolCall || p.Kind == session.PartFile || p.Text != "" {
				empty = false
			}
		}
	}
	switch {
	case empty:
		return llm.Error(session.CodeBadReply, true, "the model returned an empty reply")
	case calls > maxCalls:
		return llm.Error(session.CodeBadReply, false, "the model made %d calls in one reply, at most %d are allowed", calls, maxCalls)
	}
	return nil
}
