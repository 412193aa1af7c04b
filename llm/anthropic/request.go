package anthropic

import (
	"encoding/json"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// body builds a request of the API. Equal requests give equal bytes, and a longer
// transcript the same bytes for what it has in common with a shorter one.
func (m *Model) body(request *llm.Request, extra *extras) ([]byte, error) {
	mark := cacheMarkFor(request.Settings.Cache)
	out := messageRequest{
		Model:         m.cfg.Model,
		MaxTokens:     m.cfg.MaxOutputTokens,
		StopSequences: request.Settings.StopSequences,
		Tools:         m.tools(request.Tools),
		ToolChoice:    toolChoice(request),
	}
	if n := request.Settings.MaxOutputTokens; n > 0 {
		out.MaxTokens = n
	}
	extra.sample(&out, &request.Settings)
	t := transcript{mark: mark, markResults: request.Settings.Cache.LatestTurn}
	t.build(request.Messages)
	out.Messages = t.out
	out.System = system(append([]string{request.Instructions}, t.system...))
	if request.Settings.Cache.Prefix || request.Settings.Cache.LatestTurn {
		anchor(&out, mark)
	}
	raw, err := json.Marshal(&out)
	if err != nil {
		return nil, llm.Error(session.CodeBadRequest, false, "anthropic: the request cannot be encoded: %v", err)
	}
	// Streaming is no option: the adapter reads nothing else.
	return provider.Body(name, raw, append(extra.options, provider.Option{Name: "stream", Value: json.RawMessage("true")}))
}

func system(texts []string) []textBlock {
	var out []textBlock
	for _, text := range texts {
		if !provider.Blank(text) {
			out = append(out, newText(text))
		}
	}
	return out
}

// anchor marks the end of what is the same in every call of a session: the tools
// come before the instructions, so one mark covers both.
func anchor(out *messageRequest, mark *cacheMark) {
	if n := len(out.System); n > 0 {
		out.System[n-1].CacheControl = mark
	} else if n := len(out.Tools); n > 0 {
		out.Tools[n-1].CacheControl = mark
	}
}

func cacheMarkFor(cache llm.Cache) *cacheMark {
	mark := &cacheMark{Type: "ephemeral"}
	switch {
	case cache.TTL > 5*time.Minute:
		mark.TTL = "1h"
	case cache.TTL > 0:
		mark.TTL = "5m"
	}
	return mark
}

func (m *Model) tools(tools []llm.Tool) []tool {
	var out []tool
	for i := range tools {
		t := &tools[i]
		schema := t.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		out = append(out, tool{
			InputSchema: schema, Name: t.Name, Description: t.Description,
			Strict: t.Strict && canConstrain(m.cfg.Model) && strict.Fits(schema),
		})
	}
	return out
}

// toolChoice is left out where it is the default, and where there is nothing to
// choose from, which the API refuses.
func toolChoice(request *llm.Request) *choice {
	if len(request.Tools) == 0 {
		return nil
	}
	switch request.ToolChoice.Mode {
	case llm.ToolRequired:
		return &choice{Type: "any"}
	case llm.ToolNamed:
		return &choice{Name: request.ToolChoice.Name, Type: "tool"}
	case llm.ToolNone:
		return &choice{Type: "none"}
	}
	return nil
}

// extras are the parsed provider options.
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

// sample sets how words are picked. The API refuses most of it while the model
// thinks.
func (e *extras) sample(out *messageRequest, s *llm.Settings) {
	if s.Temperature != nil && !e.thinking {
		out.Temperature = new(min(*s.Temperature, 1))
	}
	if !e.thinking {
		out.TopK = s.TopK
	}
	if s.TopP != nil && (!e.thinking || *s.TopP >= 0.95) {
		out.TopP = s.TopP
	}
}
