package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"

	"github.com/helixagents/helix/llm/internal/provider"
)

// isOwn reports whether a base URL is OpenAI's, or Azure's copy of it. Other
// servers may refuse newer parameters.
func isOwn(baseURL string) bool {
	u, err := url.Parse(baseURL)
	if err != nil {
		return false
	}
	host := "." + strings.ToLower(u.Hostname())
	return strings.HasSuffix(host, ".openai.com") || strings.HasSuffix(host, ".azure.com")
}

// reasons reports whether a model is known to reason. Others refuse a
// request for encrypted reasoning.
func reasons(model string) bool {
	model = model[strings.LastIndexByte(model, '/')+1:] // without the vendor that gateways put before it
	if strings.HasPrefix(model, "gpt-5") {
		return !strings.Contains(model, "-chat")
	}
	for _, prefix := range []string{"o1", "o3", "o4", "codex", "gpt-6", "gpt-oss"} {
		if strings.HasPrefix(model, prefix) {
			return true
		}
	}
	return false
}

// maxCacheKey is the longest key of a prompt cache that the API takes.
const maxCacheKey = 64

// cacheKey is the same for all calls of a session, so that they find the same cache.
func cacheKey(session string) string {
	if len(session) <= maxCacheKey {
		return session
	}
	sum := sha256.Sum256([]byte(session))
	return hex.EncodeToString(sum[:])
}

// strict describes the schemas that the APIs can enforce.
var strict = provider.Strict{
	Keywords: []string{
		"$ref", "$defs", "type", "anyOf", "description", "title", "enum", "const", "properties", "additionalProperties",
		"required", "items", "pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
		"exclusiveMaximum", "minItems", "maxItems",
	},
	Formats:     []string{"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"},
	AllRequired: true,
}
