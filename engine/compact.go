package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/tokens"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// compaction is one attempt to make the conversation of a turn shorter. It belongs to the
// goroutine that makes it.
type compaction struct {
	t      *turn
	policy *helix.ContextPolicy
	in     *promptInput
	key    string // of the attempt
	quiet  bool   // nobody watches: there is no run
	forced bool   // the provider refused the prompt

	view  []session.Message
	floor int     // the first message of the view that no marker wrote
	size  float64 // of the prompt, in tokens
	ratio float64 // by which estimates are multiplied
}

// newCompaction looks at the conversation as it is.
func (t *turn) newCompaction(in *promptInput) *compaction {
	t.context.update(t.transcript)
	c := &compaction{
		t: t, policy: t.context.policy, in: in, key: in.key + "/compact/" + strconv.Itoa(t.transcript.Len()),
		view: t.transcript.View(), size: t.context.meter.Size(), ratio: t.context.meter.Ratio(),
	}
	if len(c.view) > 0 && c.view[0].Compaction() != nil {
		c.floor = 1
	}
	return c
}

// Shares that decide whether a compaction suffices.
const (
	// enough is the share of the trigger that the prompt may have afterwards.
	enough = 0.7
	// shorter is the share of what it replaces that a summary must stay below.
	shorter = 0.7
	// worthwhile is the least share of the prompt that a trim must remove which is not enough.
	worthwhile = 0.1
)

// compact makes the conversation shorter before the model is asked, if the agent's policy
// says so. It never does when the last message is a marker: a process that takes over after
// the marker's commit would compact what was just compacted.
func (t *turn) compact(ctx context.Context, e effect) error {
	if t.context.policy == nil || len(t.prepared) > 0 { // watchers saw the prepared messages, which nothing may come before
		return nil
	}
	messages := t.transcript.Messages()
	if messages[len(messages)-1].Compaction() != nil {
		return nil
	}
	s := &t.context
	t.learnWindow(ctx, e)
	s.update(t.transcript)
	if size := s.meter.Size(); s.isFutile(size) || !s.isNear(size) && !s.byTokens(size) && !s.byMessages() {
		return nil
	}
	c := t.newCompaction(t.promptInput(e))
	inner, cancel := t.stops.watch(ctx)
	defer cancel()
	if s.isNear(c.size) {
		c.count(inner)
	}
	if !s.byTokens(c.size) && !s.byMessages() {
		return nil
	}
	made, err := c.regular(inner)
	if err != nil || made == nil {
		return err
	}
	return t.mark(ctx, e, made)
}

// promptInput is what requests of an effect are made from.
func (t *turn) promptInput(e effect) *promptInput {
	return &promptInput{key: e.Key(), step: e.Step, finishOnly: e.Finish, transcript: t.transcript, prepared: t.prepared, written: t.hooks.written}
}

// regular makes a marker because of a trigger: a trim if that suffices, else a summary. It is
// nil if neither helps.
func (c *compaction) regular(ctx context.Context) (*Marker, error) {
	keep := c.keepFrom()
	gain := c.trimGain(keep)
	if !c.t.context.byMessages() && gain > 0 && c.size-gain <= enough*c.t.context.trigger() {
		return c.trim(ctx, keep, gain), nil
	}
	if cut := c.cutFrom(keep); c.mayGain(cut) {
		made, err := c.summary(ctx, cut)
		if err == nil || ctx.Err() != nil {
			return made, err
		}
		c.tried(ctx, err)
	}
	if gain >= worthwhile*c.size {
		return c.trim(ctx, keep, gain), nil
	}
	s := &c.t.context
	s.futile = &session.Uncompacted{Tokens: int64(s.meter.Size()), Messages: s.messages}
	return nil, nil
}

// tried notes that a summary was asked for in vain.
func (c *compaction) tried(ctx context.Context, err error) {
	s := &c.t.context
	s.tried, s.untold = &session.Uncompacted{Tokens: int64(c.size), Messages: s.messages}, true
	c.t.h.log.WarnContext(ctx, "compaction.failed", c.t.attrs("error", err, "effect", "the conversation stays as it is")...)
	c.tell(helix.CompactedEvent, c.failure(err))
}

// countLimit is how long a provider may take to count the tokens of a prompt.
const countLimit = 5 * time.Second

// count replaces an estimate by the provider's own count, if the provider counts. Without an
// answer the estimate stands. Nothing is sent that hooks might want to change or refuse: to
// them, a count is not a model call.
func (c *compaction) count(ctx context.Context) {
	t := c.t
	if t.hooks.changeRequests() {
		return
	}
	model, err := t.prompts.model(ctx, c.in)
	if err != nil {
		return
	}
	if _, err := t.tools.attach(ctx, c.in.key); err != nil {
		return
	}
	request, err := t.prompts.request(ctx, c.in)
	if err != nil {
		return
	}
	n, err := within(ctx, t.pool, countLimit, func(ctx context.Context) (int, error) { return llm.CountTokens(ctx, model, request) })
	switch {
	case err == nil && n > 0:
		t.context.meter.Counted(n)
		c.size = float64(n)
	case err != nil && !errors.Is(err, errors.ErrUnsupported) && ctx.Err() == nil:
		t.h.log.WarnContext(ctx, "tokens.not_counted", t.attrs("error", err, "effect", "the estimate stands")...)
	}
}

// keepFrom is the first message of the view that the policy keeps. It is never within a reply
// and its results.
func (c *compaction) keepFrom() int {
	at := len(c.view)
	if budget := float64(c.policy.KeepTokens); budget > 0 {
		for at > c.floor {
			budget -= tokens.Message(&c.view[at-1]) * c.ratio
			if budget < 0 && at < len(c.view) {
				break
			}
			at--
		}
	} else {
		for left := c.policy.KeepMessages; at > c.floor && left > 0; {
			if at--; counts(&c.view[at]) {
				left--
			}
		}
	}
	return c.boundary(at)
}

// boundary moves a place of the view back to where the conversation may be cut: not between a
// reply and its results, and not behind what the model is yet to answer.
func (c *compaction) boundary(at int) int {
	at = min(at, len(c.view)-unanswered(c.view))
	for at > c.floor && at < len(c.view) && c.view[at].Role == session.RoleTool {
		at--
	}
	return max(at, c.floor)
}

// unanswered is how many messages at the end of a view must be kept: what users said since the
// last reply, or a reply that the model is to finish.
func unanswered(view []session.Message) int {
	n := 0
	for n < len(view) && view[len(view)-1-n].Role == session.RoleUser && view[len(view)-1-n].Compaction() == nil {
		n++
	}
	if n == 0 && len(view) > 0 && view[len(view)-1].Role == session.RoleAssistant {
		return 1
	}
	return n
}

// lastAsked is the place of the last message that people see and the user wrote, with those
// directly before it, or -1 if there is none.
func (c *compaction) lastAsked() int {
	for i := len(c.view) - 1; i >= c.floor; i-- {
		if !visible(&c.view[i]) {
			continue
		}
		for i > c.floor && visible(&c.view[i-1]) {
			i--
		}
		return i
	}
	return -1
}

// visible reports whether a message is one of the user that people see.
func visible(m *session.Message) bool { return m.Role == session.RoleUser && !m.Hidden() }

// cutFrom is where a summary ends, for what the policy keeps: not behind the user's last
// message, unless the turn since then is by itself too long for the triggers. A summary that
// ends behind it repeats the message word for word.
func (c *compaction) cutFrom(keep int) int {
	asked := c.lastAsked()
	if asked < 0 || keep <= asked {
		return keep
	}
	s := &c.t.context
	left := c.size
	if asked > c.floor { // else nothing before it would be replaced, not even the earlier summary
		left -= tokens.Messages(c.view[:asked]) * c.ratio
	}
	tooLong := s.trigger() > 0 && left > enough*s.trigger() ||
		c.policy.TriggerMessages > 0 && float64(countMessages(c.view[asked:])) > enough*float64(c.policy.TriggerMessages)
	if tooLong {
		return keep
	}
	return asked
}

// trimGain is about how many tokens fewer the prompt has if what is before a place of the view
// is trimmed.
func (c *compaction) trimGain(before int) float64 {
	limits := c.limits()
	if limits.Arguments == 0 && limits.Results == 0 {
		return 0
	}
	gain := 0.0
	for i := c.floor; i < before; i++ {
		m := &c.view[i]
		if cut := limits.Trim(m); cut != nil {
			gain += tokens.Message(m) - tokens.Message(cut)
		}
	}
	return gain * c.ratio
}

// keptTools are tools whose arguments and results are neither trimmed nor evicted: the model
// follows what they returned for as long as it sees it.
var keptTools = []string{"load_skill"}

// limits are what the policy trims to.
func (c *compaction) limits() session.Compaction {
	return session.Compaction{
		Kind: session.CompactionTrim, Arguments: max(0, c.policy.TrimArguments), Results: max(0, c.policy.TrimResults), Except: keptTools,
	}
}

// trimmedText is the text of a trim, which people do not see and models are not sent.
const trimmedText = "Large arguments and results of calls before this point are sent cut."

// trim makes the marker of a trim of what is before a place of the view.
func (c *compaction) trim(ctx context.Context, before int, gain float64) *Marker {
	_, seen := c.t.observe(ctx, helix.ActivityCompaction, c.key+"/trim", string(session.CompactionTrim), "", 0)
	seen.end(helix.Ending{})
	made := &Marker{Text: trimmedText, Compaction: c.limits()}
	made.Kept = c.keptBehind(before)
	c.measure(made, c.size-gain)
	return made
}

// measure sets the sizes of a marker.
func (c *compaction) measure(m *Marker, after float64) {
	m.TokensBefore, m.TokensAfter, m.Forced = int64(c.size), max(1, int64(after)), c.forced
}

// keptBehind is how many messages of the transcript are from a place of the view on. Markers
// among them are not in the view.
func (c *compaction) keptBehind(at int) int {
	messages := c.t.transcript.Messages()
	left, n := len(c.view)-at, 0
	for left > 0 && n < len(messages) {
		if n++; messages[len(messages)-n].Compaction() == nil {
			left--
		}
	}
	return n
}

// tell shows the readers of the stream what happens to the conversation. The chunk belongs to
// the step before, as that of the marker does.
func (c *compaction) tell(event string, what helix.Compacted) {
	if !c.quiet {
		c.t.out.Emit(stream.Chunk{Kind: stream.Custom, Step: max(c.t.step, 0), Name: event, Data: encoded(what)})
	}
}

// prepared reports whether an extension added the message to the conversation.
func prepared(m *session.Message) bool {
	return m.Role == session.RoleUser && m.RunID != "" && strings.HasPrefix(m.ID, m.RunID+preparedInfix)
}
