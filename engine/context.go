package engine

import (
	"context"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/tokens"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// contextSize is what a turn knows about the size of its conversation, for agents with a
// [helix.ContextPolicy]. All but futile follows from the transcript, so that every process
// decides the same. It is used by effects that run alone.
type contextSize struct {
	policy *helix.ContextPolicy // with its defaults, or nil; never changes

	meter    tokens.Meter
	seen     int                  // how many messages of the history the rest counts
	messages int                  // of the view that count; see counts
	after    float64              // the size right behind the last marker
	kept     int                  // the messages that counted there
	tried    *session.Uncompacted // when a compaction was last tried in vain, since then
	untold   bool                 // no reply says so yet
	futile   *session.Uncompacted // when there was last nothing to cut, since then; only this process knows

	window int // of the model that was last chosen
	known  bool
}

// newContextSize returns that of an agent.
func newContextSize(agent *helix.Agent) contextSize {
	if agent.Context == nil {
		return contextSize{}
	}
	policy := agent.Context.WithDefaults()
	return contextSize{policy: &policy}
}

// update counts what was added to the transcript.
func (s *contextSize) update(t *session.Transcript) {
	held := t.Messages()
	from := min(max(s.seen-t.Before(), 0), len(held))
	for i := len(held) - 1; i >= from; i-- {
		if marker := held[i].Compaction(); marker != nil {
			view := t.View()
			s.restart(view[:len(view)-(len(held)-1-i)], marker)
			from = i + 1
			break
		}
	}
	for i := from; i < len(held); i++ {
		m := &held[i]
		s.meter.Add(m)
		if counts(m) {
			s.messages++
		}
		if tried := m.Uncompacted(); tried != nil {
			s.tried, s.untold = tried, false
		}
	}
	s.seen = t.Len()
}

// restart begins anew behind a marker, with what it left of the view. What models reported
// before it is no longer true.
func (s *contextSize) restart(left []session.Message, marker *session.Compaction) {
	s.after = float64(marker.TokensAfter)
	if s.after == 0 {
		s.after = tokens.Messages(left)
	}
	s.meter.Restart(s.after)
	s.messages, s.tried, s.untold = countMessages(left), nil, false
	s.kept, s.futile = s.messages, nil
}

// counts reports whether a message counts towards TriggerMessages: recalled messages,
// notices and markers do not.
func counts(m *session.Message) bool { return m.Role != session.RoleUser || !m.Hidden() }

func countMessages(messages []session.Message) (n int) {
	for i := range messages {
		if counts(&messages[i]) {
			n++
		}
	}
	return n
}

// growth is how much a prompt must have grown before it is compacted once more, if the last
// time was in vain or did not suffice.
const growth = 1.1

// futileGrowth is how much the size of a prompt must have grown before it is looked again for
// something to cut. To look costs no model call, but all messages are read for it.
const futileGrowth = 1.05

// isFutile reports whether there was nothing to cut, and the prompt has hardly grown since.
func (s *contextSize) isFutile(size float64) bool {
	return s.futile != nil && size < futileGrowth*float64(s.futile.Tokens) && float64(s.messages) < growth*float64(s.futile.Messages)
}

// trigger returns the size in tokens from which on the conversation is compacted, or 0.
func (s *contextSize) trigger() float64 {
	trigger := 0.0
	if s.policy.TriggerTokens > 0 {
		trigger = float64(s.policy.TriggerTokens)
	}
	if s.policy.TriggerFraction > 0 && s.window > 0 {
		if share := s.policy.TriggerFraction * float64(s.window); trigger == 0 || share < trigger {
			trigger = share
		}
	}
	return trigger
}

// byTokens reports whether the size in tokens asks for a compaction.
func (s *contextSize) byTokens(size float64) bool {
	trigger := s.trigger()
	if trigger == 0 {
		return false
	}
	trigger = max(trigger, growth*s.after)
	if s.tried != nil {
		trigger = max(trigger, growth*float64(s.tried.Tokens))
	}
	return size >= trigger
}

// byMessages reports whether the number of messages asks for a compaction.
func (s *contextSize) byMessages() bool {
	if s.policy.TriggerMessages <= 0 {
		return false
	}
	trigger := max(float64(s.policy.TriggerMessages), growth*float64(s.kept))
	if s.tried != nil {
		trigger = max(trigger, growth*float64(s.tried.Messages))
	}
	return float64(s.messages) >= trigger
}

// near is how close to the trigger, as a share of it, an estimate must be for the provider to
// be asked for its count.
const near = 0.05

// isNear reports whether an estimate is too close to the trigger to decide.
func (s *contextSize) isNear(size float64) bool {
	trigger := s.trigger()
	return trigger > 0 && size >= (1-near)*trigger && size <= (1+near)*trigger && s.meter.Uncertain(trigger)
}

// chose notes the model that is asked.
func (s *contextSize) chose(model llm.Model) {
	if s.policy != nil {
		s.window, s.known = llm.WindowOf(model), true
	}
}

// learnWindow asks for the model's window, unless the turn has chosen a model before.
func (t *turn) learnWindow(ctx context.Context, e effect) {
	s := &t.context
	if s.known || s.policy.TriggerFraction <= 0 {
		return
	}
	model, err := t.prompts.model(ctx, t.promptInput(e))
	if err != nil { // the model call fails with it
		return
	}
	s.chose(model)
}
