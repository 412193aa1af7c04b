// Package evicted has the texts of results that are too large for a conversation: what stays
// of one in its message, and how parts of the rest are found. It knows no store.
package evicted

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// previewRunes is how many characters of the beginning, and how many of the end, of a result
// stay in its message.
const previewRunes = 2000

// Preview returns what stays of a result in its message: how large it is, how to read it
// under an id, its beginning and its end. It is text also if the result is JSON, because a
// part of a JSON value is none. What it says about the result comes first, where the message
// may be cut again.
func Preview(tool, id string, data []byte) string {
	head := beginning(data, previewRunes, len(data)/4)
	tail := end(data, previewRunes, len(data)/4)
	lines := "1 line"
	if n := Lines(data); n != 1 {
		lines = fmt.Sprintf("%d lines", n)
	}
	text := fmt.Sprintf("[This result has %d bytes in %s. Only its beginning and its end are shown. "+
		"To read other parts, call %s with the id %q and either from and lines, or offset and bytes.]\n\n%s\n\n[… bytes %d to %d are not shown …]\n\n%s",
		len(data), lines, tool, id, data[:head], head, len(data)-tail, data[len(data)-tail:])
	return strings.ToValidUTF8(text, "\uFFFD")
}

// beginning and end return the length of so many runes at one end of data, and of at most
// limit bytes.
func beginning(data []byte, runes, limit int) (n int) {
	for range runes {
		_, size := utf8.DecodeRune(data[n:])
		if size == 0 || n+size > limit {
			break
		}
		n += size
	}
	return n
}

func end(data []byte, runes, limit int) (n int) {
	for range runes {
		_, size := utf8.DecodeLastRune(data[:len(data)-n])
		if size == 0 || n+size > limit {
			break
		}
		n += size
	}
	return n
}

// Lines returns how many lines a text has. A line break at the end begins no further line.
func Lines(data []byte) int64 {
	n := newlines(data)
	if len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}

func newlines(data []byte) int64 { return int64(bytes.Count(data, []byte{'\n'})) }
