package openai_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/llmtest"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(recording.Main(m)) }

// cannot is what neither API does. Caching needs no marks: it is the provider's own
// affair.
var cannot = []llmtest.Feature{
	llmtest.TopK, llmtest.ErrorResults, llmtest.CachePrefix, llmtest.CacheLatestTurn, llmtest.CacheTTL,
}

func open(api openai.API) func(baseURL, key string) llm.Model {
	return func(baseURL, key string) llm.Model {
		return openai.New(openai.Config{Model: llmtest.AskedModel, APIKey: key, BaseURL: baseURL, API: api})
	}
}

func responsesWire() llmtest.Provider {
	return llmtest.Provider{
		Name:      "openai-responses",
		New:       open(openai.Responses),
		Exchanges: os.DirFS("testdata/responses"),
		Decode:    decodeResponses,
		Options:   json.RawMessage(`{"reasoning":{"effort":"high","summary":"auto"},"metadata":{"7":"x"},"new.option":{"x":[1]}}`),
		Cannot: append([]llmtest.Feature{
			llmtest.PresencePenalty, llmtest.FrequencyPenalty, llmtest.StopSequences, llmtest.Seed,
		}, cannot...),
		OnRequest: recording.Request, OnOutcome: recording.Outcome,
	}
}

func chatWire() llmtest.Provider {
	return llmtest.Provider{
		Name:      "openai-chat",
		New:       open(openai.ChatCompletions),
		Exchanges: os.DirFS("testdata/chat"),
		Decode:    decodeChat,
		Options:   json.RawMessage(`{"reasoning_effort":"high","logit_bias":{"50256":-100},"new.option":{"x":[1]}}`),
		Cannot:    append([]llmtest.Feature{llmtest.ReasoningReturned}, cannot...),
		OnRequest: recording.Request, OnOutcome: recording.Outcome,
	}
}

func TestResponsesWire(t *testing.T) {
	t.Parallel()
	llmtest.Run(t, responsesWire())
}

func TestChatWire(t *testing.T) {
	t.Parallel()
	llmtest.Run(t, chatWire())
}

// function is a tool as both APIs describe it, one of them a level deeper.
type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

func (f *function) tool() llm.Tool {
	return llm.Tool{Name: f.Name, Description: f.Description, Schema: f.Parameters, Strict: f.Strict}
}

// body has what requests of both APIs share.
type body struct {
	Model       string          `json:"model"`
	Stream      bool            `json:"stream"`
	ToolChoice  json.RawMessage `json:"tool_choice"`
	Temperature *float64        `json:"temperature"`
	TopP        *float64        `json:"top_p"`
}

func (b *body) sent(header http.Header, raw []byte) (llmtest.Sent, error) {
	if err := json.Unmarshal(raw, b); err != nil {
		return llmtest.Sent{}, err
	}
	sent := llmtest.Sent{
		Model: b.Model, Stream: b.Stream, ToolChoice: choice(b.ToolChoice),
		Settings: llm.Settings{Temperature: b.Temperature, TopP: b.TopP},
	}
	if key := header.Get("Authorization"); len(key) > len("Bearer ") {
		sent.Key = key[len("Bearer "):]
	}
	return sent, json.Unmarshal(raw, &sent.Options)
}

func choice(raw json.RawMessage) llm.ToolChoice {
	var mode string
	if json.Unmarshal(raw, &mode) == nil {
		return llm.ToolChoice{Mode: llm.ToolMode(mode)}
	}
	var named struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &named) != nil {
		return llm.ToolChoice{}
	}
	return llm.ToolChoice{Mode: llm.ToolNamed, Name: named.Name + named.Function.Name}
}

// item is an item of the Responses API.
type item struct {
	Type      string          `json:"type"`
	Role      session.Role    `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    string          `json:"output"`
	Encrypted string          `json:"encrypted_content"`
	Summary   []content       `json:"summary"`
}

// content is a content of either API.
type content struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	ImageURL json.RawMessage `json:"image_url"`
	FileData string          `json:"file_data"`
	File     struct {
		FileData string `json:"file_data"`
	} `json:"file"`
}

func decodeResponses(path string, header http.Header, raw []byte) (llmtest.Sent, error) {
	var in struct {
		body
		Instructions string     `json:"instructions"`
		Input        []item     `json:"input"`
		Tools        []function `json:"tools"`
		MaxTokens    int        `json:"max_output_tokens"`
	}
	sent, err := in.sent(header, raw)
	if err != nil {
		return sent, err
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return sent, err
	}
	sent.Stream = sent.Stream && path == "/responses"
	sent.Instructions, sent.Settings.MaxOutputTokens = in.Instructions, in.MaxTokens
	sent.Transcript, sent.Fixed = sent.Options["input"], slices.Concat(sent.Options["tools"], []byte(in.Instructions))
	for i := range in.Tools {
		sent.Tools = append(sent.Tools, in.Tools[i].tool())
	}
	for i := range in.Input {
		sent.Parts = append(sent.Parts, in.Input[i].parts()...)
	}
	return sent, nil
}

func (i *item) parts() []llmtest.SentPart {
	part := session.Part{Kind: session.PartKind(i.Type)}
	role := session.RoleAssistant
	switch i.Type {
	case "reasoning":
		part.Kind = session.PartReasoning
		part.Provider, _ = json.Marshal(i.Encrypted)
		for _, s := range i.Summary {
			part.Text += s.Text
		}
	case "function_call":
		part = session.Part{Kind: session.PartToolCall, Tool: i.Name, ProviderCallID: i.CallID, Input: json.RawMessage(i.Arguments)}
	case "function_call_output":
		role = session.RoleTool
		part = session.Part{Kind: session.PartToolResult, ProviderCallID: i.CallID, Text: i.Output}
	default:
		return contents(i.Role, i.Content)
	}
	return []llmtest.SentPart{{Role: role, Part: part}}
}

// contents are the parts of a message: a text, or a list.
func contents(role session.Role, raw json.RawMessage) []llmtest.SentPart {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []llmtest.SentPart{{Role: role, Part: session.Text(text)}}
	}
	var list []content
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var out []llmtest.SentPart
	for i := range list {
		out = append(out, llmtest.SentPart{Role: role, Part: list[i].part()})
	}
	return out
}

func (c *content) part() session.Part {
	switch c.Type {
	case "text", "input_text":
		return session.Text(c.Text)
	case "input_file", "file":
		return session.Part{Kind: session.PartFile, MediaType: "application/pdf", URL: c.FileData + c.File.FileData}
	case "input_image", "image_url":
		var deep struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(c.ImageURL, &deep.URL) != nil {
			_ = json.Unmarshal(c.ImageURL, &deep)
		}
		return session.Part{Kind: session.PartFile, MediaType: "image/png", URL: deep.URL}
	}
	return session.Part{Kind: session.PartKind(c.Type)}
}

// message is a message of the Chat Completions API.
type message struct {
	Role       session.Role    `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func decodeChat(path string, header http.Header, raw []byte) (llmtest.Sent, error) {
	var in struct {
		body
		Messages []message `json:"messages"`
		Tools    []struct {
			Function function `json:"function"`
		} `json:"tools"`
		MaxTokens        int      `json:"max_tokens"`
		PresencePenalty  *float64 `json:"presence_penalty"`
		FrequencyPenalty *float64 `json:"frequency_penalty"`
		Stop             []string `json:"stop"`
		Seed             *int64   `json:"seed"`
		StreamOptions    struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	sent, err := in.sent(header, raw)
	if err != nil {
		return sent, err
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return sent, err
	}
	sent.Stream = sent.Stream && path == "/chat/completions" && in.StreamOptions.IncludeUsage
	s := &sent.Settings
	s.MaxOutputTokens, s.StopSequences, s.Seed = in.MaxTokens, in.Stop, in.Seed
	s.PresencePenalty, s.FrequencyPenalty = in.PresencePenalty, in.FrequencyPenalty
	if len(in.Messages) > 0 && in.Messages[0].Role == session.RoleSystem {
		sent.Instructions = contents(session.RoleSystem, in.Messages[0].Content)[0].Text
		in.Messages = in.Messages[1:]
	}
	sent.Transcript, sent.Fixed = sent.Options["messages"], slices.Concat(sent.Options["tools"], []byte(sent.Instructions))
	for i := range in.Tools {
		sent.Tools = append(sent.Tools, in.Tools[i].Function.tool())
	}
	for i := range in.Messages {
		sent.Parts = append(sent.Parts, in.Messages[i].parts()...)
	}
	return sent, nil
}

func (m *message) parts() []llmtest.SentPart {
	out := contents(m.Role, m.Content)
	if m.Role == session.RoleTool {
		out[0].Kind, out[0].ProviderCallID = session.PartToolResult, m.ToolCallID
	}
	for _, c := range m.ToolCalls {
		out = append(out, llmtest.SentPart{Role: m.Role, Part: session.Part{
			Kind: session.PartToolCall, Tool: c.Function.Name, ProviderCallID: c.ID, Input: json.RawMessage(c.Function.Arguments),
		}})
	}
	return out
}
