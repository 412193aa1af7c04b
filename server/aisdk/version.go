package aisdk

import (
	"github.com/helixagents/helix/session"
)

// Version is the major version of the AI SDK that a client uses. The wire does not
// tell.
type Version int

// The versions. Default sends only what all of them read, which is what 5 reads: its
// schemas are strict. Clients of 6 and 7 say so if they want the approvals of their own.
const (
	V5      Version = 5
	V6      Version = 6
	V7      Version = 7
	Default         = V5
)

// CanDiscard reports whether a client of this version can remove what a step has shown.
func (v Version) CanDiscard() bool { return v == V7 }

// ParseVersion reads what a client says of itself; nothing is the default.
func ParseVersion(text string) (Version, error) {
	switch text {
	case "":
		return Default, nil
	case "5":
		return V5, nil
	case "6":
		return V6, nil
	case "7":
		return V7, nil
	}
	return 0, session.Invalid("sdk", "%.20q is not one of 5, 6, 7", text)
}
