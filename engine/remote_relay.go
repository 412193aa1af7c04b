package engine

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// relay is the turn of a stand-in: it follows the remote's run, copies its chunks to
// our stream, and its waits and its outcome to our store. It belongs to the goroutine
// that handles the effect. Its methods take two contexts: ctx for our own writes, and
// away for requests to the remote, which a stop cancels.
type relay struct {
	t             *turn
	peer          string // the remote's session
	key           string // the key of its commits
	position      remoteProgress
	savedPosition remoteProgress // as the store has it

	caller      string                      // the call that the remote works for
	waits       map[string]*session.Pending // calls of the remote that wait for people, as they are stored here
	candidates  map[string]string           // calls of the remote that may, with their tools
	remoteTools map[string]bool             // tools that run on the remote
	unknown     map[string]bool             // ids of requests that the remote has shown and that have no entry
	askedAt     time.Time                   // when the status was last read for a chunk

	resumed     string          // the remote's run that was last asked to resume
	forwarded   map[string]bool // calls whose answers were sent to the remote
	letTimeOut  bool            // the remote times out a call itself
	unresumable string          // the remote's run that it says cannot be resumed
	counted     bool            // a commit has recorded that the turn makes progress

	savedAt  time.Time
	received bool           // the current reading has returned something
	batch    []stream.Chunk // consumed, not written yet
	bytes    int            // the weight of batch
}

// callRemote follows the remote until its run ends or waits for people.
func (t *turn) callRemote(ctx context.Context, e effect) (machine.Result, error) {
	if t.ended != nil || t.final != nil {
		return t.sendFinal(ctx)
	}
	if e.Step < t.current() {
		return t.past(e), nil
	}
	r, err := t.relay(ctx, e.Key())
	if err != nil {
		return machine.Result{}, err
	}
	t.announceStart(ctx)
	// A stop cancels requests to the remote, but not our own writes.
	away, cancel := t.stops.watch(ctx)
	defer cancel()
	res, err := r.run(ctx, away)
	var f *remoteError
	switch {
	case err == nil:
		return res, nil
	case t.stops.requested() != nil && errors.Is(err, errStopped):
		return r.endStopped(ctx, t.stops.requested())
	case ctx.Err() != nil:
		return machine.Result{}, context.Cause(ctx) // the process shuts down: the one that recovers the turn continues
	case errors.As(err, &f):
		t.h.log.ErrorContext(ctx, "subagent.dispatch_failed", t.attrs("error", f.err)...)
		return r.endFailed(ctx, f.err)
	}
	return machine.Result{}, err
}

// relay returns the relay of the turn.
func (t *turn) relay(ctx context.Context, key string) (*relay, error) {
	ref, err := remoteRef(ctx, t.sessions, &t.state)
	if err != nil {
		return nil, err
	}
	if ref == nil {
		return nil, session.ErrCorrupt.WithMessage("session %s: its caller has no reference to it", t.key.ID)
	}
	at, err := readProgress(ref)
	r := &relay{
		t: t, peer: peerOf(t.key.ID, &at), key: key, position: at, savedPosition: at, forwarded: map[string]bool{},
		caller: ref.CallID, waits: map[string]*session.Pending{}, candidates: map[string]string{}, remoteTools: map[string]bool{},
		unknown: map[string]bool{},
	}
	r.position.Moved = false // the relay reads the remote's status next
	return r, err
}

func (r *relay) run(ctx, away context.Context) (machine.Result, error) {
	if err := away.Err(); err != nil {
		return machine.Result{}, context.Cause(away)
	}
	if r.position.RunID == "" {
		if err := r.start(ctx, away); err != nil {
			return machine.Result{}, err
		}
	}
	for pause := relayPause; ; pause = min(2*pause, relayLongPause) {
		status, err := r.follow(ctx, away)
		if err != nil {
			return machine.Result{}, err
		}
		if status.Status.Suspended() && r.unresumable == status.RunID {
			// The session was ended from outside, but its run's record was not:
			// nobody will resume it.
			status.Status = session.RunFailed
		}
		if !status.Status.Suspended() {
			return r.conclude(ctx, away, status)
		}
		res, err := r.settleWaits(ctx, away, status)
		if err != nil || res.Next != machine.NextNone {
			return res, err
		}
		if len(status.Pending) > 0 && !r.letTimeOut {
			pause = relayPause
		}
		if err := retry.Sleep(away, pause); err != nil { // it waits for something that this session cannot give
			return machine.Result{}, err
		}
	}
}

// start asks the remote to begin.
func (r *relay) start(ctx, away context.Context) error {
	if !r.position.Started {
		r.position.Started = true
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	caller, err := retry.Do(ctx, func() (*session.State, error) { return r.t.sessions.Load(ctx, r.t.state.ParentID) })
	if err != nil {
		return err
	}
	message := r.t.transcript.Messages()[0]
	request := r.t.key.ID // an earlier version may have begun the call under this id
	if r.position.Peer != "" {
		request = r.peer
	}
	run, err := reach(away, r, r.patience()/8, func(ctx context.Context) (*helix.RemoteRun, error) {
		return r.t.remote.Start(ctx, helix.RemoteStart{
			SessionID: r.peer, RequestID: request,
			Message: session.Message{Role: message.Role, Parts: message.Parts},
			Metadata: map[string]string{
				helix.MetaCallerSession: headOf(&r.t.state), helix.MetaCallerAgent: caller.Agent,
			},
		})
	})
	if err != nil {
		return err
	}
	r.position.RunID = run.RunID
	return r.save(ctx)
}

func (r *relay) status(away context.Context) (*helix.RemoteStatus, error) {
	return reach(away, r, r.patience(), func(ctx context.Context) (*helix.RemoteStatus, error) {
		return r.t.remote.Status(ctx, r.peer)
	})
}

// follow copies the remote's chunks until its run ends or waits. It reads again when
// a reading was cut off.
func (r *relay) follow(ctx, away context.Context) (*helix.RemoteStatus, error) {
	var (
		ended bool         // the stream ended
		stood string       // the run and its status when last read
		since = time.Now() // when something was last received
		pause = relayPause
	)
	for {
		status, err := r.status(away)
		if err != nil {
			return nil, err
		}
		if status.Status.Ended() && r.position.Sequence >= status.Sequence && (ended || status.Status.Suspended()) {
			return status, r.save(ctx)
		}
		before := r.position.Sequence
		r.received = false
		if ended, err = r.read(ctx, away); err != nil {
			return nil, err
		}
		stands := status.RunID + " " + string(status.Status)
		if r.received || stands != stood {
			since = time.Now()
		}
		if r.position.Sequence > before || stands != stood {
			pause = relayPause
		}
		stood = stands
		switch {
		case time.Since(since) < r.patience():
		case status.Status.Ended(): // the outcome is known, although some chunks are not
			return status, r.save(ctx)
		default:
			return nil, r.outOfReach(since, session.ErrUnavailable.WithMessage("the remote's stream has stopped"))
		}
		if r.position.Sequence == before { // the reading was cut off, or shows the end of an earlier run
			if err := retry.Sleep(away, pause); err != nil {
				return nil, err
			}
			pause = min(2*pause, relayLongPause)
		}
	}
}

// save writes the position to the reference.
func (r *relay) save(ctx context.Context) error {
	if r.position == r.savedPosition {
		return nil
	}
	t := r.t
	_, err := retry.Do(ctx, func() (*session.ChildRef, error) {
		return t.sessions.UpdateChild(ctx, t.state.ParentID, t.key.ID, func(ref *session.ChildRef) error {
			has, err := readProgress(ref)
			if err != nil {
				return err
			}
			if has.Epoch > r.position.Epoch || (has.Epoch == r.position.Epoch && has.Sequence > r.position.Sequence) {
				has.Started, has.RunID = true, r.position.RunID // the process that recovered the turn is further
			} else {
				r.position.Stop = has.Stop
				has = r.position
			}
			ref.Remote = encoded(has)
			return nil
		})
	})
	if err != nil {
		return err
	}
	further := r.position.Sequence > r.savedPosition.Sequence
	r.savedPosition, r.savedAt = r.position, time.Now()
	if !further || r.counted || t.run.Attempts == 0 {
		return nil
	}
	// The process that recovers the turn next sees that this one made progress.
	r.counted = true
	key := r.key + "/progress/" + strconv.FormatInt(r.position.Sequence, 10)
	_, err = t.commit(ctx, t.newCommit(key, session.Change{Writes: t.hooks.written, Run: t.runChange("")}))
	return err
}
