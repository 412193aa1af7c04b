package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// reply is what a good recording has to say.
type reply struct {
	about  string
	parts  []session.Part
	finish llm.FinishReason
	usage  session.Usage
	needs  []Feature
	// pieces is how many deltas of its kind the first part has to come in, at least.
	pieces int
}

var usual = session.Usage{InputTokens: 12, OutputTokens: 7}

func text(s string) session.Part { return session.Text(s) }

func call(tool, input string) session.Part {
	return session.Part{Kind: session.PartToolCall, Tool: tool, Input: json.RawMessage(input)}
}

const greeting = "Hello, wörld! \U0001F30D It is \"fine\".\n"

// replies are the recordings that end well, by name.
var replies = map[string]reply{
	"text": {
		about: fmt.Sprintf("the text %q in three pieces or more", greeting), parts: []session.Part{text(greeting)},
		finish: llm.FinishStop, usage: usual, pieces: 3,
	},
	"text-whole": {
		about: "the text \"Yes.\" in one piece", parts: []session.Part{text("Yes.")}, finish: llm.FinishStop, usage: usual,
	},
	"reasoning": {
		about:  "the reasoning \"A greeting. I answer in kind.\" in two pieces or more, signed with Signature, then the text \"Hello.\"",
		parts:  []session.Part{{Kind: session.PartReasoning, Text: "A greeting. I answer in kind."}, text("Hello.")},
		finish: llm.FinishStop, usage: session.Usage{InputTokens: 12, OutputTokens: 30, ReasoningTokens: 20},
		needs: []Feature{Reasoning}, pieces: 2,
	},
	"tools": {
		about:  `calls of search with {"query":"compass","limit":3} and weather with {"city":"Zürich"}, arguments in pieces`,
		parts:  []session.Part{call("search", `{"query":"compass","limit":3}`), call("weather", `{"city":"Zürich"}`)},
		finish: llm.FinishToolCalls, usage: usual,
	},
	"text-and-tools": {
		about:  `the text "Let me look." and a call of search with {"query":"compass"}`,
		parts:  []session.Part{text("Let me look."), call("search", `{"query":"compass"}`)},
		finish: llm.FinishToolCalls, usage: usual,
	},
	"finish-tool": {
		about:  `a call of __finish__ with {"answer":"42","sources":["a","b"]}`,
		parts:  []session.Part{call(session.FinishTool, `{"answer":"42","sources":["a","b"]}`)},
		finish: llm.FinishToolCalls, usage: usual,
	},
	"no-arguments": {
		about: "a call of search without any arguments", parts: []session.Part{call("search", "{}")},
		finish: llm.FinishToolCalls, usage: usual,
	},
	"malformed-args": {
		about: `a call of search whose arguments are {"query": "comp`, parts: []session.Part{call("search", `{"query": "comp`)},
		finish: llm.FinishToolCalls, usage: usual, needs: []Feature{MalformedArguments},
	},
	"length": {
		about: `the text "It was a dark and" that ends at the limit of output tokens`, parts: []session.Part{text("It was a dark and")},
		finish: llm.FinishLength, usage: usual,
	},
	"content-filter": {
		about: `the text "First you" that the provider's filter cut off`, parts: []session.Part{text("First you")},
		finish: llm.FinishContentFilter, usage: usual, needs: []Feature{SafetyStop},
	},
	"usage-cached": {
		about: "the text \"Yes.\" with 1200 input tokens, of which 1000 were read from a cache and 150 written to one, and 7 output tokens",
		parts: []session.Part{text("Yes.")}, finish: llm.FinishStop,
		usage: session.Usage{InputTokens: 1200, OutputTokens: 7, CacheReadTokens: 1000, CacheWriteTokens: 150},
	},
	"unknown-events": {
		about: "the text \"Yes.\" among events, fields and content that do not exist yet", parts: []session.Part{text("Yes.")},
		finish: llm.FinishStop, usage: usual,
	},
	"duplicated-events": {
		about: "the text \"Yes.\" with every event that can be told to be a repetition sent twice", parts: []session.Part{text("Yes.")},
		finish: llm.FinishStop, usage: usual,
	},
	"pings": {
		about: "the text \"Yes.\" with comments, empty lines and the provider's pings in between", parts: []session.Part{text("Yes.")},
		finish: llm.FinishStop, usage: usual,
	},
}

// Cases describes what the recording of each case has to hold.
func Cases() map[string]string {
	all := map[string]string{}
	for name, r := range replies {
		all[name] = r.about
	}
	for name, f := range failures {
		all[name] = f.about
	}
	return all
}

func replyCases() []testCase {
	var cases []testCase
	for _, name := range sorted(replies) {
		want := replies[name]
		cases = append(cases, testCase{"reply/" + name, want.needs, func(t testing.TB, p *Provider) {
			r := p.record(t, name)
			w := newWire(t, p)
			w.answer(r.play)
			checkReply(t, p, p.outcome(t, w.ask(t)), &want)
		}})
	}
	cases = append(cases, testCase{"reply/reasoning-signed", []Feature{Reasoning, ReasoningReturned}, signedReasoning})
	return cases
}

// signedReasoning requires the opaque part of reasoning kept, in a form that can be
// stored.
func signedReasoning(t testing.TB, p *Provider) {
	part := p.reasoning(t)
	if !validJSON(part.Provider) {
		t.Fatalf("the signature is not kept as JSON: %q", part.Provider)
	}
	if !bytes.Contains(part.Provider, []byte(Signature)) {
		t.Errorf("the signature is not in %s", part.Provider)
	}
}

// reasoning is the reasoning of the recording, as the adapter gives it.
func (p *Provider) reasoning(t testing.TB) session.Part {
	t.Helper()
	r := p.record(t, "reasoning")
	w := newWire(t, p)
	w.answer(r.play)
	out := w.ask(t)
	if out.err != nil || len(out.response.Parts) == 0 {
		t.Fatalf("got %+v, %v", out.response, out.err)
	}
	return out.response.Parts[0]
}

func checkReply(t testing.TB, p *Provider, out outcome, want *reply) {
	t.Helper()
	if out.err != nil {
		t.Fatalf("the call failed: %v", out.err)
	}
	got := out.response
	if diff := compareParts(got.Parts, want.parts); diff != "" {
		t.Error(diff)
	}
	if got.Finish != want.finish {
		t.Errorf("it finished with %q, want %q", got.Finish, want.finish)
	}
	if usage := p.masked(want.usage); got.Usage != usage {
		t.Errorf("it used %+v, want %+v", got.Usage, usage)
	}
	if got.Model != AnsweringModel {
		t.Errorf("the model that answered is %q, want %q", got.Model, AnsweringModel)
	}
	if err := DeltasMatch(out.deltas, got.Parts); err != nil {
		t.Error(err)
	}
	if n := pieces(out.deltas); want.pieces > 0 && n < want.pieces {
		t.Errorf("the first part came in %d pieces, want %d or more", n, want.pieces)
	}
	ids := map[string]bool{}
	for i := range got.Parts {
		if part := &got.Parts[i]; part.Kind == session.PartToolCall {
			if part.ProviderCallID == "" || ids[part.ProviderCallID] {
				t.Errorf("call %d has the id %q, which is empty or not its own", i, part.ProviderCallID)
			}
			ids[part.ProviderCallID] = true
		}
	}
}

// masked leaves out what the provider does not count.
func (p *Provider) masked(u session.Usage) session.Usage {
	if !p.Can(CacheReads) {
		u.CacheReadTokens = 0
	}
	if !p.Can(CacheWrites) {
		u.CacheWriteTokens = 0
	}
	if !p.Can(ReasoningTokens) {
		u.ReasoningTokens = 0
	}
	return u
}

// pieces counts the deltas of the first part.
func pieces(deltas []llm.Delta) int {
	n := 0
	for _, d := range deltas {
		if d.Kind != deltas[0].Kind {
			break
		}
		n++
	}
	return n
}

func compareParts(got, want []session.Part) string {
	if len(got) != len(want) {
		return fmt.Sprintf("there are %d parts, want %d:\n%s", len(got), len(want), show(got))
	}
	for i := range want {
		g, w := &got[i], &want[i]
		if g.Kind != w.Kind || g.Text != w.Text || g.Tool != w.Tool || !sameJSON(g.Input, w.Input) {
			return fmt.Sprintf("part %d is\n%s, want\n%s", i, show(got[i:i+1]), show(want[i:i+1]))
		}
		if g.CallID != "" {
			return fmt.Sprintf("part %d has the call id %q; ids of our own are given by the engine", i, g.CallID)
		}
	}
	return ""
}

func show(parts []session.Part) string {
	var b strings.Builder
	for i := range parts {
		fmt.Fprintf(&b, "  %s %q %s %s\n", parts[i].Kind, parts[i].Text, parts[i].Tool, parts[i].Input)
	}
	return b.String()
}

// sameJSON compares values; what is not JSON is compared as it is.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	return reflect.DeepEqual(x, y)
}

func validJSON(raw json.RawMessage) bool { return json.Valid(raw) }
