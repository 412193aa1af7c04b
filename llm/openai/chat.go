package openai

import (
	"encoding/json"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// chatRequest is a request of the Chat Completions API. Members are sent in the order of the fields.
type chatRequest struct {
	Messages            []chatInput       `json:"messages,omitempty"`
	Model               string            `json:"model"`
	FrequencyPenalty    *float64          `json:"frequency_penalty,omitempty"`
	MaxCompletionTokens int               `json:"max_completion_tokens,omitempty"`
	MaxTokens           int               `json:"max_tokens,omitempty"`
	PresencePenalty     *float64          `json:"presence_penalty,omitempty"`
	PromptCacheKey      string            `json:"prompt_cache_key,omitempty"`
	Seed                *int64            `json:"seed,omitempty"`
	Temperature         *float64          `json:"temperature,omitempty"`
	TopP                *float64          `json:"top_p,omitempty"`
	Stop                []string          `json:"stop,omitzero"`
	StreamOptions       chatStreamOptions `json:"stream_options"`
	ToolChoice          any               `json:"tool_choice,omitempty"` // a mode, or a tool
	Tools               []chatTool        `json:"tools,omitempty"`
}

type chatStreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// chatInput is a message. Its content is a text or a list of [chatContent].
type chatInput struct {
	Content    any        `json:"content,omitempty"`
	ToolCalls  []chatTool `json:"tool_calls,omitempty"`
	ToolCallID *string    `json:"tool_call_id,omitempty"`
	Role       string     `json:"role"`
}

type chatContent struct {
	Text       string     `json:"text,omitempty"`
	ImageURL   *chatImage `json:"image_url,omitempty"`
	File       *chatFile  `json:"file,omitempty"`
	InputAudio *chatAudio `json:"input_audio,omitempty"`
	Type       string     `json:"type"`
}

type chatImage struct {
	URL string `json:"url"`
}

type chatFile struct {
	Data string `json:"file_data"`
	Name string `json:"filename"`
}

type chatAudio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

// chatTool is a tool, the choice of one, or a call of one.
type chatTool struct {
	ID       string       `json:"id,omitempty"`
	Function chatFunction `json:"function"`
	Type     string       `json:"type"`
}

type chatFunction struct {
	Arguments   string          `json:"arguments,omitempty"`
	Name        string          `json:"name"`
	Strict      bool            `json:"strict,omitempty"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// Types and roles of the APIs.
const (
	typeFunction  = "function"
	typeText      = "text"
	roleSystem    = "system"
	roleUser      = "user"
	roleAssistant = "assistant"
	roleTool      = "tool"
)

// chatRequest builds a request of the Chat Completions API. Equal requests give equal
// bytes, and a longer transcript the same bytes for what it has in common with a
// shorter one.
func (m *Model) chatRequest(request *llm.Request) (*chatRequest, error) {
	s := &request.Settings
	var chat chatMessages
	if !provider.Blank(request.Instructions) {
		chat.out = append(chat.out, chatInput{Content: request.Instructions, Role: roleSystem})
	}
	for i := range request.Messages {
		chat.add(&request.Messages[i])
	}
	tools, err := chatTools(request.Tools)
	if err != nil {
		return nil, err
	}
	out := &chatRequest{
		Model:            m.cfg.Model,
		Messages:         chat.out,
		StreamOptions:    chatStreamOptions{IncludeUsage: true},
		Temperature:      s.Temperature,
		TopP:             s.TopP,
		PresencePenalty:  s.PresencePenalty,
		FrequencyPenalty: s.FrequencyPenalty,
		Stop:             s.StopSequences,
		Seed:             s.Seed,
		Tools:            tools,
		ToolChoice:       chatToolChoice(request),
	}
	// The newer of the two names is all that OpenAI's reasoning models take, and the
	// older is all that many other servers know.
	if m.own {
		out.MaxCompletionTokens = max(0, s.MaxOutputTokens)
	} else {
		out.MaxTokens = max(0, s.MaxOutputTokens)
	}
	if m.own && request.SessionID != "" {
		out.PromptCacheKey = cacheKey(request.SessionID)
	}
	return out, nil
}

// schemaOf returns a tool's schema; the APIs require one.
func schemaOf(tool *llm.Tool) (json.RawMessage, error) {
	if len(tool.Schema) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`), nil
	}
	schema, err := provider.Escape(tool.Schema)
	if err != nil {
		return nil, llm.Error(session.CodeBadRequest, false, "openai: the schema of the tool %s cannot be encoded: %v", tool.Name, err)
	}
	return schema, nil
}

func chatTools(tools []llm.Tool) ([]chatTool, error) {
	var out []chatTool
	for i := range tools {
		tool := &tools[i]
		schema, err := schemaOf(tool)
		if err != nil {
			return nil, err
		}
		out = append(out, chatTool{Type: typeFunction, Function: chatFunction{
			Name: tool.Name, Description: tool.Description, Strict: tool.Strict && strict.Fits(schema), Parameters: schema,
		}})
	}
	return out, nil
}

func chatToolChoice(request *llm.Request) any {
	if len(request.Tools) == 0 {
		return nil
	}
	switch mode := request.ToolChoice.Mode; mode {
	case llm.ToolRequired, llm.ToolNone: // called so by the APIs too
		return string(mode)
	case llm.ToolNamed:
		return chatTool{Type: typeFunction, Function: chatFunction{Name: request.ToolChoice.Name}}
	}
	return nil
}

// chatMessages converts our messages to the API's messages.
type chatMessages struct {
	out []chatInput
	ids provider.CallIDs
}

func (c *chatMessages) add(m *session.Message) {
	switch m.Role {
	case session.RoleAssistant:
		c.assistant(m.Parts)
	case session.RoleTool:
		c.results(m.Parts)
	case session.RoleSystem:
		if text := m.Content(); !provider.Blank(text) {
			c.out = append(c.out, chatInput{Content: text, Role: roleSystem})
		}
	default:
		c.user(m.Parts)
	}
}

// assistant adds a reply. Its reasoning has no place in the API, and a message
// without text and calls none either.
func (c *chatMessages) assistant(parts []session.Part) {
	var texts []string
	m := chatInput{Role: roleAssistant}
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				texts = append(texts, part.Text)
			}
		case session.PartToolCall:
			m.ToolCalls = append(m.ToolCalls, chatTool{
				ID:       c.ids.Call(part),
				Function: chatFunction{Name: provider.ToolName(part.Tool), Arguments: string(provider.Object(part.Input))},
				Type:     typeFunction,
			})
		}
	}
	if len(texts) > 0 {
		m.Content = strings.Join(texts, paragraph) // many servers take but one
	}
	if len(texts) > 0 || len(m.ToolCalls) > 0 {
		c.out = append(c.out, m)
	}
}

func (c *chatMessages) results(parts []session.Part) {
	for i := range parts {
		if part := &parts[i]; part.Kind == session.PartToolResult {
			id := c.ids.Result(part)
			c.out = append(c.out, chatInput{Content: provider.ResultText(part), ToolCallID: &id, Role: roleTool})
		}
	}
}

func (c *chatMessages) user(parts []session.Part) {
	var content []chatContent
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				content = append(content, chatContent{Text: part.Text, Type: typeText})
			}
		case session.PartFile:
			p, ok := chatFileContent(part)
			if !ok {
				p = chatContent{Text: provider.DescribeFile(part), Type: typeText}
			}
			content = append(content, p)
		}
	}
	switch {
	case len(content) == 1 && content[0].Type == typeText: // all that some servers take
		c.out = append(c.out, chatInput{Content: content[0].Text, Role: roleUser})
	case len(content) > 0:
		c.out = append(c.out, chatInput{Content: content, Role: roleUser})
	}
}

// chatFileContent is a file as content, if the API has a place for it.
func chatFileContent(part *session.Part) (out chatContent, ok bool) {
	inline, isInline := dataURL(part)
	switch kind := kindOf(part.MediaType); {
	case kind == fileImage && isInline:
		return chatContent{ImageURL: &chatImage{inline}, Type: "image_url"}, true
	case kind == fileImage && !provider.IsDataURL(part.URL):
		return chatContent{ImageURL: &chatImage{part.URL}, Type: "image_url"}, true
	case kind == fileDocument && isInline:
		return chatContent{File: &chatFile{inline, fileName(part)}, Type: "file"}, true
	case kind == fileText:
		text, ok := provider.FileText(part)
		return chatContent{Text: text, Type: typeText}, ok
	case kind == fileAudio && isInline:
		format, ok := audioFormats[part.MediaType]
		_, content, err := provider.Base64(part.URL)
		return chatContent{InputAudio: &chatAudio{content, format}, Type: "input_audio"}, ok && err == nil
	}
	return out, false
}

// audioFormats are the sounds that the API takes.
var audioFormats = map[string]string{
	"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3",
}
