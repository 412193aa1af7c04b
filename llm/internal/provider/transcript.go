package provider

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/helixagents/helix/session"
)

// A transcript may have replies of several providers. The functions below make the parts of
// one provider acceptable to another.

// Keep wraps data that is sent back to a provider with a part under the provider's name, so
// that no other provider receives it.
func Keep(provider string, value any) json.RawMessage {
	raw, err := session.Encode(map[string]any{provider: value})
	if err != nil {
		return nil // strings and raw JSON encode
	}
	return raw
}

// Kept decodes what [Keep] wrapped, if the part came from that provider.
func Kept(part *session.Part, provider string, into any) bool {
	if len(part.Provider) == 0 {
		return false
	}
	var kept map[string]json.RawMessage
	if json.Unmarshal(part.Provider, &kept) != nil || kept[provider] == nil {
		return false
	}
	return json.Unmarshal(kept[provider], into) == nil
}

// Object returns a call's input for a provider that accepts objects only. Other input is
// wrapped, so that the model still sees it.
func Object(input json.RawMessage) json.RawMessage {
	trimmed := bytes.TrimSpace(input)
	switch {
	case len(trimmed) == 0:
		return json.RawMessage("{}")
	case trimmed[0] == '{' && json.Valid(trimmed):
		return trimmed
	}
	if !json.Valid(trimmed) {
		trimmed = session.AppendString(nil, string(trimmed))
	}
	return append(append([]byte(`{"invalid_arguments":`), trimmed...), '}')
}

// CallIDs assigns the ids that calls are sent with: the provider's own if it has the required
// form and no earlier call had the same, else one derived from ours. A call has the same id however long the transcript grows.
type CallIDs struct {
	// Max is the longest id allowed. Defaults to 64.
	Max  int
	sent map[string]string // by our id
	used map[string]bool
}

// Call returns the id of a call. Calls must come in the order of the transcript.
func (c *CallIDs) Call(part *session.Part) string {
	if c.sent == nil {
		c.sent, c.used = map[string]string{}, map[string]bool{}
	}
	id := part.ProviderCallID
	if id == "" {
		id = part.CallID
	}
	if !c.fits(id) || c.used[id] {
		sum := sha256.Sum256([]byte(part.CallID + "\x00" + id))
		id = "call_" + hex.EncodeToString(sum[:12])
	}
	c.used[id] = true
	c.sent[part.CallID] = id
	return id
}

// Result returns the id of the call that a result answers.
func (c *CallIDs) Result(part *session.Part) string {
	if id, ok := c.sent[part.CallID]; ok {
		return id
	}
	return part.ProviderCallID
}

func (c *CallIDs) fits(id string) bool {
	longest := c.Max
	if longest == 0 {
		longest = 64
	}
	return id != "" && len(id) <= longest && strings.IndexFunc(id, notWord) < 0
}

// ToolName returns the name of a called tool in a form that all providers accept. Models
// invent names, and a transcript with such a name must not be refused.
func ToolName(name string) string {
	name = strings.Map(func(r rune) rune {
		if notWord(r) {
			return '_'
		}
		return r
	}, name)
	if name == "" {
		return "unnamed"
	}
	return name[:min(len(name), 64)]
}

func notWord(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
		return false
	}
	return true
}

// ResultText returns a tool result as text: a string unchanged, anything else as JSON.
func ResultText(part *session.Part) string {
	if part.Error == nil && part.Output == nil {
		return part.Text
	}
	return string(part.ResultJSON())
}

// Blank reports whether a text is empty or white space. Several providers refuse such
// parts.
func Blank(text string) bool { return strings.TrimSpace(text) == "" }
