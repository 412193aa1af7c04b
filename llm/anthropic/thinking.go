package anthropic

import (
	"encoding/json"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// thinkingType is the kind of thinking that an option asks for.
func thinkingType(option json.RawMessage) string {
	var doc struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(option, &doc) != nil {
		return ""
	}
	return doc.Type
}

func thinks(option json.RawMessage) bool {
	kind := thinkingType(option)
	return kind != "" && kind != "disabled"
}

// mustNotThink reports whether the API would refuse to think: when it has to call a
// tool, and, with a budget, in the middle of a turn that began without thinking,
// such as one that another model began.
func mustNotThink(request *llm.Request, option json.RawMessage) bool {
	switch request.ToolChoice.Mode {
	case llm.ToolRequired, llm.ToolNamed:
		if len(request.Tools) > 0 {
			return true
		}
	}
	return thinkingType(option) == "enabled" && beganWithoutThinking(request.Messages)
}

// beganWithoutThinking looks at the first reply since the last message that was
// not a result.
func beganWithoutThinking(messages []session.Message) bool {
	var first *session.Message
	for i := len(messages) - 1; i >= 0; i-- {
		if role := messages[i].Role; role == session.RoleAssistant {
			first = &messages[i]
		} else if role != session.RoleTool {
			break
		}
	}
	if first == nil || len(first.Calls()) == 0 {
		return false
	}
	for i := range first.Parts {
		var k kept
		if part := &first.Parts[i]; part.Kind == session.PartReasoning && provider.Kept(part, name, &k) {
			return false
		}
	}
	return true
}
