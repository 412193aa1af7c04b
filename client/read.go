package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Read yields a session's stream after sequence from, as it is written, until a terminal
// item. It reconnects when a connection drops and continues after the last item, so that no
// item is lost or repeated. After too many failed attempts, or on a permanent error, it
// ends with the error. You may break out of the loop.
func (c *Client) Read(ctx context.Context, sessionID string, from int64) iter.Seq2[stream.Item, error] {
	return c.read(ctx, sessionID, "", from)
}

// ReadRun is Read for one run: it starts no earlier than the run and ends with it.
func (c *Client) ReadRun(ctx context.Context, sessionID, runID string, from int64) iter.Seq2[stream.Item, error] {
	return c.read(ctx, sessionID, runID, from)
}

func (c *Client) read(ctx context.Context, sessionID, runID string, from int64) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		if from < 0 {
			yield(stream.Item{}, session.Invalid("from", "must not be negative"))
			return
		}
		r := reading{client: c, sessionID: sessionID, runID: runID, last: from, exact: runID == "", yield: yield}
		if err := r.run(ctx); err != nil {
			yield(stream.Item{}, err)
		}
	}
}

// maxBackoff limits the wait between attempts, unless the server requests a longer one.
const maxBackoff = 5 * time.Second

// reading is a stream being read, over any number of connections.
type reading struct {
	client    *Client
	sessionID string
	runID     string
	// last is the sequence of the last item. exact is set if the next one must be one more,
	// which is unknown for the first of a run.
	last     int64
	exact    bool
	caughtUp bool
	yield    func(stream.Item, error) bool
	// arrived is set when a new item has arrived, heard when anything has, such as a
	// comment.
	arrived, heard bool
}

// errOver ends a reading: the terminal item was yielded, or the caller left the loop.
var errOver = errors.New("over")

// dropError is the end of a connection that may be replaced by another.
type dropError struct {
	err   error
	after time.Duration
}

// Error implements error.
func (e *dropError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *dropError) Unwrap() error { return e.err }

var errSilent = errors.New("the server was silent for too long")

func drop(err error) error { return &dropError{err: err} }

func (r *reading) run(ctx context.Context) error {
	c := r.client
	for attempt := 0; ; attempt++ {
		began := time.Now()
		r.arrived, r.heard = false, false
		err := r.once(ctx)
		dropped, ok := errors.AsType[*dropError](err)
		switch {
		case errors.Is(err, errOver):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !ok:
			return err
		case r.arrived || r.heard && time.Since(began) > min(maxBackoff, c.cfg.Silence):
			attempt = 0 // a stream may be idle for any time
		}
		if attempt >= c.cfg.Attempts {
			return session.ErrUnavailable.WithCause(dropped.err, "the stream of session %s was dropped after sequence %d", r.sessionID, r.last)
		}
		wait := max(c.wait(attempt), dropped.after)
		c.log.InfoContext(ctx, "stream.dropped", "session", r.sessionID, "sequence", r.last, "attempt", attempt+1, "wait", wait, "error", dropped.err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// wait returns the time before an attempt. It doubles each time and is random, so that not
// all clients of a restarted server return together.
func (c *Client) wait(attempt int) time.Duration {
	wait := min(c.cfg.Backoff<<min(attempt, 16), max(maxBackoff, c.cfg.Backoff))
	return wait/2 + rand.N(wait/2+1)
}

// sleep waits for d. If ctx ends first, it returns ctx.Err. The client imports the domain
// alone, so it does not share internal/retry.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once reads from one connection.
func (r *reading) once(ctx context.Context) error {
	c := r.client
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Disconnect from a server that is silent for too long.
	silence := time.AfterFunc(c.cfg.Silence, func() { cancel(errSilent) })
	defer silence.Stop()
	err := r.connect(ctx, silence)
	if _, dropped := errors.AsType[*dropError](err); dropped && errors.Is(context.Cause(ctx), errSilent) {
		return drop(errSilent)
	}
	return err
}

func (r *reading) connect(ctx context.Context, silence *time.Timer) error {
	c := r.client
	answer, err := c.send(ctx, http.MethodGet, "/sse", r.query(), nil, r.header())
	if err != nil {
		return drop(errors.New(c.redact(err.Error())))
	}
	defer answer.Body.Close()
	if err := r.accept(answer); err != nil {
		return err
	}
	events := newEvents(io.TeeReader(answer.Body, heard(func() {
		r.heard = true
		silence.Reset(c.cfg.Silence)
	})), c.cfg.MaxBody)
	for {
		e, err := events.next()
		if err != nil {
			return err
		}
		if err := r.take(e); err != nil {
			return err
		}
	}
}

// heard is called for everything that is read.
type heard func()

// Write implements [io.Writer].
func (h heard) Write(p []byte) (int, error) {
	h()
	return len(p), nil
}

func (r *reading) query() url.Values {
	query := url.Values{"sessionId": {r.sessionID}}
	if r.last > 0 {
		query.Set("from", strconv.FormatInt(r.last, 10))
	}
	if r.runID != "" {
		query.Set("run", r.runID)
	}
	return query
}

func (r *reading) header() http.Header {
	header := http.Header{"Accept": {wire.ContentEvents}}
	if r.last > 0 {
		header.Set(wire.HeaderLastEventID, strconv.FormatInt(r.last, 10))
	}
	return header
}

// maxRefusal limits the body of a refusal.
const maxRefusal = 1 << 20

// accept checks that a response is a stream.
func (r *reading) accept(answer *http.Response) error {
	c := r.client
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if answer.StatusCode == http.StatusOK && media == wire.ContentEvents {
		return checkVersion(answer)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	if err != nil {
		return drop(errors.New(c.redact(err.Error())))
	}
	err = c.refused(answer, body)
	if err == nil {
		return session.ErrInternal.WithMessage("the server's response is not a stream")
	}
	if session.IsRetryable(err) {
		after, _ := RetryAfter(err)
		return &dropError{err, after}
	}
	return err
}

// take handles an event.
func (r *reading) take(e event) error {
	item := stream.Item{Frame: stream.FrameKind(e.kind)}
	switch item.Frame {
	case stream.FrameChunk, stream.FrameRewound:
		var data wire.Chunk
		if err := decodeEvent(e, &data); err != nil {
			return err
		}
		if data.Chunk == nil {
			return drop(session.ErrInternal.WithMessage("the server sent a chunk without content"))
		}
		item.Sequence, item.Chunk = data.Sequence, data.Chunk
		return r.next(item)
	case stream.FrameCaughtUp:
		var data wire.CaughtUp
		if err := decodeEvent(e, &data); err != nil {
			return err
		}
		if r.caughtUp { // already yielded on an earlier connection
			return nil
		}
		r.caughtUp, item.Sequence = true, data.Sequence
		return r.tell(item)
	case stream.FrameEnd:
		item.End = &stream.End{}
		if err := decodeEvent(e, item.End); err != nil {
			return err
		}
	case stream.FrameFail:
		var data wire.Fail
		if err := decodeEvent(e, &data); err != nil {
			return err
		}
		item.Error = &session.Error{Code: data.Code, Message: r.client.redact(data.Message), Retryable: data.Retryable}
		if data.Recoverable {
			return drop(item.Error)
		}
	case stream.FrameTruncated:
		var data wire.Truncated
		if err := decodeEvent(e, &data); err != nil {
			return err
		}
		item.Floor = data.Floor
	default:
		return nil // of a later version
	}
	if err := r.tell(item); err != nil {
		return err
	}
	return errOver
}

// next yields an item with a sequence, once and in order.
func (r *reading) next(item stream.Item) error {
	if item.Sequence <= r.last {
		return nil
	}
	if r.exact && item.Sequence != r.last+1 {
		return drop(session.ErrInternal.WithMessage("the server sent sequence %d after %d", item.Sequence, r.last))
	}
	r.last, r.exact, r.arrived = item.Sequence, true, true
	return r.tell(item)
}

func (r *reading) tell(item stream.Item) error {
	if !r.yield(item, nil) {
		return errOver
	}
	return nil
}

// decodeEvent decodes an event's data. An error drops the connection, because corrupted
// data is correct when it is sent again.
func decodeEvent(e event, into any) error {
	if err := json.Unmarshal(e.data, into); err != nil {
		return drop(session.ErrInternal.WithCause(err, "decode a %s of the server", e.kind))
	}
	return nil
}
