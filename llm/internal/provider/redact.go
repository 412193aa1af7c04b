package provider

import (
	"net/url"
	"slices"
	"strings"
)

// Secrets has the texts that must not appear in messages: the key, and the credentials in
// headers.
type Secrets []string

// minSecret is the minimum length of a secret. Keys of local servers, such as "none", would
// otherwise be removed from ordinary text.
const minSecret = 8

// NewSecrets collects the secrets of an adapter.
func NewSecrets(key string, headers ...map[string]string) Secrets {
	var s Secrets
	s = s.add(key)
	for _, set := range headers {
		for name, value := range set {
			if isCredential(name) {
				s = s.add(value)
				if _, token, ok := strings.Cut(value, " "); ok { // the scheme and the token
					s = s.add(token)
				}
			}
		}
	}
	// The longest first, in case a secret contains another.
	slices.SortFunc(s, func(a, b string) int { return len(b) - len(a) })
	return s
}

func (s Secrets) add(secret string) Secrets {
	secret = strings.TrimSpace(secret)
	if len(secret) < minSecret {
		return s
	}
	s = append(s, secret)
	if escaped := url.QueryEscape(secret); escaped != secret {
		s = append(s, escaped)
	}
	return s
}

func isCredential(header string) bool {
	header = strings.ToLower(header)
	return containsAny(header, "auth", "key", "token", "secret", "cookie", "password", "credential", "signature")
}

// Clip removes the secrets from a text and shortens it to at most n bytes; see the function
// [Clip]. The secrets go first, because half of one would not be recognized.
func (s Secrets) Clip(text string, n int) string { return Clip(s.Redact(text), n) }

// Redact removes the secrets from a text.
func (s Secrets) Redact(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}
