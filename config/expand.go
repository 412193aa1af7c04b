package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reference matches an environment variable in a value, or an escape.
var reference = regexp.MustCompile(`\$\$\{|\$\{([^{}]*)(\}?)`)

var variable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(:-(.*))?$`)

// expand replaces the environment variables in a text and reports whether it succeeded.
func (s *source) expand(n *yaml.Node, path string) (string, bool) {
	if !strings.Contains(n.Value, "${") {
		return n.Value, true
	}
	ok := true
	var out strings.Builder
	end := 0
	for _, m := range reference.FindAllStringSubmatchIndex(n.Value, -1) {
		out.WriteString(n.Value[end:m[0]])
		end = m[1]
		if m[2] < 0 {
			out.WriteString("${")
			continue
		}
		value, problem := s.variable(n.Value[m[2]:m[3]], m[4] < m[5])
		if problem != "" {
			s.problem(s.within(n, m[0]), path, "%s", problem)
			ok = false
		}
		out.WriteString(value)
	}
	out.WriteString(n.Value[end:])
	return out.String(), ok
}

// variable looks up the text between the braces of ${…}.
func (s *source) variable(text string, closed bool) (value, problem string) {
	parts := variable.FindStringSubmatch(text)
	if parts == nil || !closed {
		return "", "expected an environment variable, as in ${NAME} or ${NAME:-default}; write $${ for a literal ${"
	}
	value, set := s.lookup(parts[1])
	if value != "" {
		s.secrets = append(s.secrets, value)
	}
	if parts[2] != "" && value == "" {
		return parts[3], ""
	}
	if !set {
		return "", "the environment variable " + parts[1] + " is not set; set it, or give a default as in ${" + parts[1] + ":-default}"
	}
	return value, ""
}
