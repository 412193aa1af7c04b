package session

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// Diff returns the operations that turn before into after. A list that only grew
// becomes an append, so that parallel writes to one list compose.
func Diff(before, after *CustomState) Writes {
	var w Writes
	for _, key := range slices.Sorted(maps.Keys(before.keys)) {
		if !after.Has(key) {
			w.Ops = append(w.Ops, Op{Kind: OpDelete, Key: key})
		}
	}
	for key, now := range after.All() {
		was := before.Get(key)
		switch {
		case was == nil:
			w.Ops = append(w.Ops, Op{Kind: OpReplace, Key: key, Value: now})
		case bytes.Equal(was, now):
		default:
			if op, changed := diffValue(key, was, now); changed {
				w.Ops = append(w.Ops, op)
			}
		}
	}
	return w
}

func diffValue(key string, was, now json.RawMessage) (Op, bool) {
	replace := Op{Kind: OpReplace, Key: key, Value: now}
	if !IsList(was) || !IsList(now) {
		return replace, !sameJSON(was, now)
	}
	var a, b []json.RawMessage
	if json.Unmarshal(was, &a) != nil || json.Unmarshal(now, &b) != nil {
		return replace, true
	}
	if len(b) < len(a) {
		return replace, true
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) && !sameJSON(a[i], b[i]) {
			return replace, true
		}
	}
	return Op{Kind: OpAppend, Key: key, Items: b[len(a):]}, len(b) > len(a)
}

// sameJSON compares two values as JSON, ignoring whitespace. Numbers are compared
// as text, because some readers distinguish 1 from 1.0.
func sameJSON(a, b json.RawMessage) bool {
	var ca, cb bytes.Buffer
	if json.Compact(&ca, a) != nil || json.Compact(&cb, b) != nil {
		return false
	}
	if bytes.Equal(ca.Bytes(), cb.Bytes()) {
		return true
	}
	na, errA := canonical(a)
	nb, errB := canonical(b)
	return errA == nil && errB == nil && bytes.Equal(na, nb)
}

// canonical orders object keys by decoding and encoding once.
func canonical(raw json.RawMessage) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
