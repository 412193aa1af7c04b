package anthropic

import (
	"encoding/json"
	"errors"
)

// messageRequest is a request of the Messages API. Members are sent in the order of the fields.
type messageRequest struct {
	MaxTokens     int         `json:"max_tokens"`
	Messages      []message   `json:"messages,omitempty"`
	Model         string      `json:"model"`
	Temperature   *float64    `json:"temperature,omitempty"`
	TopK          *int        `json:"top_k,omitempty"`
	TopP          *float64    `json:"top_p,omitempty"`
	StopSequences []string    `json:"stop_sequences,omitzero"`
	System        []textBlock `json:"system,omitempty"`
	ToolChoice    *choice     `json:"tool_choice,omitempty"`
	Tools         []tool      `json:"tools,omitempty"`
}

// message is a message. Its content is blocks of the types below.
type message struct {
	Content []any  `json:"content"`
	Role    string `json:"role"`
}

const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

type textBlock struct {
	Text         string     `json:"text"`
	CacheControl *cacheMark `json:"cache_control,omitempty"`
	Type         string     `json:"type"`
}

func newText(text string) textBlock { return textBlock{Text: text, Type: "text"} }

type thinkingBlock struct {
	Signature string `json:"signature"`
	Thinking  string `json:"thinking"`
	Type      string `json:"type"`
}

type redactedBlock struct {
	Data string `json:"data"`
	Type string `json:"type"`
}

type toolUseBlock struct {
	ID    string          `json:"id"`
	Input json.RawMessage `json:"input"`
	Name  string          `json:"name"`
	Type  string          `json:"type"`
}

type toolResultBlock struct {
	ToolUseID    string      `json:"tool_use_id"`
	IsError      bool        `json:"is_error,omitempty"`
	CacheControl *cacheMark  `json:"cache_control,omitempty"`
	Content      []textBlock `json:"content,omitempty"`
	Type         string      `json:"type"`
}

// fileBlock is an image or a document.
type fileBlock struct {
	Source source `json:"source"`
	Title  string `json:"title,omitempty"`
	Type   string `json:"type"`
}

type source struct {
	Data      string `json:"data,omitempty"`
	MediaType string `json:"media_type,omitempty"`
	URL       string `json:"url,omitempty"`
	Type      string `json:"type"`
}

// cacheMark marks the end of what the provider is to cache.
type cacheMark struct {
	TTL  string `json:"ttl,omitempty"`
	Type string `json:"type"`
}

type tool struct {
	InputSchema  json.RawMessage `json:"input_schema"`
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	Strict       bool            `json:"strict,omitempty"`
	CacheControl *cacheMark      `json:"cache_control,omitempty"`
}

type choice struct {
	Name string `json:"name,omitempty"`
	Type string `json:"type"`
}

// event has the members of the stream's events that matter.
type event struct {
	Type         string       `json:"type"`
	Index        count        `json:"index"`
	Message      eventMessage `json:"message"`
	ContentBlock contentBlock `json:"content_block"`
	Delta        delta        `json:"delta"`
	Usage        usage        `json:"usage"`
}

type eventMessage struct {
	Model string `json:"model"`
	Usage usage  `json:"usage"`
}

type contentBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
}

type delta struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Thinking    string `json:"thinking"`
	Signature   string `json:"signature"`
	PartialJSON string `json:"partial_json"`
	StopReason  string `json:"stop_reason"`
}

// usage has pointers to tell what was not said from 0.
type usage struct {
	InputTokens              *count `json:"input_tokens"`
	OutputTokens             *count `json:"output_tokens"`
	CacheReadInputTokens     *count `json:"cache_read_input_tokens"`
	CacheCreationInputTokens *count `json:"cache_creation_input_tokens"`
	OutputTokensDetails      *struct {
		ThinkingTokens count `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// count is a number. Some gateways send it as a text or with a fraction.
type count int64

// UnmarshalJSON implements [json.Unmarshaler]. What is no number counts as 0.
func (c *count) UnmarshalJSON(raw []byte) error {
	var n json.Number
	_ = json.Unmarshal(raw, &n)
	if i, err := n.Int64(); err == nil {
		*c = count(i)
	} else if f, err := n.Float64(); err == nil {
		*c = count(f)
	}
	return nil
}

// decode reads JSON and leaves out members of an unexpected kind: those that matter are looked at one by one.
func decode(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	if _, kind := errors.AsType[*json.UnmarshalTypeError](err); kind {
		return nil
	}
	return err
}

// fault is the body of an error.
type fault struct {
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}
