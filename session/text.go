package session

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Stores keep text in columns and JSON documents, which hold neither a zero byte
// nor what is not UTF-8: one would cut the text short, the other come back as
// something else. So such text is refused before any store sees it.

// CheckText reports text that not every store could give back.
func CheckText(field, text string) error {
	switch {
	case strings.IndexByte(text, 0) >= 0:
		return Invalid(field, "%.40q holds a zero byte", text)
	case !utf8.ValidString(text):
		return Invalid(field, "%.40q is not valid UTF-8", text)
	}
	return nil
}

// CheckJSON reports a value that is not JSON, or not in UTF-8; none at all is
// fine.
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

// checkTexts is [CheckText] for several: a field's name, its text, and so on.
func checkTexts(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if err := CheckText(pairs[i], pairs[i+1]); err != nil {
			return err
		}
	}
	return nil
}
