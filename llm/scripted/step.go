package scripted

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Step is one reply of the model. It is a value: the With methods return changed copies.
type Step struct {
	parts []Part
	// compute and takes are set instead of parts by Func and Takes.
	compute func(*llm.Request) Step
	takes   []Step
	settings
}

// settings are how a step is played. Zero fields have defaults.
type settings struct {
	pieceSize int
	pace      time.Duration
	byWord    bool
	usage     *session.Usage
	finish    llm.FinishReason
}

// Reply returns a step of several parts, played in order.
func Reply(parts ...Part) Step { return Step{parts: parts} }

// Text returns a reply of plain text.
func Text(text string) Step { return Reply(Say(text)) }

// Call returns a reply that calls one tool. Arguments are as in [Calling].
func Call(tool string, args any) Step { return Reply(Calling(tool, args)) }

// Finish returns a reply that finishes the turn with a value.
func Finish(value any) Step { return Reply(Finishing(value)) }

// Fail returns a reply that fails before anything arrives.
func Fail(code session.Code, retryable bool, format string, args ...any) Step {
	return Reply(Failing(llm.Error(code, retryable, format, args...)))
}

// RateLimited returns a reply that fails with a rate limit; [llm.RetryAfterError] carries
// the wait.
func RateLimited(after time.Duration) Step {
	err := llm.Error(session.CodeRateLimited, true, "too many requests")
	err.StatusCode = 429
	err.Cause = &llm.RetryAfterError{After: after}
	return Reply(Failing(err))
}

// Func returns a step that is computed from the request. The function may be called more
// than once, from several goroutines.
func Func(compute func(request *llm.Request) Step) Step { return Step{compute: compute} }

// Takes returns a step that replies differently each time it is requested: with the first
// step the first time, and so on, and finally always with the last. In sequence, each take
// is played once.
func Takes(first Step, more ...Step) Step {
	return Step{takes: append([]Step{first}, more...)}
}

// WithPieceSize streams texts and arguments in pieces of this many runes. Defaults to a
// third of each.
func (s Step) WithPieceSize(runes int) Step { s.pieceSize = runes; return s }

// WithPace waits before every piece. Defaults to no wait.
func (s Step) WithPace(pause time.Duration) Step { s.pace = pause; return s }

// WithUsage sets the usage of the reply. Defaults to 10 tokens in, 5 out.
func (s Step) WithUsage(usage session.Usage) Step { s.usage = &usage; return s }

// WithFinish sets why the model stopped. Defaults to [llm.FinishToolCalls] for a
// reply with calls, else [llm.FinishStop].
func (s Step) WithFinish(reason llm.FinishReason) Step { s.finish = reason; return s }

// or fills the unset fields of s.
func (s settings) or(outer settings) settings {
	if s.pieceSize == 0 {
		s.pieceSize = outer.pieceSize
	}
	if s.pace == 0 {
		s.pace = outer.pace
	}
	if s.usage == nil {
		s.usage = outer.usage
	}
	if s.finish == "" {
		s.finish = outer.finish
	}
	return s
}

// String describes the step for a report of what was not played.
func (s Step) String() string {
	switch {
	case s.compute != nil:
		return "a computed reply"
	case s.takes != nil:
		return s.takes[len(s.takes)-1].String()
	}
	var words []string
	for _, p := range s.parts {
		if word := p.describe(); word != "" {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return "an empty reply"
	}
	return strings.Join(words, ", ")
}

// Part is a part of a [Reply]: content, or an event while the reply arrives.
type Part struct {
	content session.Part
	fail    error
	wait    func(done <-chan struct{})
	do      func()
}

// Say returns text. Consecutive texts make one part of the response.
func Say(text string) Part { return Content(session.Text(text)) }

// Think returns reasoning.
func Think(text string) Part {
	return Content(session.Part{Kind: session.PartReasoning, Text: text})
}

// Calling returns a tool call. A string or [json.RawMessage] is sent unchanged as the
// arguments, even if it is not valid JSON; nil is {}; any other value is encoded. The
// provider's call id is new every time; see [Part.WithID].
func Calling(tool string, args any) Part {
	return Content(session.Part{Kind: session.PartToolCall, Tool: tool, Input: arguments(args)})
}

// Finishing returns the call that finishes a turn with a value, as in [Calling].
func Finishing(value any) Part { return Calling(session.FinishTool, value) }

// Content returns any other part of a response, such as a file or signed reasoning.
func Content(part session.Part) Part { return Part{content: part} }

// Failing returns a part that ends the reply with an error, after the parts before it were
// streamed.
func Failing(err error) Part { return Part{fail: err} }

// Wait returns a part that pauses the reply.
func Wait(d time.Duration) Part {
	return Part{wait: func(done <-chan struct{}) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-done:
		}
	}}
}

// Until returns a part that holds the reply until the channel is closed; a nil channel
// holds it until it is cancelled.
func Until(open <-chan struct{}) Part {
	return Part{wait: func(done <-chan struct{}) {
		select {
		case <-open:
		case <-done:
		}
	}}
}

// Do returns a part that calls a function when the reply has reached it, for tests that
// need a signal or a panic.
func Do(f func()) Part { return Part{do: f} }

// WithID sets the provider's id of a call, for tests that need a duplicate one.
func (p Part) WithID(providerCallID string) Part {
	p.content.ProviderCallID = providerCallID
	return p
}

func (p Part) describe() string {
	switch {
	case p.fail != nil:
		return fmt.Sprintf("fails with %q", p.fail)
	case p.content.Kind == session.PartToolCall:
		return "calls " + p.content.Tool
	case p.content.Kind == session.PartText:
		return fmt.Sprintf("says %.40q", p.content.Text)
	case p.content.Kind != "":
		return "gives " + string(p.content.Kind)
	}
	return ""
}

// arguments panics on a value that does not encode to JSON, which is a mistake in the
// script.
func arguments(args any) json.RawMessage {
	switch args := args.(type) {
	case nil:
		return json.RawMessage("{}")
	case string:
		return json.RawMessage(args)
	case json.RawMessage:
		return args
	}
	raw, err := session.Encode(args)
	if err != nil {
		panic(fmt.Sprintf("scripted: arguments of type %T: %v", args, err))
	}
	return raw
}
