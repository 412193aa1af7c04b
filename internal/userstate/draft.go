// Package userstate holds the custom state as one piece of user code sees it.
package userstate

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/helixagents/helix/session"
)

// Draft is the custom state as one call or hook sees it: the stored state and its own
// changes so far. It is safe for concurrent use.
type Draft struct {
	updating sync.Mutex // serializes Update; acquired before mu

	mu     sync.Mutex
	base   *session.CustomState // shared; not modified while the draft is open
	before []session.Op         // earlier writes of the step that this draft includes
	ops    []session.Op
	err    error
	closed bool
}

// New opens a draft over base, which must not change until the draft is closed, and over
// earlier writes of the same step that base does not include yet.
func New(base *session.CustomState, earlier ...session.Writes) *Draft {
	return &Draft{base: base, before: session.Compose(earlier...).Ops}
}

// Close closes the draft and returns its writes, or the first error. Later uses, by a
// goroutine that outlives its call, have no effect.
func (d *Draft) Close() (session.Writes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return session.Compose(session.Writes{Ops: d.ops}), d.err
}

// Closed reports whether the draft is closed.
func (d *Draft) Closed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// Decode decodes the state with the draft's changes into out, a pointer.
func (d *Draft) Decode(out any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return session.ErrClosed.WithMessage("state used after the call ended")
	}
	state := d.base.Clone()
	if err := state.Apply(session.Writes{Ops: slices.Concat(d.before, d.ops)}); err != nil {
		return err
	}
	return Decode(&state, out)
}

// Update runs a function that decodes the state and adds operations. Functions of one
// draft run one after the other, so that none misses the operations of another.
func (d *Draft) Update(fn func() error) {
	d.updating.Lock()
	defer d.updating.Unlock()
	if err := fn(); err != nil {
		d.Fail(err)
	}
}

// Fail makes Close return the error, unless it has another one already.
func (d *Draft) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail(err)
}

func (d *Draft) fail(err error) {
	if d.err == nil && !d.closed {
		d.err = err
	}
}

// Add records operations. The first one that cannot be applied fails the draft. To an
// append, null counts as an empty list.
func (d *Draft) Add(ops ...session.Op) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, op := range ops {
		d.add(op)
	}
}

func (d *Draft) add(op session.Op) {
	if d.closed {
		return
	}
	if err := session.CheckPublicKey("state key", op.Key); err != nil {
		d.fail(err)
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

// Reserved returns the value of a key of the framework, which user code does not
// see, with the draft's changes, or nil. key begins with [session.ReservedPrefix].
func (d *Draft) Reserved(key string) (json.RawMessage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, session.ErrClosed.WithMessage("state used after the call ended")
	}
	for _, ops := range [][]session.Op{d.ops, d.before} {
		for _, op := range slices.Backward(ops) {
			if op.Key == key {
				return op.Value, nil // a reserved key is only replaced and deleted
			}
		}
	}
	return d.base.Get(key), nil
}

// SetReserved sets the value of a key of the framework, or deletes it if the value
// is nil. It is written with the draft's other operations, in the same commit.
func (d *Draft) SetReserved(key string, value json.RawMessage) error {
	op := session.Op{Kind: session.OpReplace, Key: key, Value: value}
	if value == nil {
		op.Kind = session.OpDelete
	}
	if !session.IsReservedKey(key) {
		return session.Invalid("state key", "%q does not begin with %q", key, session.ReservedPrefix)
	}
	if err := (&session.Writes{Ops: []session.Op{op}}).Check(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return session.ErrClosed.WithMessage("state used after the call ended")
	}
	d.ops = append(d.ops, op)
	return nil
}

// rawValue returns enough of a key's value to see whether it is a list.
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

// Decode decodes custom state into out, a pointer, as user code sees it.
func Decode(state *session.CustomState, out any) error {
	public := state.Public()
	raw, err := public.MarshalJSON()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("decode the session's state into %T: %w", out, err)
	}
	return nil
}
