package anthropic

import (
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// transcript makes the API's messages of ours. The results of a reply's calls go
// into one message; otherwise messages are as many as they were, and the API takes
// several of one role in a row for one.
type transcript struct {
	mark        sdk.CacheControlEphemeralParam
	markResults bool

	system  []string
	out     []sdk.MessageParam
	ids     provider.CallIDs
	results []sdk.ContentBlockParamUnion // of the batch that is being read
	latest  *sdk.ToolResultBlockParam
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
			t.add(sdk.MessageParamRoleAssistant, t.assistant(m.Parts))
		case session.RoleSystem:
			// What is said before anything else belongs to the instructions. Later it
			// stays in its place: the instructions must not change within a session.
			if len(t.out) == 0 {
				t.system = append(t.system, m.Content())
				continue
			}
			t.add(sdk.MessageParamRoleUser, user(m.Parts))
		default:
			t.add(sdk.MessageParamRoleUser, user(m.Parts))
		}
	}
	t.flush()
	if t.markResults && t.latest != nil {
		t.latest.CacheControl = t.mark
	}
}

// add leaves out a message of which nothing can be sent, as the API refuses it.
func (t *transcript) add(role sdk.MessageParamRole, blocks []sdk.ContentBlockParamUnion) {
	if len(blocks) > 0 {
		t.out = append(t.out, sdk.MessageParam{Role: role, Content: blocks})
	}
}

func (t *transcript) flush() {
	t.add(sdk.MessageParamRoleUser, t.results)
	t.results = nil
}

func (t *transcript) result(m *session.Message) {
	for i := range m.Parts {
		part := &m.Parts[i]
		if part.Kind != session.PartToolResult {
			continue
		}
		b := &sdk.ToolResultBlockParam{ToolUseID: t.ids.Result(part)}
		if text := provider.ResultText(part); text != "" {
			b.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: text}}}
		}
		if part.Error != nil {
			b.IsError = sdk.Bool(true)
		}
		t.latest = b
		t.results = append(t.results, sdk.ContentBlockParamUnion{OfToolResult: b})
	}
}

func (t *transcript) assistant(parts []session.Part) []sdk.ContentBlockParamUnion {
	var out []sdk.ContentBlockParamUnion
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				out = append(out, sdk.NewTextBlock(part.Text))
			}
		case session.PartReasoning:
			// What another model thought, or what was cut off before its signature
			// came, cannot be sent.
			var k kept
			switch provider.Kept(part, name, &k); {
			case k.Redacted != "":
				out = append(out, sdk.NewRedactedThinkingBlock(k.Redacted))
			case k.Signature != "":
				out = append(out, sdk.NewThinkingBlock(k.Signature, part.Text))
			}
		case session.PartToolCall:
			out = append(out, sdk.ContentBlockParamUnion{OfToolUse: &sdk.ToolUseBlockParam{
				ID: t.ids.Call(part), Name: provider.ToolName(part.Tool), Input: provider.Object(part.Input),
			}})
		}
	}
	return out
}

func user(parts []session.Part) []sdk.ContentBlockParamUnion {
	var out []sdk.ContentBlockParamUnion
	for i := range parts {
		switch part := &parts[i]; part.Kind {
		case session.PartText:
			if !provider.Blank(part.Text) {
				out = append(out, sdk.NewTextBlock(part.Text))
			}
		case session.PartFile:
			if b, ok := file(part); ok {
				out = append(out, b)
			}
		}
	}
	return out
}

// images are the kinds of images that the API takes.
var images = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// file is a file as a block, if the API has one for it.
func file(part *session.Part) (sdk.ContentBlockParamUnion, bool) {
	switch {
	case slices.Contains(images, part.MediaType):
		return image(part)
	case part.MediaType == "application/pdf", strings.HasPrefix(part.MediaType, "text/"):
		return document(part)
	}
	return sdk.ContentBlockParamUnion{}, false
}

func image(part *session.Part) (sdk.ContentBlockParamUnion, bool) {
	if !provider.IsDataURL(part.URL) {
		return sdk.NewImageBlock(sdk.URLImageSourceParam{URL: part.URL}), true
	}
	_, content, err := provider.Base64(part.URL)
	return sdk.NewImageBlockBase64(part.MediaType, content), err == nil
}

func document(part *session.Part) (sdk.ContentBlockParamUnion, bool) {
	doc := &sdk.DocumentBlockParam{}
	if part.Filename != "" {
		doc.Title = sdk.String(part.Filename)
	}
	inline := provider.IsDataURL(part.URL)
	switch isPDF := part.MediaType == "application/pdf"; {
	case isPDF && inline:
		_, content, err := provider.Base64(part.URL)
		if err != nil {
			return sdk.ContentBlockParamUnion{}, false
		}
		doc.Source.OfBase64 = &sdk.Base64PDFSourceParam{Data: content}
	case isPDF:
		doc.Source.OfURL = &sdk.URLPDFSourceParam{URL: part.URL}
	case inline:
		text, err := provider.TextOf(part.URL)
		if err != nil || provider.Blank(text) {
			return sdk.ContentBlockParamUnion{}, false
		}
		doc.Source.OfText = &sdk.PlainTextSourceParam{Data: text}
	default: // the API fetches no text
		return sdk.ContentBlockParamUnion{}, false
	}
	return sdk.ContentBlockParamUnion{OfDocument: doc}, true
}
