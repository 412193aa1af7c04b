package files

import (
	"bytes"
	"unicode"
)

// invisible are characters that are not shown, and that texts do not need: zero-width spaces
// and operators, controls of the direction of text, fillers, tags, and selectors of variants
// other than those of emoji.
var invisible = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x034f, 0x034f, 1},
		{0x061c, 0x061c, 1},
		{0x115f, 0x1160, 1},
		{0x17b4, 0x17b5, 1},
		{0x180b, 0x180f, 1},
		{0x200b, 0x200b, 1},
		{0x202a, 0x202e, 1},
		{0x2060, 0x206f, 1},
		{0x3164, 0x3164, 1},
		{0xfe00, 0xfe0d, 1},
		{0xfeff, 0xfeff, 1},
		{0xffa0, 0xffa0, 1},
	},
	R32: []unicode.Range32{{0x1bca0, 0x1bca3, 1}, {0x1d173, 0x1d17a, 1}, {0xe0000, 0xe0fff, 1}},
}

// joining are characters that are not shown and that some scripts and emoji need, one at a
// time.
var joining = &unicode.RangeTable{
	R16: []unicode.Range16{{0x00ad, 0x00ad, 1}, {0x200c, 0x200f, 1}, {0xfe0e, 0xfe0f, 1}},
}

// hidden finds the first character of a text that is not shown. What emoji need is none, but
// several in a row are. A byte order mark at the beginning is none either.
func hidden(data []byte) (line, column int, found rune) {
	line, column = 1, 0
	row := 0
	for _, r := range string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) {
		column++
		switch {
		case r == '\n':
			line, column, row = line+1, 0, 0
		case unicode.Is(invisible, r):
			return line, column, r
		case unicode.Is(joining, r):
			if row++; row > 2 {
				return line, column, r
			}
		default:
			row = 0
		}
	}
	return 0, 0, 0
}
