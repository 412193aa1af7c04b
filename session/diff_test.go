package session_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

// genChanged generates a document that resembles another: some keys are equal,
// some changed, removed or new, and some lists have grown.
func genChanged(before *session.CustomState) *rapid.Generator[*session.CustomState] {
	return rapid.Custom(func(t *rapid.T) *session.CustomState {
		after := before.Clone()
		_ = after.Apply(genWrites().Draw(t, "change"))
		for key, value := range before.All() {
			if rapid.Bool().Draw(t, "respace") {
				after.Set(key, space(t, encode(decodeAny(value))))
			}
		}
		return &after
	})
}

func decodeAny(raw json.RawMessage) any {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		panic(err)
	}
	return v
}

func TestDiffLeadsFromBeforeToAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := genDocument().Draw(t, "before")
		after := rapid.OneOf(genChanged(before), genDocument()).Draw(t, "after")
		w := session.Diff(before, after)
		got := before.Clone()
		if err := got.Apply(w); err != nil {
			t.Fatalf("the difference cannot be applied: %v", err)
		}
		sameJSON(t, "before with the difference", marshal(t, &got), marshal(t, after))
		if again := session.Diff(&got, after); !again.Empty() {
			t.Fatalf("there is still a difference: %s", encode(again))
		}
	})
}

func TestDiffOfGrowthIsAppend(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(genValue(2), 0, 5).Draw(t, "list")
		more := rapid.SliceOfN(genValue(2), 1, 5).Draw(t, "more")
		var before, after session.CustomState
		before.Set("k", space(t, encode(append([]any{}, list...))))
		after.Set("k", space(t, encode(append(append([]any{}, list...), more...))))
		w := session.Diff(&before, &after)
		if len(w.Ops) != 1 || w.Ops[0].Kind != session.OpAppend || len(w.Ops[0].Items) != len(more) {
			t.Fatalf("got %s, want an append of %d items", encode(w), len(more))
		}
	})
}

func TestDiffTable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, before, after, want string }{
		{"nothing", `{}`, `{}`, `null`},
		{"spacing and key order", `{"a":{"x":1,"y":2}}`, `{"a": {"y":2, "x":1}}`, `null`},
		{"a new key", `{}`, `{"a":null}`, `[{"kind":"replace","key":"a","value":null}]`},
		{"a new list", `{}`, `{"a":[1]}`, `[{"kind":"replace","key":"a","value":[1]}]`},
		{"a removed key", `{"a":null}`, `{}`, `[{"kind":"delete","key":"a"}]`},
		{"null to a value", `{"a":null}`, `{"a":0}`, `[{"kind":"replace","key":"a","value":0}]`},
		{"a list that shrank", `{"a":[1,2]}`, `{"a":[1]}`, `[{"kind":"replace","key":"a","value":[1]}]`},
		{"a list that changed", `{"a":[1,2]}`, `{"a":[3,2,1]}`, `[{"kind":"replace","key":"a","value":[3,2,1]}]`},
		{"numbers as written", `{"a":1}`, `{"a":1.0}`, `[{"kind":"replace","key":"a","value":1.0}]`},
	} {
		before, after := must(session.ParseCustomState(json.RawMessage(test.before))), must(session.ParseCustomState(json.RawMessage(test.after)))
		if got := encode(session.Diff(&before, &after).Ops); string(got) != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

func TestPatchesLeadFromBeforeToAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := genDocument().Draw(t, "before")
		w := genWrites().Draw(t, "writes")
		after := before.Clone()
		if after.Apply(w) != nil {
			return
		}
		patches := session.Patches(before, w)
		// A reader receives the patches as JSON.
		var read []session.Patch
		if err := json.Unmarshal(encode(patches), &read); err != nil {
			t.Fatal(err)
		}
		got, err := session.ApplyPatches(marshal(t, before), read)
		if err != nil {
			t.Fatalf("patches %s: %v", encode(patches), err)
		}
		sameJSON(t, "before with patches "+string(encode(patches)), got, marshal(t, &after))
	})
}

// The patches lead to after, whether they are applied to before, to after, or
// twice.
func TestResultPatchesMayBeRepeated(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := genDocument().Draw(t, "before")
		w := genWrites().Draw(t, "writes")
		after := before.Clone()
		if after.Apply(w) != nil {
			return
		}
		patches := session.ResultPatches(&after, w)
		for _, from := range []*session.CustomState{before, &after} {
			got, err := session.ApplyPatches(marshal(t, from), append(slices.Clone(patches), patches...))
			if err != nil {
				t.Fatalf("patches %s: %v", encode(patches), err)
			}
			sameJSON(t, "with patches "+string(encode(patches)), got, marshal(t, &after))
		}
	})
}

func TestPatchesOfADifference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := genDocument().Draw(t, "before")
		after := rapid.OneOf(genChanged(before), genDocument()).Draw(t, "after")
		patches := session.Patches(before, session.Diff(before, after))
		got, err := session.ApplyPatches(marshal(t, before), patches)
		if err != nil {
			t.Fatalf("patches %s: %v", encode(patches), err)
		}
		sameJSON(t, "before with patches", got, marshal(t, after))
	})
}

func TestPatchesTable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, before string
		writes       session.Writes
		want         string
	}{
		{"an append", `{"a":[1]}`, writes(appendOp("a", "2", "null")), `[{"op":"add","path":"/a/-","value":2},{"op":"add","path":"/a/-","value":null}]`},
		{"an append to nothing", `{}`, writes(appendOp("a", "2")), `[{"op":"add","path":"/a","value":[2]}]`},
		{"an append of nothing", `{}`, writes(appendOp("a")), `null`},
		{"inside an object", `{"a":{"x":1,"y":{"z":2},"w":3}}`, writes(replaceOp("a", `{"x":1,"y":{"z":null},"v":4}`)), `[{"op":"remove","path":"/a/w"},{"op":"add","path":"/a/v","value":4},{"op":"replace","path":"/a/y/z","value":null}]`},
		{"keys are escaped", `{}`, writes(replaceOp("m~n/o", "1")), `[{"op":"add","path":"/m~0n~1o","value":1}]`},
		{"a delete of nothing", `{}`, writes(deleteOp("a")), `null`},
		{"a replace by the same", `{"a":{"x":[1]}}`, writes(replaceOp("a", `{ "x": [1] }`)), `null`},
		{"several on one key", `{"a":[1]}`, writes(appendOp("a", "2"), replaceOp("a", "[1]")), `null`},
	} {
		before := must(session.ParseCustomState(json.RawMessage(test.before)))
		if got := encode(session.Patches(&before, test.writes)); string(got) != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

func TestApplyPatchesTable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ doc, patches, want string }{ // an empty want is a refusal
		{`{"a":[1,2,3]}`, `[{"op":"remove","path":"/a/1"}]`, `{"a":[1,3]}`},
		{`{"a":[1,2,3]}`, `[{"op":"add","path":"/a/1","value":9}]`, `{"a":[1,9,2,3]}`},
		{`{"a":[1,2,3]}`, `[{"op":"add","path":"/a/3","value":9}]`, `{"a":[1,2,3,9]}`},
		{`{"a":[1,2,3]}`, `[{"op":"replace","path":"/a/0","value":{"x":1}},{"op":"add","path":"/a/0/y","value":2}]`, `{"a":[{"x":1,"y":2},2,3]}`},
		{`{"":{"":1}}`, `[{"op":"replace","path":"//","value":2}]`, `{"":{"":2}}`},
		{`{}`, `[{"op":"add","path":"","value":[1]}]`, `[1]`},
		{`{"a":1}`, `[]`, `{"a":1}`},
		{`{"a":[1]}`, `[{"op":"remove","path":"/a/1"}]`, ``},
		{`{"a":[1]}`, `[{"op":"add","path":"/a/2","value":1}]`, ``},
		{`{"a":[1]}`, `[{"op":"add","path":"/a/x","value":1}]`, ``},
		{`{"a":[1]}`, `[{"op":"replace","path":"/a/-","value":1}]`, ``},
		{`{}`, `[{"op":"remove","path":"/a"}]`, ``},
		{`{}`, `[{"op":"replace","path":"/a","value":1}]`, ``},
		{`{}`, `[{"op":"add","path":"/a/b","value":1}]`, ``},
		{`{"a":1}`, `[{"op":"add","path":"/a/b","value":1}]`, ``},
		{`{"a":null}`, `[{"op":"add","path":"/a/b","value":1}]`, ``},
		{`null`, `[{"op":"add","path":"/a","value":1}]`, ``},
		{`{}`, `[{"op":"add","path":"a","value":1}]`, ``},
		{`{}`, `[{"op":"move","path":"/a","value":1}]`, ``},
		{`{"a":[]}`, `[{"op":"add","path":"/a/-"}]`, ``},
	} {
		var patches []session.Patch
		if err := json.Unmarshal([]byte(test.patches), &patches); err != nil {
			t.Fatal(err)
		}
		got, err := session.ApplyPatches(json.RawMessage(test.doc), patches)
		if test.want == "" {
			if !errors.Is(err, session.ErrInvalid) {
				t.Errorf("%s with %s: got %s, %v, want a refusal", test.doc, test.patches, got, err)
			}
			continue
		}
		if err != nil || string(got) != test.want {
			t.Errorf("%s with %s: got %s, %v, want %s", test.doc, test.patches, got, err, test.want)
		}
	}
}
