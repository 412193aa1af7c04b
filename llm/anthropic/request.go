package anthropic

import (
	"encoding/json"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
)

// params makes a request of the API. Equal requests give equal bytes, and a longer
// transcript the same bytes for what it has in common with a shorter one.
func (m *Model) params(request *llm.Request) (sdk.MessageNewParams, []option.RequestOption, error) {
	extra, err := readOptions(request)
	if err != nil {
		return sdk.MessageNewParams{}, nil, err
	}
	mark := cacheMark(request.Settings.Cache)
	out := sdk.MessageNewParams{
		Model:         m.cfg.Model,
		MaxTokens:     int64(m.cfg.MaxOutputTokens),
		StopSequences: request.Settings.StopSequences,
		Tools:         m.tools(request.Tools),
		ToolChoice:    toolChoice(request),
	}
	if n := request.Settings.MaxOutputTokens; n > 0 {
		out.MaxTokens = int64(n)
	}
	extra.sample(&out, &request.Settings)
	t := transcript{mark: mark, markResults: request.Settings.Cache.LatestTurn}
	t.build(request.Messages)
	out.Messages = t.out
	out.System = system(append([]string{request.Instructions}, t.system...))
	if request.Settings.Cache.Prefix || request.Settings.Cache.LatestTurn {
		anchor(&out, mark)
	}
	options, err := extra.apply(&out)
	if err != nil {
		return sdk.MessageNewParams{}, nil, err
	}
	for header, value := range request.Settings.Headers {
		options = append(options, option.WithHeader(header, value))
	}
	return out, options, nil
}

func system(texts []string) []sdk.TextBlockParam {
	var out []sdk.TextBlockParam
	for _, text := range texts {
		if !provider.Blank(text) {
			out = append(out, sdk.TextBlockParam{Text: text})
		}
	}
	return out
}

// anchor marks the end of what is the same in every call of a session: the tools
// come before the instructions, so one mark covers both.
func anchor(out *sdk.MessageNewParams, mark sdk.CacheControlEphemeralParam) {
	if n := len(out.System); n > 0 {
		out.System[n-1].CacheControl = mark
	} else if n := len(out.Tools); n > 0 {
		out.Tools[n-1].OfTool.CacheControl = mark
	}
}

func cacheMark(cache llm.Cache) sdk.CacheControlEphemeralParam {
	mark := sdk.NewCacheControlEphemeralParam()
	switch {
	case cache.TTL > 5*time.Minute:
		mark.TTL = sdk.CacheControlEphemeralTTLTTL1h
	case cache.TTL > 0:
		mark.TTL = sdk.CacheControlEphemeralTTLTTL5m
	}
	return mark
}

func (m *Model) tools(tools []llm.Tool) []sdk.ToolUnionParam {
	var out []sdk.ToolUnionParam
	for i := range tools {
		tool := &tools[i]
		schema := tool.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		p := &sdk.ToolParam{Name: tool.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](schema)}
		if tool.Description != "" {
			p.Description = sdk.String(tool.Description)
		}
		if tool.Strict && canConstrain(m.cfg.Model) && strict.Fits(schema) {
			p.Strict = sdk.Bool(true)
		}
		out = append(out, sdk.ToolUnionParam{OfTool: p})
	}
	return out
}

// toolChoice is left out where it is the default, and where there is nothing to
// choose from, which the API refuses.
func toolChoice(request *llm.Request) (out sdk.ToolChoiceUnionParam) {
	if len(request.Tools) == 0 {
		return out
	}
	switch request.ToolChoice.Mode {
	case llm.ToolRequired:
		out.OfAny = &sdk.ToolChoiceAnyParam{}
	case llm.ToolNamed:
		out.OfTool = &sdk.ToolChoiceToolParam{Name: request.ToolChoice.Name}
	case llm.ToolNone:
		out.OfNone = &sdk.ToolChoiceNoneParam{}
	}
	return out
}

// extras are what the provider options come to.
type extras struct {
	betas    []string
	options  []provider.Option
	thinking bool
}

func readOptions(request *llm.Request) (extras, error) {
	var out extras
	options, err := provider.Options(name, request.Settings.ProviderOptions)
	if err != nil {
		return out, err
	}
	for _, o := range options {
		switch o.Name {
		case "betas":
			if err := json.Unmarshal(o.Value, &out.betas); err != nil {
				return out, provider.BadOption(o.Name, err)
			}
			continue
		case "thinking":
			if out.thinking = thinks(o.Value); out.thinking && mustNotThink(request, o.Value) {
				out.thinking, o.Value = false, json.RawMessage(`{"type":"disabled"}`)
			}
		}
		out.options = append(out.options, o)
	}
	return out, nil
}

// apply is how the options are merged into a request.
func (e *extras) apply(params *sdk.MessageNewParams) ([]option.RequestOption, error) {
	var out []option.RequestOption
	for _, beta := range e.betas {
		out = append(out, option.WithHeaderAdd("anthropic-beta", beta))
	}
	merged, err := provider.Merge(name, params, e.options)
	if err != nil {
		return nil, err
	}
	for _, o := range merged {
		if o.Value == nil {
			out = append(out, option.WithJSONDel(escape(o.Name)))
		} else {
			out = append(out, option.WithJSONSet(escape(o.Name), o.Value))
		}
	}
	return out, nil
}

// escape keeps a member's name from being read as a path.
func escape(member string) string {
	return strings.NewReplacer(`\`, `\\`, ".", `\.`, "*", `\*`, "?", `\?`, "|", `\|`, "#", `\#`, "@", `\@`, ":", `\:`).Replace(member)
}

// sample sets how words are picked. The API refuses most of it while the model
// thinks.
func (e *extras) sample(out *sdk.MessageNewParams, s *llm.Settings) {
	if s.Temperature != nil && !e.thinking {
		out.Temperature = sdk.Float(min(*s.Temperature, 1))
	}
	if s.TopK != nil && !e.thinking {
		out.TopK = sdk.Int(int64(*s.TopK))
	}
	if s.TopP != nil && (!e.thinking || *s.TopP >= 0.95) {
		out.TopP = sdk.Float(*s.TopP)
	}
}
