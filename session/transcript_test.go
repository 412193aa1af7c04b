package session_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

func assistant(id string, calls ...string) session.Message {
	m := session.Message{ID: id, Role: session.RoleAssistant, Parts: []session.Part{session.Text("reply")}}
	for _, call := range calls {
		m.Parts = append(m.Parts, session.Part{Kind: session.PartToolCall, CallID: call, Tool: "t"})
	}
	return m
}

func result(call string) session.Message {
	return session.ToolResult(session.Part{CallID: call, Tool: "t"}, encode("done"))
}

// genHistory generates a valid history and then sometimes breaks it.
func genHistory() *rapid.Generator[[]session.Message] {
	return rapid.Custom(func(t *rapid.T) []session.Message {
		var history []session.Message
		for i := range rapid.IntRange(0, 6).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "user") {
				history = append(history, session.UserText("continue"))
			}
			var calls []string
			for j := range rapid.IntRange(0, 3).Draw(t, "calls") {
				calls = append(calls, fmt.Sprintf("c%d.%d", i, j))
			}
			m := assistant(fmt.Sprint(i), calls...)
			if len(calls) > 0 && rapid.Bool().Draw(t, "finish") {
				m.Parts[1].Tool = session.FinishTool
			}
			history = append(history, m)
			for _, call := range calls {
				history = append(history, result(call))
			}
		}
		if len(history) == 0 {
			return history
		}
		at := rapid.IntRange(0, len(history)-1).Draw(t, "at")
		switch rapid.SampledFrom([]string{"nothing", "cut", "drop", "repeat", "swap", "alien", "same ids"}).Draw(t, "spoil") {
		case "cut":
			history = history[:at]
		case "drop":
			history = append(append([]session.Message{}, history[:at]...), history[at+1:]...)
		case "repeat":
			history = append(append([]session.Message{}, history[:at+1]...), history[at:]...)
		case "swap":
			other := rapid.IntRange(0, len(history)-1).Draw(t, "other")
			history[at], history[other] = history[other], history[at]
		case "alien":
			history[at] = result("unheard of")
		case "same ids":
			history[at] = assistant("twice", "x", "x")
		}
		return history
	})
}

// wellFormed decides by position whether a history is valid: every call's result
// is where it is expected, unless the history ends before, and there are no other
// results.
func wellFormed(history []session.Message) bool {
	due := map[int]string{} // place → the call answered there
	for i := range history {
		seen := map[string]bool{}
		for j, call := range history[i].Calls() {
			if seen[call.CallID] {
				return false
			}
			seen[call.CallID] = true
			due[i+1+j] = call.CallID
		}
	}
	for i := range history {
		call, isDue := due[i]
		if isTool := history[i].Role == session.RoleTool; isTool != isDue || isTool && history[i].Parts[0].CallID != call {
			return false
		}
	}
	return true
}

func TestTranscriptAcceptsExactlyWhatIsValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		history := genHistory().Draw(t, "history")
		transcript, err := session.NewTranscript(history)
		if valid := wellFormed(history); valid != (err == nil) {
			t.Fatalf("valid is %v, but the transcript says %v", valid, err)
		}
		if err != nil {
			if !errors.Is(err, session.ErrInvalid) {
				t.Fatalf("got %v, want a validation error", err)
			}
			return
		}
		if transcript.Len() != len(history) || (transcript.Sendable() == nil) != (len(transcript.Open()) == 0) {
			t.Fatalf("%d messages, %d open, sendable: %v", transcript.Len(), len(transcript.Open()), transcript.Sendable())
		}
	})
}

func TestHealMakesEveryPrefixSendable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		history := genHistory().Draw(t, "history")
		if !wellFormed(history) {
			return
		}
		for n := range len(history) + 1 {
			transcript, err := session.NewTranscript(history[:n])
			if err != nil {
				t.Fatalf("a prefix of %d messages is refused: %v", n, err)
			}
			open := transcript.Open()
			healed := session.Heal(history[:n], cancelled)
			if len(healed) != len(open) {
				t.Fatalf("%d open calls, %d messages", len(open), len(healed))
			}
			for i := range healed {
				if err := transcript.Append(healed[i]); err != nil {
					t.Fatalf("a healing message is refused: %v", err)
				}
				if finish := open[i].Tool == session.FinishTool; finish != (healed[i].Parts[0].Error == nil) {
					t.Fatalf("%s was answered with %v", open[i].Tool, healed[i].Parts[0].Error)
				}
			}
			if err := transcript.Sendable(); err != nil {
				t.Fatal(err)
			}
			if session.Heal(transcript.Messages(), cancelled) != nil {
				t.Fatal("a healed history is healed again")
			}
		}
	})
}

func TestTranscriptTruncate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		history := genHistory().Draw(t, "history")
		transcript, err := session.NewTranscript(history)
		if err != nil {
			return
		}
		keep := rapid.IntRange(-1, len(history)+1).Draw(t, "keep")
		err = transcript.Truncate(keep)
		if within := keep >= 0 && keep <= len(history); within != (err == nil) {
			t.Fatalf("truncate to %d of %d: %v", keep, len(history), err)
		}
		if err != nil {
			keep = len(history)
		}
		want, _ := session.NewTranscript(history[:keep])
		if transcript.Len() != keep || len(transcript.Open()) != len(want.Open()) {
			t.Fatalf("%d messages, %d open, want %d and %d", transcript.Len(), len(transcript.Open()), keep, len(want.Open()))
		}
	})
}

func TestRefusedMessageChangesNothing(t *testing.T) {
	t.Parallel()
	transcript := must(session.NewTranscript([]session.Message{session.UserText("hi")}))
	for name, m := range map[string]session.Message{
		"repeated call ids":   assistant("1", "x", "x"),
		"a result of no call": result("x"),
		"no content":          {Role: session.RoleUser},
		"two results":         {Role: session.RoleTool, Parts: append(result("x").Parts, result("y").Parts...)},
	} {
		if err := transcript.Append(m); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
		if transcript.Len() != 1 || transcript.Sendable() != nil {
			t.Errorf("%s: it left %d messages, sendable: %v", name, transcript.Len(), transcript.Sendable())
		}
	}
}

func TestMessagesAreSafeFromLaterAppends(t *testing.T) {
	t.Parallel()
	transcript := must(session.NewTranscript([]session.Message{session.UserText("one")}))
	before := transcript.Messages()
	mine := append(before[:1], session.UserText("mine")) //nolint:gocritic // that it must not show is the point
	if err := transcript.Append(session.UserText("two")); err != nil {
		t.Fatal(err)
	}
	if len(before) != 1 || mine[1].Content() != "mine" || transcript.Messages()[1].Content() != "two" {
		t.Errorf("%q, %q", mine[1].Content(), transcript.Messages()[1].Content())
	}
}

func cancelled(session.Part) *session.Error { return session.ErrCancelled }
