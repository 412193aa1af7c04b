package gemini

import (
	"encoding/json"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// contentRequest is a request of the API, with its members in the order of their names.
type contentRequest struct {
	Contents          []content         `json:"contents"`
	GenerationConfig  *generationConfig `json:"generationConfig,omitempty"`
	SystemInstruction *content          `json:"systemInstruction,omitempty"`
	ToolConfig        *toolConfig       `json:"toolConfig,omitempty"`
	Tools             []tool            `json:"tools,omitempty"`
}

type generationConfig struct {
	FrequencyPenalty *float64 `json:"frequencyPenalty,omitempty"`
	MaxOutputTokens  int      `json:"maxOutputTokens,omitempty"`
	PresencePenalty  *float64 `json:"presencePenalty,omitempty"`
	Seed             *int64   `json:"seed,omitempty"`
	StopSequences    []string `json:"stopSequences,omitempty"`
	Temperature      *float64 `json:"temperature,omitempty"`
	TopK             *int     `json:"topK,omitempty"`
	TopP             *float64 `json:"topP,omitempty"`
}

type toolConfig struct {
	FunctionCallingConfig callingConfig `json:"functionCallingConfig"`
}

type callingConfig struct {
	AllowedFunctionNames []string `json:"allowedFunctionNames,omitempty"`
	Mode                 string   `json:"mode"`
}

type tool struct {
	FunctionDeclarations []declaration `json:"functionDeclarations"`
}

type declaration struct {
	Description          string          `json:"description,omitempty"`
	Name                 string          `json:"name"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

// body builds a request of the API. Equal requests give equal bytes, and a longer
// transcript the same bytes for what it has in common with a shorter one: members are
// in the order of their names, and contents come first.
func (m *Model) body(request *llm.Request) ([]byte, error) {
	t := transcript{signed: wantsSignatures(m.cfg.Model)}
	t.build(request.Messages)
	out := contentRequest{Contents: t.out, GenerationConfig: newGenerationConfig(&request.Settings)}
	if parts := texts(append([]string{request.Instructions}, t.system...)); len(parts) > 0 {
		out.SystemInstruction = &content{Parts: parts}
	}
	if len(request.Tools) > 0 {
		out.Tools = []tool{{declarations(request.Tools)}}
		out.ToolConfig = toolChoice(request.ToolChoice)
	}
	options, err := provider.Options(name, request.Settings.ProviderOptions)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(&out)
	if err != nil {
		return nil, llm.Error(session.CodeBadRequest, false, "gemini: the request cannot be encoded: %v", err)
	}
	if raw, err = provider.Body(name, raw, options); err != nil {
		return nil, err
	}
	if len(options) > 0 {
		raw, err = sorted(raw)
	}
	return append(raw, '\n'), err // which has always been sent, so it stays
}

// sorted returns an object with its members in the order of their names, wherever options have put them.
func sorted(object []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, llm.Error(session.CodeBadRequest, false, "gemini: the request cannot be encoded: %v", err)
	}
	return json.Marshal(members)
}

func texts(all []string) []part {
	var out []part
	for _, text := range all {
		if !provider.Blank(text) {
			out = append(out, part{Text: &text})
		}
	}
	return out
}

func declarations(tools []llm.Tool) []declaration {
	out := make([]declaration, len(tools))
	for i, tool := range tools {
		out[i] = declaration{Name: tool.Name, Description: tool.Description, ParametersJSONSchema: tool.Schema}
	}
	return out
}

func toolChoice(choice llm.ToolChoice) *toolConfig {
	switch choice.Mode {
	case llm.ToolRequired:
		return &toolConfig{callingConfig{Mode: "ANY"}}
	case llm.ToolNamed:
		return &toolConfig{callingConfig{Mode: "ANY", AllowedFunctionNames: []string{choice.Name}}}
	case llm.ToolNone:
		return &toolConfig{callingConfig{Mode: "NONE"}}
	}
	return nil
}

// newGenerationConfig returns nil where nothing is set.
func newGenerationConfig(s *llm.Settings) *generationConfig {
	if s.MaxOutputTokens <= 0 && len(s.StopSequences) == 0 && s.Temperature == nil && s.TopP == nil && s.TopK == nil &&
		s.PresencePenalty == nil && s.FrequencyPenalty == nil && s.Seed == nil {
		return nil
	}
	return &generationConfig{
		MaxOutputTokens: max(0, s.MaxOutputTokens), StopSequences: s.StopSequences, Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty, Seed: s.Seed,
	}
}
