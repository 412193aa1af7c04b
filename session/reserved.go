package session

import (
	"maps"
	"slices"
	"strings"
)

// ReservedPrefix begins the top-level keys of custom state that belong to the
// framework. They are stored, checkpointed, copied and rewound like any other, but
// applications neither see nor write them.
const ReservedPrefix = "helix:"

// IsReservedKey reports whether a top-level key of custom state belongs to the
// framework.
func IsReservedKey(key string) bool { return strings.HasPrefix(key, ReservedPrefix) }

// CheckPublicKey returns an error if a key of custom state, in a field that a caller
// wrote, belongs to the framework.
func CheckPublicKey(field, key string) error {
	if IsReservedKey(key) {
		return Invalid(field, "%q is reserved for the framework", key)
	}
	return nil
}

// Public returns the state without the keys of the framework. It is the state
// itself if there are none.
func (d *CustomState) Public() CustomState {
	for key := range d.keys {
		if IsReservedKey(key) {
			out := CustomState{keys: maps.Clone(d.keys)}
			maps.DeleteFunc(out.keys, func(key string, _ docValue) bool { return IsReservedKey(key) })
			return out
		}
	}
	return *d
}

// Public returns the writes without those to keys of the framework.
func (w Writes) Public() Writes {
	reserved := func(op Op) bool { return IsReservedKey(op.Key) }
	if slices.ContainsFunc(w.Ops, reserved) {
		w.Ops = slices.DeleteFunc(slices.Clone(w.Ops), reserved)
	}
	return w
}
