package config

import (
	"fmt"
	"strings"

	"github.com/helixagents/helix/session"
)

// maxProblems is the maximum number of reported problems.
const maxProblems = 50

// Problem is one problem of a file.
type Problem struct {
	File string `json:"file"`
	// Line and Column start at 1. Column counts characters.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path is the key, such as agents.writer.tools[1]; empty for the whole file.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// String returns the problem as one line, in the form that editors recognize.
func (p *Problem) String() string {
	where := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Path != "" {
		where += p.Path + ": "
	}
	return where + p.Message
}

// Error is the error for an invalid file.
type Error struct {
	// Problems are in the order of the file.
	Problems []Problem
	// Omitted is the number of further problems.
	Omitted int
}

// Error returns the problems, one per line.
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

// Unwrap returns [session.ErrInvalid].
func (e *Error) Unwrap() error { return session.ErrInvalid }
