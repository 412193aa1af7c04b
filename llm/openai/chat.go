package openai

import (
	"encoding/json"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// chatParams makes a request of the Chat Completions API. Equal requests give equal
// bytes, and a longer transcript the same bytes for what it has in common with a
// shorter one.
func (m *Model) chatParams(request *llm.Request) sdk.ChatCompletionNewParams {
	s := &request.Settings
	var chat chatMessages
	if !provider.Blank(request.Instructions) {
		chat.out = append(chat.out, sdk.SystemMessage(request.Instructions))
	}
	for i := range request.Messages {
		chat.add(&request.Messages[i])
	}
	out := sdk.ChatCompletionNewParams{
		Model:            m.cfg.Model,
		Messages:         chat.out,
		StreamOptions:    sdk.ChatCompletionStreamOptionsParam{IncludeUsage: sdk.Bool(true)},
		Temperature:      number(s.Temperature),
		TopP:             number(s.TopP),
		PresencePenalty:  number(s.PresencePenalty),
		FrequencyPenalty: number(s.FrequencyPenalty),
		Stop:             sdk.ChatCompletionNewParamsStopUnion{OfStringArray: s.StopSequences},
		Tools:            chatTools(request.Tools),
		ToolChoice:       chatToolChoice(request),
	}
	if s.Seed != nil {
		out.Seed = sdk.Int(*s.Seed)
	}
	// The newer of the two names is all that OpenAI's reasoning models take, and the
	// older is all that many other servers know.
	switch n := int64(s.MaxOutputTokens); {
	case n > 0 && m.own:
		out.MaxCompletionTokens = sdk.Int(n)
	case n > 0:
		out.MaxTokens = sdk.Int(n)
	}
	if m.own && request.SessionID != "" {
		out.PromptCacheKey = sdk.String(cacheKey(request.SessionID))
	}
	return out
}

// schemaOf is a tool's schema; the APIs want one.
func schemaOf(tool *llm.Tool) json.RawMessage {
	if len(tool.Schema) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return tool.Schema
}

func chatTools(tools []llm.Tool) []sdk.ChatCompletionToolUnionParam {
	var out []sdk.ChatCompletionToolUnionParam
	for i := range tools {
		tool := &tools[i]
		schema := schemaOf(tool)
		p := shared.FunctionDefinitionParam{Name: tool.Name}
		if tool.Description != "" {
			p.Description = sdk.String(tool.Description)
		}
		if tool.Strict && strict.Fits(schema) {
			p.Strict = sdk.Bool(true)
		}
		// Not in the field for it, a map, in which properties lose their order.
		p.SetExtraFields(map[string]any{"parameters": schema})
		out = append(out, sdk.ChatCompletionFunctionTool(p))
	}
	return out
}

func chatToolChoice(request *llm.Request) (out sdk.ChatCompletionToolChoiceOptionUnionParam) {
	if len(request.Tools) == 0 {
		return out
	}
	switch request.ToolChoice.Mode {
	case llm.ToolRequired:
		out.OfAuto = sdk.String(string(sdk.ChatCompletionToolChoiceOptionAutoRequired))
	case llm.ToolNamed:
		return sdk.ToolChoiceOptionFunctionToolChoice(sdk.ChatCompletionNamedToolChoiceFunctionParam{Name: request.ToolChoice.Name})
	case llm.ToolNone:
		out.OfAuto = sdk.String(string(sdk.ChatCompletionToolChoiceOptionAutoNone))
	}
	return out
}

// chatMessages makes the API's messages of ours.
type chatMessages struct {
	out []sdk.ChatCompletionMessageParamUnion
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
			c.out = append(c.out, sdk.SystemMessage(text))
		}
	default:
		c.user(m.Parts)
	}
}

// assistant adds a reply. Its reasoning has no place in the API, and a message
// without text and calls none either.
func (c *chatMessages) assistant(parts []session.Part) {
	var texts []string
	m := &sdk.ChatCompletionAssistantMessageParam{}
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				texts = append(texts, part.Text)
			}
		case session.PartToolCall:
			m.ToolCalls = append(m.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
					ID: c.ids.Call(part),
					Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
						Name: provider.ToolName(part.Tool), Arguments: string(provider.Object(part.Input)),
					},
				},
			})
		}
	}
	if len(texts) > 0 {
		m.Content.OfString = sdk.String(strings.Join(texts, paragraph)) // many servers take but one
	}
	if len(texts) > 0 || len(m.ToolCalls) > 0 {
		c.out = append(c.out, sdk.ChatCompletionMessageParamUnion{OfAssistant: m})
	}
}

func (c *chatMessages) results(parts []session.Part) {
	for i := range parts {
		if part := &parts[i]; part.Kind == session.PartToolResult {
			c.out = append(c.out, sdk.ToolMessage(provider.ResultText(part), c.ids.Result(part)))
		}
	}
}

func (c *chatMessages) user(parts []session.Part) {
	var content []sdk.ChatCompletionContentPartUnionParam
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				content = append(content, sdk.TextContentPart(part.Text))
			}
		case session.PartFile:
			if p, ok := chatFile(part); ok {
				content = append(content, p)
			}
		}
	}
	switch {
	case len(content) == 1 && content[0].OfText != nil: // all that some servers take
		c.out = append(c.out, sdk.UserMessage(content[0].OfText.Text))
	case len(content) > 0:
		c.out = append(c.out, sdk.UserMessage(content))
	}
}

// chatFile is a file as content, if the API has a place for it.
func chatFile(part *session.Part) (out sdk.ChatCompletionContentPartUnionParam, ok bool) {
	inline, isInline := dataURL(part)
	switch kind := kindOf(part.MediaType); {
	case kind == fileImage && isInline:
		return sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: inline}), true
	case kind == fileImage && !provider.IsDataURL(part.URL):
		return sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: part.URL}), true
	case kind == fileDocument && isInline:
		return sdk.FileContentPart(sdk.ChatCompletionContentPartFileFileParam{
			FileData: sdk.String(inline), Filename: sdk.String(fileName(part)),
		}), true
	case kind == fileText:
		text, ok := fileAsText(part)
		return sdk.TextContentPart(text), ok
	case kind == fileAudio && isInline:
		format, ok := audioFormats[part.MediaType]
		_, content, err := provider.Base64(part.URL)
		return sdk.InputAudioContentPart(sdk.ChatCompletionContentPartInputAudioInputAudioParam{Data: content, Format: format}), ok && err == nil
	}
	return out, false
}

// audioFormats are the sounds that the API takes.
var audioFormats = map[string]string{
	"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3",
}
