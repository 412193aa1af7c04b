package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/stream"
)

// screen shows the conversation. On a terminal it has a prompt, and notes appear between
// the lines of the conversation. Otherwise notes and errors go to side, so that a script
// reads only the conversation.
type screen struct {
	out         io.Writer
	side        io.Writer // where notes and errors go
	interactive bool
	color       bool
	midLine     bool // the cursor is not at the beginning of a line
	wrapper     *wrapper
}

func newScreen() *screen {
	s := &screen{out: os.Stdout, side: os.Stdout, interactive: isTerminal(os.Stdin), wrapper: newWrapper(os.Stdout)}
	if !s.interactive {
		s.side = os.Stderr
	}
	s.color = isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// isOnTerminal reports whether a reader or a writer is a terminal, where a person types or reads.
func isOnTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && isTerminal(file)
}

// isTerminal reports whether f is a terminal, and not a file, a pipe or the null device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// The styles of the screen, as ANSI codes.
const (
	plain = ""
	bold  = "1"
	dim   = "2"
	red   = "31"
	cyan  = "36"
)

func (s *screen) styled(style, text string) string {
	if !s.color || style == plain {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// text appends text at the cursor.
func (s *screen) text(style, piece string) {
	if piece = printable(piece); piece == "" {
		return
	}
	fmt.Fprint(s.out, s.styled(style, s.wrapper.wrap(piece)))
	s.midLine = !strings.HasSuffix(piece, "\n")
}

// line shows a text on its own lines.
func (s *screen) line(style, text string) {
	s.end()
	s.wrapper.begin()
	fmt.Fprintln(s.out, s.styled(style, s.wrapper.wrap(printable(text))))
	s.wrapper.begin()
}

// end moves to the beginning of a line.
func (s *screen) end() {
	if s.midLine {
		fmt.Fprintln(s.out)
		s.midLine = false
		s.wrapper.begin()
	}
}

// block shows the output of a command.
func (s *screen) block(text string) { s.line(plain, text) }

// note shows a message of the program.
func (s *screen) note(format string, args ...any) {
	s.aside(dim, fmt.Sprintf(format, args...))
}

// error shows an error.
func (s *screen) error(err error) { s.aside(red, "error: "+err.Error()) }

func (s *screen) aside(style, text string) {
	s.end()
	if text = printable(text); s.interactive { // also if only the input is not a terminal
		s.wrapper.begin()
		text = s.styled(style, s.wrapper.wrap(text))
		s.wrapper.begin()
	}
	fmt.Fprintln(s.side, text)
}

// failed shows why a turn failed: the meaning of the error and its cause.
func (s *screen) failed(err *wire.Error) {
	if err == nil {
		s.aside(red, "error: the turn failed")
		return
	}
	s.aside(red, "error: "+err.Message)
	if err.Detail != "" && err.Detail != err.Message {
		s.note("%s", oneLine(err.Detail))
	}
}

// gap leaves an empty line before the next prompt.
func (s *screen) gap() {
	if s.interactive {
		s.end()
		fmt.Fprintln(s.out)
	}
}

// question shows a call that waits for the user.
func (s *screen) question(p *session.Pending) {
	var in choice
	switch {
	case p.Kind == session.PendingApproval:
		s.approval(p)
	case p.Kind == session.PendingQuestion:
		s.aside(bold, visible(p.Tool)+" asks you: "+visible(p.Prompt))
		s.note("%s", answerHint(p))
	case json.Unmarshal(p.Input, &in) == nil && len(in.Options) > 0:
		options := make([]string, len(in.Options))
		for i, option := range in.Options {
			options[i] = fmt.Sprintf("%d %s", i+1, oneLine(option))
		}
		s.aside(bold, oneLine(in.Question)+" "+strings.Join(options, ", "))
	default:
		s.aside(bold, p.Tool+" asks you: "+oneLine(string(p.Input)))
	}
	if !p.Deadline.IsZero() {
		s.note("The question times out at %s. /later postpones it.", p.Deadline.Local().Format("2 January 15:04"))
	}
}

// approval shows a call with its whole input, because the user approves all of it.
func (s *screen) approval(p *session.Pending) {
	tool, input := visible(p.Tool), wholeInput(p.Input)
	if strings.Contains(input, "\n") {
		s.aside(bold, "Approve "+tool+"?\n"+input+"\ny, or n and why")
	} else {
		s.aside(bold, "Approve "+tool+" "+input+"? y, or n and why")
	}
}

// leave ends the line of the prompt.
func (s *screen) leave() {
	if s.interactive {
		fmt.Fprintln(s.out)
	}
}

// transcript shows earlier messages.
func (s *screen) transcript(messages []session.Message) {
	several := false
	for i := range messages {
		m := &messages[i]
		if what := m.Compaction(); what != nil {
			s.divider(what)
			continue
		}
		if m.Hidden() {
			continue
		}
		if m.Role == session.RoleAssistant {
			several = len(m.Calls()) > 1
		}
		for j := range m.Parts {
			s.part(m.Role, &m.Parts[j], several)
		}
		s.end()
		if m.Metadata[session.MetaInterrupted] != nil {
			s.line(dim, interruptedMark)
		}
	}
}

const interruptedMark = "(interrupted)"

// part shows a part of a message. several reports whether its reply made more than one
// call.
func (s *screen) part(role session.Role, p *session.Part, several bool) {
	switch {
	case p.Kind == session.PartToolCall:
		s.call(p.Tool, p.Input)
	case p.Kind == session.PartToolResult && p.Error != nil:
		s.failure(p.Tool, p.Error, several)
	case p.Kind == session.PartToolResult:
		s.result(p.Tool, p.ResultJSON(), several)
	case p.Kind == session.PartText && role == session.RoleUser:
		s.line(bold, "> "+p.Text)
	case p.Kind == session.PartText:
		s.text(plain, p.Text)
	}
}

// call shows a call. The arguments of the one that finishes are the agent's output.
func (s *screen) call(tool string, input json.RawMessage) {
	if tool == session.FinishTool {
		s.line(plain, visible(string(input)))
		return
	}
	s.line(cyan, "→ "+tool+" "+visible(oneLine(string(input))))
}

func (s *screen) result(tool string, result json.RawMessage, several bool) {
	if tool == session.FinishTool {
		return // its result tells the model, not people, that it has finished
	}
	shown := string(result)
	var text string
	if json.Unmarshal(result, &text) == nil {
		shown = text
	}
	if name := loadedSkill(tool, text); name != "" {
		shown = "loaded skill " + name
	}
	s.line(cyan, "← "+prefix(tool, several)+oneLine(shown))
}

// loadedSkill returns the name of the skill whose instructions a result has. They are for the
// model, so the name is enough.
func loadedSkill(tool, text string) string {
	if tool != skill.LoadTool {
		return ""
	}
	return skill.ContentName(text)
}

func (s *screen) failure(tool string, err *session.Error, several bool) {
	s.line(red, "← "+prefix(tool, several)+"error: "+oneLine(err.Message))
}

// prefix labels the results of several calls.
func prefix(tool string, several bool) string {
	if several {
		return tool + ": "
	}
	return ""
}

// turnView shows a run in progress.
type turnView struct {
	screen    *screen
	session   string // the session that is followed
	withInput bool   // also show the turn's input
	calls     int    // of the current step
	failed    string
}

// show shows one item of the run's stream.
func (v *turnView) show(item stream.Item) {
	c := item.Chunk
	if c == nil {
		return
	}
	switch c.Kind {
	case stream.InputReceived:
		if v.withInput && c.AgentID == v.session { // that of an agent below is not the user's
			v.screen.transcript(slices.DeleteFunc(slices.Clone(c.Messages), func(m session.Message) bool { return m.Compaction() != nil }))
		}
	case stream.StepStarted:
		if v.failed != "" {
			v.screen.note("The model call failed: %s. Retrying.", v.failed)
		}
		v.calls, v.failed = 0, ""
	case stream.Thinking:
		v.screen.text(dim, c.Delta)
	case stream.TextDelta:
		v.screen.text(plain, c.Delta)
	case stream.ToolStart:
		v.calls++
		v.screen.call(c.Tool, c.Arguments)
	case stream.ToolEnd:
		if c.Error != nil {
			v.screen.failure(c.Tool, c.Error, v.calls > 1)
		} else {
			v.screen.result(c.Tool, c.Result, v.calls > 1)
		}
	case stream.Custom:
		v.event(c)
	case stream.SubAgentStart:
		v.screen.line(dim, "⤷ "+strings.TrimPrefix(c.Tool, helix.SubAgentPrefix))
	case stream.StepDiscarded:
		v.discarded(c)
	case stream.RunInterrupted:
		v.screen.line(dim, interruptedMark)
	}
}

// event shows an event of the framework. A skill that a call loads is shown with the call's
// result.
func (v *turnView) event(c *stream.Chunk) {
	switch c.Name {
	case helix.CompactingEvent, helix.CompactedEvent:
		v.compaction(c)
	case skills.LoadedEvent:
		var loaded skills.Loaded
		if v.calls == 0 && json.Unmarshal(c.Data, &loaded) == nil {
			v.screen.line(dim, "loaded skill "+visible(loaded.Name))
		}
	}
}

// discarded shows why the preceding output is discarded.
func (v *turnView) discarded(c *stream.Chunk) {
	v.screen.end()
	switch {
	case c.Attempt > 0: // of several: whether there is another one, the next chunk tells
		v.failed = c.Reason
	case v.withInput:
		v.screen.note("(recovered; the turn continues from its last commit)")
	}
}

// printable removes characters that would control the terminal or reorder the text around
// them.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, text)
}

// maxShown is the maximum length of a call's arguments or result on the screen.
const maxShown = 300

// oneLine converts a text to one line and shortens it.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) > maxShown {
		text = string([]rune(text)[:maxShown]) + "…"
	}
	return text
}
