package main

import (
	"strings"
	"testing"
)

// show plays what is written on a terminal of so many columns, of which it knows the codes
// that a wrapper writes.
func show(t *testing.T, written string, columns int) string {
	t.Helper()
	lines := []string{""}
	for written != "" {
		last := &lines[len(lines)-1]
		var back int
		switch {
		case strings.HasPrefix(written, "\x1b[K"):
			written = written[3:]
			continue
		case strings.HasPrefix(written, "\x1b["):
			for written = written[2:]; written[0] != 'D'; written = written[1:] {
				back = back*10 + int(written[0]-'0')
			}
			runes := []rune(*last)
			for n := 0; n < back; {
				n += columnsOf(runes[len(runes)-1:])
				runes = runes[:len(runes)-1]
			}
			*last = string(runes)
			written = written[1:]
			continue
		}
		r := []rune(written)[0]
		written = written[len(string(r)):]
		if r == '\n' {
			lines = append(lines, "")
			continue
		}
		if columnsOf([]rune(*last+string(r))) > columns { // the terminal itself begins another line
			*last += "~"
			lines = append(lines, "")
			last = &lines[len(lines)-1]
		}
		*last += string(r)
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ") // nobody sees them
	}
	return strings.ReplaceAll(strings.Join(lines, "|"), "~|", "~")
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\tb c":                            "a       b|c",
		"12345678\tb":                       "12345678|b",
		"ab\u00a0cd efgh":                   "ab\u00a0cd|efgh",
		"one two three":                     "one two|three",
		"one two three four":                "one two|three|four",
		"incomprehensibilities are":         "incomprehe~nsibilitie~s are",
		"a incomprehensibilities":           "a|incomprehe~nsibilitie~s",
		"one\ntwo three":                    "one|two three",
		"nine char ten":                     "nine char|ten",
		"一二三四 五六七":                          "一二三四|五六七",
		"one  two   six":                    "one  two| six",
		"  indented":                        "|indented",
		"":                                  "",
		"ends with a space ":                "ends with|a space",
		"naïve cafés cost €4":               "naïve|cafés|cost €4",
		"a\u0301 b\u0301 c\u0301 d\u0301 e": "a\u0301 b\u0301 c\u0301 d\u0301 e",
	} {
		for size := 1; size <= len(text)+1; size++ {
			w := &wrapper{columns: func() int { return 10 }}
			var out strings.Builder
			for rest := []rune(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				out.WriteString(w.wrap(string(rest[:min(size, len(rest))])))
			}
			if got := show(t, out.String(), 10); got != want {
				t.Errorf("%q in pieces of %d: %q, want %q", text, size, got, want)
			}
		}
	}
	long := &wrapper{columns: func() int { return 10 }}
	if got := long.wrap(strings.Repeat("x", 100_000)); len(got) != 100_000 || len(long.word) > 9 {
		t.Errorf("a long word: %d bytes are written, %d letters kept", len(got), len(long.word))
	}
	var none *wrapper
	if got := none.wrap(strings.Repeat("x ", 100)); got != strings.Repeat("x ", 100) {
		t.Errorf("without a terminal: %q", got)
	}
}
