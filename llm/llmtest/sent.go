package llmtest

import (
	"encoding/json"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Sent is a request as a provider's wire shows it, in neutral terms. A decoder
// fills in what it finds and nothing else.
type Sent struct {
	Key          string
	Model        string
	Stream       bool
	Instructions string
	// Parts are the parts of all messages, in order.
	Parts []SentPart
	Tools []llm.Tool
	// ToolChoice is [llm.ToolNone] also where the tools were left out.
	ToolChoice llm.ToolChoice
	// Settings has the settings that were sent, without headers, options and cache.
	Settings llm.Settings
	// Options are the provider options that were found, and all else that is in the
	// request's object, by the names on the wire.
	Options map[string]json.RawMessage
	// CachedPrefix says that a cache mark covers instructions and tools.
	CachedPrefix bool
	CacheTTL     time.Duration
	// Transcript is the list of messages as it was sent, byte for byte.
	Transcript json.RawMessage
	// Fixed are the tools and the instructions as they were sent.
	Fixed json.RawMessage
}

// SentPart is a part of a message. A file's URL is a data URL. A tool result's
// content is its Text, and Error is set, to anything, where it is marked as failed.
// The signature of reasoning is in Provider, as a JSON string.
type SentPart struct {
	Role session.Role
	session.Part
	// Cached says that a cache mark is on the part.
	Cached bool
}
