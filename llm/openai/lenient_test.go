package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/llmtest"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/session"
)

// result is what came of a call.
type result struct {
	reply  *llm.Response
	err    error
	deltas []llm.Delta
	sent   map[string]json.RawMessage
	header http.Header
}

// ask plays a body to one call.
func ask(t *testing.T, cfg openai.Config, answer http.HandlerFunc, request *llm.Request) result {
	t.Helper()
	var out result
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &out.sent) != nil {
			t.Errorf("%v: %s", err, raw)
		}
		recording.Request(t, r, raw)
		out.header = r.Header
		answer(w, r)
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	cfg.BaseURL = server.URL
	if cfg.Model == "" {
		cfg.Model = llmtest.AskedModel
	}
	if request == nil {
		request = &llm.Request{}
	}
	if request.Messages == nil {
		request.Messages = []session.Message{session.UserText("Hello?")}
	}
	out.reply, out.err = openai.New(cfg).Generate(t.Context(), request, func(d llm.Delta) { out.deltas = append(out.deltas, d) })
	return out
}

func play(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// events makes a stream.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// encode returns parts as they are stored.
func encode(t *testing.T, parts []session.Part) string {
	t.Helper()
	raw, err := session.Encode(session.Message{Role: session.RoleAssistant, Parts: parts})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

var chat = openai.Config{API: openai.ChatCompletions}

func delta(message string) string { return `{"choices":[{"delta":` + message + `}]}` }
func ending(reason string) string {
	return `{"choices":[{"delta":{},"finish_reason":"` + reason + `"}]}`
}
func text(s string) session.Part    { return session.Text(s) }
func thought(s string) session.Part { return session.Part{Kind: session.PartReasoning, Text: s} }

func called(id, tool, input string) session.Part {
	return session.Part{Kind: session.PartToolCall, ProviderCallID: id, Tool: tool, Input: json.RawMessage(input)}
}

func TestChatTakesServersAsTheyAre(t *testing.T) {
	t.Parallel()
	const piece = `{"tool_calls":[{"function":{"arguments":"1}"}}]}`
	for name, c := range map[string]struct {
		body   string
		parts  []session.Part
		finish llm.FinishReason
		usage  session.Usage
	}{
		"no usage, no model, no end": {
			body: events(delta(`{"content":"Yes."}`), ending("stop")), parts: []session.Part{text("Yes.")}, finish: llm.FinishStop,
		},
		"no finish reason": {
			body: events(delta(`{"content":"Yes."}`), "[DONE]"), parts: []session.Part{text("Yes.")}, finish: llm.FinishStop,
		},
		"a finish reason that is empty at first": {
			body:  events(`{"choices":[{"delta":{"content":"Y"},"finish_reason":""}]}`, delta(`{"content":"es."}`), ending("stop")),
			parts: []session.Part{text("Yes.")}, finish: llm.FinishStop,
		},
		"reasoning": {
			body:  events(delta(`{"reasoning":"Hm"}`), delta(`{"reasoning":"m.","reasoning_content":null}`), delta(`{"content":"Yes."}`), ending("stop")),
			parts: []session.Part{thought("Hmm."), text("Yes.")}, finish: llm.FinishStop,
		},
		"reasoning under two names": {
			body:  events(delta(`{"reasoning":"Hm.","reasoning_content":"Hm."}`), delta(`{"content":"Yes."}`), ending("stop")),
			parts: []session.Part{thought("Hm."), text("Yes.")}, finish: llm.FinishStop,
		},
		"content in parts": {
			body: events(delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]}]}`),
				delta(`{"content":[{"type":"text","text":"Yes."}]}`), ending("stop")),
			parts: []session.Part{thought("Hm."), text("Yes.")}, finish: llm.FinishStop,
		},
		"calls without index": {
			body: events(delta(`{"tool_calls":[{"id":"a","function":{"name":"search","arguments":"{\"n\":"}}]}`), delta(piece),
				delta(`{"tool_calls":[{"id":"b","function":{"name":"search","arguments":"{\"n\":"}}]}`), delta(piece), ending("tool_calls")),
			parts: []session.Part{called("a", "search", `{"n":1}`), called("b", "search", `{"n":1}`)}, finish: llm.FinishToolCalls,
		},
		"calls without index and id": {
			body: events(delta(`{"tool_calls":[{"function":{"name":"search","arguments":"{\"n\":"}}]}`), delta(piece),
				delta(`{"tool_calls":[{"function":{"name":"weather","arguments":{"n":2}}}]}`), ending("stop")),
			parts: []session.Part{called("", "search", `{"n":1}`), called("", "weather", `{"n":2}`)}, finish: llm.FinishToolCalls,
		},
		"calls that are all number 0": {
			body: events(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"search","arguments":"{}"}}]}`),
				delta(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"weather","arguments":"{}"}}]}`), ending("stop")),
			parts: []session.Part{called("a", "search", `{}`), called("b", "weather", `{}`)}, finish: llm.FinishToolCalls,
		},
		"a call that repeats its id and name": {
			body: events(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"search","arguments":"{\"n\":"}}]}`),
				delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"search","arguments":"1}"}}]}`), ending("stop")),
			parts: []session.Part{called("a", "search", `{"n":1}`)}, finish: llm.FinishToolCalls,
		},
		"a call whose name comes late": {
			body: events(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{\"n\":"}}]}`),
				delta(`{"tool_calls":[{"index":0,"function":{"name":"search","arguments":"1}"}}]}`), ending("stop")),
			parts: []session.Part{called("a", "search", `{"n":1}`)}, finish: llm.FinishToolCalls,
		},
		"calls that are announced and do not come": {
			body: events(delta(`{"content":"Yes."}`), ending("tool_calls")), parts: []session.Part{text("Yes.")}, finish: llm.FinishStop,
		},
		"an answer that is not a stream": {
			body: "\n" + `{"model":"m","choices":[{"message":{"content":"Let me look.","reasoning":"Hm.","tool_calls":[` +
				`{"id":"a","type":"function","function":{"name":"search","arguments":"{\"n\":1}"}},` +
				`{"type":"function","function":{"name":"weather","arguments":"{}"}}]},"finish_reason":"tool_calls"}],` +
				`"usage":{"prompt_tokens":3,"completion_tokens":4}}`,
			parts:  []session.Part{thought("Hm."), text("Let me look."), called("a", "search", `{"n":1}`), called("", "weather", `{}`)},
			finish: llm.FinishToolCalls, usage: session.Usage{InputTokens: 3, OutputTokens: 4},
		},
		"reasoning counted beside the output": {
			body: events(delta(`{"content":"Yes."}`), ending("stop"), `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,`+
				`"total_tokens":12,"completion_tokens_details":{"reasoning_tokens":5}}}`),
			parts: []session.Part{text("Yes.")}, finish: llm.FinishStop,
			usage: session.Usage{InputTokens: 3, OutputTokens: 9, ReasoningTokens: 5},
		},
		"usage without details": {
			body: events(delta(`{"content":"Yes."}`), ending("stop"), `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,`+
				`"prompt_tokens_details":null}}`),
			parts: []session.Part{text("Yes.")}, finish: llm.FinishStop, usage: session.Usage{InputTokens: 3, OutputTokens: 4},
		},
		"a refusal": {
			body:  events(delta(`{"refusal":"I can"}`), delta(`{"refusal":"not."}`), ending("stop"), "[DONE]"),
			parts: []session.Part{text("I cannot.")}, finish: llm.FinishContentFilter,
		},
		"several choices": {
			body:  events(`{"choices":[{"index":1,"delta":{"content":"No."}},{"index":0,"delta":{"content":"Yes."}}]}`, ending("stop")),
			parts: []session.Part{text("Yes.")}, finish: llm.FinishStop,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ask(t, chat, play(c.body), nil)
			if got.err != nil {
				t.Fatal(got.err)
			}
			if encode(t, got.reply.Parts) != encode(t, c.parts) || got.reply.Finish != c.finish || got.reply.Usage != c.usage {
				t.Errorf("got %+v", got.reply)
			}
			if err := llmtest.DeltasMatch(got.deltas, got.reply.Parts); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server that has said everything and keeps the connection does not hold up the
// reply.
func TestChatDoesNotWaitForNothing(t *testing.T) {
	t.Parallel()
	got := ask(t, chat, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, events(delta(`{"content":"Yes."}`), ending("stop"), `{"choices":[],"usage":{"prompt_tokens":3}}`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, nil)
	if got.err != nil || got.reply.Usage.InputTokens != 3 {
		t.Errorf("got %+v, %v", got.reply, got.err)
	}
}

func TestFailuresAreClassified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		api       openai.API
		status    int
		header    map[string]string
		body      string
		code      session.Code
		retryable bool
		after     time.Duration
	}{
		"quota": {
			status: 429, body: `{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}`,
			code: session.CodeQuota,
		},
		"milliseconds to wait": {
			status: 429, header: map[string]string{"Retry-After-Ms": "250", "Retry-After": "1"}, body: `{}`,
			code: session.CodeRateLimited, retryable: true, after: 250 * time.Millisecond,
		},
		"a limit that is renewed": {
			status: 429, header: map[string]string{"X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "6m0s"}, body: `{}`,
			code: session.CodeRateLimited, retryable: true, after: 6 * time.Minute,
		},
		"a time to wait in words": {
			status: 429, body: `{"error":{"message":"Rate limit reached. Please try again in 1.5s.","code":"rate_limit_exceeded"}}`,
			code: session.CodeRateLimited, retryable: true, after: 1500 * time.Millisecond,
		},
		"a filter": {
			status: 400, body: `{"error":{"message":"The response was filtered.","code":"content_filter"}}`, code: session.CodeContentFilter,
		},
		"an error that is a text": {status: 404, body: `{"error":"model 'x' not found"}`, code: session.CodeBadRequest},
		"an error without a frame": {
			status: 400, body: `{"object":"error","message":"This model's maximum context length is 10 tokens.","type":"BadRequestError","code":400}`,
			code: session.CodeContextLength,
		},
		"a list":  {status: 400, body: `[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]`, code: session.CodeAuth},
		"nothing": {status: 500, code: session.CodeProviderDown, retryable: true},
		"an error with status 200": {
			api: openai.ChatCompletions, body: `{"error":{"message":"no","code":"invalid_api_key"}}`, code: session.CodeAuth,
		},
		"an error with status 200, Responses": {body: `{"error":{"message":"no","code":"invalid_api_key"}}`, code: session.CodeAuth},
		"a status in the stream": {
			api: openai.ChatCompletions, body: events(`{"choices":[],"error":{"code":429,"message":"slow down"}}`),
			code: session.CodeRateLimited, retryable: true,
		},
		"a finish reason that is an error": {
			api: openai.ChatCompletions, body: events(ending("error")), code: session.CodeProviderDown, retryable: true,
		},
		"a call without a name": {
			api: openai.ChatCompletions, body: events(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}`), ending("stop")),
			code: session.CodeMalformed, retryable: true,
		},
		"a response that failed": {
			body: events(`{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded",` +
				`"message":"Please try again in 11.054s."}}}`),
			code: session.CodeRateLimited, retryable: true, after: 11054 * time.Millisecond,
		},
		"a response that failed on the server": {
			body: events(`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"oops"}}}`),
			code: session.CodeProviderDown, retryable: true,
		},
		"a response that failed for its prompt": {
			body: events(`{"type":"response.failed","response":{"status":"failed","error":{"code":"invalid_prompt","message":"no"}}}`),
			code: session.CodeBadRequest,
		},
		"a response that failed for a policy": {
			body: events(`{"type":"response.failed","response":{"status":"failed","error":{"code":"bio_policy","message":"no"}}}`),
			code: session.CodeContentFilter,
		},
		"a response that failed without a word": {
			body: events(`{"type":"response.failed","response":{"status":"failed","error":null}}`), code: session.CodeProviderDown, retryable: true,
		},
		"an error in a frame": {
			body: events(`{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"too long"}}`),
			code: session.CodeContextLength,
		},
		"a page":      {body: "<html></html>", code: session.CodeProviderDown, retryable: true},
		"half a body": {body: `{"status":"comple`, code: session.CodeMalformed, retryable: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ask(t, openai.Config{API: c.api}, func(w http.ResponseWriter, _ *http.Request) {
				for header, value := range c.header {
					w.Header().Set(header, value)
				}
				if c.status != 0 {
					w.WriteHeader(c.status)
				}
				_, _ = io.WriteString(w, c.body)
			}, nil)
			e, ok := errors.AsType[*session.Error](got.err)
			if !ok || e.Code != c.code || e.Retryable != c.retryable {
				t.Fatalf("got %#v", got.err)
			}
			var wait time.Duration
			if after, ok := errors.AsType[*llm.RetryAfterError](got.err); ok {
				wait = after.After
			}
			if wait != c.after {
				t.Errorf("it says to wait %s, want %s", wait, c.after)
			}
		})
	}
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The response that ends a stream is the answer where nothing is streamed.
func TestResponsesWithoutStream(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"text", "reasoning", "tools", "text-and-tools", "length"} {
		stream := recorded(t, "responses/"+name+".sse")
		streamed := ask(t, openai.Config{}, play(stream), nil)
		last := stream[strings.LastIndex(stream, "data: ")+len("data: "):]
		var event struct {
			Response json.RawMessage `json:"response"`
		}
		if err := json.Unmarshal([]byte(last), &event); err != nil {
			t.Fatal(err)
		}
		whole := ask(t, openai.Config{}, play(string(event.Response)), nil)
		if streamed.err != nil || whole.err != nil || encode(t, streamed.reply.Parts) != encode(t, whole.reply.Parts) ||
			streamed.reply.Finish != whole.reply.Finish || streamed.reply.Usage != whole.reply.Usage {
			t.Errorf("%s: streamed %+v, %v; whole %+v, %v", name, streamed.reply, streamed.err, whole.reply, whole.err)
		}
		if err := llmtest.DeltasMatch(whole.deltas, whole.reply.Parts); err != nil {
			t.Error(err)
		}
	}
}

func TestResponsesReasoning(t *testing.T) {
	t.Parallel()
	const (
		begin = `{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning"}}`
		end   = `{"type":"response.completed","response":{"status":"completed"}}`
	)
	for name, c := range map[string]struct {
		body string
		want []session.Part
	}{
		"a summary of several parts": {
			events(begin, `{"type":"response.reasoning_summary_text.delta","summary_index":0,"delta":"One."}`,
				`{"type":"response.reasoning_summary_text.delta","summary_index":1,"delta":"Two."}`,
				`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[{"text":"One."},{"text":"Two."}]}}`, end),
			[]session.Part{thought("One.\n\nTwo.")},
		},
		"the model's own words": {
			events(begin, `{"type":"response.reasoning_text.delta","delta":"Hm."}`,
				`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[{"text":"Thinks."}],"content":[{"text":"Hm."}]}}`, end),
			[]session.Part{thought("Hm.")},
		},
		"sealed only": {
			events(begin, `{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"x"}}`, end),
			[]session.Part{{Kind: session.PartReasoning, Provider: json.RawMessage(`{"openai":{"id":"rs_1","encrypted":"x"}}`)}},
		},
		"a remark": {
			events(`{"type":"response.output_item.done","output_index":0,"item":{"type":"message","phase":"commentary",`+
				`"content":[{"type":"output_text","text":"Let me look."}]}}`, end),
			[]session.Part{{Kind: session.PartText, Text: "Let me look.", Provider: json.RawMessage(`{"openai":{"phase":"commentary"}}`)}},
		},
		"events without numbers that count": {
			events(`{"type":"response.output_text.delta","sequence_number":0,"delta":"Ye"}`,
				`{"type":"response.output_text.delta","sequence_number":0,"delta":"s."}`, end),
			[]session.Part{text("Yes.")},
		},
		"a refusal": {
			events(`{"type":"response.refusal.delta","delta":"I can"}`, `{"type":"response.refusal.done","refusal":"I cannot."}`, end),
			[]session.Part{text("I cannot.")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ask(t, openai.Config{}, play(c.body), nil)
			if got.err != nil || encode(t, got.reply.Parts) != encode(t, c.want) {
				t.Errorf("got %+v, %v", got.reply, got.err)
			}
		})
	}
}

// A server that begins calls without end is not followed, in events of any size.
func TestChatBoundsCalls(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]string{
		"named":   `{"index":%d,"id":"c%[1]d","function":{"name":"note","arguments":"{}"}}`,
		"unnamed": `{"index":%d,"function":{"arguments":"{}"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []string
			for i := range 20_000 {
				all = append(all, delta(`{"tool_calls":[`+fmt.Sprintf(call, i)+`]}`))
			}
			got := ask(t, chat, play(events(append(all, ending("tool_calls"))...)), nil)
			e, ok := errors.AsType[*session.Error](got.err)
			if !ok || e.Code != session.CodeMalformed || e.Retryable || !strings.Contains(e.Message, "too large") {
				t.Errorf("got %v", got.err)
			}
		})
	}
}
