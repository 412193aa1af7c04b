package engine

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/retry"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// relay is the turn of a stand-in: it follows the remote's run, takes its chunks
// into our stream, and its waits and its outcome into our store.
type relay struct {
	t             *turn
	peer          string // the remote's session
	key           string // of its commits
	position      remoteProgress
	savedPosition remoteProgress // what the store has of it

	waits       map[string]bool   // calls there that are known to wait for people
	candidates  map[string]string // calls there that may, with their tools
	remoteTools map[string]bool   // tools that are carried out there

	resumed     string          // the remote's run that was last asked to go on
	forwarded   map[string]bool // answers, by their calls, that it got
	letTimeOut  bool            // it is left to time out a call itself
	unresumable string          // the remote's run that it says cannot be resumed
	counted     bool            // that the turn makes progress is in the store

	savedAt  time.Time
	received bool           // something came of the reading
	batch    []stream.Chunk // taken in, not written yet
	bytes    int            // about what they weigh
}

// callRemote follows the remote until its run has come to an end or waits for
// people.
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
	// Only what is asked of the remote is cut off by a stop; our own writes are not.
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
		return machine.Result{}, context.Cause(ctx) // the process shuts down: whoever takes over goes on
	case errors.As(err, &f):
		t.h.log.ErrorContext(ctx, "subagent.dispatch_failed", t.attrs("agent", t.agent.Name, "error", f.err)...)
		return r.endFailed(ctx, f.err)
	}
	return machine.Result{}, err
}

// relay is the turn's way to its remote.
func (t *turn) relay(ctx context.Context, key string) (*relay, error) {
	ref, err := remoteRef(ctx, t.sessions, &t.state)
	if err != nil {
		return nil, err
	}
	if ref == nil {
		return nil, session.ErrCorrupt.WithMessage("session %s: its caller knows nothing of it", t.key.ID)
	}
	at, err := readProgress(ref)
	r := &relay{
		t: t, peer: peerOf(t.key.ID, &at), key: key, position: at, savedPosition: at, forwarded: map[string]bool{},
		waits: map[string]bool{}, candidates: map[string]string{}, remoteTools: map[string]bool{},
	}
	r.position.Moved = false // it is about to be seen
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
			// The session was ended from outside, and its run's record was not: nobody
			// will ever resume it.
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
		if err := retry.Sleep(away, pause); err != nil { // it waits for something that is not ours to give
			return machine.Result{}, err
		}
	}
}

// start tells the remote to begin.
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
	request := r.t.key.ID // of a call that an earlier version may have begun
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

// follow takes in the remote's chunks until its run has come to rest: it has
// ended, or waits. A reading that was cut off is taken up again.
func (r *relay) follow(ctx, away context.Context) (*helix.RemoteStatus, error) {
	var (
		ended bool         // the stream had
		stood string       // how the run did
		since = time.Now() // when something was last heard
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
		case status.Status.Ended(): // what it has to say is known, though not what it showed
			return status, r.save(ctx)
		default:
			return nil, r.outOfReach(since, session.ErrUnavailable.WithMessage("its stream does not go on"))
		}
		if r.position.Sequence == before { // it was cut off, or shows the end of an earlier run
			if err := retry.Sleep(away, pause); err != nil {
				return nil, err
			}
			pause = min(2*pause, relayLongPause)
		}
	}
}

// save notes how far the remote was followed.
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
				has.Started, has.RunID = true, r.position.RunID // whoever took the turn over is further
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
	// Who takes the turn over next sees that this one was not in vain.
	r.counted = true
	_, err = t.commit(ctx, r.key+"/progress/"+strconv.FormatInt(r.position.Sequence, 10), session.Change{Writes: t.hooks.written, Run: t.runChange("")})
	return err
}
