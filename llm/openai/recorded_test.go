package openai_test

import (
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/wiretest"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/session"
)

var update = flag.Bool("update", false, "add new requests to testdata/wire and replace its outcomes")

// recording has the wire as it was with OpenAI's SDK.
var recording = wiretest.New("testdata/wire", update)

// good are answers that end well.
var good = map[openai.API]wiretest.Answer{
	openai.Responses:       {Body: answered},
	openai.ChatCompletions: {Body: events(ending("stop"), "[DONE]")},
}

// each calls a test for both APIs.
func each(t *testing.T, test func(t *testing.T, api openai.API)) {
	t.Parallel()
	for api := range good {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			test(t, api)
		})
	}
}

func TestRecordedRequests(t *testing.T) {
	each(t, func(t *testing.T, api openai.API) {
		for _, r := range wiretest.Requests() {
			t.Run(r.Name, func(t *testing.T) {
				recording.Send(t, func(baseURL string) llm.Model {
					return openai.New(openai.Config{Model: "gpt-5", APIKey: wiretest.Key, BaseURL: baseURL + "/v1", API: api})
				}, good[api], &r.Request)
			})
		}
	})
}

// What OpenAI and Azure are sent differs from what others are.
func TestRecordedRequestsToOpenAI(t *testing.T) {
	each(t, func(t *testing.T, api openai.API) {
		for _, address := range []string{
			"http://api.openai.com/v1", "http://eu.api.openai.com/v1/", "http://x.openai.azure.com/openai/v1?api-version=preview",
			"http://x.openai.azure.com/openai/deployments/d1", "http://x.services.ai.azure.com/openai/v1",
		} {
			for _, r := range wiretest.Requests() {
				switch r.Name {
				case "instructions", "long-session-id", "all-settings", "options-replaced":
				default:
					continue
				}
				t.Run(r.Name+" "+address, func(t *testing.T) {
					recording.Send(t, func(baseURL string) llm.Model {
						return openai.New(openai.Config{
							Model: "gpt-4.1", Headers: map[string]string{"api-key": wiretest.Key}, BaseURL: address, API: api, HTTPClient: wiretest.Elsewhere(t, baseURL),
						})
					}, good[api], &r.Request)
				})
			}
		}
	})
}

func TestRecordedConfigurations(t *testing.T) {
	each(t, func(t *testing.T, api openai.API) {
		var cfgs []openai.Config
		for _, path := range wiretest.Paths() {
			cfgs = append(cfgs, openai.Config{BaseURL: path, APIKey: wiretest.Key})
		}
		for _, headers := range wiretest.Gateways() {
			cfgs = append(cfgs, openai.Config{BaseURL: "/v1", Headers: headers}, openai.Config{BaseURL: "/v1", Headers: headers, APIKey: wiretest.Key})
		}
		cfgs = append(
			cfgs,
			openai.Config{BaseURL: "/v1"},
			openai.Config{BaseURL: "/v1", APIKey: wiretest.Key, Organization: "org-1", Project: "proj_1"},
			openai.Config{BaseURL: "/v1", APIKey: wiretest.Key, HTTPClient: &http.Client{Timeout: time.Minute}},
		)
		for i, cfg := range cfgs {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				cfg.Model, cfg.API = "gpt-4.1", api
				open := func(baseURL string) llm.Model {
					c := cfg
					c.BaseURL = baseURL + c.BaseURL
					return openai.New(c)
				}
				request := &llm.Request{Messages: []session.Message{session.UserText("Hello?")}}
				recording.Send(t, open, good[api], request)
				t.Run("headers of the call", func(t *testing.T) {
					request.Settings.Headers = map[string]string{"Authorization": "Bearer of-the-call", "OpenAI-Project": "proj_2"}
					recording.Send(t, open, good[api], request)
				})
			})
		}
	})
}

func TestRecordedOutcomes(t *testing.T) {
	each(t, func(t *testing.T, api openai.API) {
		for _, answer := range append(wiretest.Refusals(), wiretest.Streams()...) {
			t.Run(answer.Name, func(t *testing.T) {
				recording.Play(t, func(baseURL string) llm.Model {
					return openai.New(openai.Config{Model: "gpt-4.1", APIKey: wiretest.Key, BaseURL: baseURL + "/v1", API: api})
				}, answer, &llm.Request{Messages: []session.Message{session.UserText("Hello?")}})
			})
		}
	})
}

// Of OpenAI's variables only the key and the base URL are read.
func TestRecordedEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"OPENAI_API_KEY": wiretest.Key, "OPENAI_ORG_ID": "org-env", "OPENAI_PROJECT_ID": "proj_env", "OPENAI_ADMIN_KEY": "sk-admin-0123456789",
		"OPENAI_CUSTOM_HEADERS": "X-Custom: 1", "OPENAI_WEBHOOK_SECRET": "s",
	} {
		t.Setenv(name, value)
	}
	recording.Send(t, func(baseURL string) llm.Model {
		t.Setenv("OPENAI_BASE_URL", baseURL+"/from/env")
		return openai.New(openai.Config{Model: "gpt-4.1"})
	}, good[openai.Responses], &llm.Request{Messages: []session.Message{session.UserText("Hello?")}})
}
