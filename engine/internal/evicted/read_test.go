package evicted_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/engine/internal/evicted"
)

// stored is a result in parts of at most so many bytes.
func stored(data []byte, limit int) (*evicted.Index, evicted.Load) {
	parts := evicted.Split(data, limit)
	x := &evicted.Index{Lines: evicted.Lines(data)}
	for _, part := range parts {
		x.Parts = append(x.Parts, evicted.NewPart(blob.RefOf(part), part))
	}
	return x, func(i int) ([]byte, error) { return parts[i], nil }
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "abcdefgh", strings.Repeat("é", 50), strings.Repeat("a🦀", 20), "\x80\x80\x80\x80\x80\x80\x80\x80\x80"} {
		for limit := 4; limit < 12; limit++ {
			parts := evicted.Split([]byte(text), limit)
			if got := string(bytes.Join(parts, nil)); got != text {
				t.Errorf("%q in parts of %d is %q", text, limit, got)
			}
			for i, part := range parts {
				if len(part) > limit || len(part) == 0 && text != "" || utf8.ValidString(text) && !utf8.Valid(part) {
					t.Errorf("part %d of %q, cut at %d, is %q", i, text, limit, part)
				}
			}
		}
	}
}

func TestPartBytes(t *testing.T) {
	t.Parallel()
	for result, want := range map[int]int{
		1: 1 << 20, 5_000_000: 1 << 20, 32 << 20: 1 << 20, 64 << 20: 2 << 20, 512 << 20: 16 << 20, 1000 << 20: blob.MaxBytes,
	} {
		if got := evicted.PartBytes(result); got != want {
			t.Errorf("the parts of %d bytes have %d, want %d", result, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	many := ""
	for i := range 10_000 {
		many += fmt.Sprintf("line %d\n", i+1)
	}
	for name, c := range map[string]struct {
		data string
		r    evicted.Range
		want string
		page evicted.Page // without the text
	}{
		"all of it":              {"a\nb\nc", evicted.Range{}, "a\nb\nc", evicted.Page{End: 5, First: 1, Last: 3}},
		"a line":                 {"a\nb\nc", evicted.Range{From: 2, Lines: 1}, "b\n", evicted.Page{Start: 2, End: 4, First: 2, Last: 2}},
		"the last line":          {"a\nb\nc", evicted.Range{From: 3}, "c", evicted.Page{Start: 4, End: 5, First: 3, Last: 3}},
		"more than there are":    {"a\nb\n", evicted.Range{From: 2, Lines: 9}, "b\n", evicted.Page{Start: 2, End: 4, First: 2, Last: 2}},
		"empty lines":            {"\n\n\nx\n", evicted.Range{From: 2, Lines: 2}, "\n\n", evicted.Page{Start: 1, End: 3, First: 2, Last: 3}},
		"far down":               {many, evicted.Range{From: 9_999}, "line 9999\nline 10000\n", evicted.Page{Start: 98_873, End: 98_894, First: 9_999, Last: 10_000}},
		"bytes":                  {long, evicted.Range{Offset: new(int64(5)), Bytes: 3}, "xxx", evicted.Page{Start: 5, End: 8}},
		"the last bytes":         {long + "yz", evicted.Range{Offset: new(int64(100_000))}, "yz", evicted.Page{Start: 100_000, End: 100_002}},
		"too many bytes":         {long, evicted.Range{Offset: new(int64(0)), Bytes: 1 << 40}, long[:evicted.MaxRead], evicted.Page{End: evicted.MaxRead}},
		"a long line":            {long + "\nb", evicted.Range{From: 1}, long[:evicted.MaxRead], evicted.Page{End: evicted.MaxRead, First: 1, Last: 1, Cut: true}},
		"a long line later":      {"a\n" + long, evicted.Range{From: 2}, long[:evicted.MaxRead], evicted.Page{Start: 2, End: 2 + evicted.MaxRead, First: 2, Last: 2, Cut: true}},
		"whole lines only":       {"a\n" + long, evicted.Range{From: 1}, "a\n", evicted.Page{End: 2, First: 1, Last: 1}},
		"in the middle of é":     {"aéb", evicted.Range{Offset: new(int64(2))}, "éb", evicted.Page{Start: 1, End: 4}},
		"not half of é":          {"aéb", evicted.Range{Offset: new(int64(0)), Bytes: 2}, "a", evicted.Page{End: 1}},
		"one rune at least":      {"🦀b", evicted.Range{Offset: new(int64(0)), Bytes: 1}, "🦀", evicted.Page{End: 4}},
		"a long line in runes":   {strings.Repeat("🦀", 10_000) + "x", evicted.Range{}, strings.Repeat("🦀", 8192), evicted.Page{End: 32768, First: 1, Last: 1, Cut: true}},
		"a long line, shifted":   {"x" + strings.Repeat("🦀", 10_000), evicted.Range{}, "x" + strings.Repeat("🦀", 8191), evicted.Page{End: 32765, First: 1, Last: 1, Cut: true}},
		"exactly a page":         {long[:evicted.MaxRead], evicted.Range{}, long[:evicted.MaxRead], evicted.Page{End: evicted.MaxRead, First: 1, Last: 1}},
		"exactly a page and \\n": {long[:evicted.MaxRead-1] + "\n", evicted.Range{}, long[:evicted.MaxRead-1] + "\n", evicted.Page{End: evicted.MaxRead, First: 1, Last: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, limit := range []int{7, 1000, 1 << 20} {
				x, load := stored([]byte(c.data), limit)
				got, err := x.Read(c.r, load)
				if err != nil {
					t.Fatal(err)
				}
				if string(got.Text) != c.want {
					t.Errorf("in parts of %d it is %.100q, want %.100q", limit, got.Text, c.want)
				}
				got.Text = nil
				if fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", c.page) {
					t.Errorf("in parts of %d it is %+v, want %+v", limit, *got, c.page)
				}
			}
		})
	}
}

func TestReadOutside(t *testing.T) {
	t.Parallel()
	x, load := stored([]byte("a\nb\n"), 100)
	for want, r := range map[string]evicted.Range{
		"from is 3, but the result has 2 lines, counted from 1":    {From: 3},
		"offset is 4, but the result has 4 bytes, counted from 0":  {Offset: new(int64(4))},
		"offset is -1, but the result has 4 bytes, counted from 0": {Offset: new(int64(-1))},
	} {
		_, err := x.Read(r, load)
		if outside := (*evicted.OutsideError)(nil); !errors.As(err, &outside) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// An index that somebody made up gives an error, and nothing else.
func TestReadWithAWrongIndex(t *testing.T) {
	t.Parallel()
	data := []byte("a\nb\n")
	for name, x := range map[string]*evicted.Index{
		"too few bytes":      {Parts: []evicted.Part{{Bytes: 3, Newlines: 2}}, Lines: 2},
		"too many bytes":     {Parts: []evicted.Part{{Bytes: 5, Newlines: 2}}, Lines: 2},
		"too many lines":     {Parts: []evicted.Part{{Bytes: 4, Newlines: 9}}, Lines: 9},
		"lines from nowhere": {Parts: []evicted.Part{{Bytes: 4, Newlines: 2}}, Lines: 9},
	} {
		if _, err := x.Read(evicted.Range{From: 5}, func(int) ([]byte, error) { return data, nil }); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	ref := blob.RefOf([]byte("x"))
	for _, parts := range []int{1, 2, 5} {
		got, n, ok := evicted.ParseID(evicted.ID(ref, parts))
		if got != ref || n != parts || !ok {
			t.Errorf("%s of %d parts is %s of %d, %t", ref, parts, got, n, ok)
		}
	}
	digits := blob.Digits(ref)
	for _, id := range []string{"", "x", ref, digits[1:], digits + "0", strings.ToUpper(digits), digits + "-", digits + "-1", digits + "-02", digits + "-x", digits + "-999", digits + "-2-2", "../" + digits} {
		if _, _, ok := evicted.ParseID(id); ok {
			t.Errorf("%q is an id", id)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	x, _ := stored([]byte("hello, world"), 5)
	raw, err := x.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := evicted.Decode(raw, 3); !ok || fmt.Sprint(*got) != fmt.Sprint(*x) {
		t.Errorf("it is %v, %t", got, ok)
	}
	for _, bad := range []string{
		"", "null", "[]", `{"parts":[]}`, string(raw) + "x", strings.Replace(string(raw), "sha256:", "sha257:", 1),
		strings.Replace(string(raw), `"bytes":5`, `"bytes":0`, 1), strings.Replace(string(raw), `"bytes":5`, `"bytes":99999999999`, 1),
		strings.Replace(string(raw), `"newlines":0`, `"newlines":-1`, 1), strings.Replace(string(raw), `"lines":1`, `"lines":-1`, 1),
	} {
		if _, ok := evicted.Decode([]byte(bad), 3); ok {
			t.Errorf("%q is an index", bad)
		}
	}
	if _, ok := evicted.Decode(raw, 2); ok {
		t.Error("an index of 3 parts is one of 2")
	}
}

// pages reads a whole result as a model does that follows what each page says.
func pages(t *testing.T, x *evicted.Index, load evicted.Load, byBytes bool, size int64) []byte {
	t.Helper()
	var out []byte
	total, at, line := x.Bytes(), int64(0), int64(1)
	cut := byBytes
	for at < total {
		r := evicted.Range{From: line, Lines: size}
		if cut {
			r = evicted.Range{Offset: &at, Bytes: size}
		}
		page, err := x.Read(r, load)
		if err != nil {
			t.Fatal(err)
		}
		if page.Start != at || page.End != at+int64(len(page.Text)) || len(page.Text) == 0 || len(page.Text) > evicted.MaxRead+utf8.UTFMax {
			t.Fatalf("after %d bytes of %d the page is %d to %d with %d", at, total, page.Start, page.End, len(page.Text))
		}
		out, at = append(out, page.Text...), page.End
		switch {
		case byBytes:
		case page.Cut || cut: // the line goes on, until it ends
			cut = !bytes.Contains(page.Text, []byte{'\n'})
			if !cut { // go back to where the next line begins
				end := bytes.IndexByte(page.Text, '\n') + 1
				out, at = out[:len(out)-len(page.Text)+end], page.Start+int64(end)
				line++
			}
			if page.Cut {
				cut = true
			}
		default:
			line = page.Last + 1
		}
	}
	return out
}

func TestPagesAreTheWhole(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var text strings.Builder
		for range random.IntN(300) {
			text.WriteString([]string{"a", "é", "🦀", "\n", "\n\n", strings.Repeat("z", random.IntN(900))}[random.IntN(6)])
		}
		data := []byte(text.String())
		if len(data) == 0 {
			continue
		}
		x, load := stored(data, 4+random.IntN(2000))
		for _, byBytes := range []bool{false, true} {
			if got := pages(t, x, load, byBytes, random.Int64N(50)); !bytes.Equal(got, data) {
				t.Fatalf("read by bytes: %t, %q is %q", byBytes, data, got)
			}
		}
	}
	data := bytes.Repeat([]byte(strings.Repeat("0123456789", 9_999)+"\n"), 50) // 5 MB in lines of 100 KB
	x, load := stored(data, 1<<20)
	for _, byBytes := range []bool{false, true} {
		if got := pages(t, x, load, byBytes, 0); !bytes.Equal(got, data) {
			t.Errorf("read by bytes: %t, 5 MB are %d bytes", byBytes, len(got))
		}
	}
}

// An index that is larger than any result needs is not decoded: its parts might take many times
// its bytes of memory.
func TestDecodeIsBounded(t *testing.T) {
	t.Parallel()
	part := evicted.Part{Ref: blob.RefOf([]byte("x")), Bytes: blob.MaxBytes, Newlines: blob.MaxBytes}
	largest := evicted.Index{Lines: math.MaxInt64}
	for range 64 {
		largest.Parts = append(largest.Parts, part)
	}
	raw, err := largest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if x, ok := evicted.Decode(raw, 64); !ok || len(x.Parts) != 64 {
		t.Errorf("an index of 64 parts, in %d bytes, is not read", len(raw))
	}
	if _, ok := evicted.Decode(append(raw, bytes.Repeat([]byte(" "), 16<<10)...), 64); ok {
		t.Error("an index with 16 KiB more is read")
	}
	bomb := []byte(`{"parts":[{}` + strings.Repeat(",{}", 1<<20) + `]}`)
	if _, ok := evicted.Decode(bomb, 2); ok {
		t.Error("an index of a million parts is read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("a\nb\n"), 5, int64(1), int64(2), int64(0), int64(0), true)
	f.Add([]byte("aé🦀"), 4, int64(0), int64(0), int64(2), int64(1), false)
	f.Add([]byte("\xff\x80\x80\x80\x80\n"), 3, int64(2), int64(-1), int64(3), int64(1<<62), false)
	f.Add([]byte("\n\n\n"), 1, int64(1<<62), int64(1<<62), int64(-5), int64(-5), true)
	f.Fuzz(func(t *testing.T, data []byte, limit int, from, lines, at, n int64, byLines bool) {
		if len(data) == 0 || limit < 1 || len(data)/limit > 64 { // more parts than a result may have take long
			return
		}
		x, load := stored(data, limit)
		r := evicted.Range{From: from, Lines: lines}
		if !byLines {
			r = evicted.Range{Offset: &at, Bytes: n}
		}
		page, err := x.Read(r, load)
		if err != nil {
			if outside := (*evicted.OutsideError)(nil); !errors.As(err, &outside) {
				t.Fatal(err)
			}
			if byLines && from <= x.Lines || !byLines && at >= 0 && at < int64(len(data)) {
				t.Fatalf("%+v of %d bytes: %v", r, len(data), err)
			}
			return
		}
		if page.Start < 0 || page.End > int64(len(data)) || page.Start >= page.End || !bytes.Equal(page.Text, data[page.Start:page.End]) {
			t.Fatalf("page %d to %d is not that of the %d bytes", page.Start, page.End, len(data))
		}
		if len(page.Text) > evicted.MaxRead+utf8.UTFMax || utf8.Valid(data) && !utf8.Valid(page.Text) {
			t.Fatalf("a page of %d bytes is %q", len(page.Text), page.Text)
		}
		switch {
		case byLines:
			if page.First != max(from, 1) || page.Last < page.First || lines > 0 && page.Last-page.First >= lines {
				t.Fatalf("%+v gives lines %d to %d", r, page.First, page.Last)
			}
			if before := int64(bytes.Count(data[:page.Start], []byte{'\n'})); before != page.First-1 {
				t.Fatalf("line %d begins after %d line breaks", page.First, before)
			}
		case page.Start > at || at-page.Start >= utf8.UTFMax:
			t.Fatalf("the page for %d begins at %d", at, page.Start)
		}
	})
}
