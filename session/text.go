package session

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Stores keep text in columns and JSON documents, which support neither zero bytes
// nor invalid UTF-8: a zero byte would cut the text short, and invalid UTF-8 would
// be read back as something else. Such text is therefore refused before any store
// sees it.

// CheckText returns an error if some store could not return the text unchanged.
func CheckText(field, text string) error {
	switch {
	case strings.IndexByte(text, 0) >= 0:
		return Invalid(field, "%.40q contains a zero byte", text)
	case !utf8.ValidString(text):
		return Invalid(field, "%.40q is not valid UTF-8", text)
	}
	return nil
}

// CheckJSON returns an error if the value is not JSON in UTF-8. An empty value is
// valid.
func CheckJSON(field string, value json.RawMessage) error {
	switch {
	case value == nil:
		return nil
	case !json.Valid(value):
		return Invalid(field, "is not valid JSON")
	case !utf8.Valid(value):
		return Invalid(field, "is not valid UTF-8")
	}
	return nil
}

// checkTexts is [CheckText] for several texts: a field's name, its text, and so
// on.
func checkTexts(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if err := CheckText(pairs[i], pairs[i+1]); err != nil {
			return err
		}
	}
	return nil
}
