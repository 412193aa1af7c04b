package provider

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// CheckBaseURL reports an address at which no provider can be asked.
func CheckBaseURL(provider, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return llm.Error(session.CodeBadRequest, false, "%s: the base URL is not a web address", provider)
	}
	return nil
}

// Client is a client that follows no redirection: the key and the transcript are for
// the address that was configured, and for no other. See [Broken] for what comes of
// one.
func Client(client *http.Client) *http.Client {
	if client == nil {
		client = http.DefaultClient
	}
	out := *client
	out.CheckRedirect = func(next *http.Request, _ []*http.Request) error {
		status := http.StatusFound
		if next.Response != nil {
			status = next.Response.StatusCode
		}
		return &redirectError{status}
	}
	return &out
}

// redirectError says that a provider answered with a redirection. Where to is left
// out: it may hold what is secret.
type redirectError struct{ status int }

// Error implements error.
func (e *redirectError) Error() string { return "a redirection, which is not followed" }

// HasHeader reports whether one of the named headers, in canonical form, is set: a
// gateway may be told in its own way who asks.
func HasHeader(headers map[string]string, names ...string) bool {
	for header := range headers {
		if slices.Contains(names, http.CanonicalHeaderKey(header)) {
			return true
		}
	}
	return false
}
