package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Body merges options into an encoded request. Options are a JSON merge patch (RFC 7396), by which objects are merged member
// by member, null removes a member, and any other value replaces it. Only tools are added to those of the request.
// Members keep their place and new ones follow in the order of the options, so that equal requests give equal bytes.
func Body(provider string, request []byte, options []Option) ([]byte, error) {
	if len(options) == 0 {
		return request, nil
	}
	out, ok := members(request)
	if !ok {
		return nil, unencodable(provider, errors.New("it is not an object"))
	}
	for i := range options {
		o := &options[i]
		at := slices.IndexFunc(out, func(m Option) bool { return m.Name == o.Name })
		var old json.RawMessage
		if at >= 0 {
			old = out[at].Value
		}
		value, err := Escape(o.merge(old))
		if err != nil {
			return nil, unencodable(provider, err)
		}
		switch {
		case value == nil && at >= 0:
			out = slices.Delete(out, at, at+1)
		case value == nil:
		case at >= 0:
			out[at].Value = value
		default:
			out = append(out, Option{o.Name, value})
		}
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range out {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.Name)
		if err != nil {
			return nil, unencodable(provider, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(m.Value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Escape returns JSON without spaces, with the special characters of HTML escaped. Schemas and options have always been sent in
// this form, so the prompt caches of providers have it.
func Escape(raw json.RawMessage) (json.RawMessage, error) {
	if raw == nil {
		return nil, nil
	}
	return json.Marshal(raw)
}

func unencodable(provider string, err error) error {
	return llm.Error(session.CodeBadRequest, false, "%s: the request cannot be encoded: %v", provider, err)
}
