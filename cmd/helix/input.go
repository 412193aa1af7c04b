package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// wholeInput formats the input of a call that a person decides on. It shows all of it, each
// key on its own line, with everything visible that could hide or reorder a part. The
// output is JSON for the same value.
func wholeInput(input json.RawMessage) string {
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber()
	var out strings.Builder
	if err := writeInput(&out, decoder, "\n"); err != nil {
		return visible(string(input)) // not JSON: keep the text
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return visible(string(input))
	}
	return out.String()
}

// writeInput writes the next value, indented by depth.
func writeInput(out *strings.Builder, decoder *json.Decoder, lines string) error {
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		out.WriteRune(rune(token))
		for first := true; decoder.More(); first = false {
			if !first {
				out.WriteByte(',')
			}
			out.WriteString(lines + "  ")
			if token == '{' {
				key, err := decoder.Token()
				if err != nil {
					return err
				}
				out.WriteString(quoted(fmt.Sprint(key)) + ": ")
			}
			if err := writeInput(out, decoder, lines+"  "); err != nil {
				return err
			}
			if !decoder.More() {
				out.WriteString(lines)
			}
		}
		end, err := decoder.Token()
		if err != nil {
			return err
		}
		fmt.Fprint(out, end)
	case string:
		out.WriteString(quoted(token))
	case nil:
		out.WriteString("null")
	default: // a number as it is written, or a bool
		fmt.Fprint(out, token)
	}
	return nil
}

// quoted returns a text as a JSON string of visible characters.
func quoted(text string) string {
	return `"` + visible(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)) + `"`
}

// visible escapes characters that are invisible or that move the text around them: control
// characters, line and paragraph separators, bidirectional marks, zero-width characters,
// and unusual spaces.
func visible(text string) string {
	shows := func(r rune) bool {
		return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
	}
	if strings.IndexFunc(text, func(r rune) bool { return !shows(r) }) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case shows(r):
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// visibleText is visible for a text of several lines: line ends and tabs stay.
func visibleText(text string) string {
	var out strings.Builder
	for text != "" {
		end := strings.IndexAny(text, "\n\t")
		if end < 0 {
			end = len(text)
		}
		out.WriteString(visible(text[:end]))
		next := min(end+1, len(text))
		out.WriteString(text[end:next])
		text = text[next:]
	}
	return out.String()
}
