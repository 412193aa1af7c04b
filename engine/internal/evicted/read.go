package evicted

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxRead is how many bytes one read returns.
const MaxRead = 32 << 10

// Range is the part of a result to read: lines or bytes.
type Range struct {
	// From is the first line, from 1 on, and Lines how many; 0 is as many as fit.
	From, Lines int64
	// Offset, if set, is the first byte, from 0 on, and Bytes how many; 0 is as many as fit.
	Offset *int64
	Bytes  int64
}

// Page is a part of a result.
type Page struct {
	Text []byte
	// Start and End are the first byte and the byte behind the last.
	Start, End int64
	// First and Last are the first and the last line, if lines were asked for.
	First, Last int64
	// Cut is set if the last line goes on behind the page.
	Cut bool
}

// OutsideError is a range that begins behind the end of the result.
type OutsideError struct {
	Argument        string
	Given, Has      int64
	What, FirstIsAt string
}

func (e *OutsideError) Error() string {
	return fmt.Sprintf("%s is %d, but the result has %d %s, counted from %s", e.Argument, e.Given, e.Has, e.What, e.FirstIsAt)
}

// ErrIndex is a blob that looks like an index and does not fit what it names.
var ErrIndex = errors.New("the index does not fit its parts")

// Load returns the bytes of a part.
type Load func(part int) ([]byte, error)

// Read returns a part of a result, of at most [MaxRead] bytes and cut between runes. It
// loads no more parts than it needs.
func (x *Index) Read(r Range, load Load) (*Page, error) {
	checked := func(part int) ([]byte, error) {
		data, err := load(part)
		if err == nil && int64(len(data)) != x.Parts[part].Bytes {
			err = ErrIndex
		}
		return data, err
	}
	if r.Offset != nil {
		return x.readBytes(*r.Offset, r.Bytes, checked)
	}
	return x.readLines(max(r.From, 1), r.Lines, checked)
}

func (x *Index) readLines(from, lines int64, load Load) (*Page, error) {
	if from > x.Lines {
		return nil, &OutsideError{"from", from, x.Lines, "lines", "1"}
	}
	start, err := x.lineStart(from, load)
	if err != nil {
		return nil, err
	}
	text, err := x.window(start, MaxRead+1, load)
	if err != nil {
		return nil, err
	}
	ends := len(text) <= MaxRead // the result ends in the window
	text = text[:min(len(text), MaxRead)]
	end, count := 0, int64(0)
	for end < len(text) && (lines <= 0 || count < lines) {
		at := bytes.IndexByte(text[end:], '\n')
		if at < 0 && !ends {
			break
		}
		if at < 0 {
			at = len(text) - end - 1
		}
		end, count = end+at+1, count+1
	}
	page := &Page{Start: start, First: from, Last: from + max(count, 1) - 1}
	if count == 0 && len(text) > 0 { // the line alone is longer than a page
		end, page.Cut = runeEnd(text, len(text)), true
	}
	page.Text, page.End = text[:end], start+int64(end)
	return page, nil
}

func (x *Index) readBytes(offset, n int64, load Load) (*Page, error) {
	total := x.Bytes()
	if offset < 0 || offset >= total {
		return nil, &OutsideError{"offset", offset, total, "bytes", "0"}
	}
	if n <= 0 || n > MaxRead {
		n = MaxRead
	}
	before := min(offset, utf8.UTFMax-1)
	text, err := x.window(offset-before, before+n+utf8.UTFMax, load)
	if err != nil {
		return nil, err
	}
	start := int(before)
	for start > 0 && !utf8.RuneStart(text[start]) { // back to where the rune begins
		start--
	}
	offset, text = offset-before+int64(start), text[start:]
	end := min(int(n), len(text))
	if end < len(text) {
		end = runeEnd(text, end)
	}
	return &Page{Text: text[:end], Start: offset, End: offset + int64(end)}, nil
}

// runeEnd returns the last place at or before end at which a rune ends. If not even the first
// rune ends there, it is the end of that.
func runeEnd(text []byte, end int) int {
	at := end
	for at > 0 && at > end-utf8.UTFMax && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	if at == len(text) { // whether the last rune is complete decides
		for back := 1; back < utf8.UTFMax && back <= at; back++ {
			if utf8.RuneStart(text[at-back]) {
				if !utf8.FullRune(text[at-back:]) {
					at -= back
				}
				break
			}
		}
	}
	if at <= 0 {
		_, at = utf8.DecodeRune(text)
	}
	return at
}

// lineStart returns where a line begins.
func (x *Index) lineStart(line int64, load Load) (int64, error) {
	before, base := line-1, int64(0) // line breaks
	if before == 0 {
		return 0, nil
	}
	for i := range x.Parts {
		p := &x.Parts[i]
		if before > p.Newlines {
			before -= p.Newlines
			base += p.Bytes
			continue
		}
		data, err := load(i)
		if err != nil {
			return 0, err
		}
		at := 0
		for range before {
			next := bytes.IndexByte(data[at:], '\n')
			if next < 0 {
				return 0, ErrIndex
			}
			at += next + 1
		}
		return base + int64(at), nil
	}
	return 0, ErrIndex
}

// window returns at most n bytes from start on.
func (x *Index) window(start, n int64, load Load) ([]byte, error) {
	var out []byte
	base := int64(0)
	for i := range x.Parts {
		size := x.Parts[i].Bytes
		from, to := max(start-base, 0), min(start+n-base, size)
		base += size
		if from >= to {
			continue
		}
		data, err := load(i)
		if err != nil {
			return nil, err
		}
		out = append(out, data[from:to]...)
	}
	return out, nil
}
