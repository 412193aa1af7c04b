package config

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/helixagents/helix/session"
)

// hidden replaces a secret.
const hidden = "***"

// The minimum length of hidden secrets. It is longer for results than for errors: a short
// text could occur in the data by chance, and hiding it would corrupt the data.
const (
	minSecret       = 6
	minResultSecret = 8
)

// hidingErrors returns a replacer for what errors must not show: headers, and values of
// environment variables in the file.
func hidingErrors(t *Tool, secrets []string) *strings.Replacer {
	all := slices.Clone(secrets)
	for _, value := range t.Headers {
		all = append(all, value)
		all = append(all, strings.Fields(value)...)
	}
	return replacer(all, minSecret)
}

// hidingResults returns a replacer for what results must not show: headers, except
// conventional ones, and values of environment variables in the tool's headers, body, path
// and query. The server's name is not a secret.
func hidingResults(t *Tool, secrets []string) *strings.Replacer {
	_, rest, _ := strings.Cut(t.URL, "://")
	_, path, _ := strings.Cut(rest, "/")
	_, query, _ := strings.Cut(rest, "?")
	places := []string{path, query, string(t.Body)}
	var all []string
	for name, value := range t.Headers {
		places = append(places, value)
		if conventional(name) {
			continue
		}
		for _, literal := range placeholder.Split(value, -1) {
			literal = strings.TrimSpace(literal)
			all = append(all, literal)
			if credential(name) {
				all = append(all, strings.Fields(literal)...)
			}
		}
	}
	for _, secret := range secrets {
		if slices.ContainsFunc(places, func(place string) bool { return strings.Contains(place, secret) }) {
			all = append(all, secret)
		}
	}
	return replacer(all, minResultSecret)
}

// conventional reports whether a header only negotiates the format; its values occur in
// many results.
func conventional(name string) bool {
	switch name = http.CanonicalHeaderKey(name); name {
	case "User-Agent", "Cache-Control", "Connection", "Host", "Prefer", "Range", "Origin", "Referer":
		return true
	}
	return strings.HasPrefix(name, "Accept") || strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "If-")
}

// credential reports whether a header is about who asks, so that each of its words may be
// a secret by itself.
func credential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "key", "token", "secret", "cookie"}, func(part string) bool { return strings.Contains(name, part) })
}

// replacer replaces texts of a length at least, in the forms that a service may repeat
// them in.
func replacer(all []string, atLeast int) *strings.Replacer {
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) }) // the longest first
	var pairs []string
	for _, secret := range slices.Compact(all) {
		if len(secret) < atLeast {
			continue
		}
		for _, form := range forms(secret, atLeast) {
			pairs = append(pairs, form, hidden)
		}
	}
	return strings.NewReplacer(pairs...)
}

// forms are a text as it is, in JSON, in a URL and in base64.
func forms(secret string, atLeast int) []string {
	all := []string{secret, url.QueryEscape(secret), url.PathEscape(secret)}
	if quoted, err := session.Encode(secret); err == nil {
		inside := string(quoted[1 : len(quoted)-1])
		all = append(all, inside, strings.ReplaceAll(inside, "/", `\/`))
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		// The base64 form of a text depends on the number of bytes before it, and its first
		// and last characters also depend on its neighbours.
		for before := range 3 {
			encoded := encoding.EncodeToString(append(make([]byte, before), secret...))
			from, to := (before*8+5)/6, (before+len(secret))*8/6
			if form := encoded[from:to]; len(form) >= atLeast {
				all = append(all, form)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// hideJSON hides secrets in a JSON value, which stays valid. It compares decoded strings; a
// string without a secret keeps its encoding.
func hideJSON(raw []byte, hide *strings.Replacer) json.RawMessage {
	var out bytes.Buffer
	for len(raw) > 0 {
		n := len(raw)
		switch c := raw[0]; {
		case c == '"':
			n = stringEnd(raw)
			out.Write(hideString(raw[:n], hide))
		case c == '-' || c >= '0' && c <= '9':
			if end := bytes.IndexFunc(raw, func(r rune) bool { return !strings.ContainsRune("+-.0123456789eE", r) }); end >= 0 {
				n = end
			}
			if text := string(raw[:n]); hide.Replace(text) != text {
				out.WriteString(`"` + hidden + `"`)
			} else {
				out.WriteString(text)
			}
		default:
			n = 1
			out.WriteByte(c)
		}
		raw = raw[n:]
	}
	return out.Bytes()
}

// stringEnd returns the length of the string at the beginning of raw.
func stringEnd(raw []byte) int {
	for i := 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

func hideString(raw []byte, hide *strings.Replacer) []byte {
	text := string(bytes.Trim(raw, `"`))
	if bytes.IndexByte(raw, '\\') >= 0 && json.Unmarshal(raw, &text) != nil {
		return raw
	}
	shown := hide.Replace(text)
	if shown == text {
		return raw
	}
	encoded, err := session.Encode(shown)
	if err != nil {
		return []byte(`"` + hidden + `"`)
	}
	return encoded
}
