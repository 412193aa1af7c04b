package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/internal/shares"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// The names of limits in responses and metrics. They are the names of the settings.
const (
	limitRate    = "rateLimit"
	limitRuns    = "runsPerUser"
	limitStreams = "streamsPerUser"
	limitBody    = "body"
)

// starts tracks how many runs each identity has: the store's last count, and the runs that
// this server started since.
type starts struct {
	mu sync.Mutex
	by map[Identity]*runCount
}

type runCount struct {
	under int // starts in progress, whose runs the store may not show yet
	// seen is the store's last count; since is the number of starts on this server after it.
	seen, since int
	at          time.Time
}

// countFor is how long the store's count is used for an identity that is far below its
// limit. Other servers may have started a few runs in the meantime.
const countFor = time.Second

// begin records a start. It reports whether the identity is certainly far below the limit,
// so that the store need not be queried.
func (s *starts) begin(who Identity, limit int) (under int, far bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.by[who]
	if c == nil {
		if len(s.by) >= maxBuckets {
			maps.DeleteFunc(s.by, func(_ Identity, c *runCount) bool { return c.under == 0 })
		}
		c = &runCount{}
		s.by[who] = c
	}
	c.under++
	c.since++
	return c.under, time.Since(c.at) < countFor && c.seen+c.since <= limit/4
}

// saw records the store's count.
func (s *starts) saw(who Identity, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.by[who]; c != nil {
		c.seen, c.since, c.at = running, c.under, time.Now()
	}
}

func (s *starts) end(who Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.by[who]
	if c == nil {
		return
	}
	if c.under--; c.under == 0 && time.Since(c.at) >= countFor {
		delete(s.by, who)
	}
}

// mayRun refuses a start if the identity has too many concurrent runs over all servers of
// the store. Without authentication all runs count together; an operator without a user has
// no limit. A repeated request is not refused, because it starts nothing. The caller calls
// done when the run is open or refused.
func (x *exchange) mayRun(ctx context.Context, sessionID, requestID string) (done func(), err error) {
	limit := x.server.cfg.Limits.RunsPerUser
	if limit < 0 || (x.who.User == "" && x.server.cfg.Authenticate != nil) {
		return func() {}, nil
	}
	under, far := x.server.starts.begin(x.who, limit)
	done = sync.OnceFunc(func() { x.server.starts.end(x.who) })
	if far {
		return done, nil
	}
	running, err := x.running(ctx, limit)
	if err != nil {
		done()
		return nil, err
	}
	x.server.starts.saw(x.who, running)
	if running+under <= limit || x.known(ctx, sessionID, requestID) {
		return done, nil
	}
	done()
	return nil, refuse(http.StatusTooManyRequests, wire.CodeRateLimited, "too many runs at once; wait until one has ended").
		limit(limitRuns).retry(time.Second)
}

// running counts the identity's runs, up to just above the limit.
func (x *exchange) running(ctx context.Context, limit int) (n int, err error) {
	query := session.Query{UserID: x.who.User, Activity: session.ActivityRunning, RootsOnly: true}
	query.Limit = min(limit+1, session.MaxPageSize)
	for {
		page, err := x.sessions.List(ctx, query)
		if err != nil {
			return 0, err
		}
		n += len(page.Items)
		if !page.HasMore || n > limit {
			return n, nil
		}
		query.Cursor = page.Next
	}
}

// known reports whether a request has started a run before.
func (x *exchange) known(ctx context.Context, sessionID, requestID string) bool {
	if sessionID == "" || requestID == "" || session.CheckID(sessionID) != nil || session.CheckKeyID("request id", requestID) != nil {
		return false
	}
	_, err := x.sessions.RunByRequest(ctx, sessionID, requestID)
	return err == nil
}

const (
	// wholeTranscripts is how many whole transcripts are read at the same time, and how many
	// are compacted: each may be as large as a session.
	wholeTranscripts = 8
	// largeBlobs is how many blobs are held at the same time for clients that read them:
	// each may have [blob.MaxBytes].
	largeBlobs = 8
	// largeEach is how many of either an identity has at a time.
	largeEach = 2
)

// whole takes the permit to read a whole transcript.
func (x *exchange) whole(ctx context.Context) (done func(), err error) {
	return x.hold(ctx, x.server.transcripts)
}

// transcript reads all messages of a session. It waits while many others are read.
func (x *exchange) transcript(ctx context.Context, id string) ([]session.Message, error) {
	done, err := x.whole(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return x.sessions.AllMessages(ctx, id)
}

// sessionCopies is how many sessions are copied at the same time. A copy may be as large as
// a session and delays other writes.
const sessionCopies = 2

// hold takes a permit for what the request needs much memory for. It waits for at most as
// long as a large request waits for its memory.
func (x *exchange) hold(ctx context.Context, of *shares.Shares[Identity]) (done func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, x.server.cfg.Limits.ReadTimeout)
	defer cancel()
	if x.who.User == "" { // which may be everybody
		done, err = of.TakeAny(waiting)
	} else {
		done, err = of.Take(waiting, x.who)
	}
	if err != nil && ctx.Err() == nil {
		return nil, refuse(http.StatusServiceUnavailable, session.CodeUnavailable, "the server is busy with other large requests; try again").
			retry(time.Second)
	}
	return done, err
}

// limitOf returns the name of the setting whose limit a runtime error is about, or "". A
// limit of a request's own field is not a setting.
func limitOf(err *session.Error) string {
	if errors.Is(err, session.ErrTooLarge) && err.Field == engine.LimitSession {
		return engine.LimitSession
	}
	return ""
}
