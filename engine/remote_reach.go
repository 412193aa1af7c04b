package engine

import (
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// The pauses between attempts to reach a remote, and the limit of one request.
const (
	relayPause     = 25 * time.Millisecond
	relayLongPause = 5 * time.Second
	remoteTimeout  = 30 * time.Second
)

// busyPatience is how many times longer a remote may report that it is busy than it
// may be unreachable.
const busyPatience = 30

// tooManyRequests is the HTTP status with which it does.
const tooManyRequests = 429

// reach calls the remote, again while it is unreachable, for at most limit.
func reach[V any](away context.Context, r *relay, limit time.Duration, call func(context.Context) (V, error)) (V, error) {
	since, began := time.Now(), time.Now()
	for pause := relayPause; ; pause = min(2*pause, relayLongPause) {
		value, err := usercode.CallWithin(away, r.t.pool, r.t.h.requestLimit(r.t.remote), call)
		if err == nil {
			return value, nil
		}
		if away.Err() != nil {
			return value, context.Cause(away)
		}
		if own, ok := errors.AsType[*session.Error](err); ok && !own.Retryable {
			return value, &remoteError{bounded(session.AsError(err))}
		}
		if own, ok := errors.AsType[*session.Error](err); ok && own.StatusCode == tooManyRequests &&
			time.Since(began) < busyPatience*r.patience() {
			since = time.Now() // it is reachable, and busy
		}
		if time.Since(since) >= limit {
			return value, r.outOfReach(since, err)
		}
		if err := retry.Sleep(away, min(pause, limit)); err != nil {
			return value, err
		}
	}
}

func (r *relay) outOfReach(since time.Time, err error) error {
	return &remoteError{bounded(session.ErrRemote.WithCause(err,
		"the remote agent %s has been unreachable for %s", r.t.agent.Name, time.Since(since).Round(time.Millisecond)))}
}

// patience is how long the remote may be unreachable.
func (r *relay) patience() time.Duration { return r.t.h.patience(r.t.remote) }

func (h *Handler) patience(remote helix.Remote) time.Duration {
	if own, ok := remote.(interface{ Patience() time.Duration }); ok && own.Patience() > 0 {
		return own.Patience()
	}
	return h.cfg.RemotePatience
}

// requestLimit is how long one request to a remote may take.
func (h *Handler) requestLimit(remote helix.Remote) time.Duration {
	return min(remoteTimeout, h.patience(remote))
}

// remoteError is an error of the remote, or of the connection to it. It keeps them
// apart from errors of our store, which have the same codes.
type remoteError struct{ err *session.Error }

func (f *remoteError) Error() string { return f.err.Error() }

// remoteErrorCode is the code of a [remoteError], or "".
func remoteErrorCode(err error) session.Code {
	if f, ok := errors.AsType[*remoteError](err); ok {
		return f.err.Code
	}
	return ""
}
