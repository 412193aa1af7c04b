package session_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

// oracle performs operations on decoded values in the simplest way.
func oracle(t rapid.TB, state map[string]any, w session.Writes) bool {
	for _, op := range w.Ops {
		switch op.Kind {
		case session.OpDelete:
			delete(state, op.Key)
		case session.OpReplace:
			state[op.Key] = decoded(t, op.Value)
		case session.OpAppend:
			if len(op.Items) == 0 {
				continue
			}
			list, isList := state[op.Key].([]any)
			if _, exists := state[op.Key]; exists && !isList {
				return false
			}
			list = append([]any{}, list...)
			for _, item := range op.Items {
				list = append(list, decoded(t, item))
			}
			state[op.Key] = list
		}
	}
	return true
}

func TestApplyIsAtomicAndRight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := genDocument().Draw(t, "document")
		w := genWrites().Draw(t, "writes")
		before := marshal(t, d)
		want := decoded(t, before).(map[string]any)
		possible := oracle(t, want, w)
		switch err := d.Apply(w); {
		case possible && err != nil:
			t.Fatalf("refused: %v", err)
		case !possible && !errors.Is(err, session.ErrInvalid):
			t.Fatalf("got %v, want a refusal", err)
		case !possible:
			sameJSON(t, "a refused write changed the document", marshal(t, d), before)
		case !reflect.DeepEqual(decoded(t, marshal(t, d)), any(want)):
			t.Fatalf("got %s, want %v", marshal(t, d), want)
		}
	})
}

func TestComposeDoesWhatItsPartsDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := genDocument().Draw(t, "document")
		parts := rapid.SliceOfN(genWrites(), 1, 4).Draw(t, "parts")
		composed := session.Compose(parts...)

		seen := map[string]bool{}
		for _, op := range composed.Ops {
			if seen[op.Key] {
				t.Fatalf("two operations on key %q", op.Key)
			}
			seen[op.Key] = true
		}
		one := base.Clone()
		for _, part := range parts {
			if one.Apply(part) != nil {
				return // operations that fail one by one have no result to compare with
			}
		}
		all := base.Clone()
		if err := all.Apply(composed); err != nil {
			t.Fatalf("the composition was refused: %v", err)
		}
		sameJSON(t, "composed and one after the other", marshal(t, &all), marshal(t, &one))
	})
}

func TestComposeIsAssociative(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := genWrites().Draw(t, "a"), genWrites().Draw(t, "b"), genWrites().Draw(t, "c")
		left := session.Compose(session.Compose(a, b), c)
		right := session.Compose(a, session.Compose(b, c))
		base := session.CustomState{}
		l, r := base.Clone(), base.Clone()
		if l.Apply(left) != nil || r.Apply(right) != nil {
			return
		}
		sameJSON(t, "grouped to the left and to the right", marshal(t, &l), marshal(t, &r))
	})
}

func TestComposeLeavesItsPartsAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(genWrites(), 1, 4).Draw(t, "parts")
		before := encode(parts)
		session.Compose(parts...)
		sameJSON(t, "the parts after composing", encode(parts), before)
	})
}

func appendOp(key string, items ...string) session.Op {
	op := session.Op{Kind: session.OpAppend, Key: key}
	for _, item := range items {
		op.Items = append(op.Items, json.RawMessage(item))
	}
	return op
}

func replaceOp(key, value string) session.Op {
	return session.Op{Kind: session.OpReplace, Key: key, Value: json.RawMessage(value)}
}

func deleteOp(key string) session.Op { return session.Op{Kind: session.OpDelete, Key: key} }

func writes(ops ...session.Op) session.Writes { return session.Writes{Ops: ops} }

func TestComposeTable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		parts    []session.Writes
		want     []session.Op
		warnings int
	}{
		{"nothing", nil, nil, 0},
		{"appends in call order", []session.Writes{writes(appendOp("k", "1", "2")), writes(appendOp("k", "3"))}, []session.Op{appendOp("k", "1", "2", "3")}, 0},
		{"an append of nothing", []session.Writes{writes(appendOp("k"))}, nil, 0},
		{"the last replace wins and warns", []session.Writes{writes(replaceOp("k", "1")), writes(replaceOp("k", "2"))}, []session.Op{replaceOp("k", "2")}, 1},
		{"the same replace twice", []session.Writes{writes(replaceOp("k", "1")), writes(replaceOp("k", "1"))}, []session.Op{replaceOp("k", "1")}, 0},
		{"one part may overwrite itself", []session.Writes{writes(replaceOp("k", "1"), replaceOp("k", "2"))}, []session.Op{replaceOp("k", "2")}, 0},
		{"a delete over a replace", []session.Writes{writes(replaceOp("k", "1")), writes(deleteOp("k"))}, []session.Op{deleteOp("k")}, 1},
		{"a delete over a delete", []session.Writes{writes(deleteOp("k")), writes(deleteOp("k"))}, []session.Op{deleteOp("k")}, 0},
		{"a replace over an append", []session.Writes{writes(appendOp("k", "1")), writes(replaceOp("k", "[]"))}, []session.Op{replaceOp("k", "[]")}, 1},
		{"a replace over another's append and its own", []session.Writes{writes(appendOp("k", "1")), writes(appendOp("k", "2"), replaceOp("k", "[]"))}, []session.Op{replaceOp("k", "[]")}, 1},
		{"an append to a replaced list", []session.Writes{writes(replaceOp("k", "[1]")), writes(appendOp("k", "2"))}, []session.Op{replaceOp("k", "[1,2]")}, 0},
		{"an append after a delete", []session.Writes{writes(deleteOp("k")), writes(appendOp("k", "2"))}, []session.Op{replaceOp("k", "[2]")}, 0},
		{"an append to what is no list", []session.Writes{writes(replaceOp("k", "5")), writes(appendOp("k", "2"))}, []session.Op{replaceOp("k", "[2]")}, 1},
		{"keys keep the order of their first write", []session.Writes{writes(replaceOp("b", "1"), replaceOp("a", "1")), writes(replaceOp("c", "1"))}, []session.Op{replaceOp("b", "1"), replaceOp("a", "1"), replaceOp("c", "1")}, 0},
		{"warnings of parts are kept", []session.Writes{{Warnings: []string{"w"}}, {Warnings: []string{"v"}}}, nil, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := session.Compose(test.parts...)
			if string(encode(got.Ops)) != string(encode(test.want)) {
				t.Errorf("got %s, want %s", encode(got.Ops), encode(test.want))
			}
			if len(got.Warnings) != test.warnings {
				t.Errorf("got warnings %q, want %d", got.Warnings, test.warnings)
			}
		})
	}
}

func TestWritesCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		writes session.Writes
		want   string // part of the message; empty when it is fine
	}{
		"fine":              {writes(appendOp("k", "1"), replaceOp("k", "null"), deleteOp("k")), ""},
		"an empty key":      {writes(deleteOp("")), "must not be empty"},
		"a broken value":    {writes(replaceOp("k", "{")), `"k"`},
		"no value":          {writes(replaceOp("k", "")), `"k"`},
		"a broken item":     {writes(appendOp("k", "1", "x")), "item 1"},
		"an unknown action": {writes(session.Op{Kind: "upsert", Key: "k"}), "upsert"},
	} {
		err := test.writes.Check()
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestDocumentCloneIsIndependent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := genDocument().Draw(t, "document")
		_ = d.Apply(genWrites().Draw(t, "before"))
		clone := d.Clone()
		was := marshal(t, &clone)
		_ = d.Apply(genWrites().Draw(t, "original"))
		sameJSON(t, "the clone after a write to the original", marshal(t, &clone), was)
		now := marshal(t, d)
		_ = clone.Apply(genWrites().Draw(t, "clone"))
		sameJSON(t, "the original after a write to the clone", marshal(t, d), now)
	})
}

func TestDocumentKeepsBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := genDocument().Draw(t, "document")
		again, err := session.ParseCustomState(marshal(t, d))
		if err != nil {
			t.Fatal(err)
		}
		if again.Len() != d.Len() {
			t.Fatalf("%d keys became %d", d.Len(), again.Len())
		}
		for key, value := range d.All() {
			if string(again.Get(key)) != string(value) {
				t.Fatalf("key %q: %s became %s", key, value, again.Get(key))
			}
		}
	})
}

func TestDocumentOfRefusesWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{``, `[]`, `1`, `"x"`, `{`, `{"a":}`} {
		if _, err := session.ParseCustomState(json.RawMessage(raw)); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%q: got %v", raw, err)
		}
	}
}
