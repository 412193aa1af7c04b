package engine

import (
	"regexp"
	"strings"

	"github.com/helixagents/helix/session"
)

// keptText is what a marker keeps of the messages that it takes the place of.
type keptText struct {
	summary   string
	unsettled []string // calls that people refused and the like, the oldest first
	asked     string   // the user's last message, if it is not kept as it is
}

// The parts of a marker's text.
const (
	summaryIntro, summaryEnd     = "The conversation before this point was summarised:\n\n<summary>\n", "\n</summary>"
	unsettledIntro, unsettledEnd = "\n\nCalls that were refused, were not answered, or whose outcome is not known:\n\n<unsettled_calls>\n- ", "\n</unsettled_calls>"
	unsettledBreak               = "\n- " // between two calls, each of whose other lines is indented
	askedIntro, askedEnd         = "\n\nThe user's last message before this point, word for word:\n\n<user_message>\n", "\n</user_message>"
)

// endTags are the ends of what a marker's text and the prompt for a summary put between tags.
var endTags = regexp.MustCompile(`(?i)</(\s*(?:earlier_summary|messages|summary|unsettled_calls|user_message)\b)`)

// inert changes the end tags in a text, so that what it is put between does not end early.
func inert(text string) string { return endTags.ReplaceAllString(text, "< /${1}") }

// String is the text of a marker.
func (k keptText) String() string {
	text := summaryIntro + inert(k.summary) + summaryEnd
	if len(k.unsettled) > 0 {
		text += unsettledIntro + strings.Join(k.unsettled, unsettledBreak) + unsettledEnd
	}
	if k.asked != "" {
		text += askedIntro + inert(k.asked) + askedEnd
	}
	return text
}

// keptOf reads the text of a marker. All of a text that somebody else wrote is a summary.
func keptOf(marker *session.Message) keptText {
	text := marker.Parts[0].Text
	if c := marker.Compaction(); c != nil && c.Kind == session.CompactionClear {
		return keptText{}
	}
	rest, ok := strings.CutPrefix(text, summaryIntro)
	if !ok {
		return keptText{summary: text}
	}
	summary, rest, ok := strings.Cut(rest, summaryEnd)
	if !ok {
		return keptText{summary: text}
	}
	kept := keptText{summary: summary}
	if list, ok := strings.CutPrefix(rest, unsettledIntro); ok {
		list, rest, _ = strings.Cut(list, unsettledEnd)
		kept.unsettled = strings.Split(list, unsettledBreak)
	}
	if rest, ok = strings.CutPrefix(rest, askedIntro); ok {
		kept.asked, _, _ = strings.Cut(rest, askedEnd)
	}
	return kept
}

// before is what the marker at the beginning of the view keeps.
func (c *compaction) before() keptText {
	if c.floor == 0 {
		return keptText{}
	}
	return keptOf(&c.view[0])
}

// kept is what a marker keeps that takes the place of all messages before a place of the view.
func (c *compaction) kept(cut int, summary string) keptText {
	return keptText{summary: summary, unsettled: c.unsettled(cut), asked: c.asked(cut)}
}

// Limits of what is repeated of the user's last message.
const (
	maxAsked      = 8 << 10 // bytes of its text
	maxAskedFiles = 8
	maxAskedBytes = 256 << 10 // of all its files, because every summary repeats them until there is a newer message
)

// askedLast are the messages that the user wrote last, if a summary of all messages before a
// place takes their place: then they are repeated.
func (c *compaction) askedLast(cut int) (messages []session.Message, earlier bool) {
	at := c.lastAsked()
	if at < 0 {
		return nil, true // they may be in an earlier summary
	}
	if at >= cut {
		return nil, false
	}
	end := at
	for end < cut && visible(&c.view[end]) { // those behind are kept as they are
		end++
	}
	return c.view[at:end], false
}

// asked is the text that the user wrote last, if it is to be repeated.
func (c *compaction) asked(cut int) string {
	messages, earlier := c.askedLast(cut)
	if earlier {
		return c.before().asked
	}
	texts := make([]string, len(messages))
	for i := range messages {
		texts[i] = shown(&messages[i])
	}
	return session.TrimText(strings.Join(texts, "\n\n"), maxAsked)
}

// askedFiles are the files of what the user wrote last, if it is to be repeated, as far as they
// are within the limits. There are none if the provider refused the prompt: a file may be why.
func (c *compaction) askedFiles(cut int) []session.Part {
	if c.forced {
		return nil
	}
	messages, earlier := c.askedLast(cut)
	if earlier && c.floor > 0 {
		messages = c.view[:1]
	}
	var files []session.Part
	size := 0
	for i := range messages {
		for _, p := range messages[i].Parts {
			if p.Kind != session.PartFile || len(files) == maxAskedFiles || size+len(p.URL) > maxAskedBytes {
				continue
			}
			size += len(p.URL)
			files = append(files, p)
		}
	}
	return files
}

// shown is the text of a message, with the names of its files.
func shown(m *session.Message) string {
	var b strings.Builder
	for i := range m.Parts {
		switch p := &m.Parts[i]; p.Kind {
		case session.PartText:
			b.WriteString(p.Text)
		case session.PartFile:
			b.WriteString("[file " + p.Filename + " " + p.MediaType + "]")
		}
	}
	return b.String()
}

// unsettledCodes are the errors of calls that people have refused or not answered, or of which
// nobody knows what they did.
var unsettledCodes = map[session.Code]bool{
	session.CodeToolDenied: true, session.CodeClientTimeout: true, session.CodeAbandoned: true, session.CodeToolOutcome: true,
}

// Limits of the calls that are listed. The newest ones are.
const (
	maxUnsettled      = 32
	maxUnsettledInput = 2 << 10
	maxUnsettledBytes = 16 << 10 // of all of them
)

// unsettled lists the calls before a place of the view that people have refused or not
// answered, word for word, and those that an earlier summary lists: a summary must not make the
// model call them again as if nothing had been said.
func (c *compaction) unsettled(cut int) []string {
	list := c.before().unsettled
	inputs := map[string]string{}
	for i := c.floor; i < cut; i++ {
		for j := range c.view[i].Parts {
			p := &c.view[i].Parts[j]
			switch {
			case p.Kind == session.PartToolCall:
				inputs[p.CallID] = string(p.Input)
			case p.Kind == session.PartToolResult && p.Error != nil && unsettledCodes[p.Error.Code]:
				call := p.Tool + session.TrimText(inputs[p.CallID], maxUnsettledInput) + ": " + session.TrimText(p.Error.Message, maxUnsettledInput)
				list = append(list, inert(indented(call)))
			}
		}
	}
	from, size := len(list), 0
	for from > 0 && len(list)-from < maxUnsettled {
		if size += len(list[from-1]); size > maxUnsettledBytes {
			break
		}
		from--
	}
	return list[from:]
}
