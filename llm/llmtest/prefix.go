package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// prefixIsStable sends a session of 200 messages, and again with two and four
// more. A provider's cache finds what it knows by its bytes, so everything up to the
// end of the common messages has to be the same. Cache marks, which say where to
// look and are no content, may move: with four more they do.
func prefixIsStable(t testing.TB, p *Provider) {
	var reasoning session.Part
	if p.Can(Reasoning) {
		reasoning = p.reasoning(t)
	}
	messages := longSession(204, reasoning)
	p.prefixStays(t, []llm.Cache{{}, {Prefix: true, LatestTurn: true}}, messages[:200], messages[:202], messages[:204])
}

// compactedPrefixIsStable does the same behind markers: a summary of several parts has taken
// the place of the first messages, and arguments and results of some of the others are cut.
func compactedPrefixIsStable(t testing.TB, p *Provider) {
	messages := longSession(40, session.Part{})
	for i := range messages {
		part := &messages[i].Parts[0]
		switch part.Kind {
		case session.PartToolCall:
			part.Input = json.RawMessage(fmt.Sprintf(`{"query": %q,"limit":1e0}`, strings.Repeat("many words ", 30)))
		case session.PartToolResult:
			part.Output = json.RawMessage(fmt.Sprintf(`{"b": [%q]}`, strings.Repeat("<much> more\n", 40)))
		}
	}
	mark := func(at int, c session.Compaction) {
		marker, err := c.Marker("What was said before.", session.Text("What an extension kept."),
			session.Part{Kind: session.PartFile, URL: png, MediaType: "image/png", Filename: "dot.png"})
		if err != nil {
			t.Fatal(err)
		}
		messages = slices.Insert(messages, at, marker)
	}
	mark(12, session.Compaction{Kind: session.CompactionSummary, Kept: 3})
	mark(25, session.Compaction{Kind: session.CompactionTrim, Kept: 4, Arguments: 200, Results: 300})
	var views [][]session.Message
	for _, n := range []int{26, 30, 34} {
		views = append(views, session.View(messages[:n]))
	}
	request := plainRequest()
	request.Messages = views[0][:1]
	p.checkParts(t, p.send(t, request).Parts, request.Messages)
	p.prefixStays(t, []llm.Cache{{Prefix: true, LatestTurn: true}}, views[0], views[1:]...)
}

// prefixStays sends messages, and then more and more of them.
func (p *Provider) prefixStays(t testing.TB, caches []llm.Cache, messages []session.Message, more ...[]session.Message) {
	for _, cache := range caches {
		request := richRequest(session.Part{})
		request.Settings.Cache = cache
		request.Messages = messages
		first, one := p.sendRaw(t, request)
		if len(first.Transcript) < 2 || !bytes.Contains(one.body, first.Transcript) {
			t.Fatalf("the transcript is not in the request: %.100s", first.Transcript)
		}
		until := bytes.Index(one.body, first.Transcript) + len(first.Transcript) - len("]")
		prefix := p.unmarked(one.body[:until])
		if cache == (llm.Cache{}) && !bytes.Equal(prefix, one.body[:until]) {
			t.Error("there are cache marks that nobody asked for")
		}
		for _, longer := range more {
			request.Messages = longer
			second, two := p.sendRaw(t, request)
			if !bytes.Equal(p.unmarked(first.Fixed), p.unmarked(second.Fixed)) {
				t.Errorf("tools or instructions changed from\n%s to\n%s", first.Fixed, second.Fixed)
			}
			body := p.unmarked(two.body)
			if n := common(prefix, body); n < len(prefix) {
				t.Errorf("with cache hints %+v the requests differ at byte %d of %d:\n…%s\n…%s", cache, n, len(prefix),
					excerpt(prefix, n), excerpt(body, n))
			}
		}
	}
}

// unmarked removes the cache marks.
func (p *Provider) unmarked(body []byte) []byte {
	for _, mark := range p.CacheMarks {
		body = bytes.ReplaceAll(body, []byte(mark), nil)
	}
	return body
}

func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func excerpt(b []byte, at int) []byte { return b[max(0, at-60):min(len(b), at+60)] }

// longSession is a session of n messages: questions, calls, results and answers.
// Of 200 the last is a result.
func longSession(n int, reasoning session.Part) []session.Message {
	out := []session.Message{session.UserText("Hello.")}
	for i := 0; len(out) < n; i++ {
		call := session.Part{
			Kind: session.PartToolCall, CallID: fmt.Sprintf("s1:m%d:0", i), ProviderCallID: fmt.Sprintf("call_%d", i%7), Tool: "search",
			Input: json.RawMessage(fmt.Sprintf(`{"query": "number %d","limit":1e0}`, i)),
		}
		asked := session.Message{Role: session.RoleAssistant}
		if reasoning.Kind != "" {
			asked.Parts = append(asked.Parts, reasoning)
		}
		asked.Parts = append(asked.Parts, call)
		out = append(
			out,
			session.UserText(fmt.Sprintf("Question %d <&> \u2028?", i)),
			asked,
			session.ToolResult(call, json.RawMessage(fmt.Sprintf(`{"b": %d, "a": [1.0, 2]}`, i))),
			session.Message{Role: session.RoleAssistant, Parts: []session.Part{session.Text(fmt.Sprintf("Answer %d.", i))}},
		)
	}
	return out[:n]
}
