package provider

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// The names of the providers, which are keys of provider options and of kept data.
const (
	Anthropic = "anthropic"
	Gemini    = "gemini"
	OpenAI    = "openai"
)

// Option is a member of the provider options.
type Option struct {
	Name  string
	Value json.RawMessage
}

// Options reads the provider options: an object of members for the request, or,
// for an agent that may run on several providers, an object of such objects by the
// provider's name. They are sorted by name, so that equal options
// make equal requests.
func Options(provider string, raw json.RawMessage) ([]Option, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var set map[string]json.RawMessage
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, badOptions(err)
	}
	if byProvider(set) {
		raw, set = set[provider], nil
		if raw == nil {
			return nil, nil
		}
		if err := json.Unmarshal(raw, &set); err != nil {
			return nil, badOptions(fmt.Errorf("%s: %w", provider, err))
		}
	}
	out := make([]Option, 0, len(set))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, Option{name, set[name]})
	}
	return out, nil
}

func byProvider(set map[string]json.RawMessage) bool {
	for name := range set {
		switch name {
		case Anthropic, Gemini, OpenAI:
		default:
			return false
		}
	}
	return true
}

func badOptions(err error) error {
	return llm.Error(session.CodeBadRequest, false, "the provider options are not an object of JSON: %v", err)
}

func (o *Option) merge(member json.RawMessage) json.RawMessage {
	if o.Name == "tools" {
		var own, more []json.RawMessage
		if json.Unmarshal(member, &own) == nil && json.Unmarshal(o.Value, &more) == nil && more != nil {
			return encodeList(append(own, more...))
		}
	}
	return mergePatch(member, o.Value)
}

// BadOption returns the error for an option that an adapter cannot decode.
func BadOption(option string, err error) error {
	return llm.Error(session.CodeBadRequest, false, "the provider option %s: %v", option, err)
}
