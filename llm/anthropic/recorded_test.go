package anthropic_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/anthropic"
	"github.com/helixagents/helix/llm/internal/wiretest"
	"github.com/helixagents/helix/session"
)

var update = flag.Bool("update", false, "add new requests to testdata/wire and replace its outcomes")

// recording has the wire as it was with Anthropic's SDK.
var recording = wiretest.New("testdata/wire", update)

func good(t *testing.T) wiretest.Answer {
	t.Helper()
	raw, err := os.ReadFile("testdata/text-whole.sse")
	if err != nil {
		t.Fatal(err)
	}
	return wiretest.Answer{Body: string(raw)}
}

func TestRecordedRequests(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"claude-sonnet-4-5", "claude-3-haiku-20240307"} {
		for _, r := range wiretest.Requests() {
			t.Run(model+"/"+r.Name, func(t *testing.T) {
				recording.Send(t, func(baseURL string) llm.Model {
					return anthropic.New(anthropic.Config{Model: model, APIKey: wiretest.Key, BaseURL: baseURL})
				}, good(t), &r.Request)
			})
		}
	}
}

func TestRecordedConfigurations(t *testing.T) {
	t.Parallel()
	var cfgs []anthropic.Config
	for _, path := range wiretest.Paths() {
		cfgs = append(cfgs, anthropic.Config{BaseURL: path, APIKey: wiretest.Key})
	}
	for _, headers := range wiretest.Gateways() {
		cfgs = append(cfgs, anthropic.Config{Headers: headers, APIKey: wiretest.Key})
		if headers["authorization"] != "" || headers["X-API-Key"] != "" {
			cfgs = append(cfgs, anthropic.Config{Headers: headers})
		}
	}
	cfgs = append(
		cfgs,
		anthropic.Config{APIKey: wiretest.Key, MaxOutputTokens: 77},
		anthropic.Config{APIKey: wiretest.Key, HTTPClient: &http.Client{Timeout: time.Minute}},
	)
	for i, cfg := range cfgs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			cfg.Model = "claude-sonnet-4-5"
			open := func(baseURL string) llm.Model {
				c := cfg
				c.BaseURL = baseURL + c.BaseURL
				return anthropic.New(c)
			}
			request := &llm.Request{Messages: []session.Message{session.UserText("Hello?")}}
			recording.Send(t, open, good(t), request)
			t.Run("headers of the call", func(t *testing.T) {
				request.Settings.Headers = map[string]string{"Authorization": "Bearer of-the-call", "x-api-key": "of-the-call"}
				recording.Send(t, open, good(t), request)
			})
			t.Run("betas of the call", func(t *testing.T) {
				request.Settings.Headers = nil
				request.Settings.ProviderOptions = json.RawMessage(`{"betas":["one-2025-01-01","two-2025-01-01"]}`)
				recording.Send(t, open, good(t), request)
			})
		})
	}
}

func TestRecordedOutcomes(t *testing.T) {
	t.Parallel()
	answers := append(wiretest.Refusals(), wiretest.Streams()...)
	for name, events := range streams {
		answers = append(answers, wiretest.Answer{Name: name, Header: map[string]string{"Request-Id": "req_1"}, Body: events})
	}
	for _, answer := range answers {
		t.Run(answer.Name, func(t *testing.T) {
			recording.Play(t, func(baseURL string) llm.Model {
				return anthropic.New(anthropic.Config{Model: "claude-sonnet-4-5", APIKey: wiretest.Key, BaseURL: baseURL})
			}, answer, &llm.Request{Messages: []session.Message{session.UserText("Hello?")}})
		})
	}
}

// streams are streams that servers of the same wire may send, broken ones among them.
var streams = map[string]string{
	"event without name":  "data: {\"type\":\"message_stop\"}\n\n" + named("message_stop", `{}`),
	"name of another":     "event: ping\ndata: {\"type\":\"message_stop\"}\n\n",
	"type of another":     named("content_block_delta", `{"type":"message_stop"}`),
	"unknown name":        named("new", `{"type":"message_stop"}`),
	"no data":             "event: message_start\n\n" + named("message_stop", `{"type":"message_stop"}`),
	"error without type":  named("error", `{"error":{"message":"Odd."}}`),
	"error of the API":    begun + named("error", `{"type":"error","error":{"type":"api_error","message":"Internal"},"request_id":"req_2"}`),
	"error with its data": begun + named("error", `{"type":"error","error":"text"}`),
	"stop twice":          begun + whole("0", `{"type":"text","text":"Yes."}`) + stopped("end_turn") + stopped("max_tokens"),
	"text at once":        begun + whole("0", `{"type":"text","text":"Yes."}`) + stopped("end_turn"),
	"thinking at once":    begun + whole("0", `{"type":"thinking","thinking":"Hm.","signature":"sig"}`) + stopped("end_turn"),
	"signature in pieces": begun + named("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`) +
		piece(`{"type":"signature_delta","signature":"a"}`) + piece(`{"type":"signature_delta","signature":"b"}`) + stopped("end_turn"),
	"input with spaces":   begun + whole("0", `{"type":"tool_use","id":"t1","name":"search","input":{"query": "a <b>", "n": 1.0}}`) + stopped("tool_use"),
	"input is a text":     begun + whole("0", `{"type":"tool_use","id":"t1","name":"search","input":"text"}`) + stopped("tool_use"),
	"input is null":       begun + whole("0", `{"type":"tool_use","id":"t1","name":"search","input":null}`) + stopped("tool_use"),
	"no input":            begun + whole("0", `{"type":"tool_use","id":"t1","name":"search"}`) + stopped("tool_use"),
	"numbers as text":     named("message_start", `{"type":"message_start","message":{"usage":{"input_tokens":"9","output_tokens":2.0}}}`) + stopped("end_turn"),
	"null usage":          named("message_start", `{"type":"message_start","message":{"model":null,"usage":null}}`) + named("message_delta", `{"type":"message_delta","delta":{"stop_reason":null},"usage":null}`) + stopped("end_turn"),
	"usage later":         begun + named("message_delta", `{"type":"message_delta","delta":{},"usage":{"input_tokens":null,"cache_read_input_tokens":3,"output_tokens":5,"output_tokens_details":{"thinking_tokens":2}}}`) + stopped("end_turn"),
	"usage of thinking":   begun + named("message_delta", `{"type":"message_delta","delta":{},"usage":{"output_tokens":5,"output_tokens_details":null}}`) + stopped("pause_turn"),
	"delta without start": begun + piece(`{"type":"text_delta","text":"Yes."}`),
	"delta without kind":  begun + whole("0", `{"type":"text","text":""}`) + piece(`{"text":"Yes."}`) + stopped("end_turn"),
	"index as text":       begun + named("content_block_start", `{"type":"content_block_start","index":"0","content_block":{"type":"text","text":"Yes."}}`) + stopped("end_turn"),
	"unknown reason":      begun + stopped("new_reason"),
	"context window":      begun + stopped("model_context_window_exceeded"),
	"refusal":             begun + stopped("refusal"),
	"long line":           begun + whole("0", `{"type":"text","text":"`+strings.Repeat("x", 100_000)+`"}`) + stopped("end_turn"),
	"unended":             begun + whole("0", `{"type":"text","text":"Yes."}`) + strings.TrimSuffix(stopped("end_turn"), "\n"),
	"carriage returns":    strings.ReplaceAll(begun+whole("0", `{"type":"text","text":"Yes."}`)+stopped("end_turn"), "\n", "\r\n"),
	"no space":            strings.ReplaceAll(begun+whole("0", `{"type":"text","text":"Yes."}`)+stopped("end_turn"), ": ", ":"),
}

func named(event, data string) string { return "event: " + event + "\ndata: " + data + "\n\n" }

var begun = named("message_start", `{"type":"message_start","message":{"model":"m","usage":{"input_tokens":9,"output_tokens":1}}}`)

func whole(index, block string) string {
	return named("content_block_start", `{"type":"content_block_start","index":`+index+`,"content_block":`+block+`}`) +
		named("content_block_stop", `{"type":"content_block_stop","index":`+index+`}`)
}

func piece(delta string) string {
	return named("content_block_delta", `{"type":"content_block_delta","index":0,"delta":`+delta+`}`)
}

func stopped(reason string) string {
	return named("message_delta", `{"type":"message_delta","delta":{"stop_reason":"`+reason+`"},"usage":{"output_tokens":7}}`) +
		named("message_stop", `{"type":"message_stop"}`)
}

// Of Anthropic's variables only the key and the base URL are read.
func TestRecordedEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"ANTHROPIC_API_KEY": wiretest.Key, "ANTHROPIC_AUTH_TOKEN": "token-0123456789", "ANTHROPIC_CUSTOM_HEADERS": "X-Custom: 1", "ANTHROPIC_PROFILE": "p",
	} {
		t.Setenv(name, value)
	}
	recording.Send(t, func(baseURL string) llm.Model {
		t.Setenv("ANTHROPIC_BASE_URL", baseURL+"/from/env")
		return anthropic.New(anthropic.Config{Model: "claude-sonnet-4-5"})
	}, good(t), &llm.Request{Messages: []session.Message{session.UserText("Hello?")}})
}
