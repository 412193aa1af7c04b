package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/helixagents/helix/internal/tokens"
	"github.com/helixagents/helix/session"
)

// maxForced is how often the conversation is compacted within a step because the provider
// refuses the prompt.
const maxForced = 2

// overflows reports whether a model call failed because the prompt is too long, and the
// agent's policy says what to do about it.
func (t *turn) overflows(err error) bool {
	e, ok := errors.AsType[*session.Error](err)
	return ok && e.Code == session.CodeContextLength && t.context.policy != nil
}

// relieve makes the conversation shorter after the provider refused the prompt, so that the
// model can be asked again. refused is the error that the run fails with if that cannot be
// done.
func (t *turn) relieve(ctx context.Context, e effect, refusal error) (refused *session.Error, err error) {
	if t.forced() >= maxForced {
		return t.tooLong(refusal), nil
	}
	t.withdrawPrepared("the prompt is too long") // the extensions are asked again
	t.asked = 0
	c := t.newCompaction(t.promptInput(e))
	c.forced, c.key = true, c.key+"/forced" // a regular one may have been tried in vain
	inner, cancel := t.stops.watch(ctx)
	defer cancel()
	made, err := c.shrink(inner)
	if err != nil {
		return nil, err
	}
	if made == nil {
		return t.tooLong(refusal), nil
	}
	t.h.log.WarnContext(ctx, "compaction.forced", t.attrs("kind", made.Kind, "tokensBefore", made.TokensBefore, "tokensAfter", made.TokensAfter, "error", refusal)...)
	return nil, t.mark(ctx, e, made)
}

// forced is how often the conversation was compacted because the provider refused the prompt
// that is asked next. The markers say so, whichever process wrote them.
func (t *turn) forced() (n int) {
	messages := t.transcript.Messages()
	for i := len(messages) - 1; i >= 0 && messages[i].Role == session.RoleUser && messages[i].Hidden(); i-- {
		if c := messages[i].Compaction(); c != nil && c.Forced {
			n++
		}
	}
	return n
}

// half is the share of the prompt that is to be left of one that the provider refused. Nobody
// says how much too long it is.
const half = 0.5

// shrink makes a marker that leaves about half of the prompt: a trim if that suffices, else a
// summary. It is nil if the prompt cannot become shorter.
func (c *compaction) shrink(ctx context.Context) (*Marker, error) {
	// An estimate may be far too low, for example of a file. It is no reason to give up.
	size := max(c.size, float64(c.t.context.window))
	asked := c.lastAsked()
	for _, before := range []int{asked, len(c.view)} {
		if gain := c.trimGain(before); gain > 0 && size-gain <= half*size {
			return c.trim(ctx, before, gain), nil
		}
	}
	cut := asked
	if cut < c.floor || size-tokens.Messages(c.view[:cut])*c.ratio > half*size {
		cut = c.halfFrom(size)
	}
	if c.mayGain(cut) {
		made, err := c.summary(ctx, cut)
		if err == nil || ctx.Err() != nil {
			return made, err
		}
		c.tried(ctx, err)
	}
	if gain := c.trimGain(len(c.view)); gain >= worthwhile*c.size {
		return c.trim(ctx, len(c.view), gain), nil
	}
	return nil, nil
}

// halfFrom is the first message of the longest end of the view that has at most half of what
// is to be left of a prompt of a size, and at most half of the messages, so that some are
// always cut. What the model is yet to answer is always part of it.
func (c *compaction) halfFrom(size float64) int {
	last := len(c.view) - unanswered(c.view)
	at, left := len(c.view), half*min(half*size/c.ratio, tokens.Messages(c.view[c.floor:]))
	for at > c.floor {
		if left -= tokens.Message(&c.view[at-1]); left < 0 {
			break
		}
		at--
	}
	for at < last && c.view[at].Role == session.RoleTool { // its reply is too much
		at++
	}
	return min(at, last)
}

// tooLong is the error of a run whose prompt is too long and cannot become shorter.
func (t *turn) tooLong(refusal error) *session.Error {
	out := *session.AsError(refusal)
	out.Cause = nil
	out.Message = session.TrimText(out.Message, 2<<10) + "; the conversation cannot be made shorter"
	view := t.transcript.View()
	largest, size := -1, 0.0
	for i := range view {
		if n := tokens.Message(&view[i]); n > size {
			largest, size = i, n
		}
	}
	if largest >= 0 {
		m := &view[largest]
		what := map[session.Role]string{session.RoleUser: "a message of the user", session.RoleAssistant: "a reply", session.RoleTool: "a result"}[m.Role]
		if m.Role == session.RoleTool {
			what += " of " + m.Parts[0].Tool
		} else if m.Compaction() != nil {
			what = "a summary"
		}
		out.Message += fmt.Sprintf(": its largest message is %s, %s of about %d tokens", m.ID, what, int(size*t.context.meter.Ratio()))
	}
	return bounded(&out)
}
