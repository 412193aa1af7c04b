package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestAmbiguous(t *testing.T) {
	t.Parallel()
	many := func(keys ...string) string {
		for i := range 40 {
			keys = append(keys, fmt.Sprintf(`"k%d"`, i))
		}
		return "{" + strings.Join(keys, ":1,") + ":1}"
	}
	for input, want := range map[string]string{
		`{}`: "", `[]`: "", `null`: "", ` "a" `: "", `-1.5e3`: "",
		`{"amount":5,"Amount":6}`:                    "",
		`{"a":{"b":1},"b":{"a":1}}`:                  "",
		`[{"a":1},{"a":2}]`:                          "",
		`{"a":"{\"b\":1,\"b\":2}"}`:                  "",
		`{"a":"\ud83d\ude00 \\ud800 \"","b":[ ] }`:   "",
		`{"":1,"a":2}`:                               "",
		many():                                       "",
		`{"amount":5000,"amount":5}`:                 `the argument "amount" is given twice`,
		`{"amount":5000,"am\u006funt":5}`:            `the argument "amount" is given twice`,
		`{"a\"b":1,"a\u0022b":1}`:                    `the argument "a\"b" is given twice`,
		`{"order":{"amount":5000,"amount":5}}`:       `the argument "order.amount" is given twice`,
		`{"rows":[1,{"a":1},{"a":{"b":1,"b":2}}]}`:   `the argument "rows[2].a.b" is given twice`,
		`{"a" : {"x":[[]]} , "b":true, "a" : null }`: `the argument "a" is given twice`,
		`{"":1,"":2}`:                                `the argument "" is given twice`,
		many(`"k39"`):                                `the argument "k39" is given twice`,
		many(`"k\u0033"`):                            `the argument "k3" is given twice`,
		`{"a":"\ud800"}`:                             `the argument "a" holds half of a surrogate pair`,
		`{"a":["x","\udc00\ud800"]}`:                 `the argument "a[1]" holds half of a surrogate pair`,
		`{"a":"\ud83dx\ude00"}`:                      `the argument "a" holds half of a surrogate pair`,
		`{"a":"\ud83d\u0041"}`:                       `the argument "a" holds half of a surrogate pair`,
		`{"o":{"\uDC00":1}}`:                         `the argument "o" has a key with half of a surrogate pair`,
		`"\ud800"`:                                   "it holds half of a surrogate pair",
	} {
		if !json.Valid([]byte(input)) {
			t.Fatalf("%s is not JSON", input)
		}
		got := ""
		if err := ambiguous([]byte(input)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", input, got, want)
		}
	}
}

// Every key that is given twice is found, and no other.
func FuzzAmbiguous(f *testing.F) {
	f.Fuzz(func(t *testing.T, input []byte) {
		if !json.Valid(input) {
			return
		}
		err := ambiguous(input)
		if err != nil && !strings.HasSuffix(err.Error(), "twice") {
			return // the decoder does not tell half of a pair from what it puts in its place
		}
		decoder := json.NewDecoder(bytes.NewReader(input))
		decoder.UseNumber()
		twice, readErr := repeats(decoder)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			t.Fatalf("%q: %v", input, readErr)
		}
		if twice != (err != nil) {
			t.Errorf("%q: a key is given twice: %v; found: %v", input, twice, err)
		}
	})
}

// repeats reads a value token by token and reports whether an object in it has a key
// twice.
func repeats(decoder *json.Decoder) (bool, error) {
	token, err := decoder.Token()
	if err != nil {
		return false, err
	}
	found, keys := false, map[any]bool{}
	switch token {
	case json.Delim('{'), json.Delim('['):
		for decoder.More() {
			if token == json.Delim('{') {
				key, err := decoder.Token()
				if err != nil {
					return false, err
				}
				found = found || keys[key]
				keys[key] = true
			}
			below, err := repeats(decoder)
			if err != nil {
				return false, err
			}
			found = found || below
		}
		_, err = decoder.Token()
	}
	return found, err
}

func BenchmarkAmbiguous(b *testing.B) {
	input := []byte(`{"id":"7","amount":50,"reason":"damaged in transit","lines":[{"sku":"a-1","count":2},{"sku":"b-2","count":1}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := ambiguous(input); err != nil {
			b.Fatal(err)
		}
	}
}
