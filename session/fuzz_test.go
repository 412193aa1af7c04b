package session_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/helixagents/helix/session"
)

// FuzzDecode passes arbitrary bytes to every decoder of stored or received data:
// none may panic, and a document that was decoded once must keep its encoding from
// then on.
func FuzzDecode(f *testing.F) {
	for _, fixture := range fixtures(f) {
		f.Add(fixture.raw)
	}
	for _, seed := range []string{
		``, `null`, `{}`, `[]`, `{"v":2}`, `{"v":1,"parts":[null,{}]}`, `{"parts":[{"input":null,"error":{}}]}`,
		`{"a\u0062c":1,"ID":2,"id":"x"}`, `{"at":"9999-12-31T23:59:59-23:59"}`, `{"customState":null}`, `{"customState":{"":[ ]}}`,
		`[{"op":"add","path":"/a/-","value":1},{"op":"remove","path":""},{"op":"replace","path":"/0"}]`, "{\"\xff\":\"\xff\"}",
		`{"ops":[{"kind":"append","key":"a","items":[1,null]},{"kind":"replace","key":"a","value":{}}]}`,
	} {
		f.Add([]byte(seed))
	}
	kinds := slices.Sorted(maps.Keys(documents)) // a stable order keeps coverage stable
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range kinds {
			stable(t, kind, data, documents[kind])
		}
		document, err := session.ParseCustomState(data)
		if err != nil && !errors.Is(err, session.ErrInvalid) {
			t.Errorf("a document: %v", err)
		}
		if err == nil {
			marshal(t, &document)
		}
		var w session.Writes
		if json.Unmarshal(data, &w) == nil {
			before := document.Clone()
			patches := session.Patches(&before, w)
			if document.Apply(w) == nil {
				got, err := session.ApplyPatches(marshal(t, &before), patches)
				if err != nil {
					t.Errorf("patches of writes that can be applied: %v", err)
				} else {
					sameJSON(t, "patched", got, marshal(t, &document))
				}
			}
		}
		var patches []session.Patch
		if json.Unmarshal(data, &patches) == nil {
			for _, doc := range []string{`{}`, `{"a":[1,{"b":null}],"":{}}`, `[[]]`, `null`, `1`} {
				if got, err := session.ApplyPatches(json.RawMessage(doc), patches); err == nil && !json.Valid(got) {
					t.Errorf("%s with %s became %s", doc, data, got)
				}
			}
		}
		_, _, _ = session.PageRequest{Cursor: string(data)}.Position()
		_ = session.CheckID(string(data))
	})
}

// stable decodes data and, if that succeeds, requires the second encoding to equal
// the first. A time at the end of the supported range can be decoded but not
// encoded in UTC.
func stable(t *testing.T, name string, data []byte, makes func() any) {
	first := makes()
	if err := session.Decode(name, data, first); err != nil {
		if !errors.Is(err, session.ErrCorrupt) {
			t.Errorf("%s: %v is not typed", name, err)
		}
		return
	}
	once, err := session.Encode(first)
	if err != nil {
		return
	}
	second := makes()
	if err := session.Decode(name, once, second); err != nil {
		t.Fatalf("%s: %s was written as %s, which cannot be read: %v", name, data, once, err)
	}
	if twice, err := session.Encode(second); err != nil || string(twice) != string(once) {
		t.Fatalf("%s: %s became %s, then %s, %v", name, data, once, twice, err)
	}
}
