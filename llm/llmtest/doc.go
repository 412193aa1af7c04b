// Package llmtest is the conformance suite of model adapters.
//
// [Run] is for an adapter of a provider: it plays recorded exchanges of the
// provider's format from a local server, whole and broken in every way that a
// network can break them, and checks the requests that the adapter sends. The
// contents of the exchanges are the same for all providers, so that what comes out
// must be the same too. A provider's test says where its recordings are, how to
// read its requests, and what it cannot do:
//
//	llmtest.Run(t, llmtest.Provider{
//		Name:      "anthropic",
//		New:       func(baseURL, key string) llm.Model { … },
//		Exchanges: os.DirFS("testdata"),
//		Decode:    decode,
//		Cannot:    []llmtest.Feature{llmtest.Seed},
//	})
//
// [RunModel] is for any other [llm.Model]: the part of the suite that needs no
// wire.
//
// # Exchanges
//
// A recording is testdata/<case>.sse, .json or .html: the body that the provider
// answers with. "{{key}}" in it stands for the key that was sent. [Cases] lists the
// cases and what each has to say, and a case whose recording is missing fails.
package llmtest
