package evicted_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/evicted"
	"github.com/helixagents/helix/session"
)

func TestPreview(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data       string
		head, tail string // what must stand at both ends
		says       string // about the size
	}{
		"lines": {
			strings.Repeat("a line\n", 3000), strings.Repeat("a line\n", 285) + "a lin", "line\n" + strings.Repeat("a line\n", 285), "21000 bytes in 3000 lines.",
		},
		"one line": {
			strings.Repeat("x", 100_000), strings.Repeat("x", 2000), strings.Repeat("x", 2000), "100000 bytes in 1 line.",
		},
		"no line break at the end": {
			strings.Repeat("ab\n", 5000) + "c", "ab\n", "\nc", "15001 bytes in 5001 lines.",
		},
		"empty lines": {
			strings.Repeat("\n", 20_000), strings.Repeat("\n", 2000), strings.Repeat("\n", 2000), "20000 bytes in 20000 lines.",
		},
		"runes of two bytes": {
			"x" + strings.Repeat("é", 20_000), "x" + strings.Repeat("é", 1999), strings.Repeat("é", 2000), "40001 bytes in 1 line.",
		},
		"runes of four bytes": {
			strings.Repeat("🦀", 10_000), strings.Repeat("🦀", 2000), strings.Repeat("🦀", 2000), "40000 bytes in 1 line.",
		},
		"few and wide": { // a quarter at each end, in whole runes
			strings.Repeat("€", 401), strings.Repeat("€", 100), strings.Repeat("€", 100), "1203 bytes in 1 line.",
		},
		"a JSON object": {
			`{"rows":[` + strings.Repeat(`{"name":"Ann \"A\"","n":1},`, 1000) + `null]}`, `{"rows":[{"name":"Ann \"A\""`, `null]}`, "27015 bytes in 1 line.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := evicted.Preview("read_result", "abc", []byte(c.data))
			about, rest, _ := strings.Cut(got, "]\n\n")
			if !strings.Contains(about, "has "+c.says) || !strings.Contains(about, `call read_result with the id "abc"`) {
				t.Errorf("it says %q", about)
			}
			var from, to int
			at := strings.Index(rest, "\n\n[… bytes ")
			if at < 0 {
				t.Fatalf("the rest is %q", rest)
			}
			head, rest := rest[:at], rest[at:]
			if _, err := fmt.Sscanf(rest, "\n\n[… bytes %d to %d are not shown …]", &from, &to); err != nil {
				t.Fatal(err)
			}
			_, tail, _ := strings.Cut(rest, " …]\n\n")
			if head != c.data[:from] || tail != c.data[to:] {
				t.Errorf("bytes %d to %d are left out between\n%q\n%q", from, to, head, tail)
			}
			if !strings.HasPrefix(head, c.head) || !strings.HasSuffix(tail, c.tail) {
				t.Errorf("it begins with\n%q\nand ends with\n%q", head, tail)
			}
			if n, m := utf8.RuneCountInString(head), utf8.RuneCountInString(tail); n > 2000 || m > 2000 || n == 0 || m == 0 || !utf8.ValidString(got) {
				t.Errorf("%d and %d characters are shown, valid: %t", n, m, utf8.ValidString(got))
			}
		})
	}
}

// A preview that is cut once more still says how to read the rest.
func TestPreviewThatIsTrimmed(t *testing.T) {
	t.Parallel()
	got := session.TrimText(evicted.Preview("read_result", "the-id", []byte(strings.Repeat("x", 100_000))), helix.DefaultTrimResults)
	if len(got) > helix.DefaultTrimResults || !strings.Contains(got, `call read_result with the id "the-id" and either from and lines, or offset and bytes.]`) {
		t.Errorf("it is %q", got)
	}
}

func TestPreviewOfWhatIsNotText(t *testing.T) {
	t.Parallel()
	if got := evicted.Preview("r", "id", []byte(strings.Repeat("\xff\xfe", 5000))); !utf8.ValidString(got) {
		t.Errorf("it is %q", got[:200])
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"": 0, "a": 1, "a\n": 1, "a\nb": 2, "\n": 1, "\n\n": 2, "\n\na": 3} {
		if got := evicted.Lines([]byte(text)); got != want {
			t.Errorf("%q has %d lines, want %d", text, got, want)
		}
	}
}
