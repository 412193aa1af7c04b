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
// [llm.Settings.ProviderOptions] is merged into the request, in the API's own words:
//
//	Settings: llm.Settings{
//		ProviderOptions: json.RawMessage(`{
//			"generationConfig": {"thinkingConfig": {"includeThoughts": true, "thinkingBudget": 8000}},
//			"safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}]
//		}`),
//	}
//
// Objects are merged member by member, tools come on top of the agent's own, and
// everything else takes the place of what the settings say. Options for several
// providers can be given by name: {"gemini": {…}, "anthropic": {…}}.
//
// # Thinking
//
// Models that think do so by default, but tell their thoughts only if asked with
// includeThoughts, as above; then they are streamed as reasoning. Signatures, which
// come with thoughts, texts and calls, are kept and sent back where they came. The
// third generation of models refuses calls without one; those that another model
// made are sent with the value that the API takes for this case.
//
// # Caching
//
// The API caches by itself what requests have in common at the beginning, and has no
// marks: the hints in [llm.Cache] are left out. Tokens read from the cache are counted.
// A cache of your own making goes into the option cachedContent.
//
// # What it cannot do
//
// Arguments of calls come whole, not in pieces. Those that are not valid never
// arrive: the API gives up the reply, which is asked for again as
// a fault of code provider_malformed. Schemas are sent as they are, but not enforced tool by
// tool, so a strict tool is a plain one; the option
// {"toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}}} asks for it for
// all of them. Tokens written to a cache are not counted. Calls and results of tools
// that run on Google's servers, such as code that was executed, are not part of the
// reply. File names are not sent. Files that are not in data URLs are sent as
// addresses, of which the API takes those of its own Files API, and others depending
// on the model. Vertex AI, which wants other credentials than a key, is not spoken to.
package gemini
