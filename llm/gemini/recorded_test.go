package gemini_test

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/gemini"
	"github.com/helixagents/helix/llm/internal/wiretest"
	"github.com/helixagents/helix/session"
)

var update = flag.Bool("update", false, "add new requests to testdata/wire and replace its outcomes")

// recording has the wire as it was with Google's SDK.
var recording = wiretest.New("testdata/wire", update)

var good = wiretest.Answer{Body: events(parts(`{"text":"Yes."}`, "STOP"))}

func hello() *llm.Request {
	return &llm.Request{Messages: []session.Message{session.UserText("Hello?")}}
}

func TestRecordedRequests(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"gemini-2.5-pro", "gemini-3-pro-preview"} {
		for _, r := range wiretest.Requests() {
			t.Run(model+"/"+r.Name, func(t *testing.T) {
				recording.Send(t, func(baseURL string) llm.Model {
					return gemini.New(gemini.Config{Model: model, APIKey: wiretest.Key, BaseURL: baseURL, HTTPClient: wiretest.Elsewhere(t, baseURL)})
				}, good, &r.Request)
			})
		}
	}
}

func TestRecordedConfigurations(t *testing.T) {
	t.Parallel()
	var cfgs []gemini.Config
	for _, path := range append(wiretest.Paths(), "/v1beta", "/x/v1beta/") {
		cfgs = append(cfgs, gemini.Config{BaseURL: path, APIKey: wiretest.Key})
	}
	for _, headers := range wiretest.Gateways() {
		cfgs = append(cfgs, gemini.Config{Headers: headers, APIKey: wiretest.Key})
		if headers["authorization"] != "" || headers["x-goog-api-key"] != "" {
			cfgs = append(cfgs, gemini.Config{Headers: headers})
		}
	}
	for _, model := range []string{"models/gemini-2.5-pro", "tunedModels/mine", "publishers/google/models/x", "a/v1beta/b", "a b", "a%20b", "a:b", "ä", "a#b", "a//b", "a/"} {
		cfgs = append(cfgs, gemini.Config{Model: model, APIKey: wiretest.Key})
	}
	cfgs = append(cfgs, gemini.Config{APIKey: wiretest.Key, HTTPClient: &http.Client{Timeout: 90*time.Second + 1}})
	for i, cfg := range cfgs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if cfg.Model == "" {
				cfg.Model = "gemini-2.5-pro"
			}
			open := func(baseURL string) llm.Model {
				c := cfg
				client := wiretest.Elsewhere(t, baseURL)
				if c.HTTPClient != nil {
					client.Timeout = c.HTTPClient.Timeout
				}
				c.BaseURL, c.HTTPClient = baseURL+c.BaseURL, client
				return gemini.New(c)
			}
			recording.Send(t, open, good, hello())
			t.Run("headers of the call", func(t *testing.T) {
				request := hello()
				request.Settings.Headers = map[string]string{"Authorization": "Bearer of-the-call", "X-Goog-Api-Key": "of-the-call", "X-Server-Timeout": "5"}
				recording.Send(t, open, good, request)
			})
		})
	}
}

func TestRecordedOutcomes(t *testing.T) {
	t.Parallel()
	answers := append(wiretest.Refusals(), wiretest.Streams()...)
	for name, body := range streams {
		answers = append(answers, wiretest.Answer{Name: name, Header: map[string]string{"X-Request-Id": "req_1"}, Body: body})
	}
	for _, answer := range answers {
		t.Run(answer.Name, func(t *testing.T) {
			recording.Play(t, func(baseURL string) llm.Model {
				return gemini.New(gemini.Config{Model: "gemini-2.5-pro", APIKey: wiretest.Key, BaseURL: baseURL, HTTPClient: wiretest.Elsewhere(t, baseURL)})
			}, answer, hello())
		})
	}
}

// streams are streams that servers of the same wire may send, broken ones among them.
var streams = map[string]string{
	"usage": "data: {\"candidates\":[" + parts(`{"text":"Yes."}`, "STOP") + `],"usageMetadata":{"promptTokenCount":3,"toolUsePromptTokenCount":4,` +
		`"candidatesTokenCount":5,"thoughtsTokenCount":6,"cachedContentTokenCount":2,"totalTokenCount":18,"trafficType":"X"},"modelVersion":"m"}` + "\n\n",
	"usage as text":  "data: {\"candidates\":[" + parts(`{"text":"Yes."}`, "STOP") + `],"usageMetadata":{"promptTokenCount":"3"}}` + "\n\n",
	"usage huge":     "data: {\"candidates\":[" + parts(`{"text":"Yes."}`, "STOP") + `],"usageMetadata":{"promptTokenCount":3000000000}}` + "\n\n",
	"usage odd":      "data: {\"candidates\":[" + parts(`{"text":"Yes."}`, "STOP") + `],"usageMetadata":{"promptTokensDetails":[{"modality":"TEXT","tokenCount":3}]}}` + "\n\n",
	"unended":        strings.TrimRight(events(parts(`{"text":"Yes."}`, "STOP")), "\n"),
	"crlf":           strings.ReplaceAll(events(parts(`{"text":"Yes."}`, "STOP")), "\n", "\r\n"),
	"unknown reason": events(parts(`{"text":"Yes."}`, "NEW")),
	"unspecified":    events(parts(`{"text":"Yes."}`, "FINISH_REASON_UNSPECIFIED")),
	"length":         events(parts(`{"text":"Yes."}`, "MAX_TOKENS")),
	"safety":         events(parts(`{"text":"Yes."}`, "SAFETY")),
	"malformed call": events(parts(``, "MALFORMED_FUNCTION_CALL")),
	"signature gone": events(parts(``, "MISSING_THOUGHT_SIGNATURE")),
	"blocked":        "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\",\"blockReasonMessage\":\"No.\"}}\n\n",
	"bare error":     events(parts(`{"text":"Yes."}`, "")) + "{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"Overloaded\",\n    \"status\": \"UNAVAILABLE\"\n  }\n}\n",
	"image":          events(parts(`{"inlineData":{"mimeType":"image/png","data":"AAAA"}}`, "STOP")),
}

// Of Google's variables only the keys and the base URL of the Gemini API are read: those of Vertex AI change nothing.
func TestRecordedEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"GEMINI_API_KEY": wiretest.Key, "GOOGLE_API_KEY": "of-google-0123456789", "GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_GENAI_USE_ENTERPRISE": "true",
		"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "l", "GOOGLE_CLOUD_REGION": "r", "GOOGLE_VERTEX_BASE_URL": "http://127.0.0.1:1",
	} {
		t.Setenv(name, value)
	}
	open := func(baseURL string) llm.Model {
		t.Setenv("GOOGLE_GEMINI_BASE_URL", baseURL+"/from/env")
		return gemini.New(gemini.Config{Model: "gemini-2.5-pro", HTTPClient: wiretest.Elsewhere(t, baseURL)})
	}
	recording.Send(t, open, good, hello())
	t.Run("the other key", func(t *testing.T) {
		t.Setenv("GEMINI_API_KEY", "")
		recording.Send(t, open, good, hello())
	})
}
