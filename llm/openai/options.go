package openai

import (
	"strings"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
)

// extras are what headers and provider options come to.
type extras struct {
	headers []option.RequestOption
	options []provider.Option
	reasons bool // reasoning is asked for
}

func readOptions(request *llm.Request) (extras, error) {
	var out extras
	for header, value := range request.Settings.Headers {
		out.headers = append(out.headers, option.WithHeader(header, value))
	}
	var err error
	out.options, err = provider.Options(name, request.Settings.ProviderOptions)
	for _, o := range out.options {
		out.reasons = out.reasons || o.Name == "reasoning" && string(o.Value) != "null"
	}
	return out, err
}

// apply is how the options are merged into a request.
func (e *extras) apply(params any) ([]option.RequestOption, error) {
	merged, err := provider.Merge(name, params, e.options)
	if err != nil {
		return nil, err
	}
	out := e.headers
	for _, o := range merged {
		if o.Value == nil {
			out = append(out, option.WithJSONDel(step(o.Name)))
		} else {
			out = append(out, option.WithJSONSet(step(o.Name), o.Value))
		}
	}
	return out, nil
}

// step is a member's name as a step of a path. A number would be taken for that of
// an element.
func step(member string) string {
	if strings.Trim(member, "0123456789") == "" {
		return ":" + member
	}
	return param.EscapeSJSONKey(member)
}
