// Package backend opens the store that an address names, for programs that leave
// the choice to whoever starts them.
package backend

import (
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/sqlite"
)

// Open opens the backend at an address:
//
//	sqlite:PATH                       a SQLite file
//	memory:                           nothing that outlives the process
//
// Anything else without a scheme is taken for the path of a SQLite file.
func Open(address string) (store.Backend, error) {
	scheme, rest, found := strings.Cut(address, ":")
	switch {
	case address == "":
		return nil, session.Invalid("store", "must not be empty")
	case !found || strings.ContainsAny(scheme, `/\.`):
		return sqlite.Open(address)
	case scheme == "sqlite":
		return sqlite.Open(rest)
	case scheme == "memory":
		return memory.New(memory.Config{}), nil
	}
	return nil, session.Invalid("store", "%q has no scheme that is known: use sqlite:, postgres:// or redis://", address)
}
