package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/helixagents/helix/internal/yamlplace"
)

// source is a file's text and the positions of everything in it.
type source struct {
	name     string
	sum      [sha256.Size]byte
	lines    []string
	lookup   func(name string) (string, bool)
	problems []Problem
	omitted  int
	noted    map[string]bool  // paths with problems
	places   map[string]place // by path
	secrets  []string         // values of environment variables
}

// place is the position of a key and its value.
type place struct{ key, value position }

type position struct{ line, column int }

// begins is the beginning of a file.
var begins = position{1, 1}

func newSource(name string, data []byte, lookup func(string) (string, bool)) *source {
	return &source{
		name: name, sum: sha256.Sum256(data), lines: strings.Split(string(data), "\n"), lookup: lookup,
		noted: map[string]bool{}, places: map[string]place{},
	}
}

// anew returns a copy of the source that has no problems yet.
func (s *source) anew() *source {
	out := *s
	out.problems, out.omitted, out.noted = nil, 0, map[string]bool{}
	return &out
}

// problem reports a problem at a position.
func (s *source) problem(at position, path, format string, args ...any) {
	s.noted[path] = true
	if len(s.problems) == maxProblems {
		s.omitted++
		return
	}
	s.problems = append(s.problems, Problem{
		File: s.name, Line: at.line, Column: at.column, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

// wrong reports a problem of the value at a path.
func (s *source) wrong(path, format string, args ...any) {
	s.problem(s.place(path).value, path, format, args...)
}

// wrongKey reports a problem of the key at a path, or of something missing below it.
func (s *source) wrongKey(path, format string, args ...any) {
	s.problem(s.place(path).key, path, format, args...)
}

// place returns the position of a path or of the nearest path above it.
func (s *source) place(path string) place {
	for {
		if found, ok := s.places[path]; ok {
			return found
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return place{begins, begins}
		}
		path = path[:cut]
	}
}

// err returns the reported problems in the order of the file, or nil.
func (s *source) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(s.problems, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return &Error{Problems: s.problems, Omitted: s.omitted}
}

// parse parses the only YAML document of a file.
func (s *source) parse(data []byte) *yaml.Node {
	if at, what := s.unreadable(data); what != "" {
		s.problem(at, "", "%s", what)
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		s.problem(begins, "", "the file is empty; it begins with version: 1")
		return nil
	case err != nil:
		s.syntax(data, err)
		return nil
	}
	switch err := decoder.Decode(&more); {
	case err == nil:
		s.problem(at(&more), "", "the file has a second document; only one is read")
	case !errors.Is(err, io.EOF):
		s.syntax(data, err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].ShortTag() == "!!null" {
		s.problem(begins, "", "the file is empty; it begins with version: 1")
		return nil
	}
	return doc.Content[0]
}

// unreadable finds bytes that are not text.
func (s *source) unreadable(data []byte) (position, string) {
	line, column := 1, 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			return position{line, column}, "the file is not UTF-8 text"
		case r < ' ' && r != '\n' && r != '\r' && r != '\t', r == 0x7f:
			return position{line, column}, fmt.Sprintf("the control character %#02x cannot be part of the file", r)
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		data = data[size:]
	}
	return position{}, ""
}

// syntax reports an error of the parser.
func (s *source) syntax(data []byte, err error) {
	line, column := yamlplace.Of(data, err)
	if at := line - 1; at >= 0 && at < len(s.lines) && strings.HasPrefix(strings.TrimLeft(s.lines[at], " "), "\t") {
		s.problem(position{line, column}, "", "a tab begins the line; YAML is indented with spaces")
		return
	}
	s.problem(position{line, column}, "", "not valid YAML: %s", yamlplace.Message(err))
}

func at(n *yaml.Node) position { return position{max(n.Line, 1), max(n.Column, 1)} }

// within returns the position in the file of a byte of a string value, or the start of the
// value if the file writes it in another form.
func (s *source) within(n *yaml.Node, offset int) position {
	if offset > len(n.Value) || offset < 0 {
		return at(n)
	}
	switch n.Style &^ yaml.TaggedStyle {
	case 0, yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle:
		column := n.Column
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			column++
		}
		if rest, ok := s.from(n.Line, column); ok && strings.HasPrefix(rest, n.Value) {
			return position{n.Line, column + utf8.RuneCountInString(n.Value[:offset])}
		}
	case yaml.LiteralStyle:
		before := n.Value[:offset]
		line := n.Line + 1 + strings.Count(before, "\n")
		before = before[strings.LastIndex(before, "\n")+1:]
		text, _, _ := strings.Cut(n.Value[offset-len(before):], "\n")
		if source, ok := s.from(line, 1); ok {
			source = strings.TrimRight(source, "\r")
			if indent := len(source) - len(text); indent >= 0 && strings.HasSuffix(source, text) && strings.TrimLeft(source[:indent], " ") == "" {
				return position{line, indent + 1 + utf8.RuneCountInString(before)}
			}
		}
	}
	return at(n)
}

// from returns a line's text from a column on.
func (s *source) from(line, column int) (string, bool) {
	if line < 1 || line > len(s.lines) || column < 1 {
		return "", false
	}
	text := s.lines[line-1]
	for ; column > 1; column-- {
		if text == "" {
			return "", false
		}
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text, true
}
