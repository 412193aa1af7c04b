package postgres

import (
	"sync"

	"github.com/helixagents/helix/session"
)

// known remembers, for sessions that this process commits to, which keys of custom
// state exist and whether they contain lists, so that a commit need not check a
// key that does not change. Only a new version changes keys, so what was true at a
// version of a session stays true for a commit that expects this version and is
// conditional on the session's number: another session with the same id has
// another number.
type known struct {
	mu       sync.Mutex
	sessions map[session.Key]*keysAt
}

// keysAt has some of a session's keys at a version, and whether they contain
// lists.
type keysAt struct {
	number, version int64
	lists           map[string]bool
}

// The limits of the memory: more sessions than a process works on at a time, and a
// bounded number of keys for each.
const (
	maxKnownSessions = 1024
	maxKnownKeys     = 64
)

func newKnown() *known { return &known{sessions: map[session.Key]*keysAt{}} }

// spare returns a commit's draft without the keys that already exist, and the
// number of the session for which this is true. If not all of them are known, it
// returns the draft as it is and 0.
func (k *known) spare(tenant string, commit *session.Commit, d *draft) (*draft, int64) {
	if len(d.keys) == 0 {
		return d, 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.sessions[session.Key{Tenant: tenant, ID: commit.SessionID}]
	if at == nil || at.version != commit.Version {
		return d, 0
	}
	for i, key := range d.keys {
		if list, ok := at.lists[key]; !ok || list != d.lists[i] {
			return d, 0
		}
	}
	out := *d
	out.keys, out.lists = nil, nil
	return &out, at.number
}

// note remembers the keys of a session after a change.
func (k *known) note(tenant string, h *header, d *draft) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := session.Key{Tenant: tenant, ID: d.sessionID}
	at := k.sessions[key]
	if at == nil || at.number != h.number || at.version != h.Version-1 {
		delete(k.sessions, key)
		if len(d.keys) == 0 {
			return
		}
		k.makeRoom()
		at = &keysAt{number: h.number, lists: map[string]bool{}}
		k.sessions[key] = at
	}
	at.version = h.Version
	for i, key := range d.keys {
		at.lists[key] = d.lists[i]
	}
	for _, key := range d.deleted {
		delete(at.lists, key)
	}
	if len(at.lists) > maxKnownKeys {
		delete(k.sessions, key)
	}
}

// makeRoom forgets a session if too many are remembered.
func (k *known) makeRoom() {
	if len(k.sessions) < maxKnownSessions {
		return
	}
	for key := range k.sessions {
		delete(k.sessions, key)
		return
	}
}
