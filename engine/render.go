package engine

import (
	"strings"

	"github.com/helixagents/helix/internal/tokens"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Limits of messages as text, in bytes.
const (
	maxRenderedText   = 16 << 10
	maxRenderedResult = 500 // of arguments and results
	minRendered       = session.MinTrim
)

// Shares of what the messages as text may have: of the window of the model that reads them, if
// it is known, and else of the prompt that was too long.
const (
	renderedWindow = 0.6
	renderedForced = 0.5
)

// rendered is the conversation that is summarised, as text, short enough for the model.
func (w *summariser) rendered(model llm.Model) string {
	budget := 0.0
	switch window := llm.WindowOf(model); {
	case window > 0:
		budget = renderedWindow * float64(window)
	case w.forced:
		budget = renderedForced * w.size / w.ratio
	}
	for limit := maxRenderedText; ; limit /= 2 {
		text := render(w.view[w.floor:w.cut], limit)
		size := tokens.Text(text)
		if budget == 0 || size <= budget {
			return text
		}
		if limit/2 < minRendered {
			return session.TrimText(text, max(minRendered, int(float64(len(text))*budget/size)))
		}
	}
}

// lineBreaks makes all that may be taken for the end of a line one.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// indented indents all lines of a text but the first.
func indented(text string) string { return strings.ReplaceAll(lineBreaks.Replace(text), "\n", "\n  ") }

// render writes messages as text, with each of them cut to a limit. Their lines are indented,
// so that only a heading begins a line: no result can look like a message of the user. What
// extensions have added is left out: they add it again.
func render(messages []session.Message, limit int) string {
	var b strings.Builder
	add := func(role, tool, text string, limit int) {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString("[" + role + strings.Join(strings.Fields(tool), " ") + "]\n  " + indented(session.TrimText(text, limit)))
	}
	short := min(limit, maxRenderedResult)
	for i := range messages {
		m := &messages[i]
		switch {
		case m.Compaction() != nil, prepared(m):
		case m.Role == session.RoleTool:
			p := &m.Parts[0]
			if p.Error != nil {
				add("error of ", p.Tool, p.Error.Message, short)
			} else {
				add("result of ", p.Tool, string(p.Output)+p.Text, short)
			}
		case m.Role == session.RoleAssistant:
			add("assistant", "", shown(m), limit)
			for _, call := range m.Calls() {
				add("call of ", call.Tool, string(call.Input), short)
			}
		case m.Hidden():
			add("notice", "", shown(m), limit)
		default:
			add(string(m.Role), "", shown(m), limit)
		}
	}
	return inert(b.String())
}
