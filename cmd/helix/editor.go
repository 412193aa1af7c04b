package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// errInterrupted reports Ctrl-C on an empty line.
var errInterrupted = errors.New("interrupted")

// editor reads lines from a terminal and lets the user edit them. The line takes one row of
// the screen and scrolls sideways if it is longer, so its display does not depend on how
// the terminal wraps. The terminal is in raw mode only while a line is read; in between
// Ctrl-C is a signal as usual.
type editor struct {
	in      *os.File
	out     *os.File
	keys    *bufio.Reader
	history *history
	pasted  string // the text of the last paste key

	mu       sync.Mutex  // guards the fields below, which are also used when the program ends
	cooked   *term.State // the terminal's state before raw mode; nil outside of it
	prompt   string
	style    func(string) string
	line     []rune
	cursor   int // position in line
	left     int // first character on the screen
	at       int // position in the history; its length means the new line
	draft    []rune
	remember bool
}

func newEditor(in, out *os.File, history *history, style func(string) string) *editor {
	return &editor{in: in, out: out, keys: bufio.NewReader(in), history: history, style: style}
}

// maxLine is the maximum length of a line in characters. Pasted text beyond it is dropped.
const maxLine = 1 << 20

// Bracketed paste: escape sequences around pasted text.
const (
	askBrackets   = "\x1b[?2004h"
	leaveBrackets = "\x1b[?2004l"
)

// read reads a line. On an empty line it returns io.EOF for Ctrl-D and errInterrupted for
// Ctrl-C.
func (e *editor) read(prompt string, remember bool) (string, error) {
	if err := e.enter(prompt, remember); err != nil {
		return "", err
	}
	defer e.leave()
	for {
		key, err := e.key()
		if err != nil {
			return "", err
		}
		if done, line, err := e.press(key); done {
			return line, err
		}
	}
}

// enter switches the terminal to raw mode.
func (e *editor) enter(prompt string, remember bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	state, err := term.MakeRaw(int(e.in.Fd()))
	if err != nil {
		return fmt.Errorf("cannot read from the terminal: %w", err)
	}
	e.cooked, e.prompt, e.remember = state, prompt, remember
	e.line, e.cursor, e.left, e.at, e.draft = nil, 0, 0, e.history.len(), nil
	e.write(askBrackets)
	e.draw()
	return nil
}

// leave restores the terminal. It may be called at any time, and more than once.
func (e *editor) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cooked == nil {
		return
	}
	e.write(leaveBrackets)
	_ = term.Restore(int(e.in.Fd()), e.cooked) // fails only if the terminal has been closed
	e.cooked = nil
}

// setPrompt changes the prompt of the line that is being read.
func (e *editor) setPrompt(prompt string, remember bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.prompt, e.remember = prompt, remember
	if e.cooked != nil {
		e.draw()
	}
}

// Keys other than characters, which represent themselves.
const (
	keyNone = -1 - iota
	keyUp
	keyDown
	keyLeft
	keyRight
	keyHome
	keyEnd
	keyDelete
	keyWordLeft
	keyWordRight
	keyNewline
	keyPaste
)

func ctrl(letter rune) rune { return letter & 0x1f }

const (
	escape    = 0x1b
	backspace = 0x7f
)

// press handles a key. done reports whether the line is complete.
func (e *editor) press(key rune) (done bool, line string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch key {
	case '\r', '\n':
		return true, e.finish(), nil
	case ctrl('C'):
		if len(e.line) == 0 {
			e.end("")
			return true, "", errInterrupted
		}
		e.end("^C")
		e.line, e.cursor, e.left, e.at = nil, 0, 0, e.history.len()
	case ctrl('D'):
		if len(e.line) == 0 {
			e.end("")
			return true, "", io.EOF
		}
		e.remove(e.cursor, e.cursor+1)
	case keyPaste:
		e.insertAll(e.pasted)
	default:
		e.edit(key)
	}
	if e.keys.Buffered() == 0 { // draw once for many buffered keys
		e.draw()
	}
	return false, "", nil
}

// edit handles a key that moves the cursor or changes the line.
func (e *editor) edit(key rune) {
	switch key {
	case keyLeft, ctrl('B'):
		e.cursor = max(e.cursor-1, 0)
	case keyRight, ctrl('F'):
		e.cursor = min(e.cursor+1, len(e.line))
	case keyHome, ctrl('A'):
		e.cursor = 0
	case keyEnd, ctrl('E'):
		e.cursor = len(e.line)
	case keyWordLeft:
		e.cursor = e.wordLeft()
	case keyWordRight:
		e.cursor = e.wordRight()
	case backspace, ctrl('H'):
		e.remove(e.cursor-1, e.cursor)
	case keyDelete:
		e.remove(e.cursor, e.cursor+1)
	case ctrl('K'):
		e.remove(e.cursor, len(e.line))
	case ctrl('U'):
		e.remove(0, e.cursor)
	case ctrl('W'):
		e.remove(e.wordLeft(), e.cursor)
	case keyUp, ctrl('P'):
		e.recall(e.at - 1)
	case keyDown, ctrl('N'):
		e.recall(e.at + 1)
	case ctrl('L'):
		e.write("\x1b[H\x1b[2J")
	case keyNewline:
		e.insert('\n')
	case '\t':
		e.insert(' ')
	default:
		if key >= 0 && !unicode.IsControl(key) && key != unicode.ReplacementChar {
			e.insert(key)
		}
	}
}

func (e *editor) insert(r rune) {
	if len(e.line) >= maxLine {
		return
	}
	e.line = append(e.line, 0)
	copy(e.line[e.cursor+1:], e.line[e.cursor:])
	e.line[e.cursor] = r
	e.cursor++
}

// remove removes the characters of a range, clipped to the line.
func (e *editor) remove(from, to int) {
	from, to = max(from, 0), min(to, len(e.line))
	if from >= to {
		return
	}
	e.line = append(e.line[:from], e.line[to:]...)
	if e.cursor > to {
		e.cursor -= to - from
	} else {
		e.cursor = min(e.cursor, from)
	}
}

func (e *editor) wordLeft() int {
	at := e.cursor
	for at > 0 && unicode.IsSpace(e.line[at-1]) {
		at--
	}
	for at > 0 && !unicode.IsSpace(e.line[at-1]) {
		at--
	}
	return at
}

func (e *editor) wordRight() int {
	at := e.cursor
	for at < len(e.line) && unicode.IsSpace(e.line[at]) {
		at++
	}
	for at < len(e.line) && !unicode.IsSpace(e.line[at]) {
		at++
	}
	return at
}

// recall replaces the line with one of the history. The new line is kept.
func (e *editor) recall(at int) {
	if at < 0 || at > e.history.len() || at == e.at {
		return
	}
	if e.at == e.history.len() {
		e.draft = e.line
	}
	if e.at = at; at == e.history.len() {
		e.line = e.draft
	} else {
		e.line = []rune(e.history.line(at))
	}
	e.cursor, e.left = len(e.line), 0
}

// finish ends the line and shows all of it.
func (e *editor) finish() string {
	line := string(e.line)
	e.write("\r\x1b[K" + e.style(e.prompt) + strings.ReplaceAll(line, "\n", "\r\n") + "\r\n")
	if e.remember {
		e.history.add(line)
	}
	return line
}

// end abandons the line and moves to the next row.
func (e *editor) end(mark string) {
	e.cursor = len(e.line)
	e.draw()
	e.write(mark + "\r\n")
}

// paste reads pasted text up to the closing bracket. Several lines stay one message.
func (e *editor) paste() (string, error) {
	const end = "\x1b[201~"
	var text []rune
	for {
		r, _, err := e.keys.ReadRune()
		if err != nil {
			return "", err
		}
		if text = append(text, r); r == '~' && strings.HasSuffix(string(text[max(len(text)-len(end), 0):]), end) {
			text = text[:len(text)-len(end)]
			break
		}
		if len(text) > 2*maxLine { // the rest is read as if it were typed
			break
		}
	}
	pasted := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\t", " ").Replace(string(text))
	return printable(strings.TrimRight(pasted, "\n")), nil
}

func (e *editor) insertAll(text string) {
	runes := []rune(text)
	runes = runes[:min(len(runes), maxLine-len(e.line))]
	rest := append([]rune{}, e.line[e.cursor:]...)
	e.line = append(append(e.line[:e.cursor], runes...), rest...)
	e.cursor += len(runes)
}

// key reads a key, which may consist of several bytes.
func (e *editor) key() (rune, error) {
	r, _, err := e.keys.ReadRune()
	if err != nil || r != escape {
		return r, err
	}
	if r, _, err = e.keys.ReadRune(); err != nil {
		return 0, err
	}
	switch r {
	case '[', 'O':
		return e.sequence()
	case 'b':
		return keyWordLeft, nil
	case 'f':
		return keyWordRight, nil
	case '\r', '\n':
		return keyNewline, nil
	}
	return keyNone, nil
}

// maxSequence is the maximum length of a key's escape sequence.
const maxSequence = 16

// sequence reads the rest of a key that begins with ESC [ or ESC O.
func (e *editor) sequence() (rune, error) {
	var name []rune
	for len(name) < maxSequence {
		r, _, err := e.keys.ReadRune()
		if err != nil {
			return 0, err
		}
		if name = append(name, r); r >= '@' && r <= '~' {
			break
		}
	}
	key, known := sequences[string(name)]
	if !known {
		return keyNone, nil
	}
	if key == keyPaste {
		var err error
		if e.pasted, err = e.paste(); err != nil {
			return 0, err
		}
	}
	return key, nil
}

var sequences = map[string]rune{
	"A": keyUp, "B": keyDown, "C": keyRight, "D": keyLeft,
	"H": keyHome, "1~": keyHome, "7~": keyHome, "F": keyEnd, "4~": keyEnd, "8~": keyEnd, "3~": keyDelete,
	"1;5D": keyWordLeft, "1;3D": keyWordLeft, "1;5C": keyWordRight, "1;3C": keyWordRight, "200~": keyPaste,
}

// smallest is the minimum number of columns for the line, however narrow the terminal is.
const smallest = 4

// draw shows the line, or the part of it around the cursor.
func (e *editor) draw() {
	columns, _, err := term.GetSize(int(e.out.Fd()))
	if err != nil || columns <= 0 {
		columns = 80
	}
	// Leave the last column free: some terminals wrap when it is written.
	room := max(columns-columnsOf([]rune(e.prompt))-1, smallest)
	e.left = min(e.left, e.cursor)
	for e.left < e.cursor && columnsOf(e.line[e.left:e.cursor]) > room-1 {
		e.left++
	}
	var shown strings.Builder
	used := 0
	for _, r := range e.line[e.left:] {
		if used += columnsOf([]rune{r}); used > room {
			break
		}
		shown.WriteRune(glyph(r))
	}
	e.write("\r" + e.style(e.prompt) + shown.String() + "\x1b[K\r")
	if column := columnsOf([]rune(e.prompt)) + columnsOf(e.line[e.left:e.cursor]); column > 0 {
		e.write(fmt.Sprintf("\x1b[%dC", column))
	}
}

func (e *editor) write(text string) {
	_, _ = io.WriteString(e.out, text) // a closed terminal makes the next read fail
}

// glyph returns the character that represents r on the screen.
func glyph(r rune) rune {
	if r == '\n' {
		return '⏎'
	}
	return r
}

// columnsOf returns the number of terminal columns that a text takes.
func columnsOf(text []rune) (columns int) {
	for _, r := range text {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
			columns += 2
		default:
			columns++
		}
	}
	return columns
}
