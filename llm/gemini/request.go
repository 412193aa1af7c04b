package gemini

import (
	"google.golang.org/genai"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
)

// body makes a request of the API. Equal requests give equal bytes, and a longer
// transcript the same bytes for what it has in common with a shorter one: the SDK
// sends the members in the order of their names, and contents come first.
func (m *Model) body(request *llm.Request) (map[string]any, error) {
	t := transcript{signed: wantsSignatures(m.cfg.Model)}
	t.build(request.Messages)
	out := map[string]any{"contents": t.out}
	if parts := texts(append([]string{request.Instructions}, t.system...)); len(parts) > 0 {
		out["systemInstruction"] = content{Parts: parts}
	}
	if len(request.Tools) > 0 {
		out["tools"] = []any{genai.Tool{FunctionDeclarations: declarations(request.Tools)}}
		if c := toolChoice(request.ToolChoice); c != nil {
			out["toolConfig"] = map[string]any{"functionCallingConfig": c}
		}
	}
	if c := generationConfig(&request.Settings); len(c) > 0 {
		out["generationConfig"] = c
	}
	options, err := provider.Options(name, request.Settings.ProviderOptions)
	if err != nil {
		return nil, err
	}
	merged, err := provider.Merge(name, out, options)
	if err != nil {
		return nil, err
	}
	for _, o := range merged {
		if o.Value == nil {
			delete(out, o.Name)
		} else {
			out[o.Name] = o.Value
		}
	}
	return out, nil
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

func declarations(tools []llm.Tool) []*genai.FunctionDeclaration {
	out := make([]*genai.FunctionDeclaration, len(tools))
	for i, tool := range tools {
		out[i] = &genai.FunctionDeclaration{Name: tool.Name, Description: tool.Description}
		if len(tool.Schema) > 0 {
			out[i].ParametersJsonSchema = tool.Schema
		}
	}
	return out
}

func toolChoice(choice llm.ToolChoice) map[string]any {
	switch choice.Mode {
	case llm.ToolRequired:
		return map[string]any{"mode": genai.FunctionCallingConfigModeAny}
	case llm.ToolNamed:
		return map[string]any{"mode": genai.FunctionCallingConfigModeAny, "allowedFunctionNames": []string{choice.Name}}
	case llm.ToolNone:
		return map[string]any{"mode": genai.FunctionCallingConfigModeNone}
	}
	return nil
}

func generationConfig(s *llm.Settings) map[string]any {
	out := map[string]any{}
	if s.MaxOutputTokens > 0 {
		out["maxOutputTokens"] = s.MaxOutputTokens
	}
	if len(s.StopSequences) > 0 {
		out["stopSequences"] = s.StopSequences
	}
	set(out, "temperature", s.Temperature)
	set(out, "topP", s.TopP)
	set(out, "topK", s.TopK)
	set(out, "presencePenalty", s.PresencePenalty)
	set(out, "frequencyPenalty", s.FrequencyPenalty)
	set(out, "seed", s.Seed)
	return out
}

func set[T any](out map[string]any, name string, value *T) {
	if value != nil {
		out[name] = *value
	}
}
