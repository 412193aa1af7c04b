// Package openai is a model on OpenAI's APIs: Responses, and Chat Completions, which
// many other servers speak.
//
//	agent := &helix.Agent{
//		Name:  "researcher",
//		Model: openai.New(openai.Config{Model: "gpt-5"}),
//	}
//
// The key comes from the environment variable OPENAI_API_KEY unless [Config.APIKey]
// is set.
//
// # Other servers
//
// Local servers and gateways are reached by their address, mostly with Chat
// Completions:
//
//	openai.New(openai.Config{
//		Model:   "qwen3",
//		BaseURL: "http://localhost:11434/v1",
//		API:     openai.ChatCompletions,
//	})
//
// Their deviations are accepted: replies without usage, without ids or indexes of calls,
// with reasoning in reasoning_content or reasoning, with a stream that ends after its
// finish reason, or a response that is not a stream. Except for Azure, they receive
// max_tokens instead of max_completion_tokens, and no prompt cache key. The API key is
// sent to the configured address, whichever server that is.
//
// # Provider options
//
// The members of [llm.Settings.ProviderOptions] become members of the request, with
// the API's field names:
//
//	Settings: llm.Settings{
//		ProviderOptions: json.RawMessage(`{
//			"reasoning": {"effort": "high", "summary": "auto"},
//			"service_tier": "flex"
//		}`),
//	}
//
// Objects are merged into the request, other values replace a member, and null
// removes a member, such as stream_options for a server that refuses it. Options
// for several providers can be given by name: {"openai": {…}, "anthropic": {…}}.
//
// # Reasoning
//
// With Responses, nothing is stored at OpenAI. OpenAI returns reasoning encrypted. The
// adapter sends it back with the transcript, so the model keeps it between calls. A
// summary to read, which is streamed as reasoning, comes only if the options ask for
// one. The adapter requests encrypted reasoning from models of OpenAI that are known to
// reason; for a model under another name, such as a deployment, set the option
// reasoning.
//
// # Caching
//
// OpenAI caches prompts without being asked. The session's id is sent as the prompt cache
// key, so that the calls of a session use the same cache. The hints of [llm.Cache] have no
// effect.
//
// # Strict tools
//
// Strict tools and outputs are sent as plain ones if their schema cannot be enforced:
// objects must be closed with additionalProperties: false, all properties must be required,
// and the lengths of strings and allOf are not supported.
//
// # What it cannot do
//
// There is no top k, and with Responses there are no penalties, stop sequences and
// seeds: they are left out. Failed tool results are marked by their text only.
// With Chat Completions, reasoning is not sent back. Files are images, PDF, office
// documents and text; Chat Completions also takes sound (WAV, MP3), and documents only
// as data URLs. Other files, and files in the model's own messages, are left out.
// OpenAI's own tools, such as web search, can be switched on with the option tools,
// which is added to the agent's tools; their calls are not shown. A refusal is a text
// with the finish reason content-filter.
package openai
