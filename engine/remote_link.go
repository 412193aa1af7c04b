package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// remoteLink reads and writes what is known of the remote agents of a tenant. Its
// fields never change.
type remoteLink struct {
	h        *Handler
	sessions session.Store // of the tenant
}

func (h *Handler) remoteLink(sessions session.Store) *remoteLink {
	return &remoteLink{h: h, sessions: sessions}
}

// peerOf is the id of the session on the other server, which may share a store with
// this one. References of earlier versions do not name it.
func peerOf(standIn string, at *remoteProgress) string {
	return cmp.Or(at.Peer, standIn+"@peer")
}

// peer returns the id of the remote's session.
func (l *remoteLink) peer(ctx context.Context, state *session.State) (string, error) {
	ref, err := remoteRef(ctx, l.sessions, state)
	if err != nil {
		return "", err
	}
	if ref == nil {
		return "", session.ErrCorrupt.WithMessage("session %s: its caller has no reference to it", state.ID)
	}
	at, err := readProgress(ref)
	return peerOf(state.ID, &at), err
}

// remoteProgress is how far a remote was followed, as the reference to it says. It is
// never ahead of the stream.
type remoteProgress struct {
	// Peer is the remote's session. Nobody learns the id before the session exists.
	Peer string `json:"peer,omitempty"`
	// Started is set before the remote is asked to begin: from then on it may run.
	Started bool `json:"started,omitempty"`
	// RunID is the run with which it began.
	RunID string `json:"runId,omitempty"`
	// Epoch and Sequence are the position of its chunks in our stream. A new epoch
	// begins where chunks are missing.
	Epoch    int64            `json:"epoch,omitempty"`
	Sequence int64            `json:"sequence,omitempty"`
	Stop     *undeliveredStop `json:"stop,omitempty"`
	// Moved is set by a poll which finds that the remote no longer waits for what
	// this session waits for; see [remoteLink.poll].
	Moved bool `json:"moved,omitempty"`
}

func readProgress(ref *session.ChildRef) (p remoteProgress, err error) {
	if err := json.Unmarshal(ref.Remote, &p); err != nil {
		return p, session.ErrCorrupt.WithCause(err, "child %s: its progress cannot be decoded", ref.SessionID)
	}
	p.Epoch = max(p.Epoch, 1)
	return p, nil
}

// remoteRef returns the reference to the remote that a session stands in for, or nil.
func remoteRef(ctx context.Context, sessions session.Store, state *session.State) (*session.ChildRef, error) {
	if state.ParentID == "" || state.RootID == "" {
		return nil, nil
	}
	refs, err := retry.Do(ctx, func() ([]session.ChildRef, error) { return sessions.Children(ctx, state.ParentID) })
	if errors.Is(err, session.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range refs {
		if refs[i].SessionID == state.ID && refs[i].Remote != nil {
			return &refs[i], nil
		}
	}
	return nil, nil
}

// submit passes an answer to the remote that a session stands in for.
func (l *remoteLink) submit(
	ctx context.Context, limit time.Duration, remote helix.Remote, standIn *session.State, answer helix.Submission,
) (*helix.Submitted, error) {
	peer, err := l.peer(ctx, standIn)
	if err != nil {
		return nil, err
	}
	return usercode.CallOnce(ctx, limit, func(ctx context.Context) (*helix.Submitted, error) {
		return remote.Submit(ctx, peer, answer)
	})
}

// standIn is a remote agent under the name that it has here. A call of it makes a
// session in this store as well, the stand-in for the remote's session: it has the
// lease, the waits and the outcome, and its turn relays what the remote does.
type standIn struct {
	agent  helix.Agent
	remote helix.Remote
}

// addStandIns adds the remote agents that agents call to the agents. The lock is
// held.
func (r *Registry) addStandIns(given map[string]*helix.Agent) (map[string]*standIn, error) {
	found := map[string]*standIn{}
	for _, a := range given {
		for i := range a.SubAgents {
			sub := &a.SubAgents[i]
			if sub.Remote == nil {
				continue
			}
			at := found[sub.Name]
			if known := r.remotes[sub.Name]; at == nil && known != nil && sameRemote(known.remote, sub.Remote) {
				at = known
			}
			if at == nil {
				at = &standIn{agent: helix.Agent{Name: sub.Name, Description: sub.Description}, remote: sub.Remote}
			}
			if !sameRemote(at.remote, sub.Remote) {
				return nil, twice(sub.Name)
			}
			found[sub.Name] = at
		}
	}
	for name, at := range found {
		if given[name] != nil {
			return nil, session.Invalid("agent "+name, "is the name of both a remote and a local agent; rename one of them")
		}
		given[name] = &at.agent
	}
	return found, nil
}

func sameRemote(a, b helix.Remote) bool {
	if own, ok := a.(interface{ Equal(helix.Remote) bool }); ok {
		return own.Equal(b)
	}
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// remote returns the remote agent of a name, or nil.
func (r *Registry) remote(name string) helix.Remote {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.remotes[name]; s != nil && r.agents[name] == &s.agent {
		return s.remote
	}
	return nil
}
