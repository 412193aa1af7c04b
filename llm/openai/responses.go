package openai

import (
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// responseParams makes a request of the Responses API. Equal requests give equal
// bytes, and a longer transcript the same bytes for what it has in common with a
// shorter one.
func (m *Model) responseParams(request *llm.Request, extra *extras) responses.ResponseNewParams {
	s := &request.Settings
	var input responseInput
	for i := range request.Messages {
		input.add(&request.Messages[i])
	}
	out := responses.ResponseNewParams{
		Model: m.cfg.Model,
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input.out},
		// The transcript is ours to keep. So is the reasoning, which is sealed.
		Store:       sdk.Bool(false),
		Temperature: number(s.Temperature),
		TopP:        number(s.TopP),
		Tools:       responseTools(request.Tools),
		ToolChoice:  responseToolChoice(request),
	}
	if extra.reasons || reasons(m.cfg.Model) {
		out.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	if !provider.Blank(request.Instructions) {
		out.Instructions = sdk.String(request.Instructions)
	}
	if s.MaxOutputTokens > 0 {
		out.MaxOutputTokens = sdk.Int(int64(s.MaxOutputTokens))
	}
	if request.SessionID != "" {
		out.PromptCacheKey = sdk.String(cacheKey(request.SessionID))
	}
	return out
}

func number(n *float64) param.Opt[float64] {
	if n == nil {
		return param.Opt[float64]{}
	}
	return sdk.Float(*n)
}

func responseTools(tools []llm.Tool) []responses.ToolUnionParam {
	var out []responses.ToolUnionParam
	for i := range tools {
		tool := &tools[i]
		schema := schemaOf(tool)
		p := &responses.FunctionToolParam{
			Name:   tool.Name,
			Strict: sdk.Bool(tool.Strict && strict.Fits(schema)), // said either way: the default is to try
		}
		if tool.Description != "" {
			p.Description = sdk.String(tool.Description)
		}
		// Not in the field for it, a map, in which properties lose their order.
		p.SetExtraFields(map[string]any{"parameters": schema})
		out = append(out, responses.ToolUnionParam{OfFunction: p})
	}
	return out
}

func responseToolChoice(request *llm.Request) (out responses.ResponseNewParamsToolChoiceUnion) {
	if len(request.Tools) == 0 {
		return out
	}
	switch request.ToolChoice.Mode {
	case llm.ToolRequired:
		out.OfToolChoiceMode = sdk.Opt(responses.ToolChoiceOptionsRequired)
	case llm.ToolNamed:
		out.OfFunctionTool = &responses.ToolChoiceFunctionParam{Name: request.ToolChoice.Name}
	case llm.ToolNone:
		out.OfToolChoiceMode = sdk.Opt(responses.ToolChoiceOptionsNone)
	}
	return out
}

// responseInput makes the API's items of our messages.
type responseInput struct {
	out []responses.ResponseInputItemUnionParam
	ids provider.CallIDs
}

func (in *responseInput) add(m *session.Message) {
	switch m.Role {
	case session.RoleAssistant:
		in.assistant(m.Parts)
	case session.RoleTool:
		in.results(m.Parts)
	case session.RoleSystem:
		in.message(responses.EasyInputMessageRoleSystem, m.Parts)
	default:
		in.message(responses.EasyInputMessageRoleUser, m.Parts)
	}
}

// assistant adds a reply. What the model thought goes back sealed as it came, and
// only before what it led to: the API refuses it alone, as it is where a reply was
// cut off. What other models thought cannot be sent.
func (in *responseInput) assistant(parts []session.Part) {
	var thoughts []responses.ResponseInputItemUnionParam
	add := func(item responses.ResponseInputItemUnionParam) {
		in.out = append(append(in.out, thoughts...), item)
		thoughts = nil
	}
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				add(said(part))
			}
		case session.PartReasoning:
			var k kept
			if provider.Kept(part, name, &k) && k.Encrypted != "" {
				thoughts = append(thoughts, thought(part, &k))
			}
		case session.PartToolCall:
			add(responses.ResponseInputItemParamOfFunctionCall(
				string(provider.Object(part.Input)), in.ids.Call(part), provider.ToolName(part.Tool)))
		}
	}
}

func said(part *session.Part) responses.ResponseInputItemUnionParam {
	item := responses.ResponseInputItemParamOfMessage(part.Text, responses.EasyInputMessageRoleAssistant)
	var k kept
	if provider.Kept(part, name, &k) {
		item.OfMessage.Phase = responses.EasyInputMessagePhase(k.Phase)
	}
	return item
}

func thought(part *session.Part, k *kept) responses.ResponseInputItemUnionParam {
	summary := []responses.ResponseReasoningItemSummaryParam{} // wanted even if empty
	if part.Text != "" {
		summary = append(summary, responses.ResponseReasoningItemSummaryParam{Text: part.Text})
	}
	item := responses.ResponseInputItemParamOfReasoning(k.ID, summary)
	item.OfReasoning.EncryptedContent = sdk.String(k.Encrypted)
	return item
}

func (in *responseInput) results(parts []session.Part) {
	for i := range parts {
		if part := &parts[i]; part.Kind == session.PartToolResult {
			item := responses.ResponseInputItemParamOfFunctionCallOutput(provider.ResultText(part))
			item.OfFunctionCallOutput.CallID = sdk.String(in.ids.Result(part))
			in.out = append(in.out, item)
		}
	}
}

func (in *responseInput) message(role responses.EasyInputMessageRole, parts []session.Part) {
	var content responses.ResponseInputMessageContentListParam
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				content = append(content, responses.ResponseInputContentParamOfInputText(part.Text))
			}
		case session.PartFile:
			if c, ok := responseFile(part); ok {
				content = append(content, c)
			}
		}
	}
	if len(content) > 0 {
		in.out = append(in.out, responses.ResponseInputItemParamOfMessage(content, role))
	}
}

// responseFile is a file as content, if the API has a place for it.
func responseFile(part *session.Part) (out responses.ResponseInputContentUnionParam, ok bool) {
	inline, isInline := dataURL(part)
	if !isInline && provider.IsDataURL(part.URL) {
		return out, false // it cannot be read
	}
	switch kindOf(part.MediaType) {
	case fileImage:
		out = responses.ResponseInputContentParamOfInputImage(responses.ResponseInputImageDetailAuto)
		out.OfInputImage.ImageURL = sdk.String(part.URL)
		if isInline {
			out.OfInputImage.ImageURL = sdk.String(inline)
		}
		return out, true
	case fileDocument:
		out.OfInputFile = &responses.ResponseInputFileParam{}
		if isInline {
			out.OfInputFile.FileData, out.OfInputFile.Filename = sdk.String(inline), sdk.String(fileName(part))
		} else {
			out.OfInputFile.FileURL = sdk.String(part.URL)
		}
		return out, true
	case fileText:
		text, ok := fileAsText(part)
		return responses.ResponseInputContentParamOfInputText(text), ok
	}
	return out, false
}
