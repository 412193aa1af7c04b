package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// lines is the source of a chat's input.
type lines interface {
	// next requests a line. The channel is closed at the end of the input. Calling next
	// again before the line was received only changes the prompt.
	next(prompt string, remember bool) <-chan entry
	// took reports that a line was received from the channel.
	took()
	// close restores the terminal.
	close()
}

// entry is a line, or a Ctrl-C.
type entry struct {
	line        string
	interrupted bool
}

// piped reads lines from a reader, including a last line without a newline.
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

// typed reads lines from a terminal with an editor.
type typed struct {
	editor *editor
	asked  chan entry // nil while no line is being read
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

// newLines reads from standard input, with an editor if it is a terminal whose screen the
// user sees.
func newLines(screen *screen, history func() *history) lines {
	if screen.interactive && isTerminal(os.Stdout) && os.Getenv("TERM") != "dumb" {
		return &typed{editor: newEditor(os.Stdin, os.Stdout, history(), func(text string) string { return screen.styled(bold, text) })}
	}
	return newPiped(os.Stdin, screen)
}
