package config

import (
	"bytes"
	"encoding/json"

	"go.yaml.in/yaml/v3"
)

// json decodes any value.
func (d *decoder) json(n *yaml.Node, path string, target *JSON, o *option) {
	if o.object && n.Kind != yaml.MappingNode {
		d.problem(at(n), path, "expected a mapping of keys to values, found %s", describe(n))
		return
	}
	var out bytes.Buffer
	d.encode(n, path, &out)
	*target = out.Bytes()
}

// encode writes a node as JSON, with the keys in the file's order.
func (d *decoder) encode(n *yaml.Node, path string, out *bytes.Buffer) {
	d.depth++
	defer func() { d.depth-- }()
	n, ok := d.resolve(n, path)
	if !ok {
		out.WriteString("null")
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		for i, e := range d.entries(n, path) {
			if i > 0 {
				out.WriteByte(',')
			}
			write(out, e.name)
			out.WriteByte(':')
			d.encode(e.value, e.path, out)
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, child := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			d.encode(child, path, out)
		}
		out.WriteByte(']')
	default:
		d.encodeScalar(n, path, out)
	}
}

// encodeScalar writes a scalar. A value with an environment variable is a string.
func (d *decoder) encodeScalar(n *yaml.Node, path string, out *bytes.Buffer) {
	text, ok := d.expand(n, path)
	if !ok {
		out.WriteString("null")
		return
	}
	if text == n.Value {
		switch n.ShortTag() {
		case "!!bool", "!!int", "!!float":
			var value any
			if err := n.Decode(&value); err == nil {
				if raw, err := json.Marshal(value); err == nil {
					out.Write(raw)
					return
				}
			}
			d.problem(at(n), path, "%s cannot be written as JSON", describe(n))
			out.WriteString("null")
			return
		}
	}
	write(out, text)
}

// write writes a string as JSON.
func write(out *bytes.Buffer, text string) {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err == nil {
		out.Truncate(out.Len() - 1) // the line's end
	}
}
