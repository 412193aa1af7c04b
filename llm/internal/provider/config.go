package provider

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// CheckBaseURL returns an error for an address that cannot be a base URL.
func CheckBaseURL(provider, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return llm.Error(session.CodeBadRequest, false, "%s: the base URL is not a web address", provider)
	}
	return nil
}

// Client returns a client that follows no redirection: the key and the transcript are for
// the configured address and no other. [Broken] classifies a redirection.
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

// redirectError is the error of a redirection. It does not contain the target, which may
// contain secrets.
type redirectError struct{ status int }

// Error implements error.
func (e *redirectError) Error() string { return "a redirection, which is not followed" }

// HasHeader reports whether one of the named headers, in canonical form, is set: a gateway
// may have authentication headers of its own.
func HasHeader(headers map[string]string, names ...string) bool {
	for header := range headers {
		if slices.Contains(names, http.CanonicalHeaderKey(header)) {
			return true
		}
	}
	return false
}
