package provider

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/helixagents/helix/session"
)

// DataURL returns a data URL.
func DataURL(mediaType string, data []byte) string {
	return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// IsDataURL reports whether a file's content is in its URL.
func IsDataURL(raw string) bool { return strings.HasPrefix(raw, "data:") }

// Base64 splits a data URL and returns its content in base64, the encoding of providers.
// It does not copy content that is already in base64.
func Base64(raw string) (mediaType, content string, err error) {
	head, body, ok := strings.Cut(strings.TrimPrefix(raw, "data:"), ",")
	if !ok || !IsDataURL(raw) {
		return "", "", fmt.Errorf("%s is not a data URL", Clip(raw, 40))
	}
	mediaType, coded := strings.CutSuffix(head, ";base64")
	mediaType, _, _ = strings.Cut(mediaType, ";") // without charset and the like
	if coded {
		return mediaType, body, nil
	}
	text, err := url.PathUnescape(body)
	if err != nil {
		return "", "", fmt.Errorf("data URL: %w", err)
	}
	return mediaType, base64.StdEncoding.EncodeToString([]byte(text)), nil
}

// TextOf returns the content of a data URL as text.
func TextOf(raw string) (string, error) {
	_, content, err := Base64(raw)
	if err != nil {
		return "", err
	}
	text, err := base64.StdEncoding.DecodeString(content)
	return string(text), err
}

// textTypes are the types of text files that do not say so.
var textTypes = []string{
	"application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml", "application/sql", "application/graphql",
	"application/javascript", "application/x-javascript", "application/ecmascript", "application/typescript", "application/x-sh", "application/x-httpd-php",
	"application/x-ndjson", "application/jsonl", "application/x-tex", "message/rfc822",
}

// IsText reports whether files of a media type are text that every model can read.
func IsText(mediaType string) bool {
	mediaType, _, _ = strings.Cut(mediaType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	return strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(mediaType, "+json") || strings.HasSuffix(mediaType, "+xml") ||
		slices.Contains(textTypes, mediaType)
}

// FileText returns the content of a text file behind its name, for APIs that take no text files.
func FileText(part *session.Part) (string, bool) {
	if !IsDataURL(part.URL) {
		return "", false
	}
	text, err := TextOf(part.URL)
	if err != nil || Blank(text) {
		return "", false
	}
	if part.Filename != "" {
		text = part.Filename + ":\n\n" + text
	}
	return text, true
}

// DescribeFile returns what a model is told in place of a file that cannot be sent, so that it
// can say so to the person who sent it.
func DescribeFile(part *session.Part) string {
	return fmt.Sprintf("[The file %q of type %q was left out here: this model does not take such files, or it is empty or broken.]", part.Filename, part.MediaType)
}
