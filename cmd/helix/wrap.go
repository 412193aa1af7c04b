package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// wrapper breaks the lines of a text between words, also if it arrives in pieces: a word that
// turns out not to fit is taken back and begun anew on the next line.
type wrapper struct {
	columns func() int // of the terminal; 0 if unknown
	column  int        // where the next character goes
	word    []rune     // the word that the line ends with
}

// newWrapper returns a wrapper for a terminal, or nil for anything else.
func newWrapper(out *os.File) *wrapper {
	if !isTerminal(out) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &wrapper{columns: func() int {
		columns, _, err := term.GetSize(int(out.Fd()))
		if err != nil {
			return 0
		}
		return columns
	}}
}

// wrapperOf returns a wrapper for a writer that is a terminal.
func wrapperOf(out io.Writer) *wrapper {
	if file, ok := out.(*os.File); ok {
		return newWrapper(file)
	}
	return nil
}

// wrap returns what to write for the next piece of a text.
func (w *wrapper) wrap(piece string) string {
	if w == nil {
		return piece
	}
	// The last column stays free: some terminals wrap when it is written.
	room := w.columns() - 1
	if room < smallest {
		return piece
	}
	var out strings.Builder
	for _, r := range piece {
		switch {
		case r == '\n':
			out.WriteRune(r)
			w.begin()
			continue
		case unicode.IsSpace(r):
			w.word = w.word[:0]
		default:
			w.word = append(w.word, r)
		}
		wide := columnsOf([]rune{r})
		if w.column+wide > room {
			before := columnsOf(w.word) - wide // what the line already has of the word
			switch {
			case unicode.IsSpace(r): // the break takes its place
				out.WriteByte('\n')
				w.begin()
				continue
			case before > 0 && before < w.column && before+wide <= room:
				fmt.Fprintf(&out, "\x1b[%dD\x1b[K\n", before)
				out.WriteString(string(w.word))
				w.column = before + wide
				continue
			}
			out.WriteByte('\n') // a word that begins here, or one that is longer than a line
			w.column, w.word = 0, append(w.word[:0], r)
		}
		out.WriteRune(r)
		w.column += wide
	}
	return out.String()
}

// begin is called when the cursor is at the beginning of a line.
func (w *wrapper) begin() {
	if w != nil {
		w.column, w.word = 0, w.word[:0]
	}
}
