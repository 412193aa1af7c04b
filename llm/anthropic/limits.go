package anthropic

import (
	"strings"

	"github.com/helixagents/helix/llm/internal/provider"
)

// outputLimit returns the default limit of output tokens. The API refuses a limit above that
// of the model; the listed models have a lower one than the rest.
func outputLimit(model string) int {
	switch {
	case hasPrefix(model, "claude-3-opus", "claude-3-sonnet", "claude-3-haiku", "claude-2", "claude-instant"):
		return 4096
	case hasPrefix(model, "claude-3-5"):
		return 8192
	}
	return 32000
}

// canConstrain reports whether a model supports strict schemas.
func canConstrain(model string) bool {
	return !hasPrefix(model, "claude-2", "claude-3", "claude-instant", "claude-opus-4-0", "claude-sonnet-4-0",
		"claude-opus-4-2025", "claude-sonnet-4-2025")
}

func hasPrefix(s string, prefixes ...string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// strict describes the schemas that the API can enforce.
var strict = provider.Strict{
	Keywords: []string{
		"$ref", "$defs", "type", "anyOf", "allOf", "description", "title", "enum", "const", "properties",
		"additionalProperties", "required", "items", "format",
	},
	Formats: []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
}
