package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Deltas are held back for a moment or flushBytes, so that a stream costs few
// writes; everything is flushed before a commit.
const (
	flushBytes   = 4 << 10
	storeTries   = 7
	storePause   = 5 * time.Millisecond
	flushTimeout = 30 * time.Second
)

// writer batches one turn's chunks into its stream. Appending is idempotent under
// the producer's numbers, so a batch whose fate is unknown is simply sent again.
type writer struct {
	streams  stream.Manager
	id       string
	producer stream.Producer
	now      func() time.Time
	log      *slog.Logger
	every    time.Duration
	base     stream.Chunk // the fields every chunk of the turn shares
	// size is about how many bytes the stream holds. Turns that this process drives for
	// one another share it, as they share the stream.
	size *atomic.Int64

	mu       sync.Mutex
	buffer   []stream.Chunk
	spare    []stream.Chunk // empty: a buffer that has landed, to be used again
	bytes    int
	first    int64 // the producer's number of buffer[0]
	inflight []sent
	sent     int // batches sent so far
	timer    *time.Timer
	last     int64 // the stream's last sequence known to be durable
	err      error // what makes every later flush fail
}

type sent struct {
	number int
	batch  stream.Batch
	handle stream.Append
}

// emit adds a chunk. It never blocks on the store for long and never fails: a
// failure shows at the next flush.
func (w *writer) emit(c stream.Chunk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(c)
}

// emitBoth adds two chunks, the second of which comes straight after the first.
func (w *writer) emitBoth(first, second stream.Chunk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(first)
	w.add(second)
}

func (w *writer) add(c stream.Chunk) {
	if w.err != nil {
		return
	}
	c.AgentID, c.AgentType, c.RunID = w.base.AgentID, w.base.AgentType, w.base.RunID
	c.At = w.now().UTC()
	fit(&c, w.streams.Limits().MaxChunk)
	if w.coalesce(&c) {
		w.bytes += len(c.Delta)
		w.size.Add(int64(len(c.Delta)))
	} else {
		if w.buffer == nil {
			w.buffer, w.spare = w.spare, nil
		}
		w.buffer = append(w.buffer, c)
		size := weight(&c)
		w.bytes += size
		w.size.Add(int64(size))
	}
	if w.bytes >= flushBytes && len(w.inflight) == 0 {
		w.send(context.Background())
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(w.every, w.tick)
	}
}

// coalesce joins a delta to the one before it, so that a token costs its text.
func (w *writer) coalesce(c *stream.Chunk) bool {
	if c.Delta == "" || len(w.buffer) == 0 {
		return false
	}
	prev := &w.buffer[len(w.buffer)-1]
	if prev.Kind != c.Kind || prev.Step != c.Step || prev.CallID != c.CallID || prev.Delta == "" {
		return false
	}
	prev.Delta += c.Delta
	return true
}

// weight is about how many bytes a chunk carries.
func weight(c *stream.Chunk) int {
	n := 256 + len(c.Delta) + len(c.Arguments) + len(c.Result) + len(c.Data) + len(c.Reason) + len(c.Name) + len(c.Tool)
	if c.Error != nil {
		n += len(c.Error.Error())
	}
	for i := range c.Patches {
		n += len(c.Patches[i].Value) + len(c.Patches[i].Path) + 32
	}
	for i := range c.Messages {
		n += c.Messages[i].Size()
	}
	return n
}

// fit leaves content out of a chunk that no stream would take, rather than lose
// the chunk: the transcript has it.
func fit(c *stream.Chunk, limit int) {
	if c.Delta != "" || 6*weight(c) <= limit { // the stream splits text; escaping makes six bytes of one
		return
	}
	if raw, err := c.Encode(); err == nil && len(raw) <= limit {
		return
	}
	c.Omitted = true
	c.Arguments, c.Result, c.Data, c.Messages, c.Patches = nil, nil, nil, nil, nil
	c.Reason, c.Name, c.Tool = cut(c.Reason), cut(c.Name), cut(c.Tool)
	if c.Error != nil {
		short := *c.Error
		short.Message, short.Cause = cut(short.Error()), nil
		c.Error = &short
	}
}

// cut is the beginning of a text, in whole runes.
func cut(s string) string {
	const limit = 4 << 10
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// tick flushes what has waited long enough.
func (w *writer) tick() {
	w.mu.Lock()
	w.timer = nil
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	_ = w.flush(ctx) // an error stays with the writer and shows at the next flush
}

// send appends what is buffered. The caller holds the lock and has made sure that
// nothing is in flight: were two batches, and the first of them failed, the second
// would overtake it.
func (w *writer) send(ctx context.Context) {
	if batch := w.take(); len(batch.Chunks) > 0 {
		w.append(ctx, batch)
	}
}

// take makes a batch of what is buffered. The caller holds the lock.
func (w *writer) take() stream.Batch {
	if len(w.buffer) == 0 || w.err != nil {
		return stream.Batch{}
	}
	batch := stream.Batch{Producer: w.producer, First: w.first, Chunks: w.buffer}
	w.first += int64(len(w.buffer))
	w.buffer, w.bytes = nil, 0
	return batch
}

// append orders a batch. The caller holds the lock.
func (w *writer) append(ctx context.Context, batch stream.Batch) {
	handle, err := w.streams.Append(ctx, w.id, batch)
	if err != nil {
		handle = failedAppend{err}
	}
	w.sent++
	w.inflight = append(w.inflight, sent{w.sent, batch, handle})
}

// carry hands everything emitted so far to do, which writes it along with what it
// must precede, and reports whether there was anything. If do fails, it is sent by
// itself at the next flush: whether it was written, nobody knows.
func (w *writer) carry(ctx context.Context, do func(stream.Batch) (int64, error)) (carried bool, err error) {
	var batch stream.Batch
	ride := &riding{done: make(chan struct{})}
	err = w.idle(ctx, func() {
		if batch = w.take(); len(batch.Chunks) > 0 {
			w.sent++
			w.inflight = append(w.inflight, sent{w.sent, batch, ride})
		}
	})
	if err != nil {
		return false, err
	}
	if err := ride.along(func() (int64, error) { return do(batch) }); err != nil {
		return len(batch.Chunks) > 0, err
	}
	if len(batch.Chunks) == 0 {
		return false, nil
	}
	return true, w.wait(ctx)
}

// riding is a batch that goes along with a commit.
type riding struct {
	done chan struct{}
	last int64 // valid when done, as is err
	err  error
}

// along does what the batch goes along with. Unless that goes well, and also if it
// panics, nobody knows whether the batch was written.
func (r *riding) along(do func() (int64, error)) (err error) {
	defer close(r.done)
	r.err = session.ErrUnavailable.WithMessage("the commit that carried the chunks failed")
	last, err := do()
	if err == nil {
		r.last, r.err = last, nil
	}
	return err
}

func (r *riding) Wait(ctx context.Context) (int64, error) {
	select {
	case <-r.done:
		return r.last, r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// order sends a batch of another producer behind everything emitted so far.
func (w *writer) order(ctx context.Context, batch stream.Batch) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	// It is not waited for here: whoever asked for it may be gone before it is written.
	return w.idle(ctx, func() { w.append(context.WithoutCancel(ctx), batch) })
}

// idle calls do, under the lock, as soon as nothing is in flight.
func (w *writer) idle(ctx context.Context, do func()) error {
	for {
		w.mu.Lock()
		if len(w.inflight) == 0 || w.err != nil {
			do()
			err := w.err
			w.mu.Unlock()
			return err
		}
		w.mu.Unlock()
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// failedAppend is a batch that was refused at once; waiting for it decides
// whether to send it again.
type failedAppend struct{ err error }

func (f failedAppend) Wait(context.Context) (int64, error) { return 0, f.err }

// wait returns once everything sent is durable.
func (w *writer) wait(ctx context.Context) error {
	for {
		head, err := w.head()
		if head == nil {
			return err
		}
		last, resent, err := w.land(ctx, *head)

		w.mu.Lock()
		// Another waiter may have taken the head off meanwhile.
		if len(w.inflight) > 0 && w.inflight[0].number == head.number {
			if err == nil {
				w.inflight = w.inflight[1:]
				w.last = max(w.last, last)
				if !resent { // else another waiter may be sending it, too
					clear(head.batch.Chunks)
					w.spare = head.batch.Chunks[:0]
				}
			} else if ctx.Err() == nil && !session.IsRetryable(err) {
				w.err = err // else the batch stays, to be sent again at the next flush
			}
		}
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// head is the oldest batch that is not known to be durable, if there is one and
// the writer has not failed.
func (w *writer) head() (*sent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || len(w.inflight) == 0 {
		return nil, w.err
	}
	head := w.inflight[0]
	return &head, nil
}

// land waits for a batch and sends it again while that may help; resent tells
// whether it was.
func (w *writer) land(ctx context.Context, s sent) (last int64, resent bool, err error) {
	first := true
	last, err = retry(ctx, func() (int64, error) {
		if first {
			first = false
			return s.handle.Wait(ctx)
		}
		resent = true
		handle, err := w.streams.Append(ctx, w.id, s.batch)
		if err != nil {
			return 0, err
		}
		return handle.Wait(ctx)
	})
	if refused(err) {
		// No stream will ever take it. The session matters more than its being shown.
		w.log.ErrorContext(ctx, "chunks refused by the stream", "stream", w.id, "error", err)
		return 0, resent, nil
	}
	return last, resent, err
}

// refused reports whether a stream will never take what it was given.
func refused(err error) bool {
	return errors.Is(err, session.ErrTooLarge) || errors.Is(err, session.ErrInvalid)
}

// flush makes everything emitted so far durable.
func (w *writer) flush(ctx context.Context) error {
	if err := w.idle(ctx, func() { w.send(ctx) }); err != nil {
		return err
	}
	return w.wait(ctx)
}

// sequence is the last of the stream that is known to be durable. More may be:
// other agents write to it, too.
func (w *writer) sequence() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// discard forgets what was not sent: the turn belongs to somebody else.
func (w *writer) discard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	w.buffer, w.inflight = nil, nil
	if w.err == nil {
		w.err = session.ErrStale
	}
}

// retry calls a store that may be unavailable for a moment, a few times. What is
// called knows whether it was done before, so that doing it again is safe.
func retry[V any](ctx context.Context, call func() (V, error)) (V, error) {
	value, err := call()
	for try := 1; err != nil && session.IsRetryable(err) && try < storeTries; try++ {
		if err := sleep(ctx, storePause<<try); err != nil {
			var none V
			return none, err
		}
		value, err = call()
	}
	return value, err
}

// sleep waits, or returns early with why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lost reports whether an error means that the turn is somebody else's now, or
// gone.
func lost(err error) bool {
	return errors.Is(err, session.ErrStale) || errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrStreamClosed)
}
