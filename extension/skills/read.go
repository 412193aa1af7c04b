package skills

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

const readDescription = "Reads a text file of a skill, or some of its lines. " +
	"The files of a skill are listed when it is loaded."

// maxNamed is how many files the error for one that does not exist names.
const maxNamed = 20

type readInput struct {
	Name      string `json:"name"`
	Path      string `json:"path"`
	StartLine *int   `json:"startLine"`
	EndLine   *int   `json:"endLine"`
}

// readTool returns the tool that reads a file of a skill.
func (x *Extension) readTool(o *offer) helix.Tool {
	line := func(what string) map[string]any {
		return map[string]any{"type": "integer", "minimum": 1, "description": what}
	}
	schema := inputSchema(map[string]any{
		"name":      map[string]any{"type": "string", "description": "The name of the skill."},
		"path":      map[string]any{"type": "string", "description": "The path of the file, relative to the skill."},
		"startLine": line("The first line to read, from 1. Defaults to the first."),
		"endLine":   line("The last line to read. Defaults to the last."),
	}, "name", "path")
	return helix.Tool{
		Name: ReadTool, Description: readDescription, ReadOnly: true,
		Execute: helix.RawFunc(schema, func(ctx context.Context, call *helix.Call, input json.RawMessage) (json.RawMessage, error) {
			var in readInput
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, err
			}
			text, err := x.read(ctx, o, scopeOf(&call.Scope), &in)
			if err != nil {
				return nil, err
			}
			return session.Encode(text)
		}),
	}
}

// read returns lines of a file, between tags that say which ones they are.
func (x *Extension) read(ctx context.Context, o *offer, scope skill.Scope, in *readInput) (string, error) {
	from, to, err := in.lines()
	if err != nil {
		return "", err
	}
	f, err := x.open(ctx, o, scope, in.Name, in.Path)
	if err != nil {
		return "", x.failure(ctx, in.Name, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	got, err := readLines(f, from, to, x.cfg.MaxFile)
	switch {
	case errors.Is(err, errNotText):
		return "", session.Invalid("path", "%q of the skill %s cannot be read: %v", in.Path, in.Name, err)
	case err != nil:
		return "", x.failure(ctx, in.Name, err)
	}
	if from > max(got.total, 1) {
		return "", session.Invalid("startLine", "is %d, but %s has %d lines", from, in.Path, got.total)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<skill_file name=\"%s\" path=\"%s\" lines=\"%d-%d\" of=\"%d\">\n%s", skill.Escape(in.Name), skill.Escape(in.Path), from, got.last, got.total, got.text)
	if !strings.HasSuffix(got.text, "\n") {
		b.WriteByte('\n')
	}
	b.WriteString("</skill_file>")
	switch {
	case got.cutLine:
		fmt.Fprintf(&b, "\n[Line %d is longer than %d bytes and was cut.]", got.last, x.cfg.MaxFile)
	case got.last < min(to, got.total):
		fmt.Fprintf(&b, "\n[One call returns at most %d bytes. To read on, call %s with startLine %d.]", x.cfg.MaxFile, ReadTool, got.last+1)
	}
	return b.String(), nil
}

// lines returns the range of lines to read.
func (in *readInput) lines() (from, to int, err error) {
	from, to = 1, int(^uint(0)>>1)
	if in.StartLine != nil {
		from = *in.StartLine
	}
	if in.EndLine != nil {
		to = *in.EndLine
	}
	switch {
	case from < 1:
		return 0, 0, session.Invalid("startLine", "is %d; lines are counted from 1", from)
	case to < from:
		return 0, 0, session.Invalid("endLine", "is %d, which is before startLine, %d", to, from)
	}
	return from, to, nil
}

// open opens a file of a skill. SKILL.md is the instructions without the frontmatter, as
// they were loaded, so that the lines are those that the model knows.
func (x *Extension) open(ctx context.Context, o *offer, scope skill.Scope, name, path string) (io.ReadCloser, error) {
	if err := skill.CheckPath(path); err != nil {
		return nil, err
	}
	if skill.CheckName(name) != nil || len(o.list) > 0 && !o.lists(name) {
		return nil, noSkill(name)
	}
	if path == skill.FileName {
		s, err := x.fetch(ctx, scope, name)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(strings.NewReader(s.Body)), nil
	}
	f, err := x.cfg.Provider.Open(ctx, scope, name, path)
	if err == nil {
		return f, nil
	}
	if isNotFound(err) {
		if s, failed := x.fetch(ctx, scope, name); failed == nil {
			return nil, session.ErrNotFound.WithMessage("skill %s has no file %.100q; it has %s", name, path, filesOf(s))
		}
	}
	return nil, err
}

// filesOf names the files of a skill.
func filesOf(s *skill.Skill) string {
	if len(s.Files) == 0 {
		return "no files"
	}
	var names []string
	for _, f := range s.Files[:min(len(s.Files), maxNamed)] {
		names = append(names, f.Path)
	}
	out := strings.Join(names, ", ")
	if n := len(s.Files) - maxNamed; n > 0 {
		out += fmt.Sprintf(" and %d more", n)
	}
	return out
}

// part is what was read of a file.
type part struct {
	text string
	// last is the number of the last line in text, and total how many the file has.
	last, total int
	// cutLine says that the last line is not complete.
	cutLine bool
}

var errNotText = errors.New("it is not a text: it has a zero byte or is not UTF-8")

// readLines reads lines of a text, at most limit bytes of them.
func readLines(r io.Reader, from, to, limit int) (part, error) {
	in := bufio.NewReader(io.LimitReader(r, skill.MaxBytes))
	got := part{last: from}
	var out []byte
	full := false
	for {
		line, rest, err := readLine(in, limit)
		if err != nil && !errors.Is(err, io.EOF) {
			return part{}, err
		}
		if len(line) == 0 && errors.Is(err, io.EOF) {
			break
		}
		if !rest && !utf8.Valid(line) {
			return part{}, errNotText
		}
		got.total++
		if got.total >= from && got.total <= to && !full {
			switch {
			case len(out)+len(line) <= limit && !rest:
				out = append(out, line...)
				got.last = got.total
			case len(out) == 0: // one line is more than a call returns
				text, _ := cutText(string(line), limit)
				out, got.last, got.cutLine, full = []byte(text), got.total, true, true
			default:
				full = true
			}
		}
		if err != nil {
			break
		}
	}
	if got.text = string(out); !utf8.ValidString(got.text) {
		return part{}, errNotText
	}
	return got, nil
}

// readLine returns a line with its end. Of a line that is longer than limit it returns the
// beginning, and that there is a rest, which is skipped.
func readLine(in *bufio.Reader, limit int) (line []byte, rest bool, err error) {
	for {
		piece, err := in.ReadSlice('\n')
		if bytes.IndexByte(piece, 0) >= 0 {
			return nil, false, errNotText
		}
		if room := limit + 1 - len(line); len(piece) > room {
			piece, rest = piece[:max(room, 0)], true
		}
		line = append(line, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, rest, err
		}
	}
}
