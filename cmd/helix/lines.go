package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// lines is where a chat reads what is entered.
type lines interface {
	// next asks for a line. The channel is closed when there are no more. Until a line
	// was taken, asking again changes the prompt only.
	next(prompt string, remember bool) <-chan entry
	// took says that a line was taken off the channel.
	took()
	// close gives the terminal back.
	close()
}

// entry is a line, or that Ctrl-C was pressed instead of entering one.
type entry struct {
	line        string
	interrupted bool
}

// piped reads lines of a reader, the last one also when it is not ended.
type piped struct {
	screen  *screen
	entries <-chan entry
}

func newPiped(in io.Reader, screen *screen) *piped {
	entries := make(chan entry)
	go func() { // ends with the process: a read cannot be cancelled
		defer close(entries)
		reader := bufio.NewReader(in)
		for {
			line, err := reader.ReadString('\n')
			if line != "" {
				entries <- entry{line: line}
			}
			if err != nil {
				return
			}
		}
	}()
	return &piped{screen: screen, entries: entries}
}

func (p *piped) next(prompt string, _ bool) <-chan entry {
	if p.screen.interactive {
		fmt.Fprint(p.screen.out, p.screen.styled(bold, prompt))
	}
	return p.entries
}

func (p *piped) took()  {}
func (p *piped) close() {}

// typed reads lines from a terminal, with an editor.
type typed struct {
	editor *editor
	asked  chan entry // nil while no line is read
}

func (t *typed) next(prompt string, remember bool) <-chan entry {
	if t.asked != nil {
		t.editor.setPrompt(prompt, remember)
		return t.asked
	}
	entries := make(chan entry, 1)
	t.asked = entries
	go func() { // ends with the line, or the process: a read cannot be cancelled
		defer close(entries)
		line, err := t.editor.read(prompt, remember)
		switch {
		case err == nil:
			entries <- entry{line: line}
		case errors.Is(err, errInterrupted):
			entries <- entry{interrupted: true}
		}
	}()
	return entries
}

func (t *typed) took()  { t.asked = nil }
func (t *typed) close() { t.editor.leave() }

// newLines reads from the standard input: with an editor, if a person sits there and
// sees what is typed.
func newLines(screen *screen, history func() *history) lines {
	if screen.interactive && isTerminal(os.Stdout) && os.Getenv("TERM") != "dumb" {
		return &typed{editor: newEditor(os.Stdin, os.Stdout, history(), func(text string) string { return screen.styled(bold, text) })}
	}
	return newPiped(os.Stdin, screen)
}
