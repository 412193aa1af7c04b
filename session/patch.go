package session

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Patch is one operation of RFC 6902 (JSON Patch): add, remove or replace.
type Patch struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Patches returns what w does to before as the JSON Patch operations that readers
// of a stream receive. Objects are compared key by key; appends become "add" at
// the end of the list. Keys of the framework are left out.
func Patches(before *CustomState, w Writes) []Patch {
	var out []Patch
	for _, op := range Compose(w.Public()).Ops { // so that each key occurs once
		path := "/" + escapePointer(op.Key)
		switch {
		case op.Kind == OpReplace:
			out = diffPatches(out, path, before.Get(op.Key), op.Value)
		case op.Kind == OpDelete && before.Has(op.Key):
			out = append(out, Patch{Op: "remove", Path: path})
		case op.Kind == OpAppend && before.Has(op.Key):
			for _, item := range op.Items {
				out = append(out, Patch{Op: "add", Path: path + "/-", Value: item})
			}
		case op.Kind == OpAppend:
			out = append(out, Patch{Op: "add", Path: path, Value: JoinList(json.RawMessage("[]"), op.Items)})
		}
	}
	return out
}

// ResultPatches returns what w did, as the resulting values in after. They are
// larger than [Patches], but applying them repeatedly has no further effect.
func ResultPatches(after *CustomState, w Writes) []Patch {
	var out []Patch
	for _, op := range Compose(w.Public()).Ops {
		path := "/" + escapePointer(op.Key)
		if value := after.Get(op.Key); value != nil {
			out = append(out, Patch{Op: "add", Path: path, Value: value})
			continue
		}
		out = append(out, Patch{Op: "add", Path: path, Value: json.RawMessage("null")}, Patch{Op: "remove", Path: path})
	}
	return out
}

// diffPatches appends the operations that turn was into now.
func diffPatches(out []Patch, path string, was, now json.RawMessage) []Patch {
	if was == nil {
		return append(out, Patch{Op: "add", Path: path, Value: now})
	}
	if sameJSON(was, now) {
		return out
	}
	var a, b map[string]json.RawMessage
	if !isObject(was) || !isObject(now) || json.Unmarshal(was, &a) != nil || json.Unmarshal(now, &b) != nil {
		return append(out, Patch{Op: "replace", Path: path, Value: now})
	}
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if _, kept := b[key]; !kept {
			out = append(out, Patch{Op: "remove", Path: path + "/" + escapePointer(key)})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		out = diffPatches(out, path+"/"+escapePointer(key), a[key], b[key])
	}
	return out
}

func isObject(raw json.RawMessage) bool {
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{'
}

var (
	pointerEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

func escapePointer(key string) string { return pointerEscaper.Replace(key) }

// ApplyPatches applies JSON Patch operations to a JSON document and returns the
// result; doc itself is not changed.
func ApplyPatches(doc json.RawMessage, patches []Patch) (json.RawMessage, error) {
	for _, p := range patches {
		path := strings.Split(p.Path, "/")
		if path[0] != "" {
			return nil, Invalid("patch path", "%q must start with /", p.Path)
		}
		if p.Op != "remove" && !json.Valid(p.Value) {
			return nil, Invalid("patch", "%s %q must have a JSON value", p.Op, p.Path)
		}
		next, err := applyAt(doc, path[1:], p)
		if err != nil {
			return nil, err
		}
		doc = next
	}
	return doc, nil
}

func applyAt(doc json.RawMessage, path []string, p Patch) (json.RawMessage, error) {
	if len(path) == 0 {
		if p.Op == "remove" {
			return json.RawMessage("null"), nil
		}
		return p.Value, nil
	}
	key := pointerUnescaper.Replace(path[0])
	if IsList(doc) {
		return applyToList(doc, key, path[1:], p)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(doc, &object); err != nil || object == nil {
		return nil, Invalid("patch path", "%q passes through a value that is neither an object nor a list", p.Path)
	}
	child, exists := object[key]
	switch {
	case len(path) > 1 || (p.Op == "replace" && exists):
		if !exists {
			return nil, Invalid("patch path", "%q does not exist", p.Path)
		}
		changed, err := applyAt(child, path[1:], p)
		if err != nil {
			return nil, err
		}
		object[key] = changed
	case p.Op == "add":
		object[key] = p.Value
	case p.Op == "remove" && exists:
		delete(object, key)
	default:
		return nil, Invalid("patch", "cannot %s %q", p.Op, p.Path)
	}
	return Encode(object)
}

func applyToList(doc json.RawMessage, key string, rest []string, p Patch) (json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(doc, &list); err != nil {
		return nil, Invalid("patch path", "%q passes through a list that cannot be decoded: %v", p.Path, err)
	}
	if key == "-" && p.Op == "add" && len(rest) == 0 {
		return JoinList(doc, []json.RawMessage{p.Value}), nil
	}
	i, err := strconv.Atoi(key)
	if err != nil || i < 0 || i > len(list) || (i == len(list) && (p.Op != "add" || len(rest) > 0)) {
		return nil, Invalid("patch path", "%q: %q is not an index of the list", p.Path, key)
	}
	switch {
	case len(rest) > 0 || p.Op == "replace":
		if list[i], err = applyAt(list[i], rest, p); err != nil {
			return nil, err
		}
	case p.Op == "add":
		list = slices.Insert(list, i, p.Value)
	case p.Op == "remove":
		list = slices.Delete(list, i, i+1)
	default:
		return nil, Invalid("patch", "cannot %s %q", p.Op, p.Path)
	}
	return Encode(list)
}
