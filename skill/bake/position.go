package bake

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/helixagents/helix/skill"
)

// maxDepth is how deeply a manifest may be nested.
const maxDepth = 8

// node is a JSON value and its place in the file.
type node struct {
	place
	// kind is {, [ or " for an object, an array and a string, and v for all others.
	kind    byte
	text    string // of a string
	members []member
	items   []*node
}

type member struct {
	place
	key   string
	value *node
}

// place is a line and a column of a file, both from 1.
type place struct{ line, column int }

// parseJSON parses a file. The error is a [*skill.Problem].
func parseJSON(path string, data []byte) (*node, error) {
	r := &jsonReader{path: path, data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	if !utf8.Valid(data) {
		return nil, r.refuse(place{1, 1}, "is not UTF-8 text")
	}
	root, err := r.value(0)
	if err != nil {
		return nil, err
	}
	end := r.start()
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, r.refuse(r.at(end), "has more than one JSON value")
	}
	return root, nil
}

type jsonReader struct {
	path string
	data []byte
	dec  *json.Decoder
}

func (r *jsonReader) refuse(at place, message string) error {
	return &skill.Problem{Path: r.path, Line: at.line, Column: at.column, Message: message, Refused: true}
}

// start returns where the next token begins.
func (r *jsonReader) start() int {
	i := int(r.dec.InputOffset())
	for i < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[i]) >= 0 {
		i++
	}
	return i
}

// at returns the place of an offset.
func (r *jsonReader) at(offset int) place {
	before := r.data[:min(offset, len(r.data))]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return place{bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(line) + 1}
}

// token returns the next token and its place.
func (r *jsonReader) token() (json.Token, place, error) {
	at := r.at(r.start())
	token, err := r.dec.Token()
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return nil, at, r.refuse(at, "is not valid JSON: "+syntax.Error())
	case err != nil:
		return nil, at, r.refuse(at, "is not valid JSON: it ends too early")
	}
	return token, at, nil
}

func (r *jsonReader) value(depth int) (*node, error) {
	token, at, err := r.token()
	if err != nil {
		return nil, err
	}
	n := &node{place: at, kind: 'v'}
	switch token := token.(type) {
	case string:
		n.kind, n.text = '"', token
	case json.Delim:
		if depth == maxDepth {
			return nil, r.refuse(at, "is nested too deeply")
		}
		n.kind = byte(token)
		for r.dec.More() {
			if n.kind == '[' {
				item, err := r.value(depth + 1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, item)
				continue
			}
			if err := r.member(n, depth); err != nil {
				return nil, err
			}
		}
		if _, _, err := r.token(); err != nil { // the closing bracket
			return nil, err
		}
	}
	return n, nil
}

// member reads a member of the object n.
func (r *jsonReader) member(n *node, depth int) error {
	token, at, err := r.token()
	if err != nil {
		return err
	}
	key, ok := token.(string)
	if !ok {
		return r.refuse(at, "is not valid JSON: a key is a string")
	}
	if n.find(key) != nil {
		return r.refuse(at, quote(key)+" is given twice")
	}
	value, err := r.value(depth + 1)
	if err != nil {
		return err
	}
	n.members = append(n.members, member{at, key, value})
	return nil
}

// find returns the value of a key, or nil.
func (n *node) find(key string) *node {
	for i := range n.members {
		if n.members[i].key == key {
			return n.members[i].value
		}
	}
	return nil
}
