package files

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/helixagents/helix/internal/yamlplace"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// Parse reads the content of a SKILL.md. Its path is used in messages, and its directory
// should have the skill's name. The skill has neither a digest nor files.
//
// Parse accepts what other programs accept: a byte order mark, Windows line ends, text
// with colons that should be in quotes, allowed tools as a list, unknown fields. The
// problems that it returns beside a skill are warnings. The error is a [*skill.Problem]
// with the line and the column.
func Parse(name string, data []byte) (*skill.Skill, []*skill.Problem, error) {
	p := &parser{path: name, fields: map[string]*yaml.Node{}}
	s, err := p.parse(data)
	if err != nil {
		return nil, nil, err
	}
	return s, p.warnings, nil
}

// frontmatterLine is where the frontmatter begins: below the line ---.
const frontmatterLine = 2

type parser struct {
	path     string
	fields   map[string]*yaml.Node
	warnings []*skill.Problem
	name     string // of the skill, once it is known
}

func (p *parser) refuse(line, column int, format string, args ...any) error {
	return &skill.Problem{Path: p.path, Line: line, Column: column, Skill: p.name, Message: fmt.Sprintf(format, args...), Refused: true}
}

func (p *parser) warn(n *yaml.Node, format string, args ...any) {
	line, column := place(n)
	p.warnings = append(p.warnings, &skill.Problem{Path: p.path, Line: line, Column: column, Skill: p.name, Message: fmt.Sprintf(format, args...)})
}

// place returns where in the file a node of the frontmatter is.
func place(n *yaml.Node) (line, column int) {
	if n == nil || n.Line == 0 {
		return 1, 1
	}
	return n.Line + frontmatterLine - 1, max(n.Column, 1)
}

func (p *parser) parse(data []byte) (*skill.Skill, error) {
	if len(data) > skill.MaxBody {
		return nil, p.refuse(0, 0, "has %d bytes; at most %d are allowed; move parts of it to files beside it", len(data), skill.MaxBody)
	}
	if line, column, what := unreadable(data); what != "" {
		return nil, p.refuse(line, column, "%s", what)
	}
	front, body, err := skill.Split(data)
	if problem, ok := errors.AsType[*skill.Problem](err); ok {
		return nil, p.refuse(problem.Line, problem.Column, "%s", problem.Message)
	}
	if err := p.read(front); err != nil {
		return nil, err
	}
	s := &skill.Skill{Body: body}
	s.Name = p.text("name")
	p.name = s.Name
	s.Description = p.text("description")
	s.License = p.text("license")
	s.Compatibility = p.text("compatibility")
	s.AllowedTools = p.tools()
	s.Metadata.Metadata = p.metadata()
	if err := s.Metadata.Check(); err != nil {
		e := session.AsError(err)
		line, column := place(p.fields[e.Field])
		return nil, p.refuse(line, column, "%s", e.Message)
	}
	if line, column, r := hidden(data); r != 0 {
		p.warnings = append(p.warnings, &skill.Problem{
			Path: p.path, Line: line, Column: column, Skill: p.name,
			Message: fmt.Sprintf("contains the character %U, which nobody sees but the model; it may hide instructions", r),
		})
	}
	if n := utf8.RuneCountInString(s.Description); n > skill.FormatDescription {
		p.warn(p.fields["description"], "description has %d characters, and the format allows %d; other programs may refuse the skill", n, skill.FormatDescription)
	}
	if dir := path.Base(path.Dir(filepath.ToSlash(p.path))); dir != s.Name && dir != "." && dir != ".." && dir != "/" {
		p.warn(p.fields["name"], "the name %s is not that of the directory, %s", s.Name, dir)
	}
	return s, nil
}

// unreadable finds bytes that cannot be part of a text.
func unreadable(data []byte) (line, column int, what string) {
	line, column = 1, 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			return line, column, "is not UTF-8 text"
		case r == 0:
			return line, column, "contains a zero byte; it must be a text"
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		data = data[size:]
	}
	return 0, 0, ""
}

// read parses the frontmatter into fields.
func (p *parser) read(front string) error {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(front), &doc); err != nil {
		// The error of the original is the one to show: what was quoted is not in the file.
		doc = yaml.Node{}
		if yaml.Unmarshal([]byte(quoteValues(front)), &doc) != nil {
			line, column := yamlplace.Of([]byte(front), err)
			return p.refuse(line+frontmatterLine-1, column, "the frontmatter is not valid YAML: %s", yamlplace.Message(err))
		}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return p.refuse(frontmatterLine, 1, "the frontmatter has no fields; it needs name and description")
	}
	content := doc.Content[0].Content
	for i := 0; i+1 < len(content); i += 2 {
		key, value := content[i], content[i+1]
		if _, twice := p.fields[key.Value]; twice {
			line, column := place(key)
			return p.refuse(line, column, "%.40s is given twice", key.Value)
		}
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		p.fields[key.Value] = value
	}
	return nil
}

// text returns a field's text; what is not a text is ignored with a warning.
func (p *parser) text(name string) string {
	n := p.fields[name]
	switch {
	case n == nil || n.ShortTag() == "!!null":
		return ""
	case n.Kind != yaml.ScalarNode:
		p.warn(n, "%s is not a text; it is ignored", name)
		return ""
	}
	return strings.TrimSpace(n.Value)
}

// tools returns the allowed tools: separated by spaces, as the format says, or by commas, or
// as a list.
func (p *parser) tools() []string {
	n := p.fields["allowed-tools"]
	if n == nil || n.Kind != yaml.SequenceNode {
		return skill.SplitTools(p.text("allowed-tools"))
	}
	var out []string
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			p.warn(item, "allowed-tools has an entry that is not a text; it is ignored")
			continue
		}
		out = append(out, skill.SplitTools(item.Value)...)
	}
	return slices.Clip(out)
}

// metadata returns the field of that name. The format has texts only; other values are
// taken as they are written.
func (p *parser) metadata() map[string]string {
	n := p.fields["metadata"]
	switch {
	case n == nil || n.ShortTag() == "!!null":
		return nil
	case n.Kind != yaml.MappingNode:
		p.warn(n, "metadata is not a list of keys with texts; it is ignored")
		return nil
	}
	var out map[string]string
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode {
			p.warn(key, "metadata has an entry that is not a text; it is ignored")
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key.Value] = value.Value
	}
	return out
}
