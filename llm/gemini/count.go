package gemini

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// Window implements [llm.Windowed]. It is [Config.Window], or 1,048,576 for the models of which
// Google says so, or 0:
//
//   - https://cloud.google.com/vertex-ai/generative-ai/docs/models/gemini/1-5-flash
//   - https://ai.google.dev/gemini-api/docs/models/gemini-2.0-flash
//   - https://ai.google.dev/gemini-api/docs/models/gemini-2.0-flash-lite
//   - https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/gemini/2-5-pro
func (m *Model) Window() int {
	if m.cfg.Window > 0 {
		return m.cfg.Window
	}
	if windowed.MatchString(strings.TrimPrefix(m.cfg.Model, "models/")) {
		return 1_048_576
	}
	return 0
}

// windowed are the models of the pages above, and their versions. Variants, such as those that
// speak or draw, have other windows.
var windowed = regexp.MustCompile(`^gemini-(1\.5-flash|2\.0-flash|2\.0-flash-lite|2\.5-pro)(-\d{3}|-latest)?$`)

// Count implements [llm.Counter].
func (m *Model) Count(ctx context.Context, request *llm.Request) (int, error) {
	if err := m.Check(); err != nil {
		return 0, err
	}
	content, err := m.body(request)
	if err != nil {
		return 0, err
	}
	// The request that is counted names its model, too.
	id, err := json.Marshal(m.resource())
	if err != nil {
		return 0, llm.Error(session.CodeBadRequest, false, "gemini: the request cannot be encoded: %v", err)
	}
	content, err = provider.Body(name, content, []provider.Option{{Name: "model", Value: id}})
	if err != nil {
		return 0, err
	}
	body, err := json.Marshal(map[string]json.RawMessage{"generateContentRequest": content})
	if err != nil {
		return 0, llm.Error(session.CodeBadRequest, false, "gemini: the request cannot be encoded: %v", err)
	}
	call := &provider.Call{
		Provider: name, Client: m.client, URL: m.address("countTokens", ""), Header: m.header(ctx, request), Body: body, Failure: refusal,
		Secrets: provider.NewSecrets(m.cfg.APIKey, m.cfg.Headers, request.Settings.Headers),
	}
	var answer struct {
		TotalTokens int `json:"totalTokens"`
	}
	err = call.PostJSON(ctx, &answer)
	return answer.TotalTokens, err
}
