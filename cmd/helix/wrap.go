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
	word    []rune     // the word that the line ends with, as long as it fits into a line
	wide    int        // the columns of the whole word
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
		case r == '\t': // terminals go to the next multiple of eight
			n := tabWidth - w.column%tabWidth
			if w.column+n > room {
				out.WriteByte('\n')
				w.begin()
				continue
			}
			out.WriteString(strings.Repeat(" ", n))
			w.column += n
			w.endWord()
			continue
		case isBreak(r):
			w.endWord()
		}
		wide := columnsOf([]rune{r})
		if !isBreak(r) {
			if w.wide += wide; w.wide <= room {
				w.word = append(w.word, r)
			}
		}
		if w.column+wide > room {
			before := w.wide - wide // what the line already has of the word
			switch {
			case isBreak(r): // the break takes its place
				out.WriteByte('\n')
				w.begin()
				continue
			case before > 0 && before < w.column && before+wide <= room:
				fmt.Fprintf(&out, "\x1b[%dD\x1b[K\n", before)
				out.WriteString(string(w.word))
				w.column = before + wide
				continue
			}
			switch {
			case before == 0: // the word begins here
				out.WriteByte('\n')
				w.column = 0
			case w.column+wide > room+1: // a word that is longer than a line is broken by the terminal, so that it can be copied
				w.column = 0
			}
		}
		out.WriteRune(r)
		w.column += wide
	}
	return out.String()
}

const tabWidth = 8

// isBreak reports whether a line may end at a character instead of showing it.
func isBreak(r rune) bool { return unicode.IsSpace(r) && r != '\u00a0' && r != '\u202f' }

func (w *wrapper) endWord() { w.word, w.wide = w.word[:0], 0 }

// begin is called when the cursor is at the beginning of a line.
func (w *wrapper) begin() {
	if w != nil {
		w.column = 0
		w.endWord()
	}
}
