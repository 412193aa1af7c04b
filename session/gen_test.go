package session_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

// The generators of the property tests. They use few keys, so that operations
// collide, and unusual ones, so that escaping is tested.

var (
	keys = []string{"a", "b", "notes", "a/b", "~", "~1", "m~n/0", "", " ", "日本", "\"quoted\"", "<&>", "null", "-", "0"}
	// topKeys excludes the empty key, which custom state does not allow.
	topKeys = []string{"a", "b", "notes", "a/b", "~0", "~1/~", "日本", "<\"&\n>", "-", "0"}
	texts   = []string{"", "x", "plain text", "日本語 🧭", "a\nb\t\"c\"\\", "<b>&amp;</b>", "\u2028\u2029\u0000\u001f", "null", "{}"}
)

func genText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom(texts), rapid.String())
}

// genValue generates any JSON value, nested at most depth deep.
func genValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return json.Number(rapid.SampledFrom([]string{"0", "-1", "1.5", "1e3", "12345678901234567890", "1.0"}).Draw(t, "number"))
		case 3:
			return genText().Draw(t, "text")
		case 4:
			list := rapid.SliceOfN(genValue(depth-1), 0, 4).Draw(t, "list")
			if list == nil {
				list = []any{}
			}
			return list
		default:
			object := map[string]any{}
			for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 4, rapid.ID).Draw(t, "keys") {
				object[key] = genValue(depth-1).Draw(t, "value")
			}
			return object
		}
	})
}

// genRaw generates the JSON text of any value, with varying whitespace.
func genRaw() *rapid.Generator[json.RawMessage] {
	return rapid.Custom(func(t *rapid.T) json.RawMessage {
		return space(t, encode(genValue(3).Draw(t, "value")))
	})
}

func space(t *rapid.T, compact []byte) json.RawMessage {
	var out bytes.Buffer
	if rapid.Bool().Draw(t, "spaced") {
		if err := json.Indent(&out, compact, "", " "); err != nil {
			panic(err)
		}
		return out.Bytes()
	}
	return compact
}

func encode(v any) json.RawMessage {
	raw, err := session.Encode(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func genDocument() *rapid.Generator[*session.CustomState] {
	return rapid.Custom(func(t *rapid.T) *session.CustomState {
		d := &session.CustomState{}
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(topKeys), 0, 6, rapid.ID).Draw(t, "document") {
			d.Set(key, genRaw().Draw(t, "value"))
		}
		return d
	})
}

func genOp() *rapid.Generator[session.Op] {
	return rapid.Custom(func(t *rapid.T) session.Op {
		op := session.Op{Key: rapid.SampledFrom(topKeys[:5]).Draw(t, "key")}
		switch rapid.IntRange(0, 5).Draw(t, "op") {
		case 0:
			op.Kind = session.OpDelete
		case 1:
			op.Kind, op.Value = session.OpReplace, genRaw().Draw(t, "value")
		case 2: // a list, so that appends are possible
			op.Kind, op.Value = session.OpReplace, space(t, encode(rapid.SliceOfN(genValue(1), 1, 3).Draw(t, "list")))
		default:
			op.Kind, op.Items = session.OpAppend, rapid.SliceOfN(genRaw(), 0, 3).Draw(t, "items")
		}
		return op
	})
}

func genWrites() *rapid.Generator[session.Writes] {
	return rapid.Custom(func(t *rapid.T) session.Writes {
		return session.Writes{Ops: rapid.SliceOfN(genOp(), 0, 5).Draw(t, "ops")}
	})
}

// genExtra generates fields that no version of the program knows.
func genExtra() *rapid.Generator[session.Extra] {
	return rapid.Custom(func(t *rapid.T) session.Extra {
		extra := session.Extra{}
		for range rapid.IntRange(1, 3).Draw(t, "fields") {
			extra["x-"+genText().Draw(t, "name")] = encode(genValue(2).Draw(t, "value"))
		}
		return extra
	})
}

func genTime() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
	})
}

// decoded returns JSON as Go values, with numbers as written.
func decoded(t rapid.TB, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s is not JSON: %v", raw, err)
	}
	return v
}

// sameJSON fails the test if two texts are not the same JSON.
func sameJSON(t rapid.TB, what string, got, want []byte) {
	t.Helper()
	if a, b := decoded(t, got), decoded(t, want); !reflect.DeepEqual(a, b) {
		t.Fatalf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func marshal(t rapid.TB, d *session.CustomState) json.RawMessage {
	t.Helper()
	raw, err := d.MarshalJSON()
	if err != nil {
		t.Fatalf("encoding a document: %v", err)
	}
	return raw
}

// must returns a value and panics on an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("unexpected error: %v", err))
	}
	return v
}
