package anthropic

import (
	"slices"

	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// transcript converts our messages to the API's messages. The results of a reply's calls go
// into one message; otherwise messages are as many as they were, and the API takes
// several of one role in a row for one.
type transcript struct {
	mark        *cacheMark
	markResults bool

	system  []string
	out     []message
	ids     provider.CallIDs
	results []any // of the batch that is being read
	latest  *toolResultBlock
}

func (t *transcript) build(messages []session.Message) {
	for i := range messages {
		m := &messages[i]
		if m.Role == session.RoleTool {
			t.result(m)
			continue
		}
		t.flush()
		switch m.Role {
		case session.RoleAssistant:
			t.add(roleAssistant, t.assistant(m.Parts))
		case session.RoleSystem:
			// What is said before anything else belongs to the instructions. Later it
			// stays in its place: the instructions must not change within a session.
			if len(t.out) == 0 {
				t.system = append(t.system, m.Content())
				continue
			}
			t.add(roleUser, user(m.Parts))
		default:
			t.add(roleUser, user(m.Parts))
		}
	}
	t.flush()
	if t.markResults && t.latest != nil {
		t.latest.CacheControl = t.mark
	}
}

// add leaves out a message of which nothing can be sent, as the API refuses it.
func (t *transcript) add(role string, blocks []any) {
	if len(blocks) > 0 {
		t.out = append(t.out, message{Role: role, Content: blocks})
	}
}

func (t *transcript) flush() {
	t.add(roleUser, t.results)
	t.results = nil
}

func (t *transcript) result(m *session.Message) {
	for i := range m.Parts {
		part := &m.Parts[i]
		if part.Kind != session.PartToolResult {
			continue
		}
		b := &toolResultBlock{ToolUseID: t.ids.Result(part), IsError: part.Error != nil, Type: "tool_result"}
		if text := provider.ResultText(part); text != "" {
			b.Content = []textBlock{newText(text)}
		}
		t.latest = b
		t.results = append(t.results, b)
	}
}

func (t *transcript) assistant(parts []session.Part) []any {
	var out []any
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				out = append(out, newText(part.Text))
			}
		case session.PartReasoning:
			// What another model thought, or what was cut off before its signature
			// came, cannot be sent.
			var k kept
			switch provider.Kept(part, name, &k); {
			case k.Redacted != "":
				out = append(out, redactedBlock{k.Redacted, "redacted_thinking"})
			case k.Signature != "":
				out = append(out, thinkingBlock{k.Signature, part.Text, "thinking"})
			}
		case session.PartToolCall:
			out = append(out, toolUseBlock{t.ids.Call(part), provider.Object(part.Input), provider.ToolName(part.Tool), "tool_use"})
		}
	}
	return out
}

func user(parts []session.Part) []any {
	var out []any
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				out = append(out, newText(part.Text))
			}
		case session.PartFile:
			if b, ok := file(part); ok {
				out = append(out, b)
			} else {
				out = append(out, newText(provider.DescribeFile(part)))
			}
		}
	}
	return out
}

// images are the kinds of images that the API takes.
var images = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// file is a file as a block, if the API has one for it.
func file(part *session.Part) (fileBlock, bool) {
	switch {
	case slices.Contains(images, part.MediaType):
		return image(part)
	case part.MediaType == mediaPDF, provider.IsText(part.MediaType):
		return document(part)
	}
	return fileBlock{}, false
}

const mediaPDF = "application/pdf"

func image(part *session.Part) (fileBlock, bool) {
	if !provider.IsDataURL(part.URL) {
		return fileBlock{Source: source{URL: part.URL, Type: "url"}, Type: "image"}, true
	}
	_, content, err := provider.Base64(part.URL)
	return fileBlock{Source: source{Data: content, MediaType: part.MediaType, Type: "base64"}, Type: "image"}, err == nil
}

func document(part *session.Part) (fileBlock, bool) {
	doc := fileBlock{Title: part.Filename, Type: "document"}
	inline := provider.IsDataURL(part.URL)
	switch isPDF := part.MediaType == mediaPDF; {
	case isPDF && inline:
		_, content, err := provider.Base64(part.URL)
		if err != nil {
			return fileBlock{}, false
		}
		doc.Source = source{Data: content, MediaType: mediaPDF, Type: "base64"}
	case isPDF:
		doc.Source = source{URL: part.URL, Type: "url"}
	case inline:
		text, err := provider.TextOf(part.URL)
		if err != nil || provider.Blank(text) {
			return fileBlock{}, false
		}
		doc.Source = source{Data: text, MediaType: "text/plain", Type: "text"}
	default: // the API fetches no text
		return fileBlock{}, false
	}
	return doc, true
}
