// Package gemini is a model on Google's Gemini API.
//
//	agent := &helix.Agent{
//		Name:  "researcher",
//		Model: gemini.New(gemini.Config{Model: "gemini-2.5-pro"}),
//	}
//
// The key comes from the environment variable GEMINI_API_KEY, or else
// GOOGLE_API_KEY, unless [Config.APIKey] is set. Any server that speaks the same wire
// can take Google's place: see [Config.BaseURL].
//
// # Provider options
//
// [llm.Settings.ProviderOptions] is merged into the request, with the API's field names:
//
//	Settings: llm.Settings{
//		ProviderOptions: json.RawMessage(`{
//			"generationConfig": {"thinkingConfig": {"includeThoughts": true, "thinkingBudget": 8000}},
//			"safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}]
//		}`),
//	}
//
// Objects are merged member by member, tools are added to the agent's own, and every other
// value replaces the setting. Options for several
// providers can be given by name: {"gemini": {…}, "anthropic": {…}}.
//
// # Thinking
//
// Models that think do so by default, but return their thoughts only with
// includeThoughts, as above; they are then streamed as reasoning. Signatures of thoughts,
// texts and calls are kept and sent back with them. Models of the third generation refuse
// calls without a signature; a call that another model made is sent with the value that
// the API defines for this case.
//
// # Caching
//
// The API caches common prefixes of requests without being asked, and has no cache marks:
// the hints in [llm.Cache] are left out. Tokens read from the cache are counted. To use a
// cache that you created, set the option cachedContent.
//
// # What it cannot do
//
// Arguments of calls arrive whole, not in pieces. Invalid arguments never arrive: the API
// aborts the reply, and the engine retries it as an error with the code
// provider_malformed. Schemas are sent unchanged, but not enforced tool by tool, so a
// strict tool is a plain one; the option
// {"toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}}} enforces all of them. Tokens written to a cache are not counted. Calls and results of tools
// that run on Google's servers, such as code that was executed, are not part of the
// reply. File names are not sent. Files that are not in data URLs are sent as
// addresses: the API accepts those of its Files API, and others depending on the model.
// Vertex AI, which requires other credentials than a key, is not supported.
package gemini
