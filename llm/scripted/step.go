package scripted

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Step is what the model answers when it is asked once. It is a value: the With
// methods return changed copies.
type Step struct {
	parts []Part
	// compute and takes are set instead of parts by Func and Takes.
	compute func(*llm.Request) Step
	takes   []Step
	settings
}

// settings are how a step is played. Zero fields take the defaults.
type settings struct {
	pieceSize int
	pace      time.Duration
	byWord    bool
	usage     *session.Usage
	finish    llm.FinishReason
}

// Reply is a step of several parts, played in order.
func Reply(parts ...Part) Step { return Step{parts: parts} }

// Text is a reply of plain text.
func Text(text string) Step { return Reply(Say(text)) }

// Call is a reply that calls one tool. Arguments are as in [Calling].
func Call(tool string, args any) Step { return Reply(Calling(tool, args)) }

// Finish is a reply that finishes the turn with a value.
func Finish(value any) Step { return Reply(Finishing(value)) }

// Fail is a reply that fails before anything arrives.
func Fail(code session.Code, retryable bool, format string, args ...any) Step {
	return Reply(Failing(llm.Error(code, retryable, format, args...)))
}

// RateLimited is a reply that fails and may be asked for again after a time,
// which [llm.RetryAfterError] carries.
func RateLimited(after time.Duration) Step {
	err := llm.Error(session.CodeRateLimited, true, "too many requests")
	err.StatusCode = 429
	err.Cause = &llm.RetryAfterError{After: after}
	return Reply(Failing(err))
}

// Func is a step that is computed from the request. The function may be called
// more than once, from several goroutines.
func Func(compute func(request *llm.Request) Step) Step { return Step{compute: compute} }

// Takes is a step that answers differently when it is asked again: with the
// first step the first time, and so on; asked more often, with the last one.
// Played in sequence, each take is played once.
func Takes(first Step, more ...Step) Step {
	return Step{takes: append([]Step{first}, more...)}
}

// WithPieceSize streams texts and arguments in pieces of so many runes. Defaults
// to a third of each.
func (s Step) WithPieceSize(runes int) Step { s.pieceSize = runes; return s }

// WithPace waits before every piece. Defaults to not at all.
func (s Step) WithPace(pause time.Duration) Step { s.pace = pause; return s }

// WithUsage sets what the reply consumed. Defaults to 10 tokens in, 5 out.
func (s Step) WithUsage(usage session.Usage) Step { s.usage = &usage; return s }

// WithFinish sets why the model stopped. Defaults to [llm.FinishToolCalls] for a
// reply with calls, else [llm.FinishStop].
func (s Step) WithFinish(reason llm.FinishReason) Step { s.finish = reason; return s }

// or fills what s leaves open.
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

// Part is a piece of a [Reply]: content, or something that happens while the
// reply arrives.
type Part struct {
	content session.Part
	fail    error
	wait    func(done <-chan struct{})
	do      func()
}

// Say is text. Consecutive texts make one part of the response.
func Say(text string) Part { return Content(session.Text(text)) }

// Think is reasoning.
func Think(text string) Part {
	return Content(session.Part{Kind: session.PartReasoning, Text: text})
}

// Calling is a tool call. A string or [json.RawMessage] is sent as the arguments
// as it is, whether it is valid JSON or not; nil is {}; any other value is
// encoded. The provider's call id is new every time; see [Part.WithID].
func Calling(tool string, args any) Part {
	return Content(session.Part{Kind: session.PartToolCall, Tool: tool, Input: arguments(args)})
}

// Finishing is the call that finishes a turn with a value, given as in [Calling].
func Finishing(value any) Part { return Calling(session.FinishTool, value) }

// Content is any other part of a response, such as a file or signed reasoning.
func Content(part session.Part) Part { return Part{content: part} }

// Failing ends the reply with an error. What came before it has been streamed.
func Failing(err error) Part { return Part{fail: err} }

// Wait pauses the reply.
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

// Until holds the reply until the channel is closed; a nil channel holds it until
// it is cancelled.
func Until(open <-chan struct{}) Part {
	return Part{wait: func(done <-chan struct{}) {
		select {
		case <-open:
		case <-done:
		}
	}}
}

// Do calls a function when the reply has come this far, for a test that wants to
// know, or wants the model to panic.
func Do(f func()) Part { return Part{do: f} }

// WithID gives a call the provider's id; the same one twice, if a test wants that.
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

// arguments panics on a value that has no JSON: it is a mistake in the script.
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
