package postgres

import (
	"sync"

	"github.com/helixagents/helix/session"
)

// known remembers, of sessions that this process commits to, which keys of custom
// state there are and whether they hold lists: a commit need not look after a key
// that stays as it was. Only a new version changes keys, so what was so at a
// version of a session stays so for a commit that expects this version, and that is
// made conditional on the session's number: another of its id has another.
type known struct {
	mu       sync.Mutex
	sessions map[session.Key]*keysAt
}

// keysAt is some of a session's keys at a version, and whether they hold lists.
type keysAt struct {
	number, version int64
	lists           map[string]bool
}

// How much is remembered: more sessions than a process works on at a time, and as
// many keys as are worth it.
const (
	maxKnownSessions = 1024
	maxKnownKeys     = 64
)

func newKnown() *known { return &known{sessions: map[session.Key]*keysAt{}} }

// spare gives a commit's draft without the keys that are there already, and the
// number of the session that this is true of; the draft as it is, and 0, if that is
// not known of all of them.
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

// note remembers the keys of a session that a change has brought to a version.
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

// makeRoom forgets some session if too many are remembered.
func (k *known) makeRoom() {
	if len(k.sessions) < maxKnownSessions {
		return
	}
	for key := range k.sessions {
		delete(k.sessions, key)
		return
	}
}
