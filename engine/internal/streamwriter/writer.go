// Package streamwriter writes the chunks of one turn to its stream in batches.
package streamwriter

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// FlushBytes is how many bytes of chunks are held back at most, so that a stream
// costs few writes.
const FlushBytes = 4 << 10

// hurry is the part of FlushEvery for which the first delta of a model call is held
// back: long enough for what comes with it, and too short to be noticed by whoever
// waits for the reply.
const hurry = 12

// flushTimeout bounds what the writer sends by itself.
const flushTimeout = 30 * time.Second

// Config configures a [Writer]. All fields are required.
type Config struct {
	Streams  stream.Manager
	ID       string // of the stream
	Producer stream.Producer
	// Base holds the fields that all chunks of the turn share.
	Base stream.Chunk
	// Bytes is about how many bytes the stream holds. Turns that write to the same
	// stream in one process share it.
	Bytes *atomic.Int64
	// Last is the stream's last sequence when the turn begins.
	Last int64
	// FlushEvery is how long chunks are held back at most. The first delta of a model
	// call is sent sooner.
	FlushEvery time.Duration
	Log        *slog.Logger
}

// Writer batches one turn's chunks into its stream. Appending is idempotent under
// the producer's numbers, so a batch that may or may not have been written is sent
// again. Its methods may be called by several goroutines.
type Writer struct {
	cfg Config // never changes

	alone aloneContext

	mu       sync.Mutex     // guards what follows
	buffer   []stream.Chunk // emitted, not sent
	spare    []stream.Chunk // an empty buffer to use next
	bytes    int            // the weight of buffer
	first    int64          // the producer's number of buffer[0]
	inflight []sent         // not known to be durable, oldest first
	sent     int            // batches sent so far
	timer    *time.Timer    // runs tick; nil before the first chunk
	ticking  bool           // whether the timer runs
	silent   bool           // whether the model call has begun and has said nothing yet
	last     int64          // the stream's last sequence known to be durable
	err      error          // makes every later flush fail
}

// New returns a writer.
func New(cfg Config) *Writer { return &Writer{cfg: cfg, first: 1, last: cfg.Last} }

// Config returns the writer's configuration.
func (w *Writer) Config() *Config { return &w.cfg }

// Restore sets what is known of a stream that existed before the turn was loaded.
func (w *Writer) Restore(last, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = last
	w.cfg.Bytes.Store(bytes)
}

// sent is a batch that was sent.
type sent struct {
	number int
	batch  stream.Batch
	handle stream.Append
}

// Emit adds chunks, which stay next to each other. It never blocks on the store for
// long and never fails: a failure is returned by the next flush.
func (w *Writer) Emit(chunks ...stream.Chunk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range chunks {
		w.add(chunks[i])
	}
}

func (w *Writer) add(c stream.Chunk) {
	if w.err != nil {
		return
	}
	c.AgentID, c.AgentType, c.RunID = w.cfg.Base.AgentID, w.cfg.Base.AgentType, w.cfg.Base.RunID
	c.At = time.Now().UTC()
	Fit(&c, w.cfg.Streams.Limits().MaxChunk)
	if w.coalesce(&c) {
		w.bytes += len(c.Delta)
		w.cfg.Bytes.Add(int64(len(c.Delta)))
	} else {
		if w.buffer == nil {
			w.buffer, w.spare = w.spare, nil
		}
		w.buffer = append(w.buffer, c)
		size := Weight(&c)
		w.bytes += size
		w.cfg.Bytes.Add(int64(size))
	}
	if w.bytes >= FlushBytes && len(w.inflight) == 0 {
		ctx, done := w.alone.begin()
		w.send(ctx)
		done()
	}
	w.schedule(&c)
}

// schedule starts the timer that sends a chunk which was just added.
func (w *Writer) schedule(c *stream.Chunk) {
	first := w.silent && c.Delta != ""
	w.silent = !first && (w.silent || c.Kind == stream.StepStarted)
	if len(w.buffer) == 0 && len(w.inflight) == 0 {
		return
	}
	if first {
		w.ticking = false // the timer has to fire sooner
		w.flushIn(w.cfg.FlushEvery / hurry)
	} else {
		w.flushIn(w.cfg.FlushEvery)
	}
}

// flushIn starts the timer unless it runs.
func (w *Writer) flushIn(delay time.Duration) {
	switch {
	case w.ticking:
	case w.timer == nil:
		w.timer = time.AfterFunc(delay, w.tick)
	default:
		w.timer.Reset(delay)
	}
	w.ticking = true
}

// coalesce joins a delta to the one before it, so that a token costs its text.
func (w *Writer) coalesce(c *stream.Chunk) bool {
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

// tick flushes what has waited long enough.
func (w *Writer) tick() {
	w.mu.Lock()
	w.ticking = false
	w.mu.Unlock()
	ctx, done := w.alone.begin()
	defer done()
	_ = w.Flush(ctx) // an error stays with the writer and shows at the next flush
}

// send appends what is buffered. The caller holds the lock and has made sure that
// nothing is in flight: if the first of two batches failed, the second would
// overtake it.
func (w *Writer) send(ctx context.Context) {
	if batch := w.drain(); len(batch.Chunks) > 0 {
		w.append(ctx, batch)
	}
}

// drain makes a batch of what is buffered. The caller holds the lock.
func (w *Writer) drain() stream.Batch {
	if len(w.buffer) == 0 || w.err != nil {
		return stream.Batch{}
	}
	batch := stream.Batch{Producer: w.cfg.Producer, First: w.first, Chunks: w.buffer}
	w.first += int64(len(w.buffer))
	w.buffer, w.bytes = nil, 0
	if w.ticking { // what comes next is held back for as long as this was
		w.timer.Stop()
		w.ticking = false
	}
	return batch
}

// append sends a batch. The caller holds the lock.
func (w *Writer) append(ctx context.Context, batch stream.Batch) {
	handle, err := w.cfg.Streams.Append(ctx, w.cfg.ID, batch)
	switch {
	case err != nil && ctx.Err() != nil: // which says nothing about the next flush
		handle = failedAppend{errNotSent}
	case err != nil:
		handle = failedAppend{err}
	}
	w.sent++
	w.inflight = append(w.inflight, sent{w.sent, batch, handle})
}

// Carry passes everything emitted so far to do, which writes it together with the
// commit that it must precede, and reports whether there was anything. If do fails,
// the batch may have been written; the next flush sends it again.
func (w *Writer) Carry(ctx context.Context, do func(stream.Batch) (int64, error)) (some bool, err error) {
	var batch stream.Batch
	ride := &carried{done: make(chan struct{})}
	err = w.idle(ctx, func() {
		if batch = w.drain(); len(batch.Chunks) > 0 {
			w.sent++
			w.inflight = append(w.inflight, sent{w.sent, batch, ride})
		}
	})
	if err != nil {
		return false, err
	}
	if err := ride.write(func() (int64, error) { return do(batch) }); err != nil {
		return len(batch.Chunks) > 0, err
	}
	if len(batch.Chunks) == 0 {
		return false, nil
	}
	return true, w.Wait(ctx)
}

// carried is a batch that is written together with a commit.
type carried struct {
	done chan struct{}
	last int64 // valid when done, as is err
	err  error
}

// errNotCarried is the error of a batch whose commit failed, so that it is sent again.
var errNotCarried = session.ErrUnavailable.WithMessage("the commit that carried the chunks failed")

// write runs do. Unless do succeeds, and also if it panics, the batch may or may not
// have been written.
func (r *carried) write(do func() (int64, error)) (err error) {
	defer close(r.done)
	r.err = errNotCarried
	last, err := do()
	if err == nil {
		r.last, r.err = last, nil
	}
	return err
}

func (r *carried) Wait(ctx context.Context) (int64, error) {
	select {
	case <-r.done:
		return r.last, r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Order sends a batch of another producer after everything emitted so far. It does
// not wait until that batch is durable; the next flush does.
func (w *Writer) Order(ctx context.Context, batch stream.Batch) error {
	if err := w.Flush(ctx); err != nil {
		return err
	}
	return w.idle(ctx, func() {
		own, done := w.alone.begin() // the caller may return before the batch is written
		defer done()
		w.append(own, batch)
	})
}

// idle calls do, under the lock, as soon as nothing is in flight.
func (w *Writer) idle(ctx context.Context, do func()) error {
	for {
		w.mu.Lock()
		if len(w.inflight) == 0 || w.err != nil {
			do()
			err := w.err
			w.mu.Unlock()
			return err
		}
		w.mu.Unlock()
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
}

// errNotSent is the error of a batch whose append was given up, so that it is sent again.
var errNotSent = session.ErrUnavailable.WithMessage("the stream could not be written in time")

// failedAppend is an append that failed at once. Waiting for it decides whether to
// send it again.
type failedAppend struct{ err error }

func (f failedAppend) Wait(context.Context) (int64, error) { return 0, f.err }

// Wait returns once everything sent is durable.
func (w *Writer) Wait(ctx context.Context) error {
	for {
		head, some, err := w.head()
		if !some {
			return err
		}
		last, resent, err := w.land(ctx, head)

		w.mu.Lock()
		// Another waiter may have removed the head meanwhile.
		if len(w.inflight) > 0 && w.inflight[0].number == head.number {
			if err == nil {
				w.inflight = slices.Delete(w.inflight, 0, 1)
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
func (w *Writer) head() (head sent, some bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || len(w.inflight) == 0 {
		return sent{}, false, w.err
	}
	return w.inflight[0], true, nil
}

// land waits for a batch and sends it again while that may help. It reports whether
// it did.
func (w *Writer) land(ctx context.Context, s sent) (last int64, resent bool, err error) {
	first := true
	last, err = retry.Do(ctx, func() (int64, error) {
		if first {
			first = false
			return s.handle.Wait(ctx)
		}
		resent = true
		handle, err := w.cfg.Streams.Append(ctx, w.cfg.ID, s.batch)
		if err != nil {
			return 0, err
		}
		return handle.Wait(ctx)
	})
	if Refused(err) {
		// The session must not fail because the stream refuses what it shows.
		w.cfg.Log.ErrorContext(ctx, "stream.chunks_refused", "stream", w.cfg.ID, "error", err)
		return 0, resent, nil
	}
	return last, resent, err
}

// Flush makes everything emitted so far durable.
func (w *Writer) Flush(ctx context.Context) error {
	if err := w.idle(ctx, func() { w.send(ctx) }); err != nil {
		return err
	}
	return w.Wait(ctx)
}

// Sequence is the stream's last sequence that is known to be durable. There may be
// more: other agents write to the stream, too.
func (w *Writer) Sequence() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Interrupt ends what the writer sends by itself at the moment, because the turn must not wait for it. The next flush sends it
// again.
func (w *Writer) Interrupt() { w.alone.end() }

// aloneContext is the context of what a writer sends by itself. Its zero value is ready.
type aloneContext struct {
	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // it outlives the calls that use it
	cancel context.CancelFunc
}

// begin returns a context, until done is called.
func (a *aloneContext) begin() (ctx context.Context, done context.CancelFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx == nil {
		a.ctx, a.cancel = context.WithCancel(context.Background())
	}
	return context.WithTimeout(a.ctx, flushTimeout)
}

// end ends the contexts that were returned so far.
func (a *aloneContext) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx != nil {
		a.cancel()
		a.ctx = nil
	}
}

// Discard drops what was not sent, because another process owns the turn.
func (w *Writer) Discard() {
	w.Interrupt() // whoever sends holds the lock
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ticking {
		w.timer.Stop()
		w.ticking = false
	}
	w.buffer, w.inflight = nil, nil
	if w.err == nil {
		w.err = session.ErrStale
	}
}
