package config

import (
	"fmt"
	"strings"

	"github.com/helixagents/helix/session"
)

// maxProblems bounds how many problems of a file are told.
const maxProblems = 50

// Problem is one thing that is wrong with a file.
type Problem struct {
	File string `json:"file"`
	// Line and Column are where it is, both from 1 on. The column counts characters.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path is the key in question, such as agents.writer.tools[1]; empty for the file.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// String is the problem in one line, in the form that editors find files by.
func (p *Problem) String() string {
	where := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Path != "" {
		where += p.Path + ": "
	}
	return where + p.Message
}

// Error is why a file cannot be used.
type Error struct {
	// Problems are in the order of the file.
	Problems []Problem
	// Omitted is how many more there were.
	Omitted int
}

// Error lists the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for i := range e.Problems {
		lines = append(lines, e.Problems[i].String())
	}
	if e.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.Omitted))
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes it one of the errors about what a caller gave.
func (e *Error) Unwrap() error { return session.ErrInvalid }
