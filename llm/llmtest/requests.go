package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

var (
	searchSchema = json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer"}},` +
		`"required":["query","limit"],"additionalProperties":false}`)
	weatherSchema = json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","minLength":2}},"required":["city"]}`)
)

const (
	png = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
	pdf = "data:application/pdf;base64,JVBERi0xLjQKJSVFT0YK"
)

func requestCases() []testCase {
	cases := []testCase{
		{"request/rich", nil, requestRich},
		{"request/unreadable-file", nil, requestUnreadable},
		{"request/settings", nil, requestSettings},
		{"request/defaults", nil, requestDefaults},
		{"request/headers-and-options", nil, requestExtras},
		{"request/options-are-merged", nil, optionsAreMerged},
		{"request/cache", nil, requestCache},
		{"request/foreign-transcript", nil, requestForeign},
		{"request/prefix-is-stable", nil, prefixIsStable},
		{"request/compacted-prefix-is-stable", nil, compactedPrefixIsStable},
	}
	for _, choice := range []struct {
		name   string
		choice llm.ToolChoice
		needs  []Feature
	}{
		{"auto", llm.ToolChoice{}, nil},
		{"required", llm.ToolChoice{Mode: llm.ToolRequired}, []Feature{ToolRequired}},
		{"named", llm.ToolChoice{Mode: llm.ToolNamed, Name: "weather"}, []Feature{ToolNamed}},
		{"none", llm.ToolChoice{Mode: llm.ToolNone}, []Feature{ToolNone}},
	} {
		cases = append(cases, testCase{"request/choice-" + choice.name, choice.needs, func(t testing.TB, p *Provider) {
			request := plainRequest()
			request.ToolChoice = choice.choice
			if sent := p.send(t, request); sent.ToolChoice != choice.choice {
				t.Errorf("the tool choice was sent as %+v, want %+v", sent.ToolChoice, choice.choice)
			}
		}})
	}
	return cases
}

// send makes a call that is answered and reads what was sent for it.
func (p *Provider) send(t testing.TB, request *llm.Request) Sent {
	t.Helper()
	sent, _ := p.sendRaw(t, request)
	return sent
}

func (p *Provider) sendRaw(t testing.TB, request *llm.Request) (Sent, received) {
	t.Helper()
	r := p.record(t, "text-whole")
	w := newWire(t, p)
	w.answer(r.play)
	if out := ask(t, t.Context(), w.model, request); out.err != nil {
		t.Fatalf("the call failed: %v", out.err)
	}
	got := w.last(t)
	sent, err := p.Decode(got.path, got.header, got.body)
	if err != nil {
		t.Fatalf("the request cannot be read: %v\n%s", err, got.body)
	}
	if sent.Key != key || strings.Contains(got.path, key) || bytes.Contains(got.body, []byte(key)) {
		t.Errorf("the key was sent as %q; it belongs in a header", sent.Key)
	}
	if sent.Model != AskedModel || !sent.Stream {
		t.Errorf("asked %q, stream %v", sent.Model, sent.Stream)
	}
	return sent, got
}

// richRequest has one of everything. The reasoning is what the adapter made of its
// recording: nobody else knows what it keeps.
func richRequest(reasoning session.Part) *llm.Request {
	first := session.Part{
		Kind: session.PartToolCall, CallID: "s1:m1:0", ProviderCallID: "call_1", Tool: "search",
		Input: json.RawMessage(`{"query":"compass","limit":3}`),
	}
	second := session.Part{
		Kind: session.PartToolCall, CallID: "s1:m1:1", ProviderCallID: "call_2", Tool: "weather",
		Input: json.RawMessage(`{"city":"Zürich"}`),
	}
	third := session.Part{
		Kind: session.PartToolCall, CallID: "s1:m2:0", ProviderCallID: "call_3", Tool: "search",
		Input: json.RawMessage(`{"query":"map","limit":1}`),
	}
	answer := session.Message{Role: session.RoleAssistant}
	if reasoning.Kind != "" {
		answer.Parts = append(answer.Parts, reasoning)
	}
	answer.Parts = append(answer.Parts, session.Text("Let me look."), first, second)
	return &llm.Request{
		Agent: "tester", SessionID: "s1", RunID: "r1", Step: 3,
		Instructions: "You are terse.\nAnswer in \"English\" <always>.",
		Messages: []session.Message{
			{Role: session.RoleUser, Parts: []session.Part{
				session.Text("What is on these?"),
				{Kind: session.PartFile, URL: png, MediaType: "image/png", Filename: "dot.png"},
				{Kind: session.PartFile, URL: pdf, MediaType: "application/pdf", Filename: "notes.pdf"},
			}},
			answer,
			session.ToolResult(first, json.RawMessage(`"north\nand \"south\""`)),
			session.ToolFailure(second, &session.Error{Code: session.CodeToolFailed, Message: "no such city"}),
			{Role: session.RoleAssistant, Parts: []session.Part{third}},
			session.ToolResult(third, json.RawMessage(`{"n":[1,2.50],"ok":true}`)),
			session.UserText("And now?"),
		},
		Tools: []llm.Tool{
			{Name: "search", Description: "Searches.", Schema: searchSchema, Strict: true},
			{Name: "weather", Description: "Tells the weather.", Schema: weatherSchema, Strict: true},
		},
	}
}

func requestRich(t testing.TB, p *Provider) {
	var reasoning session.Part
	if p.Can(Reasoning) {
		reasoning = p.reasoning(t)
	}
	request := richRequest(reasoning)
	sent := p.send(t, request)
	if sent.Instructions != request.Instructions {
		t.Errorf("the instructions were sent as %q", sent.Instructions)
	}
	p.checkTools(t, sent.Tools, request.Tools)
	p.checkParts(t, sent.Parts, request.Messages)
}

// requestUnreadable requires the model to be told of a file that its API does not take: the
// person who sent it would wonder why the answer does not mention it.
func requestUnreadable(t testing.TB, p *Provider) {
	request := plainRequest()
	file := session.Part{Kind: session.PartFile, URL: "data:application/x-thing;base64,AAEC", MediaType: "application/x-thing", Filename: "a.thing"}
	request.Messages = []session.Message{{Role: session.RoleUser, Parts: []session.Part{file}}}
	sent := p.send(t, request)
	for i := range sent.Parts {
		if part := &sent.Parts[i]; part.URL == file.URL || part.Kind == session.PartText && strings.Contains(part.Text, file.Filename) {
			return
		}
	}
	t.Errorf("the model is not told of the file:\n%s", showSent(sent.Parts))
}

// checkTools requires a schema that can be enforced to be sent as strict, and one that
// cannot as a plain one.
func (p *Provider) checkTools(t testing.TB, got, want []llm.Tool) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d tools were sent, want %d", len(got), len(want))
	}
	for i := range want {
		strict := want[i].Strict && p.Can(StrictTools) && bytes.Equal(want[i].Schema, searchSchema)
		if got[i].Name != want[i].Name || got[i].Description != want[i].Description || !sameJSON(got[i].Schema, want[i].Schema) {
			t.Errorf("tool %d was sent as %+v %s", i, got[i], got[i].Schema)
		}
		if got[i].Strict != strict {
			t.Errorf("tool %s was sent with strict %v, want %v", want[i].Name, got[i].Strict, strict)
		}
	}
}

func (p *Provider) checkParts(t testing.TB, got []SentPart, messages []session.Message) {
	t.Helper()
	var want []SentPart
	for i := range messages {
		for j := range messages[i].Parts {
			part := messages[i].Parts[j]
			if !p.sends(&part) {
				continue
			}
			want = append(want, SentPart{Role: messages[i].Role, Part: part})
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d parts were sent, want %d:\n%s", len(got), len(want), showSent(got))
	}
	ids := map[string]string{} // of calls, as they were sent, by ours
	for i := range want {
		if problem := p.comparePart(&got[i], &want[i], ids); problem != "" {
			t.Errorf("part %d: %s:\n%s", i, problem, showSent(got[i:i+1]))
		}
	}
}

// sends reports whether the provider has a place for a part.
func (p *Provider) sends(part *session.Part) bool {
	switch {
	case part.Kind == session.PartReasoning:
		return p.Can(ReasoningReturned)
	case part.Kind == session.PartFile && strings.HasPrefix(part.MediaType, "image/"):
		return p.Can(Images)
	case part.Kind == session.PartFile:
		return p.Can(PDFs)
	}
	return true
}

func (p *Provider) comparePart(got, want *SentPart, ids map[string]string) string {
	if got.Role != want.Role || got.Kind != want.Kind {
		return fmt.Sprintf("want a %s of %s", want.Kind, want.Role)
	}
	switch want.Kind {
	case session.PartText:
		if got.Text != want.Text {
			return fmt.Sprintf("want the text %q", want.Text)
		}
	case session.PartReasoning:
		if signature, _ := session.Encode(Signature); !sameJSON(got.Provider, signature) || got.Text != want.Text {
			return fmt.Sprintf("want %q signed with %s, the signature is %s", want.Text, Signature, got.Provider)
		}
	case session.PartFile:
		if got.URL != want.URL || got.MediaType != want.MediaType {
			return "want the file as it was"
		}
	case session.PartToolCall:
		if got.Tool != want.Tool || !sameJSON(got.Input, want.Input) || got.ProviderCallID == "" {
			return fmt.Sprintf("want a call of %s with %s", want.Tool, want.Input)
		}
		ids[want.CallID] = got.ProviderCallID
	case session.PartToolResult:
		return p.compareResult(got, want, ids)
	}
	return ""
}

func (p *Provider) compareResult(got, want *SentPart, ids map[string]string) string {
	if got.ProviderCallID != ids[want.CallID] {
		return fmt.Sprintf("want the result of call %q, got that of %q", ids[want.CallID], got.ProviderCallID)
	}
	switch {
	case want.Error != nil:
		if !strings.Contains(got.Text, want.Error.Message) {
			return fmt.Sprintf("want the error %q", want.Error.Message)
		}
	case want.Output != nil:
		if !sameJSON(json.RawMessage(got.Text), want.Output) {
			return fmt.Sprintf("want %s", want.Output)
		}
	case got.Text != want.Text:
		return fmt.Sprintf("want %q", want.Text)
	}
	if failed := want.Error != nil; p.Can(ErrorResults) && (got.Error != nil) != failed {
		return fmt.Sprintf("want it marked as failed: %v", failed)
	}
	return ""
}

func showSent(parts []SentPart) string {
	var b strings.Builder
	for i := range parts {
		part := &parts[i]
		fmt.Fprintf(&b, "  %s %s %q %s %s %s %.40s\n", part.Role, part.Kind, part.Text, part.Tool, part.ProviderCallID, part.Input, part.URL)
	}
	return b.String()
}

func requestSettings(t testing.TB, p *Provider) {
	request := plainRequest()
	request.Settings = llm.Settings{
		MaxOutputTokens: 321, Temperature: new(0.25), TopP: new(0.75), TopK: new(40), PresencePenalty: new(0.5),
		FrequencyPenalty: new(-0.5), StopSequences: []string{"END", "STOP"}, Seed: new(int64(7)),
	}
	want := request.Settings
	if !p.Can(MaxTokens) {
		want.MaxOutputTokens = 0
	}
	for _, s := range []struct {
		feature Feature
		drop    func()
	}{
		{Temperature, func() { want.Temperature = nil }},
		{TopP, func() { want.TopP = nil }},
		{TopK, func() { want.TopK = nil }},
		{PresencePenalty, func() { want.PresencePenalty = nil }},
		{FrequencyPenalty, func() { want.FrequencyPenalty = nil }},
		{StopSequences, func() { want.StopSequences = nil }},
		{Seed, func() { want.Seed = nil }},
	} {
		if !p.Can(s.feature) {
			s.drop()
		}
	}
	if sent := p.send(t, request); !reflect.DeepEqual(sent.Settings, want) {
		t.Errorf("the settings were sent as\n%s, want\n%s", encode(t, sent.Settings), encode(t, want))
	}
}

// requestDefaults requires what was not set left to the provider.
func requestDefaults(t testing.TB, p *Provider) {
	sent := p.send(t, &llm.Request{Messages: []session.Message{session.UserText("Hello?")}})
	sent.Settings.MaxOutputTokens = 0 // some providers want one
	if !reflect.DeepEqual(sent.Settings, llm.Settings{}) || sent.Instructions != "" || len(sent.Tools) != 0 || sent.CachedPrefix {
		t.Errorf("sent %+v", sent)
	}
}

func requestExtras(t testing.TB, p *Provider) {
	request := plainRequest()
	request.Settings.Headers = map[string]string{"X-Team": "blue"}
	request.Settings.ProviderOptions = p.Options
	sent, got := p.sendRaw(t, request)
	if team := got.header.Get("X-Team"); team != "blue" {
		t.Errorf("the header was sent as %q", team)
	}
	var want map[string]json.RawMessage
	if p.Options != nil {
		if err := json.Unmarshal(p.Options, &want); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range want {
		if !sameJSON(sent.Options[name], value) {
			t.Errorf("option %s was sent as %s, want %s", name, sent.Options[name], value)
		}
	}
}

// optionsAreMerged requires options to be a merge patch of the request: what is within
// an object of the request leaves the rest of it alone, null takes a member away, and
// tools come on top of the agent's.
func optionsAreMerged(t testing.TB, p *Provider) {
	if p.Options == nil {
		t.Skipf("%s has no options", p.Name)
	}
	request := plainRequest()
	if p.Can(ToolNamed) { // which most providers send as an object
		request.ToolChoice = llm.ToolChoice{Mode: llm.ToolNamed, Name: "weather"}
	}
	plain := p.send(t, request).Options
	want := map[string]json.RawMessage{"x_new": json.RawMessage(`{"a":1,"deep":{"b":[null]}}`)}
	options := map[string]json.RawMessage{"x_new": json.RawMessage(`{"a":1,"gone":null,"deep":{"b":[null],"gone":null}}`)}
	for name, value := range plain {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) == nil && object != nil {
			object["x_new"] = json.RawMessage("true")
			want[name], options[name] = json.RawMessage(encode(t, object)), json.RawMessage(`{"x_new":true}`)
		}
	}
	var tools []json.RawMessage
	if err := json.Unmarshal(plain["tools"], &tools); err != nil {
		t.Fatalf("the tools are not a list in the member tools: %v", err)
	}
	tool := json.RawMessage(`{"x_new":{}}`)
	want["tools"] = json.RawMessage(encode(t, append(tools, tool)))
	options["tools"] = json.RawMessage(encode(t, []json.RawMessage{tool}))
	request.Settings.ProviderOptions = json.RawMessage(encode(t, options))
	got := p.send(t, request).Options
	for name, value := range want {
		if !sameJSON(got[name], value) {
			t.Errorf("with the option %s: %s the request has %s, want %s", name, options[name], got[name], value)
		}
	}
	request.Settings.ProviderOptions = json.RawMessage(`{"tools":null}`)
	if left, ok := p.send(t, request).Options["tools"]; ok {
		t.Errorf("null left the tools in the request: %s", left)
	}
}

func requestCache(t testing.TB, p *Provider) {
	request := richRequest(session.Part{})
	check := func(what string, prefix, latest bool, ttl time.Duration) {
		t.Helper()
		sent := p.send(t, request)
		if !p.Can(CacheTTL) {
			ttl = 0
		}
		if sent.CachedPrefix != (prefix && p.Can(CachePrefix)) || sent.CacheTTL != ttl {
			t.Errorf("%s: the prefix is marked %v for %s", what, sent.CachedPrefix, sent.CacheTTL)
		}
		var marked []int
		last := -1
		for i := range sent.Parts {
			if sent.Parts[i].Kind == session.PartToolResult {
				last = i
			}
			if sent.Parts[i].Cached {
				marked = append(marked, i)
			}
		}
		var want []int
		if latest && p.Can(CacheLatestTurn) {
			want = []int{last}
		}
		if !slices.Equal(marked, want) {
			t.Errorf("%s: the parts %v are marked, want %v", what, marked, want)
		}
	}
	check("nothing asked", false, false, 0)
	request.Settings.Cache = llm.Cache{Prefix: true}
	check("prefix", true, false, 0)
	request.Settings.Cache = llm.Cache{Prefix: true, LatestTurn: true, TTL: time.Hour}
	check("latest turn, for an hour", true, true, time.Hour)
}

// requestForeign sends what other models and providers may have left in a
// transcript: nothing of it may make a provider refuse the request.
func requestForeign(t testing.TB, p *Provider) {
	calls := []session.Part{
		{Kind: session.PartToolCall, CallID: "s1:m1:0", ProviderCallID: "same", Tool: "functions.look up!", Input: json.RawMessage(`[1]`)},
		{Kind: session.PartToolCall, CallID: "s1:m1:1", ProviderCallID: "odd/ïd " + strings.Repeat("x", 90), Tool: "search", Input: json.RawMessage(`{}`)},
	}
	again := session.Part{Kind: session.PartToolCall, CallID: "s1:m2:0", ProviderCallID: "same", Tool: "search", Input: json.RawMessage(`{}`)}
	sent := p.send(t, &llm.Request{
		Messages: []session.Message{
			session.UserText("Hello?"),
			{Role: session.RoleAssistant, Parts: append([]session.Part{
				{Kind: session.PartReasoning, Text: "thoughts of another", Provider: json.RawMessage(`{"elsewhere":{"signature":"foreign-blob"}}`)},
				{Kind: session.PartReasoning, Text: "unsigned thoughts"},
				session.Text(" \n"),
			}, calls...)},
			session.ToolResult(calls[0], json.RawMessage(`""`)),
			session.ToolResult(calls[1], json.RawMessage(`null`)),
			{Role: session.RoleAssistant, Parts: []session.Part{again}},
			session.ToolResult(again, json.RawMessage(`"ok"`)),
			{Role: session.RoleAssistant, Parts: []session.Part{{Kind: session.PartReasoning, Text: "only thoughts"}}},
			session.UserText("And now?"),
		},
		Tools: plainRequest().Tools,
	})
	seen := map[string]bool{}
	answered := 0
	for i := range sent.Parts {
		part := &sent.Parts[i]
		switch part.Kind {
		case session.PartToolCall:
			if seen[part.ProviderCallID] || !plainName(part.ProviderCallID) || !plainName(part.Tool) {
				t.Errorf("call %q of %q is not plain or not unique", part.ProviderCallID, part.Tool)
			}
			seen[part.ProviderCallID] = true
		case session.PartToolResult:
			answered++
			if !seen[part.ProviderCallID] {
				t.Errorf("a result answers call %q, which was not made", part.ProviderCallID)
			}
		case session.PartReasoning:
			if bytes.Contains(part.Provider, []byte("foreign-blob")) {
				t.Error("another provider's signature was sent")
			}
		}
	}
	if len(seen) != 3 || answered != 3 {
		t.Errorf("%d calls and %d results were sent, want three of each", len(seen), answered)
	}
}

func plainName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}
