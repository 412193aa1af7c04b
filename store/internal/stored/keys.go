package stored

import (
	"encoding/json"

	"github.com/helixagents/helix/session"
)

// KeyKind says what a key of custom state contains.
type KeyKind int

// The kinds of keys.
const (
	KeyGone KeyKind = iota
	KeyValue
	KeyList
)

// KindOf returns the kind of a key with a value.
func KindOf(value json.RawMessage) KeyKind {
	if session.IsList(value) {
		return KeyList
	}
	return KeyValue
}
