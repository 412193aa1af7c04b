package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// maxListed is how many bytes the list of a skill's files has, which follows its
// instructions.
const maxListed = 8 << 10

const (
	opening = skill.ContentOpening
	closing = skill.ContentClosing
)

// content returns a skill as the model reads it: its instructions, the tools that it lists
// and the files that it has, between tags that say which skill and which version it is.
func (x *Extension) content(s *skill.Skill) string {
	body, cut := cutText(s.Body, x.cfg.MaxBody)
	var b strings.Builder
	b.WriteString(plain(body))
	if cut {
		fmt.Fprintf(&b, "\n\n[The instructions are cut here, after %d of %d bytes. To read the rest, call %s with name %q, path %q and startLine %d.]",
			len(body), len(s.Body), ReadTool, s.Name, skill.FileName, 1+strings.Count(body, "\n"))
	}
	if s.Compatibility != "" {
		b.WriteString("\n\nThe skill needs: " + plain(s.Compatibility))
	}
	if len(s.AllowedTools) > 0 {
		b.WriteString("\n\n" + x.toolsSentence(s.AllowedTools))
	}
	if len(s.Files) > 0 {
		fmt.Fprintf(&b, "\n\nThe skill has files, which %s reads. Paths are relative to the skill.\n<skill_files>\n", ReadTool)
		start := b.Len()
		for i, f := range s.Files {
			if b.Len()-start > maxListed {
				fmt.Fprintf(&b, "and %d more\n", len(s.Files)-i)
				break
			}
			fmt.Fprintf(&b, "<file path=\"%s\" size=\"%d\"/>\n", skill.Escape(f.Path), f.Size)
		}
		b.WriteString("</skill_files>")
	}
	b.WriteByte('\n')
	out := block{name: s.Name, digest: shortDigest(s.Digest), tools: s.AllowedTools, body: b.String()}
	return out.String()
}

func (x *Extension) toolsSentence(tools []string) string {
	list := plain(strings.Join(tools, ", "))
	if x.cfg.AllowedTools == Restrict {
		return "Until the next message of the user, only these tools can be called: " + list + "."
	}
	return "The skill is made for these tools: " + list + "."
}

// shortDigest returns what tells versions of a skill apart. It is part of the prompt, so it
// is short.
func shortDigest(digest string) string {
	sum := sha256.Sum256([]byte(digest))
	return hex.EncodeToString(sum[:8])
}

// plain keeps text from ending or beginning the content of a skill.
func plain(text string) string {
	return strings.NewReplacer(closing, "&lt;"+closing[1:], opening, "&lt;"+opening[1:]).Replace(text)
}

// cutText returns the beginning of a text that has at most limit bytes, up to the end of a
// line if there is one in its last half.
func cutText(text string, limit int) (string, bool) {
	if len(text) <= limit {
		return text, false
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	text = text[:limit]
	if at := strings.LastIndexByte(text, '\n'); at >= limit/2 {
		text = text[:at]
	}
	return text, true
}

// block is the content of a skill in a conversation.
type block struct {
	name, digest string
	tools        []string
	// cut says that the instructions are not complete.
	cut bool
	// current says of a block that a summary kept that the skill was loaded, or asked for
	// again, since the user's last message.
	current bool
	// body is what is between the tags. It is empty if the text was shortened by somebody else.
	body string
}

// String returns the block as it is part of a text. The opening tag has the length of the
// body, so that a block of which something is missing is not taken for a whole one.
func (b *block) String() string {
	var out strings.Builder
	out.WriteString(opening + `name="` + b.name + `" digest="` + b.digest + `"`)
	if len(b.tools) > 0 {
		out.WriteString(` allowed-tools="` + skill.Escape(strings.Join(b.tools, " ")) + `"`)
	}
	fmt.Fprintf(&out, ` bytes="%d"`, len(b.body))
	if b.cut {
		out.WriteString(` cut="true"`)
	}
	if b.current {
		out.WriteString(` current="true"`)
	}
	out.WriteString(">\n" + b.body + closing)
	return out.String()
}

// heads matches the opening tag of a block.
var heads = regexp.MustCompile(`<skill_content name="([a-z0-9-]{1,64})" digest="([0-9a-f]{16})"(?: allowed-tools="([^"]*)")? bytes="([0-9]{1,7})"( cut="true")?( current="true")?>\n`)

// nextBlock returns the first block of a text, and what follows it. A block that does not
// have the length that it says is one that is cut.
func nextBlock(text string) (b block, rest string, found bool) {
	at := heads.FindStringSubmatchIndex(text)
	if at == nil {
		return block{}, "", false
	}
	b = block{name: text[at[2]:at[3]], digest: text[at[4]:at[5]], cut: at[10] >= 0, current: at[12] >= 0}
	if at[6] >= 0 {
		b.tools = skill.SplitTools(unescaper.Replace(text[at[6]:at[7]]))
	}
	rest = text[at[1]:]
	if n, err := strconv.Atoi(text[at[8]:at[9]]); err == nil && n <= len(rest) && strings.HasPrefix(rest[n:], closing) {
		b.body = rest[:n]
		return b, rest[n+len(closing):], true
	}
	b.cut = true
	return b, rest, true
}

// unescaper undoes [skill.Escape].
var unescaper = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", `"`, "&amp;", "&")

// blocksIn returns the skills that a message has the content of: a result of load_skill, a
// message that the extension added, or a summary in which it kept them. What others write is
// not looked at, whatever it looks like.
func blocksIn(m *session.Message) []block {
	switch {
	case m.Role == session.RoleTool:
		var out []block
		for i := range m.Parts {
			if p := &m.Parts[i]; loads(p) && strings.HasPrefix(p.Text, opening) {
				out = append(out, firstBlock(p.Text)...)
			}
		}
		return out
	case m.Role != session.RoleUser || !m.Hidden():
		return nil
	case m.Compaction() != nil:
		return allBlocks(m.Preserved(extensionName))
	case m.Metadata[session.MetaSkill] != nil:
		return firstBlock(m.Content())
	}
	return nil
}

// loads reports whether a part is the result of a call that loads a skill and did not fail.
func loads(p *session.Part) bool {
	return p.Kind == session.PartToolResult && p.Tool == LoadTool && p.Error == nil
}

// firstBlock returns the block of a text that has one.
func firstBlock(text string) []block {
	b, _, found := nextBlock(text)
	if !found {
		return nil
	}
	return []block{b}
}

// allBlocks returns the blocks of a text.
func allBlocks(text string) []block {
	var out []block
	for {
		b, rest, found := nextBlock(text)
		if !found {
			return out
		}
		out, text = append(out, b), rest
	}
}

// lastBlock returns the newest content of a skill in a conversation, or nil.
func lastBlock(messages []session.Message, name string) *block {
	for i := range slices.Backward(messages) {
		blocks := blocksIn(&messages[i])
		for j := range slices.Backward(blocks) {
			if blocks[j].name == name {
				return &blocks[j]
			}
		}
	}
	return nil
}

// has reports whether the model is sent a skill as it is now, and all of it: in the
// conversation or in the instructions.
func (o *offer) has(messages []session.Message, s *skill.Skill) (where string, ok bool) {
	digest := shortDigest(s.Digest)
	if b := lastBlock(messages, s.Name); b != nil && (!b.cut || b.digest != digest) {
		return "above", b.digest == digest
	}
	return "among the active skills of your instructions", o.preloaded[s.Name] == s.Digest
}

// shortened reports whether a summary of a run has cut a skill, as it is now, that was loaded
// before in the same run.
func shortened(messages []session.Message, s *skill.Skill, run string) bool {
	for i := range slices.Backward(messages) {
		for _, b := range blocksIn(&messages[i]) {
			if b.name == s.Name {
				return messages[i].Compaction() != nil && messages[i].RunID == run && b.cut && b.digest == shortDigest(s.Digest)
			}
		}
	}
	return false
}

// LoadedNames returns the names of the skills that a conversation has the content of, those
// that were loaded last behind the others.
func LoadedNames(messages []session.Message) []string {
	var out []string
	for i := range messages {
		for _, b := range blocksIn(&messages[i]) {
			out = append(slices.DeleteFunc(out, func(name string) bool { return name == b.name }), b.name)
		}
	}
	return out
}
