package provider

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/helixagents/helix/session"
)

// mergePatch applies a JSON merge patch. Members keep their order, so that the common prefix
// of two requests has the same bytes.
func mergePatch(target, patch json.RawMessage) json.RawMessage {
	patch = bytes.TrimSpace(patch)
	if string(patch) == "null" {
		return nil
	}
	changes, ok := members(patch)
	if !ok {
		return patch
	}
	out, _ := members(target)
	for _, change := range changes {
		i := slices.IndexFunc(out, func(o Option) bool { return o.Name == change.Name })
		var old json.RawMessage
		if i >= 0 {
			old = out[i].Value
		}
		value := mergePatch(old, change.Value)
		switch {
		case value == nil && i >= 0:
			out = slices.Delete(out, i, i+1)
		case value == nil:
		case i >= 0:
			out[i].Value = value
		default:
			out = append(out, Option{change.Name, value})
		}
	}
	return encodeObject(out)
}

// members returns the members of an object in order.
func members(raw json.RawMessage) (out []Option, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false
		}
		out = append(out, Option{name.(string), value}) // a member's name is a string
	}
	return out, true
}

func encodeObject(of []Option) json.RawMessage {
	out := []byte{'{'}
	for i, o := range of {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(session.AppendString(out, o.Name), ':'), o.Value...)
	}
	return append(out, '}')
}

func encodeList(of []json.RawMessage) json.RawMessage {
	out := []byte{'['}
	for i, value := range of {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, value...)
	}
	return append(out, ']')
}
