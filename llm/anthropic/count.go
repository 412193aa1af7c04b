package anthropic

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
)

// Window implements [llm.Windowed]. It is [Config.Window], or 200,000 for the models of which
// Anthropic says so, or 0.
//
// https://support.claude.com/en/articles/8606395 has 200,000 and more for all models, and
// https://platform.claude.com/docs/en/build-with-claude/context-windows names those for which a
// beta header makes it a million: with the header, set Config.Window.
func (m *Model) Window() int {
	if m.cfg.Window > 0 {
		return m.cfg.Window
	}
	if windowed.MatchString(m.cfg.Model) {
		return 200_000
	}
	return 0
}

// windowed are the models of which the pages above speak, and their versions.
var windowed = regexp.MustCompile(`^claude-(3-(opus|sonnet|haiku)|3-5-(sonnet|haiku)|3-7-sonnet` +
	`|haiku-4-5|opus-4(-[0156])?|sonnet-4(-[056])?)(-\d{8}|-latest)?$`)

// notCounted are the members of a request that the counting of tokens does not take.
var notCounted = []string{"max_tokens", "temperature", "top_k", "top_p", "stop_sequences", "stream", "metadata"}

// Count implements [llm.Counter].
func (m *Model) Count(ctx context.Context, request *llm.Request) (int, error) {
	if err := m.Check(); err != nil {
		return 0, err
	}
	extra, err := readOptions(request)
	if err != nil {
		return 0, err
	}
	body, err := m.body(request, &extra)
	if err != nil {
		return 0, err
	}
	without := make([]provider.Option, len(notCounted))
	for i, name := range notCounted {
		without[i] = provider.Option{Name: name, Value: json.RawMessage("null")} // which removes it
	}
	if body, err = provider.Body(name, body, without); err != nil {
		return 0, err
	}
	call := &provider.Call{
		Provider: name, Client: m.client, URL: provider.Join(m.cfg.BaseURL, "v1/messages/count_tokens"), Header: m.header(request, extra.betas), Body: body,
		Failure: func(_ http.Header, body []byte) provider.Failure { return failure(body) },
		Secrets: provider.NewSecrets(m.cfg.APIKey, m.cfg.Headers, request.Settings.Headers),
	}
	var answer struct {
		InputTokens int `json:"input_tokens"`
	}
	err = call.PostJSON(ctx, &answer)
	return answer.InputTokens, err
}
