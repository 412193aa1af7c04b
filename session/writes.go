package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// OpKind says what an operation does to a key.
type OpKind string

// The operations on custom state.
const (
	OpAppend  OpKind = "append"
	OpReplace OpKind = "replace"
	OpDelete  OpKind = "delete"
)

// Op is one operation on one top-level key of custom state.
type Op struct {
	Kind  OpKind            `json:"kind"`
	Key   string            `json:"key"`
	Items []json.RawMessage `json:"items,omitempty"`
	Value json.RawMessage   `json:"value,omitempty"`
}

// Writes are the changes of custom state by a tool, a hook or a whole step.
type Writes struct {
	Ops []Op `json:"ops,omitempty"`
	// Warnings describe writes that overwrote another write.
	Warnings []string `json:"warnings,omitempty"`
}

// Empty reports whether there are no operations.
func (w Writes) Empty() bool { return len(w.Ops) == 0 }

// Size returns the approximate number of bytes of the operations.
func (w Writes) Size() int {
	n := 0
	for i := range w.Ops {
		n += len(w.Ops[i].Key) + len(w.Ops[i].Value)
		for _, item := range w.Ops[i].Items {
			n += len(item)
		}
	}
	return n
}

// Check returns an error if no store could perform an operation.
func (w Writes) Check() error {
	for i := range w.Ops {
		op := &w.Ops[i]
		if err := checkStateKey(op.Key); err != nil {
			return err
		}
		switch op.Kind {
		case OpAppend:
			for j, item := range op.Items {
				if !json.Valid(item) || !utf8.Valid(item) {
					return Invalid("state key", "%q: item %d is not valid JSON in UTF-8", op.Key, j)
				}
			}
		case OpReplace:
			if err := checkStateValue(op.Key, op.Value); err != nil {
				return err
			}
		case OpDelete:
		default:
			return Invalid("state operation", "%q on key %q is not one of append, replace, delete", op.Kind, op.Key)
		}
	}
	return nil
}

func checkStateKey(key string) error {
	if key == "" {
		return Invalid("state key", "must not be empty")
	}
	return CheckText("state key", key)
}

func checkStateValue(key string, value json.RawMessage) error {
	if !json.Valid(value) || !utf8.Valid(value) {
		return Invalid("state key", "%q: the value is not valid JSON in UTF-8", key)
	}
	return nil
}

// Compose returns one list of operations with the same effect as parts in order,
// with at most one operation per key. Appends compose; a replace or delete that
// overwrites what an earlier part wrote adds a warning.
func Compose(parts ...Writes) Writes {
	var out Writes
	index := map[string]int{} // key → its index in out.Ops
	first := map[string]int{} // key → the first part whose write its operation contains
	for n, part := range parts {
		out.Warnings = append(out.Warnings, part.Warnings...)
		for _, op := range part.Ops {
			if op.Kind == OpAppend && len(op.Items) == 0 {
				continue
			}
			at, seen := index[op.Key]
			if !seen {
				index[op.Key], first[op.Key] = len(out.Ops), n
				out.Ops = append(out.Ops, op)
				continue
			}
			prev := out.Ops[at]
			if op.Kind != OpAppend && first[op.Key] != n && !sameOp(prev, op) {
				out.Warnings = append(out.Warnings,
					fmt.Sprintf("state key %q: a later %s overwrote an earlier %s of the same step", op.Key, op.Kind, prev.Kind))
			}
			out.Ops[at] = composeOp(prev, op, &out.Warnings)
			if op.Kind != OpAppend {
				first[op.Key] = n
			}
		}
	}
	return out
}

func sameOp(a, b Op) bool {
	return a.Kind == b.Kind && string(a.Value) == string(b.Value)
}

// composeOp returns the single operation that has the effect of prev followed by
// next.
func composeOp(prev, next Op, warnings *[]string) Op {
	if next.Kind != OpAppend {
		return next
	}
	switch prev.Kind {
	case OpAppend:
		return Op{Kind: OpAppend, Key: next.Key, Items: slices.Concat(prev.Items, next.Items)}
	case OpDelete:
		return Op{Kind: OpReplace, Key: next.Key, Value: JoinList(json.RawMessage("[]"), next.Items)}
	}
	if !IsList(prev.Value) {
		*warnings = append(*warnings,
			fmt.Sprintf("state key %q: an append found a value that is not a list and replaced it", next.Key))
		return Op{Kind: OpReplace, Key: next.Key, Value: JoinList(json.RawMessage("[]"), next.Items)}
	}
	return Op{Kind: OpReplace, Key: next.Key, Value: JoinList(prev.Value, next.Items)}
}
