package wiretest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// hard is a text with everything that encoders of JSON treat in their own ways.
const hard = "a<b>&c \"quoted\" \\ / \t\n\r\u2028\u2029\x00\x7f é 🌍 \xff end"

// Request is a model call with a name.
type Request struct {
	Name string
	llm.Request
}

func user(text string) session.Message { return session.UserText(text) }

func assistant(parts ...session.Part) session.Message {
	return session.Message{Role: session.RoleAssistant, Parts: parts}
}

func system(text string) session.Message {
	return session.Message{Role: session.RoleSystem, Parts: []session.Part{session.Text(text)}}
}

func call(id, providerID, tool, input string) session.Part {
	return session.Part{Kind: session.PartToolCall, CallID: id, ProviderCallID: providerID, Tool: tool, Input: json.RawMessage(input)}
}

func file(mediaType, url, name string) session.Part {
	return session.Part{Kind: session.PartFile, MediaType: mediaType, URL: url, Filename: name}
}

func hello() []session.Message { return []session.Message{user("Hello?")} }

// Requests returns requests that use everything a request can hold.
func Requests() []Request {
	var out []Request
	add := func(name string, r llm.Request) { out = append(out, Request{name, r}) }
	add("plain", llm.Request{Messages: hello()})
	add("empty", llm.Request{})
	add("instructions", llm.Request{Instructions: hard, Messages: []session.Message{user(hard)}, SessionID: "s1", Agent: "a", RunID: "r1", Step: 4})
	add("blank", llm.Request{Instructions: " \n", Messages: []session.Message{user(" "), assistant(session.Text("\t")), user("Hello?")}})
	add("long-session-id", llm.Request{Messages: hello(), SessionID: strings.Repeat("s", 65)})
	add("system-messages", llm.Request{Instructions: "Be terse.", Messages: []session.Message{
		system("Be kind."), system(" "), user("Hello?"), assistant(session.Text("Hi.")), system("It is late."), user("And?"),
	}})
	out = append(out, settings()...)
	out = append(out, tools()...)
	add("transcript", llm.Request{Messages: transcript(), Tools: someTools()})
	add("cached-transcript", llm.Request{
		Instructions: "Be terse.", Messages: transcript(), Tools: someTools(),
		Settings: llm.Settings{Cache: llm.Cache{Prefix: true, LatestTurn: true}},
	})
	add("cached-tools", llm.Request{Messages: hello(), Tools: someTools(), Settings: llm.Settings{Cache: llm.Cache{Prefix: true, TTL: time.Minute}}})
	add("cached-for-an-hour", llm.Request{Instructions: "Be terse.", Messages: transcript(), Settings: llm.Settings{Cache: llm.Cache{LatestTurn: true, TTL: time.Hour}}})
	add("files", llm.Request{Messages: []session.Message{{Role: session.RoleUser, Parts: files()}}})
	add("files-of-the-model", llm.Request{Messages: []session.Message{user("Draw."), assistant(files()...), user("Again.")}})
	out = append(out, options()...)
	add("long-transcript", llm.Request{Instructions: "Be terse.", SessionID: "s1", Tools: someTools(), Messages: longTranscript(120)})
	return out
}

func settings() []Request {
	return []Request{
		{"all-settings", llm.Request{Messages: hello(), Settings: llm.Settings{
			MaxOutputTokens: 321, Temperature: new(0.25), TopP: new(0.75), TopK: new(40), PresencePenalty: new(0.5), FrequencyPenalty: new(-0.5),
			StopSequences: []string{"END", hard}, Seed: new(int64(7)), StrictOutput: true,
		}}},
		{"zero-settings", llm.Request{Messages: hello(), Settings: llm.Settings{
			Temperature: new(0.0), TopP: new(0.0), TopK: new(0), PresencePenalty: new(0.0), FrequencyPenalty: new(0.0), StopSequences: []string{}, Seed: new(int64(0)),
		}}},
		{"odd-numbers", llm.Request{Messages: hello(), Settings: llm.Settings{
			MaxOutputTokens: 1 << 40, Temperature: new(1.9999999999), TopP: new(1e-9), TopK: new(-1), PresencePenalty: new(1e21),
			FrequencyPenalty: new(-1.0 / 3), Seed: new(int64(-1 << 62)),
		}}},
		{"headers", llm.Request{Messages: hello(), Settings: llm.Settings{Headers: map[string]string{
			"x-team": "blue", "Anthropic-Beta": "three-2025-01-01", "anthropic-version": "2024-01-01", "OpenAI-Project": "p2", "user-agent": "mine/1",
			"Accept": "text/plain", "content-type": "application/x-json", "Idempotency-Key": "k1", "X-Empty": "",
		}}}},
	}
}

func someTools() []llm.Tool {
	return []llm.Tool{
		{
			Name: "search", Description: "Searches <all> & everything.", Strict: true,
			Schema: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer"}},"required":["query","limit"],"additionalProperties":false}`),
		},
		{
			Name: "weather", Strict: true,
			Schema: json.RawMessage("{ \"type\" : \"object\",\n \"properties\":{\"z\":{\"type\":\"string\",\"description\":\"<b>&\u2028\"},\"a\":{\"type\":\"number\",\"maximum\":1.50e2}}, \"required\": [ ] }\n"),
		},
		{Name: "bare"},
		{Name: "closed", Schema: json.RawMessage(`{"type":"object","additionalProperties":false}`), Strict: true},
	}
}

func tools() []Request {
	out := []Request{{"tools", llm.Request{Messages: hello(), Tools: someTools()}}}
	for _, choice := range []llm.ToolChoice{{Mode: llm.ToolRequired}, {Mode: llm.ToolNamed, Name: "weather"}, {Mode: llm.ToolNone}} {
		out = append(
			out,
			Request{"choice-" + string(choice.Mode), llm.Request{Messages: hello(), Tools: someTools(), ToolChoice: choice}},
			Request{"choice-" + string(choice.Mode) + "-without-tools", llm.Request{Messages: hello(), ToolChoice: choice}},
		)
	}
	return out
}

// transcript has what several providers, models and tools may have left.
func transcript() []session.Message {
	first := call("s1:m1:0", "call_1", "search", `{"query": "a <b> \u00e9 `+"\u2028"+`", "limit": 1e0, "big": 12345678901234567890}`)
	second := call("s1:m1:1", "call_1", "no such tool!", `[1, 2]`)
	third := call("s1:m1:2", "", "weather", `{"broken": `)
	fourth := call("s1:m2:0", "odd/ïd "+strings.Repeat("x", 90), "weather", ``)
	thought := func(text, provider string) session.Part {
		return session.Part{Kind: session.PartReasoning, Text: text, Provider: json.RawMessage(provider)}
	}
	signed := session.Part{Kind: session.PartText, Text: "Let me look.", Provider: json.RawMessage(`{"gemini":{"signature":"dGV4dA=="},"openai":{"phase":"commentary"}}`)}
	fourth.Provider = json.RawMessage(`{"gemini":{"signature":"Y2FsbA=="}}`)
	return []session.Message{
		user(hard),
		assistant(
			thought("Mine.", `{"anthropic":{"signature":"sig<1>"}}`), thought("", `{"anthropic":{"redacted":"sealed&"}}`),
			thought("Ours.", `{"openai":{"id":"rs_1","encrypted":"enc<2>"}}`), thought("", `{"openai":{"id":"rs_2","encrypted":"x"}}`),
			thought("Theirs.", `{"gemini":{"signature":"c2ln"}}`), thought("Unsigned.", ""),
			signed, session.Text(hard), first, second, third,
		),
		session.ToolResult(first, json.RawMessage(`"north\nand \"south\" <b>"`)),
		session.ToolResult(second, json.RawMessage(`{"n": [1, 2.50], "ok": true, "text": "<&>"}`)),
		session.ToolFailure(third, &session.Error{Code: session.CodeToolFailed, Message: "no such <city>"}),
		assistant(fourth),
		session.ToolResult(fourth, json.RawMessage(`null`)),
		assistant(session.Text("One.")), assistant(session.Text("Two.")),
		user("And now?"), user("Well?"),
		assistant(thought("Only thoughts.", `{"openai":{"id":"rs_3","encrypted":"y"}}`)),
		assistant(call("s1:m5:0", "call_9", "search", `{}`)),
		session.ToolResult(call("s1:m5:0", "call_9", "search", `{}`), json.RawMessage(`""`)),
	}
}

func files() []session.Part {
	return []session.Part{
		session.Text("What is on these?"),
		file("image/png", "data:image/png;base64,iVBORw0KGgo=", "dot.png"), file("image/png", "https://example.com/a.png?x=1&y=<2>", ""),
		file("image/svg+xml", "data:image/svg+xml,%3Csvg%2F%3E", ""), file("image/png", "data:nonsense", ""),
		file("application/pdf", "data:application/pdf;base64,JVBERg==", "notes <1>.pdf"), file("application/pdf", "data:application/pdf;base64,JVBERg==", ""),
		file("application/pdf", "https://example.com/a.pdf", "a.pdf"),
		file("text/plain", "data:text/plain,a%20b", "note.txt"), file("text/plain", "data:text/plain;charset=utf-8;base64,PGI+", ""),
		file("text/plain", "data:text/plain,%20", ""), file("text/plain", "https://example.com/a.txt", ""),
		file("application/json", `data:application/json,{"a":1}`, "a.json"),
		file("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "data:application/octet-stream;base64,AAAA", "a.docx"),
		file("audio/mpeg", "data:audio/mpeg;base64,AAAA", ""), file("audio/wav", "data:audio/wav;base64,AAAA", ""), file("audio/ogg", "data:audio/ogg;base64,AAAA", ""),
		file("video/mp4", "https://example.com/v.mp4", "v.mp4"), file("video/mp4", "data:video/mp4;base64,AAAA", ""),
	}
}

func options() []Request {
	of := func(name, raw string) Request {
		return Request{"options-" + name, llm.Request{
			Instructions: "Be terse.", Messages: hello(), Tools: someTools(), ToolChoice: llm.ToolChoice{Mode: llm.ToolNamed, Name: "weather"}, SessionID: "s1",
			Settings: llm.Settings{MaxOutputTokens: 9, Temperature: new(0.5), TopP: new(0.99), TopK: new(3), ProviderOptions: json.RawMessage(raw)},
		}}
	}
	return []Request{
		of("none", `{}`),
		of("by-provider", `{"openai":{"reasoning":{"effort":"high","summary":"auto"},"service_tier":"flex","stream_options":{"include_obfuscation":false}},
			"anthropic":{"thinking":{"type":"enabled","budget_tokens":2048},"betas":["one-2025-01-01","two-2025-01-01"],"metadata":{"user_id":"u<1>"}},
			"gemini":{"generationConfig":{"thinkingConfig":{"includeThoughts":true,"thinkingBudget":12345678901234567}},"safetySettings":[{"category":"X","threshold":"BLOCK_NONE"}]}}`),
		of("of-others", `{"gemini":{"x":1},"anthropic":{"x":2}}`),
		of("names", `{"new.option":{"x":[1]},"5":"number","a|b":1,"c*d":2,"e?f":3,"g#h":4,"@i":5,":j":6,"k\\l":7,"é<m>":8,"n o":9}`),
		of("values", `{"spaced": { "b" : [ 1, 2.50, "<&> \u00e9 \u2028" ], "a" : 12345678901234567890 }, "null_inside": {"a": null, "b": [null]}, "text": "<b>", "no": false}`),
		of("replaced", `{"model":"other","stream":false,"max_tokens":5,"max_output_tokens":6,"temperature":1,"input":"x","messages":[],"contents":[]}`),
		of("removed", `{"temperature":null,"tools":null,"tool_choice":null,"toolConfig":null,"system":null,"instructions":null,"systemInstruction":null,"absent":null,"stream_options":null}`),
		of("first-and-last-removed", `{"max_tokens":null,"input":null,"messages":null,"contents":null,"model":null,"store":null}`),
		of("merged", `{"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"tools":[{"type": "web_search"}],"generationConfig":{"topP":null,"topK":7,"new":{}},
			"toolConfig":{"functionCallingConfig":{"mode":"VALIDATED"}},"include":["x"],"thinking":{"type":"adaptive"}}`),
		of("tools-replaced", `{"tools":"none"}`),
	}
}

// longTranscript returns n messages: questions, calls, results and answers.
func longTranscript(n int) []session.Message {
	out := []session.Message{user("Hello.")}
	for i := 0; len(out) < n; i++ {
		c := call(fmt.Sprintf("s1:m%d:0", i), fmt.Sprintf("call_%d", i%7), "search", fmt.Sprintf(`{"query": "number %d","limit":1e0}`, i))
		out = append(
			out, user(fmt.Sprintf("Question %d <&> \u2028?", i)), assistant(c),
			session.ToolResult(c, json.RawMessage(fmt.Sprintf(`{"b": %d, "a": [1.0, 2]}`, i))), assistant(session.Text(fmt.Sprintf("Answer %d.", i))),
		)
	}
	return out[:n]
}
