package gemini

import (
	"slices"
	"strconv"
	"strings"

	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// transcript converts our messages to the API's contents. The API requires as many
// results as there were calls in the content before, and calls right after what
// they react to: so the results of a reply's calls go into one content, and so do
// replies in a row.
type transcript struct {
	// signed says that the model refuses a call without a signature.
	signed bool

	system []string
	out    []content
	ids    provider.CallIDs
	last   session.Role // of the content that is being built
}

// The API's roles.
const (
	roleUser  = "user"
	roleModel = "model"
)

func (t *transcript) build(messages []session.Message) {
	t.out = []content{}
	for i := range messages {
		m := &messages[i]
		switch m.Role {
		case session.RoleTool:
			t.add(m.Role, roleUser, t.results(m.Parts))
		case session.RoleAssistant:
			t.add(m.Role, roleModel, t.assistant(m.Parts))
		case session.RoleSystem:
			// What is said before anything else belongs to the instructions. Later it
			// stays in its place: the instructions must not change within a session.
			if len(t.out) == 0 {
				t.system = append(t.system, m.Content())
				continue
			}
			t.add(m.Role, roleUser, user(m.Parts))
		default:
			t.add(m.Role, roleUser, user(m.Parts))
		}
	}
}

// add leaves out a message of which nothing can be sent, as the API refuses it.
func (t *transcript) add(of session.Role, role string, parts []part) {
	if len(parts) == 0 {
		return
	}
	if t.last == of && (of == session.RoleTool || of == session.RoleAssistant) {
		c := &t.out[len(t.out)-1]
		c.Parts = append(c.Parts, parts...)
		return
	}
	t.last = of
	t.out = append(t.out, content{Role: role, Parts: parts})
}

// results wraps the results, which have to be objects. Under "output" and "error"
// the API finds what it looks for.
func (t *transcript) results(parts []session.Part) []part {
	var out []part
	for i := range parts {
		p := &parts[i]
		if p.Kind != session.PartToolResult {
			continue
		}
		r := &response{ID: t.ids.Result(p), Name: provider.ToolName(p.Tool), Response: p.ResultJSON()}
		if p.Error == nil {
			r.Response = append(append([]byte(`{"output":`), r.Response...), '}')
		}
		out = append(out, part{FunctionResponse: r})
	}
	return out
}

// anySignature is what the API takes for the signature of a call that it did not
// make itself.
const anySignature = "skip_thought_signature_validator"

func (t *transcript) assistant(parts []session.Part) []part {
	var out []part
	first := true // of the calls, which is the one that is signed
	for i := range parts {
		p := &parts[i]
		var k kept
		provider.Kept(p, name, &k)
		switch p.Kind {
		case session.PartText:
			if !provider.Blank(p.Text) || k.Signature != "" {
				out = append(out, part{Text: &p.Text, ThoughtSignature: k.Signature})
			}
		case session.PartReasoning:
			// The thoughts of others mean nothing to the API, and its own do without the
			// signature only to people.
			if k.Signature != "" {
				out = append(out, part{Text: &p.Text, Thought: true, ThoughtSignature: k.Signature})
			}
		case session.PartFile:
			if f, ok := fileAsItIs(p); ok {
				f.ThoughtSignature = k.Signature
				out = append(out, f)
			}
		case session.PartToolCall:
			c := &call{Name: provider.ToolName(p.Tool), Args: provider.Object(p.Input)}
			if p.ProviderCallID != "" { // else calls and results are matched by their order
				c.ID = t.ids.Call(p)
			}
			if k.Signature == "" && first && t.signed {
				k.Signature = anySignature
			}
			first = false
			out = append(out, part{FunctionCall: c, ThoughtSignature: k.Signature})
		}
	}
	return out
}

func user(parts []session.Part) []part {
	var out []part
	for i := range parts {
		switch p := &parts[i]; p.Kind {
		case session.PartText:
			if !provider.Blank(p.Text) {
				out = append(out, part{Text: &p.Text})
			}
		case session.PartFile:
			out = append(out, userFile(p))
		}
	}
	return out
}

// imageTypes are the pictures that the API takes. Which sounds and films a model takes, it
// decides itself.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}

// userFile returns a file of a user as a part: as it is, as text, or as what is said in its
// place if the API does not take it.
func userFile(p *session.Part) part {
	kind, _, _ := strings.Cut(p.MediaType, "/")
	takes := slices.Contains(imageTypes, p.MediaType) || p.MediaType == "application/pdf" || kind == "audio" || kind == "video"
	if takes || !provider.IsDataURL(p.URL) {
		if f, ok := fileAsItIs(p); ok {
			return f
		}
	}
	text, ok := provider.FileText(p)
	if !ok || !provider.IsText(p.MediaType) {
		text = provider.DescribeFile(p)
	}
	return part{Text: &text}
}

// fileAsItIs returns a file as a part.
func fileAsItIs(p *session.Part) (part, bool) {
	if !provider.IsDataURL(p.URL) {
		return part{FileData: &fileData{MIMEType: p.MediaType, FileURI: p.URL}}, true
	}
	_, data, err := provider.Base64(p.URL)
	return part{InlineData: &blob{MIMEType: p.MediaType, Data: data}}, err == nil
}

// wantsSignatures reports whether a model refuses calls without a signature, as
// those of the third generation and later do, and with them the names for the
// latest.
func wantsSignatures(model string) bool {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(model, "models/"), "gemini-")
	if !ok {
		return false
	}
	number := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		number = rest[:end]
	}
	if number == "" {
		return strings.HasSuffix(rest, "-latest")
	}
	generation, err := strconv.Atoi(number)
	return err == nil && generation >= 3
}
