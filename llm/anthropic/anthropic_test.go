package anthropic_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/anthropic"
	"github.com/helixagents/helix/llm/llmtest"
	"github.com/helixagents/helix/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(recording.Main(m)) }

// wire is Anthropic as the suite sees it.
func wire() llmtest.Provider {
	return llmtest.Provider{
		Name: "anthropic",
		New: func(baseURL, key string) llm.Model {
			return anthropic.New(anthropic.Config{Model: llmtest.AskedModel, APIKey: key, BaseURL: baseURL})
		},
		Exchanges: os.DirFS("testdata"),
		Answers:   map[string]llmtest.Answer{"overloaded": {Status: 529}},
		Decode:    decode,
		Options: json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":2048},"betas":["one-2025-01-01","two-2025-01-01"],
			"metadata":{"user_id":"u1"},"new.option":{"x":[1]}}`),
		CacheMarks: []string{`,"cache_control":{"type":"ephemeral"}`, `"cache_control":{"type":"ephemeral"},`},
		Cannot:     []llmtest.Feature{llmtest.PresencePenalty, llmtest.FrequencyPenalty, llmtest.Seed},
		OnRequest:  recording.Request,
		OnOutcome:  recording.Outcome,
	}
}

func TestWire(t *testing.T) {
	t.Parallel()
	llmtest.Run(t, wire())
}

// body is a request of the Messages API.
type body struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	System   []content
	Messages []struct {
		Role    session.Role `json:"role"`
		Content []content    `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name         string          `json:"name"`
		Description  string          `json:"description"`
		Schema       json.RawMessage `json:"input_schema"`
		Strict       bool            `json:"strict"`
		CacheControl *cacheControl   `json:"cache_control"`
	} `json:"tools"`
	ToolChoice struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"tool_choice"`
	MaxTokens     int      `json:"max_tokens"`
	Temperature   *float64 `json:"temperature"`
	TopP          *float64 `json:"top_p"`
	TopK          *int     `json:"top_k"`
	StopSequences []string `json:"stop_sequences"`
}

type content struct {
	Type         string          `json:"type"`
	Text         string          `json:"text"`
	Thinking     string          `json:"thinking"`
	Signature    string          `json:"signature"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	ToolUseID    string          `json:"tool_use_id"`
	IsError      bool            `json:"is_error"`
	Content      []content       `json:"content"`
	CacheControl *cacheControl   `json:"cache_control"`
	Source       struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

type cacheControl struct {
	Type string `json:"type"`
	TTL  string `json:"ttl"`
}

func decode(path string, header http.Header, raw []byte) (llmtest.Sent, error) {
	var in body
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &in); err != nil {
		return llmtest.Sent{}, err
	}
	if err := json.Unmarshal(raw, &members); err != nil {
		return llmtest.Sent{}, err
	}
	sent := llmtest.Sent{
		Key: header.Get("X-Api-Key"), Model: in.Model, Stream: in.Stream && path == "/v1/messages",
		Transcript: members["messages"], Fixed: append(members["tools"], members["system"]...), Options: members,
		Settings: llm.Settings{
			MaxOutputTokens: in.MaxTokens, Temperature: in.Temperature, TopP: in.TopP, TopK: in.TopK, StopSequences: in.StopSequences,
		},
	}
	if betas := header.Values("Anthropic-Beta"); betas != nil {
		members["betas"], _ = json.Marshal(betas)
	}
	mark := func(c *cacheControl) bool {
		if c != nil && c.TTL == "1h" {
			sent.CacheTTL = time.Hour
		}
		return c != nil && c.Type == "ephemeral"
	}
	for _, b := range in.System {
		sent.Instructions += b.Text
		sent.CachedPrefix = mark(b.CacheControl)
	}
	for _, tool := range in.Tools {
		sent.Tools = append(sent.Tools, llm.Tool{Name: tool.Name, Description: tool.Description, Schema: tool.Schema, Strict: tool.Strict})
	}
	switch in.ToolChoice.Type {
	case "any":
		sent.ToolChoice.Mode = llm.ToolRequired
	case "tool":
		sent.ToolChoice = llm.ToolChoice{Mode: llm.ToolNamed, Name: in.ToolChoice.Name}
	case "none":
		sent.ToolChoice.Mode = llm.ToolNone
	}
	for _, m := range in.Messages {
		for i := range m.Content {
			c := &m.Content[i]
			part, role := c.part(), m.Role
			if part.Kind == session.PartToolResult {
				role = session.RoleTool
			}
			sent.Parts = append(sent.Parts, llmtest.SentPart{Role: role, Part: part, Cached: mark(c.CacheControl)})
		}
	}
	return sent, nil
}

func (c *content) part() session.Part {
	switch c.Type {
	case "text":
		return session.Text(c.Text)
	case "thinking":
		signature, _ := json.Marshal(c.Signature)
		return session.Part{Kind: session.PartReasoning, Text: c.Thinking, Provider: signature}
	case "tool_use":
		return session.Part{Kind: session.PartToolCall, Tool: c.Name, ProviderCallID: c.ID, Input: c.Input}
	case "tool_result":
		part := session.Part{Kind: session.PartToolResult, ProviderCallID: c.ToolUseID}
		if c.IsError {
			part.Error = &session.Error{}
		}
		var text strings.Builder
		for _, sub := range c.Content {
			text.WriteString(sub.Text)
		}
		part.Text = text.String()
		return part
	case "image", "document":
		return session.Part{
			Kind: session.PartFile, MediaType: c.Source.MediaType,
			URL: "data:" + c.Source.MediaType + ";" + c.Source.Type + "," + c.Source.Data,
		}
	}
	return session.Part{Kind: session.PartKind(c.Type)}
}
