package helix

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/helixagents/helix/session"
)

// StateType declares an agent's typed custom state.
type StateType struct {
	defaults session.Document
	known    map[string]bool // nil when any key may be set
	open     map[string]bool
	err      error
}

// StateOf declares custom state of type T, a struct or a map; the value holds the
// defaults that a new session begins with.
func StateOf[T any](defaults T) *StateType {
	s := &StateType{}
	fillSlices(&defaults)
	raw, err := session.Encode(defaults)
	if err != nil {
		s.err = fmt.Errorf("%T cannot be encoded: %w", defaults, err)
		return s
	}
	if s.defaults, err = session.DocumentOf(raw); err != nil {
		s.err = fmt.Errorf("%T must encode as a JSON object", defaults)
		return s
	}
	s.known = jsonFields[T]()
	return s
}

// Open returns the state with keys that users may set when they begin a session over
// HTTP, beside those that are open already. All others are set by operators, and by
// Go code, alone: an agent may keep there what it decides by, such as a plan or a
// limit. The keys are top-level names in JSON.
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
		out.open[key] = true
	}
	return &out
}

// IsOpen reports whether users may set a key when they begin a session; see
// [StateType.Open].
func (s *StateType) IsOpen(key string) bool { return s != nil && s.open[key] }

// Defaults is the state that a new session begins with.
func (s *StateType) Defaults() session.Document {
	if s == nil {
		return session.Document{}
	}
	return s.defaults.Clone()
}

// Initial overlays the defaults with the state a caller handed in and refuses
// keys that the type does not have.
func (s *StateType) Initial(given json.RawMessage) (session.Document, error) {
	doc := s.Defaults()
	if len(given) == 0 {
		return doc, nil
	}
	overlay, err := session.DocumentOf(given)
	if err != nil {
		return doc, err
	}
	for key, value := range overlay.All() {
		if s != nil && s.known != nil && !s.known[key] {
			return doc, session.Invalid("state."+key, "is not a field of the agent's state")
		}
		if string(value) == "null" && session.IsList(doc.Peek(key)) {
			continue // a nil slice: the default, an empty list, says the same and can be appended to
		}
		doc.Set(key, value)
	}
	return doc, nil
}

// Draft is custom state as one call or hook sees it: what was there, and what it
// has changed so far. It is safe for concurrent use.
type Draft struct {
	updating sync.Mutex // one Update at a time; taken before mu

	mu     sync.Mutex
	base   *session.Document // shared and not written to while the draft is open
	before []session.Op      // earlier writes of the step that this draft sees
	ops    []session.Op
	err    error
	closed bool
}

// NewDraft opens a draft over base, which must not change until the draft is
// closed, and over writes of the same step that are not part of base yet.
func NewDraft(base *session.Document, earlier ...session.Writes) *Draft {
	return &Draft{base: base, before: session.Compose(earlier...).Ops}
}

// Close ends the draft and returns what it did, or why it could not. Later uses,
// by a goroutine that outlived its call, change nothing.
func (d *Draft) Close() (session.Writes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return session.Compose(session.Writes{Ops: d.ops}), d.err
}

// view is the state as the draft sees it now.
func (d *Draft) view() (session.Document, error) {
	if d.closed {
		return session.Document{}, session.ErrClosed.WithMessage("state was used after its call had ended")
	}
	doc := d.base.Clone()
	if err := doc.Apply(session.Writes{Ops: slices.Concat(d.before, d.ops)}); err != nil {
		return doc, err
	}
	return doc, nil
}

func (d *Draft) fail(err error) {
	if d.err == nil && !d.closed {
		d.err = err
	}
}

// State reads the custom state as a T: the agent's defaults are not applied, but
// a field that the state does not have keeps T's zero value. A state that does
// not fit T makes the call fail.
func State[T any](s Scoped) T {
	var out T
	d := draftOf(s)
	if d == nil {
		return out
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.decode(&out); err != nil {
		d.fail(err)
	}
	return out
}

func (d *Draft) decode(out any) error {
	doc, err := d.view()
	if err != nil {
		return err
	}
	raw, err := doc.MarshalJSON()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("the session's state does not fit %T: %w", out, err)
	}
	return nil
}

// Update changes the custom state: fn gets it as a *T, and what fn changed
// becomes operations on top-level keys. A list that only grew becomes an append,
// so that parallel calls that append to it compose. An update that cannot be
// made fails the call.
//
// Update costs time in proportion to the state. For a long list that grows item
// by item, use [Append]. One Update must not be made within another.
func Update[T any](s Scoped, fn func(state *T)) {
	d := draftOf(s)
	if d == nil {
		return
	}
	d.updating.Lock()
	defer d.updating.Unlock()
	if err := update(d, fn); err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.fail(err)
	}
}

func update[T any](d *Draft, fn func(*T)) error {
	var value T
	d.mu.Lock()
	err := d.decode(&value)
	d.mu.Unlock()
	if err != nil {
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
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, op := range session.Diff(&before, &after).Ops {
		d.add(op)
	}
	return nil
}

func document(v any) (session.Document, error) {
	raw, err := session.Encode(v)
	if err != nil {
		return session.Document{}, fmt.Errorf("the session's state cannot be encoded: %w", err)
	}
	return session.DocumentOf(raw)
}

// Append adds items to the list under a top-level key of the custom state. It
// costs what it adds, however long the list is.
func Append[Item any](s Scoped, key string, items ...Item) {
	d := draftOf(s)
	if d == nil || len(items) == 0 {
		return
	}
	op := session.Op{Kind: session.OpAppend, Key: key}
	for _, item := range items {
		raw, err := session.Encode(item)
		if err != nil {
			d.mu.Lock()
			d.fail(fmt.Errorf("an item for state key %q cannot be encoded: %w", key, err))
			d.mu.Unlock()
			return
		}
		op.Items = append(op.Items, raw)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(op)
}

// add records an operation that can be performed; null counts as an empty list.
func (d *Draft) add(op session.Op) {
	if d.closed {
		return
	}
	if err := (&session.Writes{Ops: []session.Op{op}}).Check(); err != nil {
		d.fail(err)
		return
	}
	if op.Kind == session.OpAppend {
		switch current := d.rawValue(op.Key); {
		case string(current) == "null":
			op = session.Op{Kind: session.OpReplace, Key: op.Key, Value: session.JoinList(json.RawMessage("[]"), op.Items)}
		case current != nil && !session.IsList(current):
			d.fail(session.Invalid("state key", "%q is not a list, so nothing can be appended to it", op.Key))
			return
		}
	}
	d.ops = append(d.ops, op)
}

// rawValue is enough of a key's value to tell whether it is a list.
func (d *Draft) rawValue(key string) json.RawMessage {
	for _, ops := range [][]session.Op{d.ops, d.before} {
		for _, op := range slices.Backward(ops) {
			if op.Key != key {
				continue
			}
			switch op.Kind {
			case session.OpAppend:
				return json.RawMessage("[]")
			case session.OpReplace:
				return op.Value
			case session.OpDelete:
				return nil
			}
		}
	}
	return d.base.Peek(key)
}

func draftOf(s Scoped) *Draft {
	if env := s.scope().env; env != nil {
		return env.Draft()
	}
	return nil
}

// fillSlices makes the nil lists of a struct empty ones, so that they encode as
// [] and what is appended to them by parallel calls composes.
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

// jsonFields lists the top-level keys of a struct type, or nil for a map.
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

// OutputOf declares that the agent finishes with a T: it is offered the tool
// __finish__, whose arguments must fit T and become the session's output.
func OutputOf[T any]() *OutputType {
	schema, err := SchemaFor[T]()
	if err == nil && !schema.IsObject() {
		err = fmt.Errorf("%T must be a struct or a map", *new(T))
	}
	return &OutputType{schema: schema, err: err}
}

// RawOutput is [OutputOf] for output whose schema is not a Go type's.
func RawOutput(schema json.RawMessage) *OutputType {
	parsed, err := parseObjectSchema(schema)
	return &OutputType{schema: parsed, err: err}
}

// Schema is the output's schema.
func (o *OutputType) Schema() *Schema { return o.schema }

// Output decodes a completed run's output.
func Output[T any](res *Result) (T, error) {
	var out T
	if len(bytes.TrimSpace(res.Output)) == 0 {
		return out, ErrNoOutput.WithMessage("run %s is %s and has no output", res.RunID, res.Status)
	}
	if err := json.Unmarshal(res.Output, &out); err != nil {
		return out, session.ErrInvalid.WithCause(err, "run %s: the output does not fit %T", res.RunID, out)
	}
	return out, nil
}
