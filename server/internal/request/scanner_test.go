package request_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/server/internal/request"
	"github.com/helixagents/helix/session"
)

// texts are JSON and what looks like it.
var texts = []string{
	`{}`, `[]`, ` { } `, `[ ]`, `null`, `true`, `false`, `"a"`, `0`, `-0`, `12.5e-3`, `1E+9`, `{"a":[1,{"b":null}],"c":""}`,
	`"\u00e9\n\"\\\/"`, `"é"`, "\"\xff\"", `[[[[]]]]`, "\t[\r\n1 , 2 ]",
	``, ` `, `{`, `[`, `}`, `]`, `{]`, `[}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[1,]`, `[,]`, `[1 2]`, `{"a":1 "b":2}`, `{a:1}`, `{"a"=1}`,
	`01`, `1.`, `.5`, `+1`, `1e`, `1e+`, `--1`, `-`, `nul`, `nulll`, `True`, `"`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", `1 1`, `{} {}`, `tru`, `NaN`,
}

// deep are values that are nested as deep as may be, and deeper.
var deep = []string{
	strings.Repeat(`[`, 10_000) + strings.Repeat(`]`, 10_000), strings.Repeat(`[`, 10_001) + strings.Repeat(`]`, 10_001),
	strings.Repeat(`{"a":`, 10_000) + `1` + strings.Repeat(`}`, 10_000), strings.Repeat(`{"a":`, 10_001) + `1` + strings.Repeat(`}`, 10_001),
}

// skips reports whether the scanner takes all of data for one value.
func skips(data []byte) bool {
	s := request.NewScanner(data)
	return s.Skip() == nil && s.End() == nil
}

// What is JSON is what encoding/json says is.
func TestSkip(t *testing.T) {
	t.Parallel()
	for _, text := range slices.Concat(texts, deep) {
		if got, want := skips([]byte(text)), json.Valid([]byte(text)); got != want {
			t.Errorf("%.60q is valid: %v, not %v", text, got, want)
		}
	}
}

func FuzzScanner(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := skips(data), json.Valid(data); got != want {
			t.Errorf("%q is valid: %v, not %v", data, got, want)
		}
		var want string
		got, err := request.NewScanner(data).AnyText()
		if wrong := json.Unmarshal(data, &want); wrong == nil && (err != nil || got != want) {
			t.Errorf("%q is read as %q, %v, not as %q", data, got, err, want)
		}
		s := request.NewScanner(data)
		count := 0
		_ = s.List(3, func(int) error { count++; return nil }) // whatever it says, it looks at no more
		if count > 3 || s.Entries() > 3 {
			t.Errorf("%d of 3 elements are read, or %d", count, s.Entries())
		}
	})
}

// fieldOf is the field of an error that refuses a body.
func fieldOf(t *testing.T, err error) string {
	t.Helper()
	var refused *session.Error
	if !errors.As(err, &refused) {
		t.Fatalf("got %v", err)
	}
	return refused.Field
}

// body is read by a decoder as they all are.
type body struct {
	Name  string
	Flag  bool
	Count int
	At    time.Time
	Tags  []string
	Meta  map[string]string
	Any   json.RawMessage
	Items []string
}

func (b *body) read(s *request.Scanner) error {
	if err := s.Object(); err != nil {
		return err
	}
	err := s.Fields([]string{"name", "flag", "count", "at", "tags", "metadata", "any", "items"}, false, func(name string) (err error) {
		switch name {
		case "name":
			b.Name, err = s.ID()
		case "flag":
			b.Flag, err = s.Bool()
		case "count":
			b.Count, err = s.Int()
		case "at":
			b.At, err = s.Time()
		case "tags":
			b.Tags, err = s.Tags(2)
		case "metadata":
			b.Meta, err = s.Metadata(2)
		case "any":
			b.Any, err = s.Bounded(20, 4)
		case "items":
			err = s.List(2, func(int) error {
				return s.Fields([]string{"text"}, false, func(string) error {
					text, err := s.Text(5)
					b.Items = append(b.Items, text)
					return err
				})
			})
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.End()
}

func TestRead(t *testing.T) {
	t.Parallel()
	var b body
	err := b.read(request.NewScanner([]byte(` {"name":"a\u00e9","flag":true,"count":-7,"at":"2026-01-02T03:04:05Z","tags":["x","y"],
		"metadata":{"k":"v","l":""},"any":[1, {"a":2}],"items":[{"text":"one"},{"te\u0078t":"two"}]} `)))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.TrimSpace(fmt.Sprintln(b.Name, b.Flag, b.Count, b.At.Format(time.RFC3339), b.Tags, b.Meta, string(b.Any), b.Items))
	if want := `aé true -7 2026-01-02T03:04:05Z [x y] map[k:v l:] [1, {"a":2}] [one two]`; got != want {
		t.Errorf("read as\n%s\nwant\n%s", got, want)
	}
	b = body{}
	if err := b.read(request.NewScanner([]byte(`{"name":null,"flag":null,"at":null,"tags":null,"metadata":null,"items":[null]}`))); err != nil {
		t.Errorf("null is not taken for nothing: %v", err)
	}
}

// Refusals name what is wrong, and say the limit where there is one.
func TestRefusals(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	for _, c := range []struct{ body, field, says string }{
		{``, "body", "JSON object"},
		{`[]`, "body", "JSON object"},
		{`{} x`, "body", "trailing data"},
		{`{"name":"x"`, "body", "ends too early"},
		{`{"other":1}`, "other", "is not a field"},
		{`{"Name":"x"}`, "Name", "is not a field"},
		{`{"":1}`, "body", "without a name"},
		{`{"` + long + `":1}`, strings.Repeat("x", 80) + "…", "is not a field"},
		{`{"name":"a","name":"b"}`, "name", "twice"},
		{`{"name":"a","n\u0061me":"b"}`, "name", "twice"},
		{`{"name":7}`, "name", "must be a string, not a number"},
		{`{"name":"` + long + `"}`, "name", "at most 256"},
		{`{"flag":"x"}`, "flag", "must be true or false, not a string"},
		{`{"count":1.5}`, "count", "must be a whole number"},
		{`{"count":[]}`, "count", "must be a whole number, not a list"},
		{`{"count":99999999999999999999}`, "count", "must be a whole number"},
		{`{"at":"soon"}`, "at", "is not a time"},
		{`{"at":"9999-12-31T23:59:59-23:59"}`, "at", "2261"},
		{`{"tags":{}}`, "tags", "must be a list, not an object"},
		{`{"tags":["a","b","c"]}`, "tags", "more than 2 entries"},
		{`{"tags":["a",""]}`, "tags[1]", "1 to 256 bytes"},
		{`{"metadata":{"a":"","b":"","c":""}}`, "metadata", "more than 2 entries"},
		{`{"metadata":{"a":"","a":""}}`, "metadata.a", "twice"},
		{`{"metadata":{"":""}}`, "metadata", "without a name"},
		{`{"metadata":{"a":1}}`, "metadata.a", "must be a string"},
		{`{"metadata":{"a":"` + long + `"}}`, "metadata.a", "at most 4096"},
		{`{"metadata":{"a":"\u0000"}}`, "metadata.a", "zero byte"},
		{`{"any":"` + long + `"}`, "any", "at most 20"},
		{`{"any":[1,2,3,4]}`, "any", "more than 4 values"},
		{`{"any":"` + "\xff" + `"}`, "any", "UTF-8"},
		{`{"items":[{},{"text":"too long"}]}`, "items[1].text", "at most 5"},
		{`{"items":[{},{"url":1}]}`, "items[1].url", "is not a field"},
		{`{"items":[{},{},{}]}`, "items", "more than 2 entries"},
		{`{"items":[7]}`, "items[0]", "must be an object, not a number"},
		{`{"any":nope}`, "body", "not valid JSON"},
	} {
		err := new(body).read(request.NewScanner([]byte(c.body)))
		if err == nil {
			t.Errorf("%.60s is read", c.body)
		} else if field := fieldOf(t, err); field != c.field || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60s is refused with the field %q: %v", c.body, field, err)
		}
	}
}

// However much a body holds, no more of it is looked at than the limit allows.
func TestLimitsEndReading(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"tags":     `{"tags":[` + strings.Repeat(`"a",`, 100_000) + `"b"]}`,
		"metadata": `{"metadata":{` + strings.Repeat(`"a":"",`, 100_000) + `"b":""}}`,
		"items":    `{"items":[` + strings.Repeat(`{},`, 100_000) + `{}]}`,
	} {
		s := request.NewScanner([]byte(text))
		err := new(body).read(s)
		if field, _, _ := strings.Cut(fieldOf(t, err), "."); field != name || s.Entries() > 1+2+1 {
			t.Errorf("%s: %v after %d entries", name, err, s.Entries())
		}
	}
}

// Skipping builds nothing.
func TestSkipAllocatesNothing(t *testing.T) {
	text := []byte(`[` + strings.Repeat(`{"role":"user","parts":[{},"\u00e9"]},`, 10_000) + `{}]`)
	if n := testing.AllocsPerRun(5, func() {
		if !skips(text) {
			t.Error("it is refused")
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func TestCheckFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url, media, name string
		remote           bool
		field            string
	}{
		{"data:image/png;base64,AA==", "image/png", "a.png", false, ""},
		{"DATA:,x", "text/plain", "", false, ""},
		{"https://example.com/a.png?x=1", "image/png", "", true, ""},
		{"HTTPS://example.com", "image/png", "", true, ""},
		{"https://example.com/a.png", "image/png", "", false, "p.url"},
		{"http://169.254.169.254/latest", "image/png", "", true, "p.url"},
		{"file:///etc/passwd", "image/png", "", true, "p.url"},
		{"gs://bucket/file", "image/png", "", true, "p.url"},
		{"https://user:secret@example.com/", "image/png", "", true, "p.url"},
		{"https://user@example.com/", "image/png", "", true, "p.url"},
		{"https:example.com", "image/png", "", true, "p.url"},
		{"https:///etc", "image/png", "", true, "p.url"},
		{"https://a b/", "image/png", "", true, "p.url"},
		{"data", "image/png", "", true, "p.url"},
		{"", "image/png", "", true, "p.url"},
		{"//example.com/a.png", "image/png", "", true, "p.url"},
		{"https://example.com/" + strings.Repeat("x", 8<<10), "image/png", "", true, "p.url"},
		{"data:," + strings.Repeat("x", 1<<20), "image/png", "", true, ""},
		{"data:,\x00", "image/png", "", true, "p.url"},
		{"data:,x", "", "", true, "p.mediaType"},
		{"data:,x", "image/png\n", "", true, "p.mediaType"},
		{"data:,x", strings.Repeat("x", 257), "", true, "p.mediaType"},
		{"data:,x", "image/png", strings.Repeat("x", 1025), true, "p.filename"},
		{"data:,x", "image/png", "a\x1b[2J", true, "p.filename"},
	} {
		err := request.CheckFile("p", c.url, c.media, c.name, c.remote)
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%.60s is refused: %v", c.url, err)
		case c.field != "" && (err == nil || fieldOf(t, err) != c.field):
			t.Errorf("%.60s %.20q %.20q: got %v, want an error about %s", c.url, c.media, c.name, err, c.field)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("the error tells the password: %v", err)
		}
	}
}
