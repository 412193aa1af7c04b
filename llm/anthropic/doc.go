// Package anthropic is a model on Anthropic's Messages API.
//
//	agent := &helix.Agent{
//		Name:  "researcher",
//		Model: anthropic.New(anthropic.Config{Model: "claude-sonnet-4-5"}),
//	}
//
// The key comes from the environment variable ANTHROPIC_API_KEY unless
// [Config.APIKey] is set. Any server that speaks the same wire can take Anthropic's
// place: see [Config.BaseURL].
//
// # Provider options
//
// The members of [llm.Settings.ProviderOptions] become members of the request, with
// the API's field names:
//
//	Settings: llm.Settings{
//		MaxOutputTokens: 16000,
//		ProviderOptions: json.RawMessage(`{
//			"thinking": {"type": "enabled", "budget_tokens": 8000},
//			"betas": ["interleaved-thinking-2025-05-14"]
//		}`),
//	}
//
// The one exception is betas, which become the anthropic-beta header. Options for
// several providers can be given by name: {"anthropic": {…}, "openai": {…}}.
//
// # Thinking
//
// Thinking is streamed as reasoning and sent back with its signature, as the API
// demands within a turn of tool calls. The budget counts towards the output tokens,
// so set MaxOutputTokens above it. The API allows neither temperature, top k nor a
// forced tool while thinking. The adapter omits the first two and turns thinking off
// for a forced tool, as in the last call of an agent with an output type.
//
// # Caching
//
// With [llm.Cache] Prefix, the end of the instructions is marked to be cached, and
// the tools before it with them. LatestTurn also marks the last result of the latest
// batch of tool results. A TTL above five minutes asks for an hour, because the API has
// nothing in between. Between requests, only the marks move; the earlier part stays the
// same.
//
// # What it cannot do
//
// The API has no presence and frequency penalties and no seeds: they are left out. So are
// files other than images (JPEG, PNG, GIF, WebP), PDF and text, and files in the model's
// own messages. The highest temperature is 1. Strict tools are sent as plain ones to
// models before 4.1, and if their schema cannot be enforced: objects must be closed with
// additionalProperties: false, and lengths, ranges and patterns are not supported.
package anthropic
