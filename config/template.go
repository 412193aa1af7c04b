package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// placeholder matches an argument in an address or a body, or, with a dot, a value of the
// call's session.
var placeholder = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*|(?:user|session)\.[^{}]*)\}`)

// Placeholders that the server fills with values of the call's session. No argument has
// such a name, so the model cannot set them.
const (
	placeUser    = "user.id"
	placeTenant  = "user.tenant"
	placeSession = "session.id"
)

var identities = []string{placeUser, placeTenant, placeSession}

// isIdentity reports whether the server fills a placeholder, and not an argument.
func isIdentity(name string) bool { return strings.Contains(name, ".") }

// placeholders returns the names in a text, each once.
func placeholders(text string) []string {
	var names []string
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// values are the values of placeholders in one call.
type values struct {
	arguments map[string]json.RawMessage
	call      *helix.Call
}

// of returns a placeholder's value, or nil for an argument that is not set.
func (v *values) of(name string) (json.RawMessage, error) {
	if !isIdentity(name) {
		return v.arguments[name], nil
	}
	known := map[string]struct{ value, missing string }{
		placeUser:    {v.call.UserID, "the session has no user"},
		placeTenant:  {v.call.Tenant, "the session has no tenant"},
		placeSession: {v.call.SessionID, "there is no session"},
	}[name]
	if known.value == "" {
		// To the service an empty string might mean everybody's data.
		return nil, (&helix.Error{Code: session.CodeToolFailed}).WithMessage("nothing was sent: the tool needs {%s}, and %s", name, known.missing)
	}
	return session.Encode(known.value)
}

// fill replaces placeholders in one pass, so that values are not searched for placeholders.
func (v *values) fill(template string, escape func(name, text string) (string, error)) (string, error) {
	var failed error
	out := placeholder.ReplaceAllStringFunc(template, func(found string) string {
		name := found[1 : len(found)-1]
		value, err := v.of(name)
		if err == nil {
			found, err = escape(name, strings.Join(texts(value), ","))
		}
		if err != nil && failed == nil {
			failed = err
		}
		return found
	})
	return out, failed
}

// fillValue replaces placeholders in a body. A string that is one placeholder becomes its
// value; it is omitted if the argument is not set.
func (v *values) fillValue(template any) (any, error) {
	switch template := template.(type) {
	case string:
		if found := placeholder.FindString(template); found != "" && found == template {
			value, err := v.of(found[1 : len(found)-1])
			if value == nil || err != nil {
				return nil, err
			}
			return value, nil
		}
		return v.fill(template, asItIs)
	case map[string]any:
		out := map[string]any{}
		for key, value := range template {
			filled, err := v.fillValue(value)
			if err != nil {
				return nil, err
			}
			if filled != nil || value == nil {
				out[key] = filled
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(template))
		for i, value := range template {
			filled, err := v.fillValue(value)
			if err != nil {
				return nil, err
			}
			out[i] = filled
		}
		return out, nil
	}
	return template, nil
}

// decodeTemplate decodes a body. Its numbers keep their form.
func decodeTemplate(body JSON) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var template any
	if err := decoder.Decode(&template); err != nil {
		return nil, fmt.Errorf("decode the body: %w", err)
	}
	return template, nil
}

// The ways to escape a value for where it stands.

func asItIs(_, text string) (string, error) { return text, nil }

func inQuery(_, text string) (string, error) { return url.QueryEscape(text), nil }

// pathSegment escapes a value in a path. It must not lead to another path.
func pathSegment(name, text string) (string, error) {
	if text == "" || text == "." || text == ".." {
		return "", (&helix.Error{Code: session.CodeToolInput}).WithMessage("%s: %q cannot be part of an address", name, text)
	}
	return url.PathEscape(text), nil
}

// inHeader refuses a value that would change in a header: a line break would start another
// header, and surrounding spaces would be lost.
func inHeader(name, text string) (string, error) {
	if strings.TrimSpace(text) != text || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", (&helix.Error{Code: session.CodeToolFailed}).WithMessage("nothing was sent: {%s} contains characters that a header must not have", name)
	}
	return text, nil
}

// queryNames returns the names of the parameters in an address.
func queryNames(address string) []string {
	_, query, _ := strings.Cut(address, "?")
	var names []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if decoded, err := url.QueryUnescape(name); err == nil {
			name = decoded
		}
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// inNames reports whether names contain a name, ignoring case, because some services ignore
// it.
func inNames(names []string, name string) bool {
	return slices.ContainsFunc(names, func(known string) bool { return strings.EqualFold(known, name) })
}

// texts converts a value to strings: a list item by item, any other value by itself.
func texts(value json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil {
		var out []string
		for _, item := range list {
			out = append(out, text(item))
		}
		return out
	}
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	return []string{text(value)}
}

func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}
