package helix

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// The numbers of a [ContextPolicy] whose fields are 0.
const (
	DefaultTriggerMessages = 50
	DefaultTriggerTokens   = 80_000
	DefaultTriggerFraction = 0.85
	DefaultKeepMessages    = 20
	DefaultTrimArguments   = 2_000
	DefaultTrimResults     = 4_000
)

// Limits of a [ContextPolicy].
const (
	maxContextPrompt = 64 << 10
	maxEvictExcept   = 256
	// minEvict is the least that EvictOver may be: what is less is not worth a call that
	// reads it back.
	minEvict = 1_000
)

// ContextPolicy keeps the conversation that a model is sent within bounds. When a trigger is
// reached before a model call, large arguments and results of earlier calls are sent cut; if
// that is not enough, a summary takes the place of the conversation's beginning. The history
// stays whole: both are markers in it, see [session.Compaction].
//
// Beside the triggers, a provider's refusal of a prompt that is too long leads to a
// compaction, at most twice per step, before the run fails with that error. Whatever is
// compacted, the last message of the user is not lost: it is kept, or the summary repeats it
// word for word, up to 8 KiB of text and 8 files of together 4 MiB. After a refusal it repeats
// no files, because one of them may be what is too long.
//
// Hooks are called for the model calls that write summaries: see [BeforeLLMCallEvent].
//
// A summary that cannot be made, or that is hardly shorter than what it would replace, is not
// used, and it is tried again only when the prompt has grown by a tenth.
type ContextPolicy struct {
	// TriggerMessages is the number of messages from which on the conversation is compacted.
	// Hidden messages, such as those that extensions add, do not count. Defaults to 50;
	// [Unlimited] for never, which suits agents that work with many tools.
	TriggerMessages int
	// TriggerTokens is the size of the prompt from which on it is. The size is what the model
	// reported for its last reply, and an estimate of what came after it. Defaults to 80,000;
	// [Unlimited] for never.
	TriggerTokens int
	// TriggerFraction is the share of the model's context window from which on it is, if the
	// model knows its window; see [llm.Windowed]. Defaults to 0.85; [Unlimited] for never.
	TriggerFraction float64
	// KeepMessages is how many of the last messages stay as they are. Defaults to 20. It must be
	// less than TriggerMessages.
	KeepMessages int
	// KeepTokens, if it is not 0, keeps as many of the last messages as have together at most
	// so many tokens, in place of KeepMessages. It must be less than what triggers.
	KeepTokens int
	// Model writes the summaries. Defaults to the agent's model, which reads the conversation
	// from its prompt cache if [llm.Settings.Cache] asks for one.
	Model llm.Model
	// Prompt asks for a summary. It must contain {messages}, the conversation as text, and may
	// contain {previous}, the summary before. Defaults to a prompt that asks for the user's
	// intent, a summary, artefacts and next steps.
	Prompt string
	// TrimArguments and TrimResults are how many bytes the arguments and the result of a call
	// before the kept messages may have; larger ones are cut to that. They default to 2,000 and
	// 4,000; [Unlimited] for never.
	TrimArguments int
	TrimResults   int
	// EvictOver, if it is not 0, is how many bytes the result of a call may have. A larger one
	// is kept as a blob of the session, and the model is sent its beginning and its end, and
	// how to read the rest. Defaults to 0, which is never; 80,000 is a good number.
	EvictOver int
	// EvictExcept are names of tools whose results are not evicted, beside those that read
	// what was evicted and load_skill.
	EvictExcept []string
}

// WithDefaults returns the policy with the numbers that its fields default to. That of a nil
// policy is the default policy.
func (p *ContextPolicy) WithDefaults() ContextPolicy {
	var out ContextPolicy
	if p != nil {
		out = *p
	}
	for _, d := range []struct {
		field *int
		value int
	}{
		{&out.TriggerMessages, DefaultTriggerMessages},
		{&out.TriggerTokens, DefaultTriggerTokens},
		{&out.KeepMessages, DefaultKeepMessages},
		{&out.TrimArguments, DefaultTrimArguments},
		{&out.TrimResults, DefaultTrimResults},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if out.TriggerFraction == 0 {
		out.TriggerFraction = DefaultTriggerFraction
	}
	return out
}

// Check returns an error that names the field if the policy is invalid.
func (p *ContextPolicy) Check() error {
	for _, n := range []struct {
		field     string
		value     int
		unlimited bool // it may be Unlimited
		least     int  // unless it is 0
	}{
		{"TriggerMessages", p.TriggerMessages, true, 2},
		{"TriggerTokens", p.TriggerTokens, true, 1},
		{"KeepMessages", p.KeepMessages, false, 1},
		{"KeepTokens", p.KeepTokens, false, 1},
		{"TrimArguments", p.TrimArguments, true, session.MinTrim},
		{"TrimResults", p.TrimResults, true, session.MinTrim},
		{"EvictOver", p.EvictOver, false, minEvict},
	} {
		switch {
		case n.value == 0, n.value == Unlimited && n.unlimited:
		case n.value < 0 && n.unlimited:
			return session.Invalid(n.field, "is %d; use helix.Unlimited for never", n.value)
		case n.value < 0:
			return session.Invalid(n.field, "is %d; it must not be negative", n.value)
		case n.value < n.least:
			return session.Invalid(n.field, "is %d; it must be at least %d", n.value, n.least)
		}
	}
	if f := p.TriggerFraction; f != 0 && f != Unlimited && !(f > 0 && f <= 1) || math.IsNaN(f) {
		return session.Invalid("TriggerFraction", "is %v; it must be above 0 and at most 1, or helix.Unlimited", f)
	}
	if err := p.checkKept(); err != nil {
		return err
	}
	if p.Prompt != "" {
		if len(p.Prompt) > maxContextPrompt {
			return session.Invalid("Prompt", "has %d bytes, at most %d are allowed", len(p.Prompt), maxContextPrompt)
		}
		if err := session.CheckText("Prompt", p.Prompt); err != nil {
			return err
		}
		if !strings.Contains(p.Prompt, "{messages}") {
			return session.Invalid("Prompt", "does not contain {messages}, so the summary would be of nothing")
		}
	}
	return p.checkEviction()
}

// checkKept refuses a policy that keeps as much as it is triggered by: it would be triggered
// again by what it has kept.
func (p *ContextPolicy) checkKept() error {
	all := p.WithDefaults()
	implied := func(field, given int) string {
		if given == 0 {
			return fmt.Sprintf("defaults to %d", field)
		}
		return fmt.Sprintf("is %d", field)
	}
	if all.KeepTokens == 0 && all.TriggerMessages != Unlimited && all.KeepMessages >= all.TriggerMessages {
		return session.Invalid("KeepMessages", "%s, but TriggerMessages %s: a compaction must keep less than what triggers it",
			implied(all.KeepMessages, p.KeepMessages), implied(all.TriggerMessages, p.TriggerMessages))
	}
	if all.KeepTokens > 0 && all.TriggerTokens != Unlimited && all.KeepTokens >= all.TriggerTokens {
		return session.Invalid("KeepTokens", "is %d, but TriggerTokens %s: a compaction must keep less than what triggers it",
			all.KeepTokens, implied(all.TriggerTokens, p.TriggerTokens))
	}
	return nil
}

func (p *ContextPolicy) checkEviction() error {
	if len(p.EvictExcept) > maxEvictExcept {
		return session.Invalid("EvictExcept", "has %d names, at most %d are allowed", len(p.EvictExcept), maxEvictExcept)
	}
	if len(p.EvictExcept) > 0 && p.EvictOver == 0 {
		return session.Invalid("EvictExcept", "is set, but EvictOver is not: nothing is evicted")
	}
	for i, name := range p.EvictExcept {
		switch {
		case !toolName.MatchString(name):
			return session.Invalid("EvictExcept", "contains %q, which is not the name of a tool: a letter or _ followed by up to 63 letters, digits, _ or -", name)
		case slices.Contains(p.EvictExcept[:i], name):
			return session.Invalid("EvictExcept", "contains %q twice", name)
		}
	}
	return nil
}

// checkContext checks the policy, also against the model if that is fixed.
func (a *Agent) checkContext() error {
	if a.Context == nil {
		return nil
	}
	if err := a.Context.Check(); err != nil {
		if e, ok := err.(*session.Error); ok && e.Field != "" { //nolint:errorlint // Check made it
			return a.invalid("Context."+e.Field, "%s", strings.TrimPrefix(e.Message, e.Field+" "))
		}
		return err
	}
	all := a.Context.WithDefaults()
	if a.Model == nil || all.TriggerFraction == Unlimited || all.KeepTokens == 0 {
		return nil
	}
	if window := llm.WindowOf(a.Model); window > 0 && float64(all.KeepTokens) >= all.TriggerFraction*float64(window) {
		return a.invalid("Context.KeepTokens", "is %d, but TriggerFraction is %v of the model's window of %d: a compaction must keep less than what triggers it",
			all.KeepTokens, all.TriggerFraction, window)
	}
	return nil
}

// Names of the custom events that show the readers of the stream a compaction.
const (
	// CompactingEvent says that a summary is being made, which may take half a minute. Its data
	// is a [Compacted] without an outcome.
	CompactingEvent = stream.CompactingName
	// CompactedEvent says how a compaction ended. Its data is a [Compacted].
	CompactedEvent = stream.CompactedName
)

// Compacted is the outcome of a compaction.
type Compacted struct {
	// Kind is what was done, or tried. It is empty if there was nothing to do.
	Kind session.CompactionKind `json:"kind,omitempty"`
	// MarkerID is the id of the message that says it, see [session.Compaction]. It is empty if
	// the conversation is as it was.
	MarkerID string `json:"markerId,omitempty"`
	// Kept is how many messages are kept as they were.
	Kept int `json:"kept,omitempty"`
	// TokensBefore and TokensAfter are the sizes of the prompt, as far as they are known.
	TokensBefore int64 `json:"tokensBefore,omitempty"`
	TokensAfter  int64 `json:"tokensAfter,omitempty"`
	// Reason is why the conversation is as it was, if it is. With a Code it may be what the
	// model's provider said, which is for operators: servers show others a sentence for the
	// code.
	Reason string `json:"reason,omitempty"`
	// Code is the code of the error because of which a summary was not made.
	Code session.Code `json:"code,omitempty"`
}

// Done reports whether the conversation was compacted.
func (c *Compacted) Done() bool { return c.MarkerID != "" }
