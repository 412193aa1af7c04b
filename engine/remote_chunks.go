package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Chunks of a remote are written in batches, and the position is saved now and then.
const (
	relayBatch = 256
	relaySave  = time.Second
)

// readItem is an item of the remote's stream, or the error that ended the reading.
type readItem struct {
	stream.Item
	err error
}

// read copies the remote's chunks to our stream, from the position on, until the
// reading ends for whatever reason. It reports whether the stream ended.
//
// The chunks have a producer of their own, whose numbers are the remote's sequences.
// A chunk that is read again, after a crash or a cut, is not written again.
func (r *relay) read(ctx, away context.Context) (ended bool, err error) {
	reading, cancel := context.WithCancel(away)
	items := make(chan readItem)
	defer func() {
		cancel()
		for range items { // until the reader has returned
		}
	}()
	go r.receive(reading, r.position.Sequence, items)
	timer := time.NewTimer(r.t.h.cfg.FlushEvery)
	defer timer.Stop()
	mute := time.NewTimer(r.patience()) // a remote that answers sends an item at once, if only to say that there are no more
	defer mute.Stop()
	for {
		select {
		case item, ok := <-items:
			if ok && item.err == nil {
				r.received = true
				mute.Stop()
			}
			if !ok || item.err != nil || item.Terminal() {
				return r.stopReading(ctx, away, item)
			}
			err = r.consume(ctx, away, item.Item)
		case <-timer.C:
			err = r.flush(ctx)
			timer.Reset(r.t.h.cfg.FlushEvery)
		case <-mute.C:
			return r.stopReading(ctx, away, readItem{})
		}
		if err != nil {
			return false, err
		}
	}
}

// receive reads the remote's stream until it ends.
func (r *relay) receive(away context.Context, from int64, items chan<- readItem) {
	defer close(items)
	err := usercode.Guard(func() error {
		for item, err := range r.t.remote.Read(away, r.peer, from) {
			select {
			case items <- readItem{item, err}:
			case <-away.Done():
				return nil
			}
			if err != nil || item.Terminal() {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		r.t.h.log.ErrorContext(away, "remote.not_read", r.t.attrs("error", err)...)
	}
}

// stopReading writes what is left of a reading, and reports whether the stream ended.
func (r *relay) stopReading(ctx, away context.Context, last readItem) (ended bool, err error) {
	if err := r.flush(ctx); err != nil {
		return false, err
	}
	if last.Frame == stream.FrameTruncated && last.Floor > r.position.Sequence {
		r.position.Sequence = last.Floor // it continues after the gap
	}
	if err := r.save(ctx); err != nil {
		return false, err
	}
	if away.Err() != nil {
		return false, context.Cause(away)
	}
	return last.Frame == stream.FrameEnd || last.Frame == stream.FrameFail, nil
}

// consume adds one item to the batch.
func (r *relay) consume(ctx, away context.Context, item stream.Item) error {
	if item.Chunk == nil {
		return r.flush(ctx)
	}
	next := r.position.Sequence + int64(len(r.batch)) + 1
	if item.Sequence < next {
		return nil
	}
	if item.Sequence > next { // the remote skipped some
		if err := r.flush(ctx); err != nil {
			return err
		}
		r.position.Sequence = item.Sequence - 1
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	c := item.Chunk
	if r.mayWait(c) {
		if err := r.checkTools(); err != nil {
			return err
		}
		if err := r.flush(ctx); err != nil {
			return err
		}
		if err := r.prepareEntries(ctx, away, c.Kind != stream.ToolStart); err != nil {
			return err
		}
	}
	local := r.localize(*c)
	if err := r.asStored(ctx, &local); err != nil {
		return err
	}
	streamwriter.Fit(&local, r.t.streams.Limits().MaxChunk)
	r.batch = append(r.batch, local)
	size := streamwriter.Weight(&local)
	r.bytes += size
	r.t.out.Config().Bytes.Add(int64(size))
	if len(r.batch) >= relayBatch || r.bytes >= streamwriter.FlushBytes {
		return r.flush(ctx)
	}
	return nil
}

// mayWait reports whether a chunk may show a call that waits for a person and that
// has no entry here. The results show which tools run on the remote, so that its
// status is read only for the first call of each.
func (r *relay) mayWait(c *stream.Chunk) bool {
	tool := c.AgentType + "/" + c.Tool
	switch c.Kind {
	case stream.ApprovalRequest:
		return r.waits[c.CallID] == nil && !r.isUnknown(c.CallID)
	case stream.Custom:
		question := c.AsQuestion()
		return question != nil && r.waits[question.ID] == nil && !r.isUnknown(question.ID)
	case stream.ToolStart:
		if r.waits[c.CallID] != nil || r.remoteTools[tool] {
			return false
		}
		if _, again := r.candidates[c.CallID]; again && time.Since(r.askedAt) < unknownPause {
			return false
		}
		r.candidates[c.CallID] = tool
		return true
	case stream.ToolEnd:
		if tool, ok := r.candidates[c.CallID]; ok && r.waits[c.CallID] == nil {
			r.remoteTools[tool] = true
		}
		delete(r.candidates, c.CallID)
		delete(r.waits, c.CallID)
	}
	return false
}

// checkTools refuses a remote that has more calls at work, or more tools, than are kept
// in memory.
func (r *relay) checkTools() error {
	if max(len(r.candidates), len(r.remoteTools)) > maxRelayedCalls {
		return &remoteError{toolError(session.CodeSubAgent, "it has more than %d calls at work, or tools", maxRelayedCalls)}
	}
	return nil
}

// localize makes a remote's chunk one of our stream. A chunk may name the remote or
// an agent below it as its origin, and no other.
func (r *relay) localize(c stream.Chunk) stream.Chunk {
	below := r.peer[:min(len(r.peer), derivedPrefix)]
	above := c.AgentID == r.t.state.ParentID || c.AgentID == headOf(&r.t.state) || c.AgentID == r.t.streamID // may begin alike, if they are long
	if c.AgentID == r.peer || above || !strings.HasPrefix(c.AgentID, below) {
		c.AgentID, c.AgentType = r.t.key.ID, r.t.agent.Name
	}
	if c.At.IsZero() {
		c.At = time.Now().UTC()
	}
	if c.Evicted() != nil { // the whole result is on the remote's server, and blobs here are none of its business
		c.Data = nil
	}
	if c.Check() != nil { // no program has such a kind
		c.Kind, c.Name = stream.Custom, remoteEvent+"unknown"
	}
	return c
}

// derivedPrefix is how many bytes of a session's id the ids of its children share,
// however long the id is.
const derivedPrefix = 170

// flush writes the batch, and saves the position now and then.
func (r *relay) flush(ctx context.Context) error {
	if len(r.batch) > 0 {
		if err := r.writeBatch(ctx); err != nil {
			return err
		}
		clear(r.batch)
		r.batch, r.bytes = r.batch[:0], 0
	}
	if time.Since(r.savedAt) >= relaySave {
		return r.save(ctx)
	}
	return nil
}

// writeBatch writes the batch. It skips chunks that the stream refuses, because the
// call must not fail for what it shows.
func (r *relay) writeBatch(ctx context.Context) error {
	err := r.write(ctx, r.batch)
	if !streamwriter.Refused(err) {
		return err
	}
	for i := range r.batch {
		err := r.write(ctx, r.batch[i:i+1])
		if streamwriter.Refused(err) {
			r.t.h.log.ErrorContext(ctx, "stream.chunk_refused", r.t.attrs("remote", r.peer, "error", err)...)
			r.position.Sequence++
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes chunks. If chunks are missing before them, they begin a new epoch,
// which is saved first. Only our stream knows whether some are missing: the saved
// position may be behind it.
func (r *relay) write(ctx context.Context, chunks []stream.Chunk) error {
	err := r.append(ctx, chunks)
	if errors.Is(err, session.ErrInvalid) {
		r.position.Epoch++
		if err = r.save(ctx); err == nil {
			err = r.append(ctx, chunks)
		}
	}
	if err == nil {
		r.position.Sequence += int64(len(chunks))
	}
	return err
}

func (r *relay) append(ctx context.Context, chunks []stream.Chunk) error {
	_, err := retry.Do(ctx, func() (int64, error) {
		appended, err := r.t.streams.Append(ctx, r.t.streamID, stream.Batch{
			Producer: stream.Producer{Session: r.t.key.ID + "/remote", Epoch: r.position.Epoch, RunID: r.t.run.ID},
			First:    r.position.Sequence + 1, Chunks: chunks,
		})
		if err != nil {
			return 0, err
		}
		return appended.Wait(ctx)
	})
	return err
}
