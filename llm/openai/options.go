package openai

import (
	"encoding/json"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// extras are the parsed provider options.
type extras struct {
	options []provider.Option
	reasons bool // reasoning is asked for
}

func readOptions(request *llm.Request) (extras, error) {
	var out extras
	var err error
	out.options, err = provider.Options(name, request.Settings.ProviderOptions)
	for _, o := range out.options {
		out.reasons = out.reasons || o.Name == "reasoning" && string(o.Value) != "null"
	}
	return out, err
}

// encode returns a request with the options merged into it. Streaming is no option: the adapter reads nothing else.
func (e *extras) encode(request any) ([]byte, error) {
	raw, err := session.Encode(request)
	if err != nil {
		return nil, llm.Error(session.CodeBadRequest, false, "openai: the request cannot be encoded: %v", err)
	}
	return provider.Body(name, raw, append(e.options, provider.Option{Name: "stream", Value: json.RawMessage("true")}))
}
