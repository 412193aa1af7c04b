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
