// Package models opens a model by its name, for programs whose users choose it.
//
//	model, err := models.Open("anthropic/claude-sonnet-4-5")
//
// # References
//
// A reference is provider/model. The providers are
//
//	openai        OpenAI's Responses API       OPENAI_API_KEY
//	openai-chat   the Chat Completions API     OPENAI_API_KEY
//	anthropic     Anthropic's Messages API     ANTHROPIC_API_KEY
//	gemini        Google's Gemini API          GEMINI_API_KEY or GOOGLE_API_KEY
//
// and the key comes from the environment variable beside them.
//
// After an @, a reference names another server that speaks the provider's wire, as
// local servers and gateways do:
//
//	openai-chat/llama3.2:3b@http://127.0.0.1:11434/v1
//
// The address is the adapter's base URL: with the /v1 for OpenAI, without a version for
// the others. Such a server does not receive the provider's key, but the one in
// HELIX_MODEL_KEY, if it is set. To replace a provider by a gateway that receives the
// provider's key, set the variable of the provider's own SDKs: OPENAI_BASE_URL,
// ANTHROPIC_BASE_URL or GOOGLE_GEMINI_BASE_URL.
//
// Several references, separated by commas, are one model: it calls the first and, if that
// fails with an error that a retry does not fix, the next; see package router.
//
//	anthropic/claude-sonnet-4-5,openai/gpt-5
//
// A program for one provider imports that provider's package instead, and does not compile
// the others.
package models

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/anthropic"
	"github.com/helixagents/helix/llm/gemini"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/llm/router"
	"github.com/helixagents/helix/session"
)

// ServerKey is the environment variable with the key for servers that a reference
// names by their address.
const ServerKey = "HELIX_MODEL_KEY"

// model is what the adapters have in common.
type model interface {
	llm.Model
	// Check reports what is wrong with the configuration.
	Check() error
}

// provider is a provider whose API an adapter implements.
type provider struct {
	name string
	keys []string // environment variables, any of which will do
	open func(model, baseURL, key string) model
}

var providers = []provider{
	{"openai", []string{"OPENAI_API_KEY"}, func(name, baseURL, key string) model {
		return openai.New(openai.Config{Model: name, BaseURL: baseURL, APIKey: key})
	}},
	{"openai-chat", []string{"OPENAI_API_KEY"}, func(name, baseURL, key string) model {
		return openai.New(openai.Config{Model: name, BaseURL: baseURL, APIKey: key, API: openai.ChatCompletions})
	}},
	{"anthropic", []string{"ANTHROPIC_API_KEY"}, func(name, baseURL, key string) model {
		return anthropic.New(anthropic.Config{Model: name, BaseURL: baseURL, APIKey: key})
	}},
	{"gemini", []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}, func(name, baseURL, key string) model {
		return gemini.New(gemini.Config{Model: name, BaseURL: baseURL, APIKey: key})
	}},
}

// Providers lists the names of the providers.
func Providers() []string {
	names := make([]string, len(providers))
	for i := range providers {
		names[i] = providers[i].name
	}
	return names
}

// Open returns the model that a reference names. It sends no request, but reports what is
// missing for one, also for models that are only fallbacks.
func Open(reference string) (llm.Model, error) {
	var all []llm.Model
	for one := range strings.SplitSeq(reference, ",") {
		m, err := open(strings.TrimSpace(one), "")
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return router.New(all[0], all[1:]...), nil
}

// OpenWithKey returns the model that a reference names, like [Open], and uses the given
// key. If key is empty, the key comes from the environment.
func OpenWithKey(reference, key string) (llm.Model, error) { return open(reference, key) }

// Check reports what is wrong with a reference, whether or not its key is set.
func Check(reference string) error {
	_, err := parse(reference)
	return err
}

// Window returns the context window of the model that a reference names, whether or not its
// key is set, or 0 if that is not known.
func Window(reference string) int {
	ref, err := parse(reference)
	if err != nil {
		return 0
	}
	return llm.WindowOf(ref.provider.open(ref.model, ref.baseURL, "none"))
}

// suggested has the models that Suggest returns, by provider.
var suggested = []struct{ provider, model string }{
	{"anthropic", "claude-sonnet-4-5"}, {"openai", "gpt-5"}, {"gemini", "gemini-2.5-flash"},
}

// Suggest returns the reference of a model of the first provider whose key is in the
// environment: Anthropic, OpenAI, Gemini. It reports false if there is none.
func Suggest() (string, bool) {
	for _, s := range suggested {
		i := slices.IndexFunc(providers, func(p provider) bool { return p.name == s.provider })
		if slices.ContainsFunc(providers[i].keys, func(name string) bool { return os.Getenv(name) != "" }) {
			return s.provider + "/" + s.model, true
		}
	}
	return "", false
}

func open(reference, key string) (llm.Model, error) {
	ref, err := parse(reference)
	if err != nil {
		return nil, err
	}
	if ref.baseURL != "" {
		// Without a key the adapters would look for the provider's.
		key = cmp.Or(key, os.Getenv(ServerKey), "none")
	}
	m := ref.provider.open(ref.model, ref.baseURL, key)
	if err := m.Check(); err != nil {
		if errors.Is(err, &session.Error{Code: session.CodeAuth}) {
			return nil, llm.Error(session.CodeAuth, false, "model %s: no API key: set the environment variable %s",
				reference, strings.Join(ref.provider.keys, " or "))
		}
		return nil, fmt.Errorf("model %s: %w", reference, err)
	}
	return m, nil
}

// parsed is a reference taken apart.
type parsed struct {
	provider *provider
	model    string
	baseURL  string
}

// parse takes a reference apart. Names of models may hold slashes, colons and at
// signs; an address is known by its scheme.
func parse(reference string) (parsed, error) {
	address := ""
	for _, scheme := range []string{"http://", "https://"} {
		if before, after, ok := strings.Cut(reference, "@"+scheme); ok {
			reference, address = before, scheme+after
			break
		}
	}
	name, rest, ok := strings.Cut(reference, "/")
	if !ok || name == "" || rest == "" {
		return parsed{}, session.Invalid("model", "%q is not of the form provider/model; the providers are %s",
			reference, strings.Join(Providers(), ", "))
	}
	i := slices.IndexFunc(providers, func(p provider) bool { return p.name == name })
	if i < 0 {
		return parsed{}, session.Invalid("model", "%s: there is no provider %q; the providers are %s",
			reference, name, strings.Join(Providers(), ", "))
	}
	if address == "" {
		return parsed{&providers[i], rest, ""}, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" { // the text of err has the address in it, and whatever that holds
		return parsed{}, session.Invalid("model", "%s: what follows the @ is not a web address", reference)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return parsed{}, session.Invalid("model", "%s: the address may only have a host and a path; a key belongs in %s", reference, ServerKey)
	}
	return parsed{&providers[i], rest, strings.TrimSuffix(address, "/")}, nil
}
