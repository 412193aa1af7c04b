package provider

import (
	"cmp"
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
	if u.User != nil { // errors contain the address
		return llm.Error(session.CodeBadRequest, false, "%s: the base URL contains a user name: set Config.Headers instead", provider)
	}
	return nil
}

// Client returns a client that follows no redirection: the key and the transcript are for
// the configured address and no other.
func Client(client *http.Client) *http.Client {
	if client == nil {
		client = http.DefaultClient
	}
	out := *client
	out.Transport = noRedirects{cmp.Or(client.Transport, http.DefaultTransport)}
	return &out
}

// noRedirects removes the target of a redirection, so that [http.Client] returns the answer
// instead of following it. The target may contain secrets and be repeated in the body, which
// is removed too.
type noRedirects struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t noRedirects) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(request)
	if err == nil && answer.Header.Get("Location") != "" && answer.StatusCode >= 300 && answer.StatusCode < 400 {
		answer.Header.Del("Location")
		_ = answer.Body.Close()
		answer.Body = http.NoBody
	}
	return answer, err
}

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
