package session

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"
)

// CustomState is a session's custom state: JSON values under top-level keys. Items
// that were appended to a list are kept apart from its original value, so that the
// cost of an append depends only on the appended items.
//
// The zero value has no keys. A CustomState is not safe for concurrent writes;
// [CustomState.Clone] is cheap.
type CustomState struct {
	keys map[string]docValue
}

type docValue struct {
	raw   json.RawMessage
	items []json.RawMessage // appended to raw, which is then an array
}

// ParseCustomState decodes a JSON object.
func ParseCustomState(object json.RawMessage) (CustomState, error) {
	var d CustomState
	err := d.UnmarshalJSON(object)
	return d, err
}

// Len returns the number of keys.
func (d *CustomState) Len() int { return len(d.keys) }

// Has reports whether the key is set.
func (d *CustomState) Has(key string) bool { _, ok := d.keys[key]; return ok }

// Get returns the value under key, or nil.
func (d *CustomState) Get(key string) json.RawMessage {
	v, ok := d.keys[key]
	if !ok {
		return nil
	}
	return v.json()
}

// Set stores a JSON value under key.
func (d *CustomState) Set(key string, value json.RawMessage) {
	if d.keys == nil {
		d.keys = map[string]docValue{}
	}
	d.keys[key] = docValue{raw: value}
}

// All yields the keys in order with their values.
func (d *CustomState) All() iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for _, key := range slices.Sorted(maps.Keys(d.keys)) {
			if !yield(key, d.keys[key].json()) {
				return
			}
		}
	}
}

// Check returns an error if the state cannot be stored.
func (d *CustomState) Check() error {
	for key, v := range d.keys {
		if err := checkStateKey(key); err != nil {
			return err
		}
		if err := checkStateValue(key, v.json()); err != nil {
			return err
		}
	}
	return nil
}

// Clone returns an independent copy that shares the values.
func (d *CustomState) Clone() CustomState {
	out := CustomState{keys: make(map[string]docValue, len(d.keys))}
	for key, v := range d.keys {
		v.items = slices.Clip(v.items)
		out.keys[key] = v
	}
	return out
}

// Apply performs the operations in order. If one of them is impossible, an append
// to a value that is not a list, Apply changes nothing and returns an error. An
// append of no items does nothing.
func (d *CustomState) Apply(w Writes) error {
	if err := d.check(w); err != nil {
		return err
	}
	if d.keys == nil {
		d.keys = make(map[string]docValue, len(w.Ops))
	}
	for i := range w.Ops {
		switch op := &w.Ops[i]; op.Kind {
		case OpDelete:
			delete(d.keys, op.Key)
		case OpReplace:
			d.keys[op.Key] = docValue{raw: op.Value}
		case OpAppend:
			if len(op.Items) == 0 {
				continue
			}
			v, ok := d.keys[op.Key]
			if !ok {
				v.raw = json.RawMessage("[]")
			}
			v.items = append(v.items, op.Items...)
			d.keys[op.Key] = v
		}
	}
	return nil
}

func (d *CustomState) check(w Writes) error {
	if err := w.Check(); err != nil {
		return err
	}
	list := map[string]bool{} // keys that these operations turned into lists or other values
	for i := range w.Ops {
		op := &w.Ops[i]
		switch op.Kind {
		case OpDelete:
			list[op.Key] = true
		case OpReplace:
			list[op.Key] = IsList(op.Value)
		case OpAppend:
			if len(op.Items) == 0 {
				continue
			}
			ok, touched := list[op.Key]
			if !touched {
				v, exists := d.keys[op.Key]
				ok = !exists || IsList(v.raw)
			}
			if !ok {
				return Invalid("state key", "%q is not a list, so nothing can be appended to it", op.Key)
			}
			list[op.Key] = true
		}
	}
	return nil
}

// IsList reports whether a JSON value is an array.
func IsList(value json.RawMessage) bool {
	trimmed := bytes.TrimLeft(value, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '['
}

// json joins a list with the items that were appended to it.
func (v docValue) json() json.RawMessage {
	if len(v.items) == 0 {
		return v.raw
	}
	return JoinList(v.raw, v.items)
}

// JoinList returns the JSON array base with items added at its end.
func JoinList(base json.RawMessage, items []json.RawMessage) json.RawMessage {
	base = bytes.TrimRight(base, " \t\r\n")
	size := len(base)
	for _, item := range items {
		size += len(item) + 1
	}
	out := append(make(json.RawMessage, 0, size), base[:len(base)-1]...)
	empty := len(bytes.TrimSpace(out)) == 1
	for i, item := range items {
		if i > 0 || !empty {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, ']')
}

// Size returns the approximate encoded length in bytes.
func (d *CustomState) Size() int {
	n := 0
	for key, v := range d.keys {
		n += len(key) + len(v.raw)
		for _, item := range v.items {
			n += len(item)
		}
	}
	return n
}

// MarshalJSON encodes the state as one object with sorted keys.
func (d CustomState) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	var err error
	for key, value := range d.All() {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(AppendString(out, key), ':')
		if out, err = appendRaw(out, "state key "+key, value); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// UnmarshalJSON reads a JSON object.
func (d *CustomState) UnmarshalJSON(data []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return Invalid("state", "must be a JSON object: %v", err)
	}
	*d = CustomState{keys: make(map[string]docValue, len(keys))}
	for key, value := range keys {
		d.keys[key] = docValue{raw: value}
	}
	return nil
}

// Peek returns the value under key without the items that were appended to it
// since, or nil. It distinguishes a list from other values without joining it.
func (d *CustomState) Peek(key string) json.RawMessage { return d.keys[key].raw }
