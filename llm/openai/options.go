package openai

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
)

// extras are what headers and provider options come to.
type extras struct {
	request []option.RequestOption
	reasons bool // reasoning is asked for
}

func readOptions(request *llm.Request) (extras, error) {
	var out extras
	for header, value := range request.Settings.Headers {
		out.request = append(out.request, option.WithHeader(header, value))
	}
	options, err := provider.Options(name, request.Settings.ProviderOptions)
	if err != nil {
		return out, err
	}
	for _, o := range options {
		out.reasons = out.reasons || o.Name == "reasoning"
		out.merge(step(o.Name), o.Value)
	}
	return out, nil
}

// merge puts a value into the body: objects member by member, so that an option
// within one leaves the rest of it alone. Null takes a member away, for servers that
// refuse it.
func (e *extras) merge(path string, value json.RawMessage) {
	var members map[string]json.RawMessage
	switch {
	case string(value) == "null":
		e.request = append(e.request, option.WithJSONDel(path))
	case json.Unmarshal(value, &members) == nil && len(members) > 0:
		for _, member := range slices.Sorted(maps.Keys(members)) {
			e.merge(path+"."+step(member), members[member])
		}
	default:
		e.request = append(e.request, option.WithJSONSet(path, value))
	}
}

// step is a member's name as a step of a path. A number would be taken for that of
// an element.
func step(member string) string {
	if strings.Trim(member, "0123456789") == "" {
		return ":" + member
	}
	return param.EscapeSJSONKey(member)
}
