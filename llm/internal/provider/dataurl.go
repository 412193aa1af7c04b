package provider

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
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
