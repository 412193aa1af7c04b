package helix

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
)

// StateType declares an agent's typed custom state.
type StateType struct {
	defaults session.CustomState
	known    map[string]bool // nil when any key may be set
	open     map[string]bool
	err      error
}

// StateOf declares custom state of type T, a struct or a map. The value holds the defaults
// of a new session.
func StateOf[T any](defaults T) *StateType {
	s := &StateType{}
	fillSlices(&defaults)
	raw, err := session.Encode(defaults)
	if err != nil {
		s.err = fmt.Errorf("%T cannot be encoded: %w", defaults, err)
		return s
	}
	if s.defaults, err = session.ParseCustomState(raw); err != nil {
		s.err = fmt.Errorf("%T must encode to a JSON object", defaults)
		return s
	}
	for key := range s.defaults.All() {
		s.err = cmp.Or(s.err, session.CheckPublicKey("state key", key))
	}
	s.known = jsonFields[T]()
	return s
}

// Open returns the state with further keys that users may set when they start a session
// over HTTP. Only operators and Go code may set the other keys, so an agent can keep there
// what its decisions depend on, such as a plan or a limit. Keys are top-level JSON names.
func (s *StateType) Open(keys ...string) *StateType {
	out := *s
	out.open = maps.Clone(s.open)
	if out.open == nil {
		out.open = map[string]bool{}
	}
	for _, key := range keys {
		if key == "" || (s.known != nil && !s.known[key]) {
			out.err = cmp.Or(out.err, error(session.Invalid("open state key", "%q is not a field of the state", key)))
		}
		out.err = cmp.Or(out.err, session.CheckPublicKey("open state key", key))
		out.open[key] = true
	}
	return &out
}

// IsOpen reports whether users may set a key when they start a session; see
// [StateType.Open].
func (s *StateType) IsOpen(key string) bool { return s != nil && s.open[key] }

func (s *StateType) clonedDefaults() session.CustomState {
	if s == nil {
		return session.CustomState{}
	}
	return s.defaults.Clone()
}

func (s *StateType) initial(given json.RawMessage) (session.CustomState, error) {
	doc := s.clonedDefaults()
	if len(given) == 0 {
		return doc, nil
	}
	overlay, err := session.ParseCustomState(given)
	if err != nil {
		return doc, err
	}
	for key, value := range overlay.All() {
		if err := session.CheckPublicKey("state."+key, key); err != nil {
			return doc, err
		}
		if s != nil && s.known != nil && !s.known[key] {
			return doc, session.Invalid("state."+key, "is not a field of the agent's state")
		}
		if string(value) == "null" && session.IsList(doc.Peek(key)) {
			continue // a nil slice: keep the default, an empty list that can be appended to
		}
		doc.Set(key, value)
	}
	return doc, nil
}

// State returns the custom state as a T. It does not apply the agent's defaults: a field
// that the state does not have keeps T's zero value. A state that does not decode into T
// fails the call.
func State[T any](s Scoped) T {
	var out T
	d := draftOf(s)
	if d == nil {
		return out
	}
	if err := d.Decode(&out); err != nil {
		d.Fail(err)
	}
	return out
}

// Update changes the custom state. It passes the state to fn as a *T and turns the changes
// into operations on top-level keys. A list that only grew becomes an append, so that
// appends of parallel calls compose. An update that cannot be applied fails the call.
//
// The cost of Update is proportional to the size of the state. For a long list that grows
// item by item, use [Append]. Do not call Update within fn.
func Update[T any](s Scoped, fn func(state *T)) {
	d := draftOf(s)
	if d == nil {
		return
	}
	d.Update(func() error { return update(d, fn) })
}

func update[T any](d *userstate.Draft, fn func(*T)) error {
	var value T
	if err := d.Decode(&value); err != nil {
		return err
	}
	fillSlices(&value)
	before, err := document(value)
	if err != nil {
		return err
	}
	fn(&value)
	fillSlices(&value)
	after, err := document(value)
	if err != nil {
		return err
	}
	d.Add(session.Diff(&before, &after).Ops...)
	return nil
}

func document(v any) (session.CustomState, error) {
	raw, err := session.Encode(v)
	if err != nil {
		return session.CustomState{}, fmt.Errorf("encode the session's state: %w", err)
	}
	return session.ParseCustomState(raw)
}

// Append appends items to the list under a top-level key of the custom state. Its cost
// depends only on the items, not on the length of the list.
func Append[Item any](s Scoped, key string, items ...Item) {
	d := draftOf(s)
	if d == nil || len(items) == 0 {
		return
	}
	op := session.Op{Kind: session.OpAppend, Key: key}
	for _, item := range items {
		raw, err := session.Encode(item)
		if err != nil {
			d.Fail(fmt.Errorf("encode an item for state key %q: %w", key, err))
			return
		}
		op.Items = append(op.Items, raw)
	}
	d.Add(op)
}

func draftOf(s Scoped) *userstate.Draft {
	if env := s.scope().env; env != nil {
		return env.Draft()
	}
	return nil
}

// fillSlices replaces the nil slices of a struct with empty ones, so that they encode to []
// and appends of parallel calls compose.
func fillSlices(ptr any) {
	v := reflect.ValueOf(ptr).Elem()
	if v.Kind() != reflect.Struct {
		return
	}
	for _, f := range v.Fields() {
		if f.Kind() == reflect.Slice && f.IsNil() && f.CanSet() && f.Type().Elem().Kind() != reflect.Uint8 {
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		}
	}
}

// jsonFields returns the top-level keys of a struct type, or nil for a map.
func jsonFields[T any]() map[string]bool {
	schema, err := SchemaFor[T]()
	if err != nil || schema.resolved.Schema().Properties == nil {
		return nil
	}
	known := map[string]bool{}
	for name := range schema.resolved.Schema().Properties {
		known[name] = true
	}
	return known
}

// OutputType declares an agent's typed result.
type OutputType struct {
	schema *Schema
	err    error
}

// OutputOf declares that the agent finishes with a T: the model gets the tool __finish__,
// whose arguments must match T and become the session's output.
func OutputOf[T any]() *OutputType {
	schema, err := SchemaFor[T]()
	if err == nil && !schema.IsObject() {
		err = fmt.Errorf("%T must be a struct or a map", *new(T))
	}
	return &OutputType{schema: schema, err: err}
}

// RawOutput is [OutputOf] with an explicit JSON Schema.
func RawOutput(schema json.RawMessage) *OutputType {
	parsed, err := parseObjectSchema(schema)
	return &OutputType{schema: parsed, err: err}
}

// Schema returns the output's schema.
func (o *OutputType) Schema() *Schema { return o.schema }

// Output decodes the output of a completed run.
func Output[T any](res *Result) (T, error) {
	var out T
	if len(bytes.TrimSpace(res.Output)) == 0 {
		return out, ErrNoOutput.WithMessage("run %s is %s and has no output", res.RunID, res.Status)
	}
	if err := json.Unmarshal(res.Output, &out); err != nil {
		return out, session.ErrInvalid.WithCause(err, "run %s: decode the output into %T", res.RunID, out)
	}
	return out, nil
}
