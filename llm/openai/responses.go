package openai

import (
	"encoding/json"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// responseRequest is a request of the Responses API. Members are sent in the order of the fields.
type responseRequest struct {
	Instructions    string   `json:"instructions,omitempty"`
	MaxOutputTokens int      `json:"max_output_tokens,omitempty"`
	PromptCacheKey  string   `json:"prompt_cache_key,omitempty"`
	Store           bool     `json:"store"`
	Temperature     *float64 `json:"temperature,omitempty"`
	TopP            *float64 `json:"top_p,omitempty"`
	Include         []string `json:"include,omitempty"`
	// Input has items of the types below.
	Input      []any          `json:"input,omitempty"`
	Model      string         `json:"model"`
	ToolChoice any            `json:"tool_choice,omitempty"` // a mode, or a tool
	Tools      []responseTool `json:"tools,omitempty"`
}

type responseTool struct {
	Strict      bool            `json:"strict"` // said either way: the default is to try
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Type        string          `json:"type"`
	Parameters  json.RawMessage `json:"parameters"`
}

type responseChoice struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// inputMessage is a message. Its content is a text or a list of [inputContent].
type inputMessage struct {
	Content any    `json:"content"`
	Role    string `json:"role"`
	Phase   string `json:"phase,omitempty"`
}

type inputContent struct {
	Text     string `json:"text,omitempty"`
	Detail   string `json:"detail,omitempty"`
	ImageURL string `json:"image_url,omitempty"`
	FileData string `json:"file_data,omitempty"`
	FileURL  string `json:"file_url,omitempty"`
	Filename string `json:"filename,omitempty"`
	Type     string `json:"type"`
}

type inputReasoning struct {
	ID        string         `json:"id"`
	Summary   []inputContent `json:"summary"` // wanted even if empty
	Encrypted string         `json:"encrypted_content"`
	Type      string         `json:"type"`
}

type inputCall struct {
	Arguments string `json:"arguments"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Type      string `json:"type"`
}

type inputResult struct {
	Output string `json:"output"`
	CallID string `json:"call_id"`
	Type   string `json:"type"`
}

const typeInputText = "input_text"

// responseRequest builds a request of the Responses API. Equal requests give equal
// bytes, and a longer transcript the same bytes for what it has in common with a
// shorter one.
func (m *Model) responseRequest(request *llm.Request, extra *extras) (*responseRequest, error) {
	s := &request.Settings
	var input responseInput
	for i := range request.Messages {
		input.add(&request.Messages[i])
	}
	tools, err := responseTools(request.Tools)
	if err != nil {
		return nil, err
	}
	out := &responseRequest{
		Model:           m.cfg.Model,
		MaxOutputTokens: max(0, s.MaxOutputTokens),
		Input:           input.out,
		// The transcript is ours to keep. So is the reasoning, which is sealed.
		Store:       false,
		Temperature: s.Temperature,
		TopP:        s.TopP,
		Tools:       tools,
		ToolChoice:  responseToolChoice(request),
	}
	if extra.reasons || reasons(m.cfg.Model) {
		out.Include = []string{"reasoning.encrypted_content"}
	}
	if !provider.Blank(request.Instructions) {
		out.Instructions = request.Instructions
	}
	if request.SessionID != "" {
		out.PromptCacheKey = cacheKey(request.SessionID)
	}
	return out, nil
}

func responseTools(tools []llm.Tool) ([]responseTool, error) {
	var out []responseTool
	for i := range tools {
		tool := &tools[i]
		schema, err := schemaOf(tool)
		if err != nil {
			return nil, err
		}
		out = append(out, responseTool{
			Strict: tool.Strict && strict.Fits(schema), Name: tool.Name, Description: tool.Description, Type: typeFunction, Parameters: schema,
		})
	}
	return out, nil
}

func responseToolChoice(request *llm.Request) any {
	if len(request.Tools) == 0 {
		return nil
	}
	switch mode := request.ToolChoice.Mode; mode {
	case llm.ToolRequired, llm.ToolNone: // called so by the APIs too
		return string(mode)
	case llm.ToolNamed:
		return responseChoice{request.ToolChoice.Name, typeFunction}
	}
	return nil
}

// responseInput converts our messages to the API's items.
type responseInput struct {
	out []any
	ids provider.CallIDs
}

func (in *responseInput) add(m *session.Message) {
	switch m.Role {
	case session.RoleAssistant:
		in.assistant(m.Parts)
	case session.RoleTool:
		in.results(m.Parts)
	case session.RoleSystem:
		in.message(roleSystem, m.Parts)
	default:
		in.message(roleUser, m.Parts)
	}
}

// assistant adds a reply. What the model thought goes back sealed as it came, and
// only before what it led to: the API refuses it alone, as it is where a reply was
// cut off. What other models thought cannot be sent.
func (in *responseInput) assistant(parts []session.Part) {
	var thoughts []any
	add := func(item any) {
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
			add(inputCall{string(provider.Object(part.Input)), in.ids.Call(part), provider.ToolName(part.Tool), "function_call"})
		}
	}
}

func said(part *session.Part) inputMessage {
	var k kept
	provider.Kept(part, name, &k)
	return inputMessage{Content: part.Text, Role: roleAssistant, Phase: k.Phase}
}

func thought(part *session.Part, k *kept) inputReasoning {
	summary := []inputContent{}
	if part.Text != "" {
		summary = append(summary, inputContent{Text: part.Text, Type: "summary_text"})
	}
	return inputReasoning{ID: k.ID, Summary: summary, Encrypted: k.Encrypted, Type: "reasoning"}
}

func (in *responseInput) results(parts []session.Part) {
	for i := range parts {
		if part := &parts[i]; part.Kind == session.PartToolResult {
			in.out = append(in.out, inputResult{provider.ResultText(part), in.ids.Result(part), "function_call_output"})
		}
	}
}

func (in *responseInput) message(role string, parts []session.Part) {
	var content []inputContent
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				content = append(content, inputContent{Text: part.Text, Type: typeInputText})
			}
		case session.PartFile:
			c, ok := responseFile(part)
			if !ok {
				c = inputContent{Text: provider.DescribeFile(part), Type: typeInputText}
			}
			content = append(content, c)
		}
	}
	if len(content) > 0 {
		in.out = append(in.out, inputMessage{Content: content, Role: role})
	}
}

// responseFile is a file as content, if the API has a place for it.
func responseFile(part *session.Part) (out inputContent, ok bool) {
	inline, isInline := dataURL(part)
	if !isInline && provider.IsDataURL(part.URL) {
		return out, false // it cannot be read
	}
	switch kindOf(part.MediaType) {
	case fileImage:
		out = inputContent{Detail: "auto", ImageURL: part.URL, Type: "input_image"}
		if isInline {
			out.ImageURL = inline
		}
		return out, true
	case fileDocument:
		out.Type = "input_file"
		if isInline {
			out.FileData, out.Filename = inline, fileName(part)
		} else {
			out.FileURL = part.URL
		}
		return out, true
	case fileText:
		text, ok := provider.FileText(part)
		return inputContent{Text: text, Type: typeInputText}, ok
	}
	return out, false
}
